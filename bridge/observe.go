package bridge

import (
	"errors"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/media/playout"
)

// Observation is something that has happened in a conversation, for metrics and traces; the caller is told of other things, as
// an [Event]. It is one of the types below, and holds nothing of what was said. [Begun] is the first of a conversation, [Ended]
// the last.
type Observation any

type (
	// Begun is a conversation that begins.
	Begun struct{ Info }

	// TurnEnd is an answer of the model that was heard, or of which no more will be.
	TurnEnd struct {
		Number  int
		Began   time.Time // the end of the question; where nobody has asked, the first that came of the answer
		Cut     Cause     // what has cut it off; empty: nothing
		Latency Latency   // zero: it was not measured
	}

	// BargeIn is an answer that was cut off by the person's voice: how long that took, from the voice to the last frame that was
	// handed to the caller's output.
	BargeIn struct{ Took time.Duration }

	// CallEnd is the end of a tool call, and the turn in which it ended.
	CallEnd struct {
		toolcalls.End
		Turn int
	}

	// Dialled is the outcome of a dial, LinkEnd the end of a connection to the model.
	Dialled = keeper.Dialled
	LinkEnd = keeper.LinkEnd

	// Spent is the tokens of Gemini that were used since the one before, by direction ("in", "out", or "unknown") and
	// modality ("AUDIO", "TEXT", … or "unknown"). It comes at the end of each turn and of the conversation, if there
	// are some.
	Spent struct {
		Key    string // see [Origin]
		Tokens map[[2]string]int
	}

	// RecordingFailed is a recording that the disk has refused, at its begin or later.
	RecordingFailed struct{}

	// Ended is a conversation that is over.
	Ended struct {
		Info
		At     time.Time
		Reason error
		Counts Counts
	}
)

// ByEnd is the Cut of a turn in which the conversation has ended. Callers are not told of it.
const ByEnd Cause = "end"

// Counts are what was counted in a conversation.
type Counts struct {
	Tokens wire.Tokens
	Links  keeper.Counts
	Voice  playout.Stats // the model's voice
	Up     struct {      // the person's, in chunks of 20 ms
		Sent, Replayed uint64
		Dropped        uint64 // because too much waited, and Speech of these were speech
		Speech         uint64
		Gated          uint64 // because the model can hear nothing while it waits for a tool
	}
}

func (s *Session) counts() Counts {
	c := Counts{Tokens: s.spent.meter.Total(), Links: s.keeper.Counts(), Voice: s.playout.Stats()}
	c.Up.Sent, c.Up.Replayed = s.up.Frames.Load(), s.up.Replayed.Load()
	c.Up.Dropped, c.Up.Speech, c.Up.Gated = s.up.Dropped.Load(), s.up.Lost.Load(), s.up.Gated.Load()
	return c
}

// summary is the session after its end.
func (s *Session) summary() Ended { return Ended{s.describe(), time.Now(), s.ended, s.counts()} }

// observeTurn tells of a turn that is over.
func (s *Session) observeTurn(number int, began time.Time, t *timing, l Latency, cut Cause) {
	tell := s.host.options.Observe
	if tell == nil || began.IsZero() { // it had nothing to say
		return
	}
	if t != nil && !t.asked.IsZero() && t.asked.Before(began) {
		began = t.asked
	}
	tell(s.id, TurnEnd{Number: number, Began: began, Cut: cut, Latency: l})
}

// cause is what has cut off a turn whose mark is called: otherwise, if it was heard. Marks are called by any goroutine.
func (s *Session) cause(heard bool, otherwise Cause) Cause {
	if heard {
		return otherwise
	}
	if by := s.answer.cutBy.Load(); by != nil {
		return *by
	}
	return ByClient // nobody was there to hear it
}

// observeEnd tells of the turn that the conversation ends in, before its voice is dropped.
func (s *Session) observeEnd() {
	by := ByEnd
	s.answer.cutBy.Store(&by)
	if t := &s.answer.turn; t.state != turnIdle && t.state != turnCut {
		s.observeTurn(t.number, t.began, t.timing, Latency{}, ByEnd)
	}
}

// observeBargeIn tells of a voice that was cut off: left of it is still to come.
func (s *Session) observeBargeIn(left time.Duration) {
	if tell := s.host.options.Observe; tell != nil && (s.person.speaking || s.answer.spokenOver) {
		tell(s.id, BargeIn{time.Since(s.up.Began()) + left})
	}
}

func (s *Session) observeCall(e toolcalls.End) {
	if tell := s.host.options.Observe; tell != nil {
		tell(s.id, CallEnd{e, s.answer.number})
	}
}

// Moved tells whether the conversation goes on at another gateway, which tells of its end.
func (e Ended) Moved() bool { return errors.Is(e.Reason, ErrMoved) || errors.Is(e.Reason, ErrReplaced) }

// Code is why the conversation has ended, in a word: goodbye, left, shutdown, time_limit, token_limit, budget, moved, or the [Code] of
// what has gone wrong.
func (e Ended) Code() string {
	if word, ok := e.harmless(); ok {
		return word
	}
	return string(AsError(e.Reason).Code)
}

// Failed tells whether something has gone wrong.
func (e Ended) Failed() bool {
	_, ok := e.harmless()
	return !ok
}

// harmless is an end that is nobody's failure.
func (e Ended) harmless() (word string, ok bool) {
	for reason, word := range map[error]string{
		ErrGoodbye: "goodbye", ErrLeft: "left", ErrShutdown: "shutdown", ErrTimeLimit: "time_limit", ErrTokenLimit: "token_limit", ErrBudget: "budget",
		ErrMoved: "moved", ErrReplaced: "moved",
	} {
		if errors.Is(e.Reason, reason) {
			return word, true
		}
	}
	return "", false
}
