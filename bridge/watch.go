package bridge

import (
	"context"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

const (
	// leastQuestion is how much speech wants an answer. Less is a cough.
	leastQuestion = 300 * time.Millisecond

	// staleTime is how long something said waits for its answer, whatever is tried. Later nobody wants it any more.
	staleTime = 25 * time.Second

	// slowly is how much more time a model gets that thinks before it speaks.
	slowly = 5
)

// expected is what the model should react to.
type expected int

const (
	forNothing expected = iota
	forSpeech           // the person has spoken
	forText             // the person has typed
	forTool             // a tool has answered
	forMore             // the model was in the middle of its answer
)

// watch notices a model that has fallen silent. Each step is tried for a while before the next: a nudge, another link,
// another session. Owned by the loop.
type watch struct {
	what      expected
	stage     int
	counts    [3]int // nudges, resumes, fresh sessions
	aside     bool   // it may have been said to somebody else
	heard     bool   // the model has heard the speech; a proactive one may choose not to answer
	apology   bool   // the person was told that there will be no answer
	fruitless bool   // all was tried and nothing helped: what sounds like speech here may be none
}

// patience is how long the model may be silent.
func (s *Session) patience() time.Duration {
	if s.config.Profile.Slow {
		return slowly * s.host.options.Stall
	}
	return s.host.options.Stall
}

// expect begins to wait for the model's answer.
func (s *Session) expect(what expected) {
	s.watch.what, s.watch.stage, s.watch.heard, s.watch.aside = what, 0, false, false
	s.clock.set(alarmStale, s.shelfLife())
	s.await(s.patience())
}

// shelfLife is how long something said is worth an answer.
func (s *Session) shelfLife() time.Duration { return max(staleTime, 3*s.patience()) }

// goesOn ends the wait for the answer to a sentence that was only interrupted by a breath.
func (s *Session) goesOn() {
	if s.watch.what == forSpeech {
		s.clock.clear(alarmStale)
		s.rest()
		s.more.maybe = true
	}
}

// await sets the time by which the model must have said something.
func (s *Session) await(d time.Duration) {
	if s.host.options.Stall > 0 && s.link.conn != nil {
		s.clock.set(alarmStall, d)
	}
}

// relax ends the wait: the model has answered.
func (s *Session) relax() {
	if s.watch.stage > 0 {
		s.log.Info("the model answers again", "stage", s.watch.stage)
	}
	s.watch.fruitless = false
	s.rest()
}

// letGo ends the wait without an answer.
func (s *Session) letGo() {
	s.notAsked()
	s.rest()
}

// rest ends the wait.
func (s *Session) rest() {
	s.watch.what, s.watch.stage = forNothing, 0
	s.clock.clear(alarmStall)
	if s.link.conn != nil {
		s.waited()
	}
}

// alive looks what a message says of the model's health. before is how its turn stood when the message came: the end of
// an answer that was cut off is no answer to what cut it off.
func (s *Session) alive(m *wire.ServerMessage, before turn) {
	c := m.Content
	switch {
	case s.turn.generating && !s.turn.stale:
		s.watch.what, s.watch.stage = forMore, 0
		if s.link.conn != nil {
			s.waited()
		}
		s.await(s.patience())
	case s.watch.what == forMore:
		s.relax()
	case s.watch.what == forNothing:
	case m.ToolCalls != nil, c != nil && (c.TurnComplete || c.GenerationComplete) && !before.cut && !c.Interrupted:
		s.relax()
		if m.ToolCalls == nil && !s.broker.calling() {
			s.notTimed() // it has nothing to say
		}
	case c != nil && c.InputTranscription != "" || m.VoiceActivity != nil:
		s.watch.heard = true
		s.await(s.patience())
	}
}

// onStall does the next thing that may help a model that does not answer.
func (s *Session) onStall(ctx context.Context) {
	w := &s.watch
	if w.what == forNothing || !s.linked() || s.broker.calling() {
		return
	}
	if w.stage == 0 && (w.what != forSpeech || s.config.Options.Manual) {
		w.stage = 1 // there is nothing to nudge with
	}
	w.stage++
	w.aside = w.heard && s.config.Profile.Proactive && w.what == forSpeech
	s.wait()
	s.gap.soft = w.aside || w.stage == 1 && w.what == forSpeech && !w.heard // which may be noise
	switch {
	case w.stage == 1:
		w.counts[0]++
		s.stalled("nudge", "Gemini has not reacted to what was said; it is told that the speech is over.")
		if err := s.up.Mark(uplink.Pause); err != nil {
			s.log.Warn("nudge dropped", "err", err)
		}
		s.await(s.patience() / 2)
	case w.fruitless:
		s.surrender()
	case w.stage == 2 && s.handle.text != "":
		w.counts[1]++
		s.stalled("resume", "Gemini does not answer; the session goes on over a new connection.")
		s.drain.why = "stall"
		s.replace(ctx)
	case w.stage <= 3 && !w.aside:
		w.stage = 3
		w.counts[2]++
		s.stalled("fresh", "Gemini does not answer; a fresh session is told what was said so far.")
		s.forgetHandle()
		s.drain.why = "stall"
		s.replace(ctx)
	default:
		s.surrender()
	}
}

// surrender gives up on an answer. The conversation goes on with the next thing that is said.
func (s *Session) surrender() {
	s.stalled("none", "Gemini did not answer, whatever was tried.")
	sure := s.watch.heard || s.watch.what != forSpeech
	s.up.Answered()
	s.letGo()
	s.watch.fruitless = true
	if !s.watch.aside {
		s.apologised(true)
		if sure {
			s.sound(voice(sayAgain))
		}
	}
}

// apologised tells the person that there will be no answer, until something else is said.
func (s *Session) apologised(now bool) {
	if s.watch.apology == now {
		return
	}
	s.watch.apology = now
	change := StateChange{State: s.state}
	if now {
		change.Message = "Gemini did not answer. Please say it again."
	}
	s.notify(change)
}

func (s *Session) stalled(tried, message string) {
	s.log.Warn("the model is silent", "tried", tried, "waits_for", s.watch.what)
	s.notify(Log{Level: "warn", Message: message, Details: map[string]any{"stall": tried}})
}
