package bridge

import (
	"context"
	"time"
)

const (
	// maxAge is when a connection is taken for old: Gemini closes it after about ten minutes and does not always say so
	// before (js-genai #618). It says so at nine when it does, which leaves this to those that get no goAway.
	maxAge = 9*time.Minute + 15*time.Second

	// ageSpare is how long an old connection waits for a quiet moment.
	ageSpare = 30 * time.Second

	// spare is how long before Gemini's deadline a link is replaced at the latest.
	spare = 5 * time.Second

	// updateSpare is how long another configuration waits for a quiet moment.
	updateSpare = 30 * time.Second

	// freshTime is how long a quiet link is kept for a handle that knows the last turn. Gemini gives one within 100 ms.
	freshTime = 3 * time.Second
)

// drain is the wish to replace the link. Owned by the loop.
type drain struct {
	why   string
	until time.Time // at the latest; zero: no wish
}

func (d *drain) wanted() bool { return !d.until.IsZero() }

// leave has the link replaced at the next quiet moment, and within a time.
func (s *Session) leave(why string, within time.Duration) {
	d := &s.drain
	within = max(within, 0)
	if s.state == StateParked {
		s.unlink() // nobody listens
		return
	}
	until := time.Now().Add(within)
	if d.wanted() && d.until.Before(until) {
		return
	}
	d.why, d.until = why, until
	s.clock.set(alarmDrain, within) // the loop's own: a server may fall silent after goAway
}

// onGoAway prepares for the end that Gemini has announced.
func (s *Session) onGoAway(left time.Duration) {
	s.log.Info("gemini will close the link", "in", left)
	s.leave("goAway", left-spare)
}

// idle tells whether the link can be replaced without cutting anything off: nobody speaks, nothing is to be answered, no
// tool runs, and the handle knows all that.
func (s *Session) idle() bool {
	if s.turn.open || s.working || s.speaking || s.up.Unanswered() || s.broker.calling() || s.watch.what != forNothing {
		s.clock.clear(alarmFresh)
		return false
	}
	if s.handle.tick > s.dirty || !s.config.Options.Resumption {
		return true
	}
	if !s.clock.isSet(alarmFresh) {
		s.clock.set(alarmFresh, freshTime)
	}
	return false
}

// replace closes the link and dials the next one with the newest handle. What is said meanwhile waits in the uplink.
func (s *Session) replace(ctx context.Context) {
	if !s.linked() {
		return
	}
	s.log.Info("link replaced", "why", s.drain.why, "age", time.Since(s.link.since).Round(time.Millisecond))
	s.unlink()
	s.enter(s.down())
	s.wait()
	s.dial(ctx)
}
