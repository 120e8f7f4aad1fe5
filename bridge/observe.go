package bridge

import (
	"encoding/json"
	"errors"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/upstream"
	"voxgate/media/playout"
)

// Observation is something that happens in a conversation, for metrics and traces. Callers get [Event] values instead.
// [SessionStarted] comes first. [SessionEnded] comes last, and alone has the transcript.
type Observation any

type (
	// SessionStarted reports a new conversation.
	SessionStarted struct{ Info }

	// TurnEnd reports an answer of the model that was played, or interrupted.
	TurnEnd struct {
		Number        int
		StartedAt     time.Time // the end of the question, or the start of the answer if there was no question
		InterruptedBy Cause     // cause of the interruption; empty means not interrupted
		Latency       Latency   // latency of the answer; zero means not measured
	}

	// EmptyTurn reports a turn that ended without the expected answer. Reason is the server's turnCompleteReason, or
	// "". For a written answer it is TEXT_ONLY.
	EmptyTurn struct{ Reason string }

	// BargeIn reports an answer that the person's voice interrupted. Latency is the time from the voice to the last
	// frame passed to the caller's output.
	BargeIn struct{ Latency time.Duration }

	// TurnTaking reports a decision about a turn. None is reported if the model decides about turns.
	TurnTaking struct{ Change TurnChange }

	// CallEnd reports the end of a tool call, and the turn in which it ended.
	CallEnd struct {
		toolcalls.CallEnd
		Turn int
	}

	// DialOutcome reports an attempt to connect to the model; ConnectionEnd reports the end of a connection to it.
	DialOutcome   = upstream.DialOutcome
	ConnectionEnd = upstream.ConnectionEnd

	// StepStarted reports a step of the agent, except the first.
	StepStarted struct{ Name string }

	// SpendingReport reports the tokens used since the previous report. It comes at the end of each turn and of the
	// conversation, if tokens were used.
	SpendingReport struct {
		Key     string            // see [Origin]
		Tokens  map[[2]string]int // counts by direction ("in", "out" or "unknown") and modality ("AUDIO", "TEXT", … or "unknown")
		Dollars float64           // cost of the tokens; 0 means the price of the model is unknown
	}

	// Steered reports an order of the operator's backend, whose kind is in What: "end", for example. By is the name of
	// the server key that the backend used, if a key was needed. Text is the instruction, if any.
	Steered struct{ By, What, Text string }

	// RecordingFailed reports a recording that could not be written, at its start or later.
	RecordingFailed struct{}

	// SessionEnded reports the end of a conversation. Transcript has what was said, the answers as far as they were
	// played. Recordings lists the files.
	SessionEnded struct {
		Info
		At         time.Time
		Reason     error
		Counts     Counts
		Transcript []Entry
		Recordings []string
		Pauses     []Span         // times without recording
		Fields     map[string]any // values collected in the agent's steps

		Outcome json.RawMessage // JSON Schema of the result to generate from the transcript; nil means none
		Account Account         // account that pays for generating Outcome, with ReserveCost
	}

	// Span is a period of a conversation; To is zero if it lasts to the end.
	Span struct{ From, To time.Time }
)

// TurnChange is a decision about a turn.
type TurnChange string

// The values of [TurnChange].
const (
	TurnEnded     TurnChange = "ended"     // the person has finished
	TurnRetracted TurnChange = "retracted" // the person had not finished: the end was retracted, and the answer dropped unheard
	TurnHeld      TurnChange = "held"      // a sound of the person holds the answer
	TurnResumed   TurnChange = "resumed"   // the answer goes on, because the sound was no interruption
	TurnCut       TurnChange = "cut"       // the person has interrupted the answer
)

// Info is the state of a conversation.
type Info struct {
	ID         string
	Protocol   string            `json:"Door"` // "web", "sip", …
	Agent      string            // see [Origin]
	Identity   string            // name of the caller; empty means unknown
	Attributes map[string]string // see [Origin]
	Address    string            // see [Origin]
	Device     string            // see [Origin]
	Key        string            // see [Origin]
	Step       string            // current step of the agent; empty means it has no steps
	Model      string
	State      State
	Started    time.Time
	Turns      int      // number of completed turns
	Tokens     int      // tokens used by the model, input and output
	Dollars    *float64 // cost of the tokens; nil means the price of the model is unknown

	Newest Entry // the newest words that were said; zero means none were

	Latency time.Duration // latency of the last measured answer; 0 means none was measured
	Loss    Loss
}

// ByEnd is the cause in a [TurnEnd] whose turn was interrupted by the end of the conversation. It never appears in
// events for callers.
const ByEnd Cause = "end"

// Counts holds the statistics of a conversation.
type Counts struct {
	Tokens      wire.Tokens
	Connections upstream.Counts
	Voice       playout.Stats // statistics of the model's voice
	Up          struct {      // the person's audio, in chunks of 20 ms
		Sent, Replayed uint64
		Dropped        uint64 // chunks lost because the queue was full; Speech counts those with speech
		Speech         uint64
		Gated          uint64 // chunks not sent because the model accepts no audio while it waits for a tool
	}
}

// observer passes on observations of a conversation: see [Options].Observe.
type observer struct {
	id      string
	observe func(id string, o Observation) // receives the observations; nil means no observer
}

// isEnabled reports whether there is an observer. Check it before building an observation that takes time.
func (o observer) isEnabled() bool { return o.observe != nil }

func (o observer) report(x Observation) {
	if o.isEnabled() {
		o.observe(o.id, x)
	}
}

// HasMoved reports whether the conversation continues at another gateway, which will report its end.
func (e SessionEnded) HasMoved() bool {
	return errors.Is(e.Reason, ErrMoved) || errors.Is(e.Reason, ErrReplaced)
}

// Code returns the [EndCode] of the conversation, or the [Code] of the failure.
func (e SessionEnded) Code() string {
	if code := EndCode(e.Reason); code != "" {
		return string(code)
	}
	return string(AsError(e.Reason).Code)
}

// HasFailed reports whether the conversation ended by a failure.
func (e SessionEnded) HasFailed() bool { return EndCode(e.Reason) == "" }
