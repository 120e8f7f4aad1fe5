package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
)

const (
	// firstBackoff limits the pause before the second dial. Each further dial doubles that limit, up to lastBackoff.
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 2 * time.Second // short, because a person is waiting

	// calmTime is the lifetime of a connection after which earlier failures no longer count. A session that ends right
	// after each setup must not be dialled endlessly.
	calmTime = 10 * time.Second

	// maxRejections limits how often the same setup is sent. A connection that ends within calmTime also counts as a
	// rejection. After maxRejections, the next setup sends less.
	maxRejections = 3

	// strikeTime is the minimum time from the first rejection until the next setup sends less. Gemini rejects a handle
	// with 1011 while it considers the previous connection open.
	strikeTime = 3 * time.Second

	// silentTime replaces strikeTime after a loss without a close frame. The server may not have noticed the loss.
	silentTime = 12 * time.Second

	// maxInstantCloses limits the sessions that end right after a resume with one handle. Then the handle is dropped:
	// some handles always fail.
	maxInstantCloses = 2

	// quotaRetry is the pause before a running conversation without quota dials again. Each attempt counts against the
	// quota.
	quotaRetry = 5 * time.Second

	// lastRetry limits the delay that an overloaded server may ask for. It leaves time for one more dial before
	// waitEnd.
	lastRetry = waitEnd - 5*time.Second

	// firstDials limits the dials before a conversation has begun. The person should learn of a failure soon.
	firstDials = 3

	// waitEnd limits the time without a connection; then the conversation ends with an error.
	waitEnd = 30 * time.Second
)

// closeInvalidPayload is the lowest close code with which Gemini ends a session for its own reasons (RFC 6455 section
// 7.4.1): 1007, 1008, 1011. Lower codes, such as 1006, come from the network.
const (
	closeInvalidPayload = 1007
	closeAbnormal       = 1006 // no close frame
)

// setupStep selects how much of the conversation a setup sends: less after each rejection.
type setupStep int

const (
	stepHandle setupStep = iota // the newest handle, or the transcript if there is none
	stepSeeded                  // a fresh session with the transcript
	stepShort                   // a fresh session with the newest part of the transcript
	stepBare                    // a fresh session without history
)

const (
	// HistoryLimit limits the transcript for a session, in bytes: most of an hour of talk. That is some 10,000 tokens
	// of four bytes. They fit into the 12,800 that compression leaves of a context (default of package liveconfig).
	HistoryLimit = 40 << 10

	// shortHistoryLimit, in bytes, replaces HistoryLimit after a server has rejected a longer setup.
	shortHistoryLimit = 8 << 10
)

// historyLimit returns the maximum of the transcript for a fresh session, in bytes.
func (s setupStep) historyLimit() int {
	if s >= stepShort {
		return shortHistoryLimit
	}
	return HistoryLimit
}

// failures counts the failures since the last connection that lived for calmTime.
type failures struct {
	total            int       // failures of all kinds
	shortLived       int       // connections that ended within calmTime, for any reason
	dials            int       // failed dials
	rejections       int       // rejections by Gemini and connections that died at once, since the last reduction of the setup
	firstRejectionAt time.Time // time of the first of these rejections
	instantCloses    int       // connections that Gemini closed right after setup
	noCloseFrame     bool      // the last connection was lost without a close frame
	step             setupStep
	firstAt          time.Time
	lastErr          error
}

func (f *failures) addFailure(err error) {
	if f.firstAt.IsZero() {
		f.firstAt = time.Now()
	}
	f.total++
	f.lastErr = err
}

// addShortLived counts a connection that ended within calmTime.
func (f *failures) addShortLived() {
	f.addFailure(f.lastErr)
	f.shortLived++
}

func (f *failures) addStrike() {
	if f.rejections == 0 {
		f.firstRejectionAt = time.Now()
	}
	f.rejections++
}

// isExhausted reports whether the same setup was sent too often to send it again.
func (f *failures) isExhausted() bool {
	patience := strikeTime
	if f.noCloseFrame {
		patience = silentTime
	}
	return (f.rejections >= maxRejections || f.instantCloses >= maxInstantCloses) && time.Since(f.firstRejectionAt) >= patience
}

// backoff returns the pause before the next dial, up to a limit that grows with the failures. The pause is random because
// all conversations may lose their connections at once.
func (f *failures) backoff() time.Duration {
	n := f.total - 1
	if n <= 0 {
		return 0
	}
	return rand.N(min(firstBackoff<<min(n-1, 10), lastBackoff))
}

// Refusal is an error with a status or a close code of Gemini.
type Refusal interface {
	error
	Cause() wire.Cause
}

// retryDelay returns how long Google asks to wait after a refusal, or 0.
func retryDelay(err error) time.Duration {
	if e := (interface{ RetryDelay() time.Duration })(nil); errors.As(err, &e) {
		return e.RetryDelay()
	}
	return 0
}

// causeOf classifies a failure for the next dial. reached means that Gemini has refused, or did not answer in time.
func causeOf(err error) (cause wire.Cause, reached bool) {
	if e := Refusal(nil); errors.As(err, &e) {
		return e.Cause(), true
	}
	if errors.Is(err, api.ErrCredentials) || errors.Is(err, api.ErrNoKey) || errors.Is(err, api.ErrNoProject) {
		return wire.Auth, false
	}
	return wire.Lost, errors.Is(err, context.DeadlineExceeded)
}

// causeText returns the cause of an error in one or two words, or "" for a nil error.
func causeText(err error) string {
	if err == nil {
		return ""
	}
	cause, _ := causeOf(err)
	return cause.String()
}
