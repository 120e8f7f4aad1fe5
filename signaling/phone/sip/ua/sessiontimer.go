package ua

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
)

const (
	// minSessionInterval is the shortest session interval that we accept (RFC 4028, section 4).
	minSessionInterval = 90 * time.Second
	// defaultSessionInterval is the interval that we choose for a peer that supports session timers but states no
	// interval (RFC 4028, section 4).
	defaultSessionInterval = 30 * time.Minute
	// maxSessionInterval limits the interval that a peer can demand with status 422.
	maxSessionInterval = 24 * time.Hour
)

// sessionTimer is the agreed session timer of a call (RFC 4028). The zero value disables the timer.
type sessionTimer struct {
	every       time.Duration
	isRefresher bool // we refresh, not the peer

	invites bool // we refresh by INVITE, because the peer does not support UPDATE
}

// expiresAfter returns how long after its last refresh a call is ended (RFC 4028, section 10).
func (s sessionTimer) expiresAfter() time.Duration { return s.every - min(32*time.Second, s.every/3) }

// header returns the Session-Expires header for our request if forRequest is true, otherwise for our response. The
// header names the refresher by its role in the transaction: uac or uas.
func (s sessionTimer) header(forRequest bool) sip.Header {
	by := "uas"
	if s.isRefresher == forRequest {
		by = "uac"
	}
	return sip.NewHeader("Session-Expires", fmt.Sprintf("%.0f;refresher=%s", s.every.Seconds(), by))
}

// requestedTimer returns the session timer that a request of the peer asks for. ok is false if its interval is too
// short.
func requestedTimer(req *sip.Request) (r sessionTimer, ok bool) {
	able := supportsOption(req, "timer")
	every, by, found := parseSessionExpires(req)
	switch {
	case !found && able:
		return sessionTimer{every: defaultSessionInterval}, true
	case !found:
		return sessionTimer{}, true
	}
	// If the peer cannot refresh, we do (RFC 4028, section 9, table 2).
	return sessionTimer{every: every, isRefresher: !able || by == "uas"}, every >= minSessionInterval
}

// agreedTimer returns the session timer that the peer has agreed to in its response to our request.
func agreedTimer(res *sip.Response) sessionTimer {
	every, by, _ := parseSessionExpires(res)
	return sessionTimer{every: every, isRefresher: by == "uac"}
}

// parseSessionExpires parses Session-Expires, or its short form. It ignores a malformed header.
func parseSessionExpires(m interface{ GetHeader(name string) sip.Header }) (interval time.Duration, refresher string, found bool) {
	h := m.GetHeader("Session-Expires")
	if h == nil {
		h = m.GetHeader("x")
	}
	if h == nil {
		return 0, "", false
	}
	text, params, _ := strings.Cut(h.Value(), ";")
	seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if _, by, ok := strings.Cut(strings.ToLower(params), "refresher="); ok {
		refresher, _, _ = strings.Cut(strings.TrimSpace(by), ";")
	}
	return time.Duration(seconds) * time.Second, refresher, err == nil
}
