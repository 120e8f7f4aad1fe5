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

	// calmTime is how long a connection must live before the failures before it are forgiven; otherwise a session that
	// always dies at once would be dialled for ever.
	calmTime = 10 * time.Second

	// maxStrikes is how often Gemini may refuse a set-up, or close its connection within calmTime, before it gets less,
	// and strikeTime the least time for that: it refuses a handle with 1011 while it takes the last connection for open,
	// as it does for a while after the network has cut it.
	maxStrikes = 3
	strikeTime = 3 * time.Second
	silentTime = 12 * time.Second // after a loss without a close frame: then the server may have noticed nothing

	// maxDeaths is how often a session may die right after it was resumed before the handle is blamed: with some handles
	// every resume dies.
	maxDeaths = 2

	// quotaRetry is the pause before the next dial of a running conversation that lacks quota: each try counts.
	quotaRetry = 5 * time.Second

	// lastRetry bounds the pause that a server which is overloaded may ask of a running conversation: one more dial is made before the
	// conversation ends.
	lastRetry = waitEnd - 5*time.Second

	// firstDials bounds the dials of a conversation that has not begun: a person waiting for the first word should learn
	// of the failure soon.
	firstDials = 3

	// waitEnd is how long a person waits for a connection before the conversation ends with an error.
	waitEnd = 30 * time.Second
)

// closeInvalidPayload is the first of the close codes by which Gemini ends a session for a reason of its own (RFC 6455
// section 7.4.1): 1007, 1008, 1011. Those below it, and 1006, are the network's.
const (
	closeInvalidPayload = 1007
	closeAbnormal       = 1006 // stands for no close frame at all
)

// step is how much of the conversation a dial sends: less after each refusal.
type step int

const (
	stepHandle step = iota // the newest handle, or what was said so far if there is none
	stepSeeded             // a fresh session, and what was said so far
	stepShort              // a fresh session, and the newest of what was said
	stepBare               // a fresh session
)

const (
	// HistoryLimit is how much of the conversation a session gets as text, in bytes: most of an hour of talk. That is some
	// 10,000 tokens (four bytes each), which fits into the 12,800 that compression leaves of a context (setup's default). As
	// text they cost a quarter of what the same number of tokens of sound costs, and seven minutes of sound have that many.
	HistoryLimit = 40 << 10

	// shortHistoryLimit is for a server that refuses a longer set-up.
	shortHistoryLimit = 8 << 10
)

// historyLimit is how much of the conversation a fresh session gets, in bytes.
func (s step) historyLimit() int {
	if s >= stepShort {
		return shortHistoryLimit
	}
	return HistoryLimit
}

// failures are those since the last connection that lived for calmTime.
type failures struct {
	row     int       // all of them
	young   int       // connections that ended before they were calmTime old, whoever ended them
	dials   int       // dials that failed
	strikes int       // refusals by Gemini and connections that died at once, since it last got less
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

// addYoung counts a connection that ended before it was calmTime old.
func (f *failures) addYoung() {
	f.add(f.last)
	f.young++
}

func (f *failures) strike() {
	if f.strikes == 0 {
		f.struck = time.Now()
	}
	f.strikes++
}

// exhausted reports whether the same was sent often enough.
func (f *failures) exhausted() bool {
	patience := strikeTime
	if f.silent {
		patience = silentTime
	}
	return (f.strikes >= maxStrikes || f.deaths >= maxDeaths) && time.Since(f.struck) >= patience
}

// backoff is a random pause before the next dial, of which the longest possible grows with the failures: all
// conversations lose their connections at once.
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

// retryDelay is how long Google asks to wait after a refusal; 0: it does not.
func retryDelay(err error) time.Duration {
	if e := (interface{ RetryDelay() time.Duration })(nil); errors.As(err, &e) {
		return e.RetryDelay()
	}
	return 0
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

// causeText is the cause of an error in a word or two; empty: there is no error.
func causeText(err error) string {
	if err == nil {
		return ""
	}
	cause, _ := causeOf(err)
	return cause.String()
}
