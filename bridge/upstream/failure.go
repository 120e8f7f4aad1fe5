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
	// firstBackoff limits the pause before the second dial. The limit doubles with each further dial, up to
	// lastBackoff.
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 2 * time.Second // short, because a person is waiting

	// calmTime is the minimum lifetime of a connection after which earlier failures no longer count. Shorter
	// connections do not reset the count, because a session that always ends right after its setup must not be dialled
	// endlessly.
	calmTime = 10 * time.Second

	// maxRejections limits how often the same setup is sent. A connection that ends within calmTime also counts as a
	// rejection of its setup. After maxRejections, the next setup contains less of the conversation.
	maxRejections = 3

	// minRejectionTime is the minimum time from the first rejection of a setup to a setup that contains less. It is
	// needed because Gemini rejects a handle with 1011 as long as it considers the previous connection open.
	minRejectionTime = 3 * time.Second

	// minSilentLossTime replaces minRejectionTime if the connection was lost without a close frame. The server may not
	// have noticed that loss yet.
	minSilentLossTime = 12 * time.Second

	// maxInstantCloses limits how many sessions that were resumed with the same handle may end right after their setup.
	// Then the handle is dropped, because some handles always fail.
	maxInstantCloses = 2

	// quotaRetry is the pause between two dials of a running conversation while the quota is exhausted. It avoids
	// needless attempts, because each counts towards the quota.
	quotaRetry = 5 * time.Second

	// lastRetry limits the pause that an overloaded server may ask for. It leaves time for one more dial before
	// waitEnd.
	lastRetry = waitEnd - 5*time.Second

	// firstDials limits the dials before a conversation has begun, because the person should soon learn of a failure.
	firstDials = 3

	// waitEnd limits the time without a connection. After it, the conversation ends with an error.
	waitEnd = 30 * time.Second
)

// closeInvalidPayload is the lowest of the close codes with which Gemini itself ends a session: 1007, 1008 and 1011
// (RFC 6455 section 7.4.1). Lower codes, such as 1006, mean that the network has failed.
const (
	closeInvalidPayload = 1007
	closeAbnormal       = 1006 // no close frame
)

// setupStep selects how much of the conversation a setup contains. Each step contains less than the one before it.
type setupStep int

const (
	stepHandle setupStep = iota // the newest handle, or the transcript if there is none
	stepSeeded                  // a fresh session with the transcript
	stepShort                   // a fresh session with the newest part of the transcript
	stepBare                    // a fresh session without history
)

const (
	// HistoryLimit limits the transcript that a session gets, in bytes. It holds most of an hour of talk, which is some
	// 10,000 tokens of four bytes each. They fit into the 12,800 tokens of context that compression keeps (default of
	// package liveconfig).
	HistoryLimit = 40 << 10

	// shortHistoryLimit replaces HistoryLimit after the server has rejected a longer setup. It is in bytes, too.
	shortHistoryLimit = 8 << 10
)

// historyLimit returns the maximum size, in bytes, of the transcript that a new session gets.
func (s setupStep) historyLimit() int {
	if s >= stepShort {
		return shortHistoryLimit
	}
	return HistoryLimit
}

// failures counts the failures since the last connection that lasted at least calmTime.
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

// addShortLived counts a connection that has ended within calmTime.
func (f *failures) addShortLived() {
	f.addFailure(f.lastErr)
	f.shortLived++
}

func (f *failures) addRejection() {
	if f.rejections == 0 {
		f.firstRejectionAt = time.Now()
	}
	f.rejections++
}

// mustReduceSetup reports whether the same setup was rejected so often that the next setup must contain less.
func (f *failures) mustReduceSetup() bool {
	patience := minRejectionTime
	if f.noCloseFrame {
		patience = minSilentLossTime
	}
	return (f.rejections >= maxRejections || f.instantCloses >= maxInstantCloses) && time.Since(f.firstRejectionAt) >= patience
}

// backoff returns the pause before the next dial. It is random, because all conversations may lose their connections at
// once. Its maximum grows with the failures.
func (f *failures) backoff() time.Duration {
	n := f.total - 1
	if n <= 0 {
		return 0
	}
	return rand.N(min(firstBackoff<<min(n-1, 10), lastBackoff))
}

// Refusal is an error that carries an HTTP status or a close code from Gemini.
type Refusal interface {
	error
	Cause() wire.Cause
}

// retryDelay returns how long Google asks clients to wait after a refusal, or 0.
func retryDelay(err error) time.Duration {
	if e := (interface{ RetryDelay() time.Duration })(nil); errors.As(err, &e) {
		return e.RetryDelay()
	}
	return 0
}

// causeOf classifies a failure, which determines the next dial. hasReachedGemini means that Gemini has refused, or did
// not answer in time.
func causeOf(err error) (cause wire.Cause, hasReachedGemini bool) {
	if e := Refusal(nil); errors.As(err, &e) {
		return e.Cause(), true
	}
	if errors.Is(err, api.ErrCredentials) || errors.Is(err, api.ErrNoKey) || errors.Is(err, api.ErrNoProject) {
		return wire.Auth, false
	}
	return wire.Lost, errors.Is(err, context.DeadlineExceeded)
}

// causeText returns the cause of an error in one or two words, or "" if err is nil.
func causeText(err error) string {
	if err == nil {
		return ""
	}
	cause, _ := causeOf(err)
	return cause.String()
}
