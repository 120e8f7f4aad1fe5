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
// [SessionStarted] comes first, and [SessionEnded] last. Only [SessionEnded] has the transcript.
type Observation any

type (
	// SessionStarted reports a new conversation.
	SessionStarted struct{ Info }

	// TurnEnd reports that an answer of the model was fully played, or interrupted.
	TurnEnd struct {
		Number        int
		StartedAt     time.Time // the end of the question, or the start of the answer if there was no question
		InterruptedBy Cause     // cause of the interruption; empty means not interrupted
		Latency       Latency   // latency of the answer; zero means not measured
	}

	// EmptyTurn reports a turn that ended without the expected answer. Reason is the server's turnCompleteReason, or
	// "". If the model wrote an answer instead of speaking it, Reason is TEXT_ONLY.
	EmptyTurn struct{ Reason string }

	// BargeIn reports that the person's voice has interrupted an answer. Latency is the time from the start of that
	// voice to the last frame of the answer that was passed to the caller's output.
	BargeIn struct{ Latency time.Duration }

	// TurnTaking reports a decision about a turn. If the model decides about turns, it is never sent.
	TurnTaking struct{ Change TurnChange }

	// CallEnd reports the end of a tool call, and the turn in which it ended.
	CallEnd struct {
		toolcalls.CallEnd
		Turn int
	}

	// DialOutcome reports the result of an attempt to connect to the model. ConnectionEnd reports that a connection to
	// the model has ended.
	DialOutcome   = upstream.DialOutcome
	ConnectionEnd = upstream.ConnectionEnd

	// StepStarted reports that a step of the agent has begun. It is not sent for the first step.
	StepStarted struct{ Name string }

	// SpendingReport reports the tokens used since the previous report. It comes at the end of each turn and of the
	// conversation, if tokens were used.
	SpendingReport struct {
		Key     string            // see [Origin]
		Tokens  map[[2]string]int // counts by direction ("in", "out" or "unknown") and modality ("AUDIO", "TEXT", … or "unknown")
		Dollars float64           // cost of the tokens; 0 means the price of the model is unknown
	}

	// Steered reports that the operator's backend has steered the conversation. What is the kind of command, for
	// example "end". By is the name of the server key that the backend used, if a key was needed. Text is the
	// instruction, if any.
	Steered struct {
		At             time.Time // when it was asked for; the model's reaction is later
		By, What, Text string
	}

	// RecordingFailed reports that a recording could not be started, or could not be written later.
	RecordingFailed struct{}

	// SessionEnded reports the end of a conversation. Transcript has what was said; of the answers it has only what was
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

	// Span is a period of a conversation. If To is zero, the period lasts to the end of the conversation.
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

	Newest  Entry  // the newest words that were said; zero means none were
	Speaker string // who is speaking: "user", "assistant" or, if nobody is, ""

	Latency time.Duration // latency of the last measured answer; 0 means none was measured
	Loss    Loss
}

// ByEnd is the cause in the [TurnEnd] of a turn that was interrupted by the end of the conversation. It never appears
// in events for callers.
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

// observer passes the observations of a conversation to [Options].Observe.
type observer struct {
	id      string
	observe func(id string, o Observation) // receives the observations; nil means no observer
}

// isEnabled reports whether there is an observer. Callers check it before they build an observation that takes time.
func (o observer) isEnabled() bool { return o.observe != nil }

func (o observer) report(x Observation) {
	if o.isEnabled() {
		o.observe(o.id, x)
	}
}

// HasMoved reports whether the conversation continues at another gateway. That gateway will report its end.
func (e SessionEnded) HasMoved() bool {
	return errors.Is(e.Reason, ErrMoved) || errors.Is(e.Reason, ErrReplaced)
}

// Code returns the [EndCode] of the conversation or, if it has failed, the [Code] of the failure.
func (e SessionEnded) Code() string {
	if code := EndCode(e.Reason); code != "" {
		return string(code)
	}
	return string(AsError(e.Reason).Code)
}

// HasFailed reports whether the conversation has ended because of a failure.
func (e SessionEnded) HasFailed() bool { return EndCode(e.Reason) == "" }
