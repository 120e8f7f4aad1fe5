package bridge

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
)

const (
	// firstBackoff is the longest pause before the second dial; each further one doubles it, up to lastBackoff.
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 2 * time.Second // somebody waits

	// calm is how long a link must live before the failures before it are forgiven; a session that dies at once each time
	// would otherwise be dialled for ever.
	calm = 10 * time.Second

	// maxStrikes is how often Gemini may refuse, or let die within the calm, what it is told before it is told less, and
	// strikeTime how long that takes at least: a handle is refused with 1011 while the server takes the last link for
	// open, which it does for a while when the network has cut it.
	maxStrikes = 3
	strikeTime = 3 * time.Second
	silentTime = 12 * time.Second // after a loss without a close frame: then the server may have noticed nothing

	// maxDeaths is how often a session may die right after it was resumed before the handle is blamed: some are poisoned,
	// and each resume with them dies alike.
	maxDeaths = 2

	// quotaRetry is the pause before a conversation that has begun is dialled again for want of quota: each try counts.
	quotaRetry = 5 * time.Second

	// firstDials bounds the dials of a conversation that has not begun: who waits for the first word wants to know.
	firstDials = 3
)

// step is what a dial tells Gemini: less after each that was refused.
type step int

const (
	stepHandle step = iota // the newest handle, or what was said so far if there is none
	stepSeeded             // a fresh session, and what was said so far
	stepBare               // a fresh session
)

// failures are those since the last calm link.
type failures struct {
	row     int       // all of them
	dials   int       // dials that failed
	strikes int       // refusals by Gemini and links that died at once, since it was last told less
	struck  time.Time // when the first of those was
	deaths  int       // links that Gemini closed at once
	silent  bool      // the last link was lost without a close frame
	step    step
	first   time.Time
	last    error
}

func (f *failures) begin() {
	if f.first.IsZero() {
		f.first = time.Now()
	}
}

func (f *failures) strike() {
	if f.strikes == 0 {
		f.struck = time.Now()
	}
	f.strikes++
}

// out tells whether Gemini was told the same often enough.
func (f *failures) out() bool {
	patience := strikeTime
	if f.silent {
		patience = silentTime
	}
	return (f.strikes >= maxStrikes || f.deaths >= maxDeaths) && time.Since(f.struck) >= patience
}

// causeOf says what a failure means for the next dial. reached is false if Gemini never answered.
func causeOf(err error) (cause wire.Cause, reached bool) {
	if e := refusal(nil); errors.As(err, &e) {
		return e.Cause(), true
	}
	if errors.Is(err, api.ErrCredentials) || errors.Is(err, api.ErrNoKey) || errors.Is(err, api.ErrNoProject) {
		return wire.Auth, false
	}
	return wire.Lost, errors.Is(err, context.DeadlineExceeded)
}

// onLost acts on the end of a link that was used.
func (s *Session) onLost(err error) {
	f := &s.link.failures
	young := time.Since(s.link.since) < calm
	cause, _ := causeOf(err)
	if s.trial != nil && cause == wire.Fatal { // the change was refused, not the conversation
		s.rejected(err)
		cause = wire.Lost
	}
	s.unlink() // forgives after a calm time
	f.last = err
	closed := (*wire.CloseError)(nil)
	byGemini := errors.As(err, &closed) && closed.Code >= closeInvalidPayload
	f.silent = !errors.As(err, &closed) || closed.Code == closeAbnormal
	if cause == wire.Quota || cause == wire.Fatal || cause == wire.Auth {
		s.giveUp(err)
		return
	}
	if young {
		f.begin()
		f.row++
		f.strike()
		if byGemini {
			f.deaths++ // not by the network
		}
		if f.out() {
			s.less()
		}
	}
	s.again(0)
}

// onDialFailed acts on a dial that failed.
func (s *Session) onDialFailed(d dialled) {
	f := &s.link.failures
	f.begin()
	f.row++
	f.dials++
	f.last = d.err
	cause, reached := causeOf(d.err)
	s.log.Warn("dial failed", "err", d.err, "cause", cause, "state", s.state)
	switch {
	case cause == wire.StaleHandle && d.handle != "":
		s.forgetHandle()
	case d.update && cause != wire.Quota && (cause != wire.Lost || f.dials >= maxStrikes):
		s.updates = s.updates[1:] // the old configuration goes on with the handle there is
		s.tell(SetupFailed{updateFailed(d.err)})
		f.dials = 0
	case cause == wire.Quota && s.link.setUp: // our own last link may still be counted
		s.host.breaker.open()
		s.again(quotaRetry)
		return
	case cause == wire.Quota, cause == wire.Auth:
		s.giveUp(d.err)
		return
	case cause == wire.Lost:
		if reached {
			f.strike()
		}
		if f.out() {
			s.less()
		}
	case !s.link.setUp, d.handle == "" && len(d.history) == 0: // it was told the least there is
		s.giveUp(d.err)
		return
	default: // the identical set-up would be refused again
		s.less()
	}
	if !s.link.setUp && f.dials >= firstDials {
		s.giveUp(d.err)
	}
	s.again(0)
}

// less has the next dial tell Gemini less.
func (s *Session) less() {
	f := &s.link.failures
	if f.deaths >= maxDeaths { // it may be what they died of
		s.up.Answered()
		s.letGo()
		s.fail(CodeResumptionFailed, "Gemini ends the session whenever it hears what was said last; that was dropped.")
	}
	f.strikes, f.deaths = 0, 0
	switch {
	case f.step < stepSeeded && s.handle.text != "":
		f.step = stepSeeded
	case f.step < stepBare:
		f.step = stepBare
	case time.Since(f.first) >= gapEnd:
		s.giveUp(f.last)
	}
	s.forgetHandle()
}

// forgetHandle has the next dial begin a fresh session.
func (s *Session) forgetHandle() {
	s.handle = handle{}
	s.broker.orphanCalls()
}

// giveUp ends the conversation because of a failure between us and Gemini.
func (s *Session) giveUp(err error) {
	failure := dialFailure(err, s.link.setUp)
	if failure.Code == CodeBusy {
		s.host.breaker.open()
		s.probe = false
		failure.Retry = quotaPause
	}
	s.end(failure)
}

// again dials once more, after a pause that grows with the failures and is at least so long.
func (s *Session) again(pause time.Duration) {
	if s.ended != nil || s.state == StateParked { // parked: when somebody is back
		return
	}
	if s.link.setUp {
		s.enter(s.down())
		s.wait()
		s.gap.soft = false // whatever the wait was for before, nobody can be heard now
	} else {
		s.enter(StateDialing)
	}
	s.link.busy = true
	if n := s.link.row - 1; n > 0 {
		pause = max(pause, rand.N(min(firstBackoff<<min(n-1, 10), lastBackoff))) // full jitter: all conversations lose their links at once
	}
	s.clock.set(alarmRetry, pause)
}
