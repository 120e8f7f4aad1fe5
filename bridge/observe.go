package bridge

import (
	"encoding/json"
	"errors"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/media/playout"
)

// Observation is something that has happened in a conversation, for metrics and traces; the caller learns of other
// things, by an [Event]. It is one of the types below; only [Ended], the last of a conversation, holds what was said. [Begun] is
// the first.
type Observation any

type (
	// Begun is a conversation that begins.
	Begun struct{ Info }

	// TurnEnd is an answer of the model that was heard, as far as it will be.
	TurnEnd struct {
		Number  int
		Began   time.Time // the end of the question, or if nobody asked, the beginning of the answer
		Cut     Cause     // what has cut it off; empty: nothing
		Latency Latency   // zero: it was not measured
	}

	// EmptyTurn reports a turn that ended without the answer that was due. Reason is the server's turnCompleteReason, TEXT_ONLY if
	// the answer was written and not spoken, or "".
	EmptyTurn struct{ Reason string }

	// BargeIn is an answer that the person's voice cut off. Took is the time from the voice to the last frame handed to
	// the caller's output.
	BargeIn struct{ Took time.Duration }

	// CallEnd is the end of a tool call, and the turn in which it ended.
	CallEnd struct {
		toolcalls.CallEnd
		Turn int
	}

	// Dialled is the outcome of a dial, LinkEnd the end of a connection to the model.
	Dialled = keeper.DialOutcome
	LinkEnd = keeper.ConnectionEnd

	// StepBegun is a step of the agent's that begins, after the one that the conversation has begun with.
	StepBegun struct{ Name string }

	// Spent is the tokens of Gemini that were used since the one before, by direction ("in", "out", or "unknown") and
	// modality ("AUDIO", "TEXT", … or "unknown"). It comes at the end of each turn and of the conversation, if there
	// are some.
	Spent struct {
		Key     string // see [Origin]
		Tokens  map[[2]string]int
		Dollars float64 // that they cost; 0: the model has no price that is known
	}

	// RecordingFailed is a recording that the disk refused, at its beginning or later.
	RecordingFailed struct{}

	// Ended is a conversation that is over. Transcript is what was said, as far as it was heard; Recordings are the files.
	Ended struct {
		Info
		At         time.Time
		Reason     error
		Counts     Counts
		Transcript []Entry
		Recordings []string
		Pauses     []Span         // of the recording
		Fields     map[string]any // what was found out in the agent's steps

		Outcome json.RawMessage // JSON Schema of what is to be made of the transcript; nil: nothing is
		Account Account         // pays for that, by Reserve
	}

	// Span is a time of a conversation; To is zero if it lasts to the end.
	Span struct{ From, To time.Time }
)

// describe is the command that fills in where the conversation stands.
type describe struct{ into *Info }

func (describe) command() {}

// Info is where a conversation stands.
type Info struct {
	ID         string
	Door       string            // the front door: "web", "sip", …
	Agent      string            // see [Origin]
	Identity   string            // of the caller; empty: not known
	Attributes map[string]string // see [Origin]
	Key        string            // see [Origin]
	Step       string            // of the agent, in which it is; empty: it has none
	Model      string
	State      State
	Started    time.Time
	Turns      int      // that are over
	Tokens     int      // of the model, in and out
	Dollars    *float64 // that they have cost; nil: the model has no price that is known

	Latency time.Duration // of the newest answer that was measured; 0: none was
	Loss    Loss
}

// ByEnd is the Cut of a turn in which the conversation has ended. No caller learns of it.
const ByEnd Cause = "end"

// Counts are what was counted in a conversation.
type Counts struct {
	Tokens wire.Tokens
	Links  keeper.Counts
	Voice  playout.Stats // the model's voice
	Up     struct {      // the person's, in chunks of 20 ms
		Sent, Replayed uint64
		Dropped        uint64 // because too much waited; Speech of them were speech
		Speech         uint64
		Gated          uint64 // because the model can hear nothing while it waits for a tool
	}
}

// observer passes on what happens in a conversation: see [Options].Observe.
type observer struct {
	id      string
	observe func(id string, o Observation) // nil: nobody observes
}

// on reports whether somebody observes. Check it before making a costly observation.
func (o observer) on() bool { return o.observe != nil }

func (o observer) report(x Observation) {
	if o.on() {
		o.observe(o.id, x)
	}
}

// Moved reports whether the conversation goes on at another gateway, which will report its end.
func (e Ended) Moved() bool { return errors.Is(e.Reason, ErrMoved) || errors.Is(e.Reason, ErrReplaced) }

// Code is why the conversation has ended, in a word: goodbye, left, shutdown, time_limit, token_limit, budget, silence, moved,
// or the [Code] of what has gone wrong.
func (e Ended) Code() string {
	if word, ok := e.harmless(); ok {
		return word
	}
	return string(AsError(e.Reason).Code)
}

// Failed reports whether something has gone wrong.
func (e Ended) Failed() bool {
	_, ok := e.harmless()
	return !ok
}

// harmless is an end that is nobody's failure.
func (e Ended) harmless() (word string, ok bool) {
	for reason, word := range map[error]string{
		ErrGoodbye: "goodbye", ErrLeft: "left", ErrShutdown: "shutdown",
		ErrTimeLimit: "time_limit", ErrTokenLimit: "token_limit", ErrBudget: "budget", ErrSilence: "silence",
		ErrMoved: "moved", ErrReplaced: "moved",
	} {
		if errors.Is(e.Reason, reason) {
			return word, true
		}
	}
	return "", false
}
