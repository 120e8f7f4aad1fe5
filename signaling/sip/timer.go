package sip

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
)

const (
	// leastSession is the shortest interval of a session timer that is taken (RFC 4028, section 4).
	leastSession = 90 * time.Second
	// usualSession is the interval that we ask for of a peer that can (RFC 4028, section 4 recommends it).
	usualSession = 30 * time.Minute
)

// refresh is what was agreed about proving that a call is still there (RFC 4028); zero: nothing.
type refresh struct {
	every time.Duration
	ours  bool // we refresh, not the peer
}

// due is when a call is over that was not refreshed (section 10).
func (r refresh) due() time.Duration { return r.every - min(32*time.Second, r.every/3) }

func (r refresh) header() sip.Header {
	by := "uac"
	if r.ours {
		by = "uas"
	}
	return sip.NewHeader("Session-Expires", fmt.Sprintf("%.0f;refresher=%s", r.every.Seconds(), by))
}

// readRefresh reads what a request asks for; ok is false if its interval is too short.
func readRefresh(req *sip.Request) (r refresh, ok bool) {
	able := has(req, "timer")
	h := req.GetHeader("Session-Expires")
	if h == nil {
		h = req.GetHeader("x") // its short form
	}
	if h == nil {
		if able {
			return refresh{every: usualSession}, true
		}
		return refresh{}, true
	}
	text, params, _ := strings.Cut(h.Value(), ";")
	seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return refresh{}, true // as if it had said nothing
	}
	r.every = time.Duration(seconds) * time.Second
	// Who cannot refresh has it done: section 9, table 2.
	r.ours = !able || strings.Contains(strings.ToLower(params), "refresher=uas")
	return r, r.every >= leastSession
}

// has tells whether a request's sender supports or requires an extension.
func has(req *sip.Request, option string) bool {
	for _, name := range []string{"Supported", "k", "Require"} {
		for _, h := range req.GetHeaders(name) {
			for one := range strings.SplitSeq(h.Value(), ",") {
				if strings.EqualFold(strings.TrimSpace(one), option) {
					return true
				}
			}
		}
	}
	return false
}

// required are the extensions that a request wants and that we do not have.
func required(req *sip.Request) (missing []string) {
	for _, h := range req.GetHeaders("Require") {
		for one := range strings.SplitSeq(h.Value(), ",") {
			if one = strings.TrimSpace(one); one != "" && one != "timer" && one != "100rel" {
				missing = append(missing, one)
			}
		}
	}
	return missing
}
