package keeper

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

	// calmTime is how long a connection must live before the failures before it are forgiven; a session that dies at once
	// each time would otherwise be dialled for ever.
	calmTime = 10 * time.Second

	// maxStrikes is how often Gemini may refuse, or let die within calmTime, what it is told before it is told less, and
	// strikeTime how long that takes at least: a handle is refused with 1011 while the server takes the last connection for
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

	// waitEnd is how long a person waits for a connection before the conversation ends with the truth.
	waitEnd = 30 * time.Second
)

// closeInvalidPayload is the first of the close codes by which Gemini ends a session for a reason of its own (RFC 6455
// section 7.4.1): 1007, 1008, 1011. Those below it, and 1006, are the network's.
const (
	closeInvalidPayload = 1007
	closeAbnormal       = 1006 // stands for no close frame at all
)

// step is what a dial tells Gemini: less after each that was refused.
type step int

const (
	stepHandle step = iota // the newest handle, or what was said so far if there is none
	stepSeeded             // a fresh session, and what was said so far
	stepBare               // a fresh session
)

// failures are those since the last connection that lived for calmTime.
type failures struct {
	row     int       // all of them
	dials   int       // dials that failed
	strikes int       // refusals by Gemini and connections that died at once, since it was last told less
	struck  time.Time // when the first of those was
	deaths  int       // connections that Gemini closed at once
	silent  bool      // the last connection was lost without a close frame
	step    step
	first   time.Time
	last    error
}

func (f *failures) add(err error) {
	if f.first.IsZero() {
		f.first = time.Now()
	}
	f.row++
	f.last = err
}

func (f *failures) strike() {
	if f.strikes == 0 {
		f.struck = time.Now()
	}
	f.strikes++
}

// exhausted tells whether Gemini was told the same often enough.
func (f *failures) exhausted() bool {
	patience := strikeTime
	if f.silent {
		patience = silentTime
	}
	return (f.strikes >= maxStrikes || f.deaths >= maxDeaths) && time.Since(f.struck) >= patience
}

// backoff is a random pause before the next dial, of which the longest possible grows with the failures: all conversations
// lose their connections at once.
func (f *failures) backoff() time.Duration {
	n := f.row - 1
	if n <= 0 {
		return 0
	}
	return rand.N(min(firstBackoff<<min(n-1, 10), lastBackoff))
}

// Refusal is what Gemini says with a status or a close code.
type Refusal interface {
	error
	Cause() wire.Cause
}

// causeOf says what a failure means for the next dial. reached is false if Gemini never answered.
func causeOf(err error) (cause wire.Cause, reached bool) {
	if e := Refusal(nil); errors.As(err, &e) {
		return e.Cause(), true
	}
	if errors.Is(err, api.ErrCredentials) || errors.Is(err, api.ErrNoKey) || errors.Is(err, api.ErrNoProject) {
		return wire.Auth, false
	}
	return wire.Lost, errors.Is(err, context.DeadlineExceeded)
}

// onLost acts on the end of a connection that was used.
func (k *Keeper) onLost(ctx context.Context, err error) {
	young := time.Since(k.link.since) < calmTime
	cause, _ := causeOf(err)
	if k.trial != nil && cause == wire.Fatal { // the change was refused, not the conversation
		k.rejected(ctx, err)
		cause = wire.Lost
	}
	k.unlink(ctx) // forgives after a calm time
	f := &k.failures
	f.last = err
	closed := (*wire.CloseError)(nil)
	byGemini := errors.As(err, &closed) && closed.Code >= closeInvalidPayload
	f.silent = !errors.As(err, &closed) || closed.Code == closeAbnormal
	if cause == wire.Quota || cause == wire.Fatal || cause == wire.Auth {
		k.fail(ctx, err)
		return
	}
	if young {
		f.add(err)
		f.strike()
		if byGemini {
			f.deaths++ // not by the network
		}
		if f.exhausted() {
			k.tellLess(ctx)
		}
	}
	k.redial(ctx, 0)
}

// onDialFailed acts on a dial that failed.
func (k *Keeper) onDialFailed(ctx context.Context, d dialled) {
	f := &k.failures
	f.add(d.err)
	f.dials++
	cause, reached := causeOf(d.err)
	k.Logger.Warn("dial failed", "err", d.err, "cause", cause)
	switch {
	case cause == wire.StaleHandle && d.handle != "":
		k.forgetHandle(ctx)
	case d.update && cause != wire.Quota && (cause != wire.Lost || f.dials >= maxStrikes):
		k.answerRefused(ctx)
		k.answerUpdate(ctx, d.err) // the old configuration goes on with the handle there is
		f.dials = 0
	case cause == wire.Quota && k.link.setUp: // our own last connection may still be counted
		k.Breaker.open()
		k.redial(ctx, quotaRetry)
		return
	case cause == wire.Quota, cause == wire.Auth:
		k.fail(ctx, d.err)
		return
	case cause == wire.Lost:
		if reached {
			f.strike()
		}
		if f.exhausted() {
			k.tellLess(ctx)
		}
	case d.handle == "" && d.told == 0: // it was told the least there is
		k.fail(ctx, d.err)
		return
	default: // the identical set-up would be refused again
		k.tellLess(ctx)
	}
	if !k.link.setUp && f.dials >= firstDials {
		k.fail(ctx, d.err)
	}
	k.redial(ctx, 0)
}

// tellLess has the next dial tell Gemini less.
func (k *Keeper) tellLess(ctx context.Context) {
	f := &k.failures
	if f.deaths >= maxDeaths { // it may be what they died of
		k.Uplink.Answered()
		k.abandon(ctx, Unanswered{})
		k.Tell(ctx, Dropped{})
	}
	f.strikes, f.deaths = 0, 0
	switch {
	case f.step < stepSeeded && k.handle.text != "":
		f.step = stepSeeded
	case f.step < stepBare:
		f.step = stepBare
	case time.Since(f.first) >= waitEnd:
		k.fail(ctx, f.last)
	}
	k.forgetHandle(ctx)
}

// forgetHandle has the next dial begin a fresh session.
func (k *Keeper) forgetHandle(ctx context.Context) {
	k.handle = handle{}
	k.Tell(ctx, HandleChanged{})
}

// fail ends the conversation because of a failure between us and Gemini.
func (k *Keeper) fail(ctx context.Context, err error) {
	if cause, _ := causeOf(err); cause == wire.Quota {
		k.Breaker.open()
		k.Probe = false
	}
	k.failed = true
	k.Tell(ctx, Failed{Err: err, Used: k.link.setUp})
}

// redial dials once more, after a pause that grows with the failures and is at least so long.
func (k *Keeper) redial(ctx context.Context, pause time.Duration) {
	if k.failed || k.parked { // parked: when somebody is back
		return
	}
	k.link.upgraded = false
	if k.link.setUp {
		k.beginWait()
		k.wait.unsure = false // whatever the wait was for before, nobody can be heard now
	}
	k.link.busy = true
	k.clock.Set(alarmRetry, max(pause, k.failures.backoff()))
}
