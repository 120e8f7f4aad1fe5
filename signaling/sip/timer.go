package sip

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
)

const (
	// leastSession is the shortest interval of a session timer that is taken (RFC 4028, section 4).
	leastSession = 90 * time.Second
	// defaultSession is the interval that we ask for of a peer that can (RFC 4028, section 4 recommends it).
	defaultSession = 30 * time.Minute
	// maxSession is the longest interval that a peer can have us take.
	maxSession = 24 * time.Hour
)

// sessionTimer is what was agreed about proving that a call is still there (RFC 4028); zero: nothing.
type sessionTimer struct {
	every       time.Duration
	isRefresher bool // we refresh, not the peer

	invites bool // we refresh by INVITE: the peer has no UPDATE
}

// expiresAfter is when a call is over that was not refreshed (section 10).
func (r sessionTimer) expiresAfter() time.Duration { return r.every - min(32*time.Second, r.every/3) }

// header says what was agreed, in an answer or in our request: who refreshes is named by their part in that transaction.
func (r sessionTimer) header(request bool) sip.Header {
	by := "uas"
	if r.isRefresher == request {
		by = "uac"
	}
	return sip.NewHeader("Session-Expires", fmt.Sprintf("%.0f;refresher=%s", r.every.Seconds(), by))
}

// readRefresh reads what a request asks for; ok is false if its interval is too short.
func readRefresh(req *sip.Request) (r sessionTimer, ok bool) {
	able := isSupported(req, "timer")
	every, by, said := sessionExpires(req)
	switch {
	case !said && able:
		return sessionTimer{every: defaultSession}, true
	case !said:
		return sessionTimer{}, true
	}
	// If the peer cannot refresh, we do: section 9, table 2.
	return sessionTimer{every: every, isRefresher: !able || by == "uas"}, every >= leastSession
}

// agreedRefresh reads what an answer to our request says.
func agreedRefresh(res *sip.Response) sessionTimer {
	every, by, _ := sessionExpires(res)
	return sessionTimer{every: every, isRefresher: by == "uac"}
}

// sessionExpires reads that header, or its short form. One that cannot be read was not said.
func sessionExpires(m interface{ GetHeader(name string) sip.Header }) (every time.Duration, refresher string, said bool) {
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

// optionTags are the extensions that a header of a request lists.
func optionTags(req *sip.Request, header string) (list []string) {
	for _, h := range req.GetHeaders(header) {
		for one := range strings.SplitSeq(h.Value(), ",") {
			if one = strings.ToLower(strings.TrimSpace(one)); one != "" {
				list = append(list, one)
			}
		}
	}
	return list
}

// isSupported reports whether a request's sender has an extension.
func isSupported(req *sip.Request, option string) bool {
	return slices.Contains(slices.Concat(optionTags(req, "Supported"), optionTags(req, "k"), optionTags(req, "Require")), option)
}

// isRequired reports whether a request's sender wants an extension to be used.
func isRequired(req *sip.Request, option string) bool {
	return slices.Contains(optionTags(req, "Require"), option)
}

// missingOptions are the extensions that a request wants and that are not served.
func missingOptions(req *sip.Request, served string) (missing []string) {
	return slices.DeleteFunc(optionTags(req, "Require"), func(option string) bool {
		return slices.Contains(strings.Split(served, ", "), option)
	})
}
