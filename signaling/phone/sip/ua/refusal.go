package ua

import (
	"errors"
	"fmt"
	"time"

	"github.com/emiago/sipgo/sip"
)

// The reasons for which a call ends.
var (
	ErrHungUp    = errors.New("the other side has hung up")
	ErrCancelled = errors.New("the caller has given up")
	ErrRefresh   = errors.New("the session timer was not refreshed")
	ErrNoAnswer  = errors.New("nobody has answered in time")

	errNoACK    = errors.New("our answer was not acknowledged")
	errNoPRACK  = errors.New("our ringing was not acknowledged")
	errChanging = errors.New("the other side is changing what was agreed")
	errUnknown  = errors.New("the server's address was not found")
)

// ErrClosed is the error of a call that begins while the user agent closes.
var ErrClosed = errors.New("the user agent is closing")

// hungUp is [ErrHungUp] together with the reason that the other side gave.
type hungUp struct{ reason string }

func (h hungUp) Error() string        { return h.reason }
func (h hungUp) Is(target error) bool { return target == ErrHungUp }

// Refusal is the refusal of a request.
type Refusal struct {
	Code   int
	Reason string
	Rule   string // reason for the log; the part before a colon is from a fixed list, and is counted

	headers []sip.Header
}

// WithHeader adds a header to the response.
func (r *Refusal) WithHeader(name, value string) *Refusal {
	r.headers = append(r.headers, sip.NewHeader(name, value))
	return r
}

// WithWarning adds a sentence for the peer's operator.
func (r *Refusal) WithWarning(text string) *Refusal {
	return r.WithHeader("Warning", fmt.Sprintf("399 voxgate %q", text))
}

// NotAcceptable returns the refusal of a session description. The text of the error is sent to the peer, whose operator
// may read it.
func NotAcceptable(why error) *Refusal {
	return (&Refusal{Code: 488, Reason: "Not Acceptable Here", Rule: "SDP: " + why.Error()}).WithWarning(why.Error())
}

// RedirectTo returns the response that redirects a caller to another SIP URI.
func RedirectTo(uri, rule string) (*Refusal, error) {
	to, err := ParseURI(uri)
	if err != nil {
		return nil, err
	}
	return &Refusal{302, "Moved Temporarily", rule, []sip.Header{&sip.ContactHeader{Address: to}}}, nil
}

// RefusedError is the error of a call that was refused.
type RefusedError struct {
	Status int    // SIP status: 486 is busy
	Reason string // reason phrase, with the text of the Reason header
	// RetryAfter is the minimum wait before another try, if the response states it (RFC 3261, section 20.33); else 0.
	RetryAfter time.Duration
}

func newRefusedError(res *sip.Response) *RefusedError {
	return &RefusedError{res.StatusCode, withReasonHeader(res.Reason, res), retryAfter(res)}
}

func (e *RefusedError) Error() string { return fmt.Sprintf("not answered: %d %s", e.Status, e.Reason) }
