package ua

import "strings"

// replaces is the content of a Replaces header (RFC 3891, section 6.1): it identifies the call that a new call is to
// replace. The local tag is ours, the remote tag the peer's.
type replaces struct {
	callID, local, remote string
	earlyOnly             bool // replace the call only if it is not answered yet
}

// readReplaces parses a Replaces header. ok is false if the header is malformed.
func readReplaces(header string) (r replaces, ok bool) {
	id, params, _ := strings.Cut(header, ";")
	r.callID = strings.TrimSpace(id)
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		switch strings.ToLower(name) {
		case "to-tag":
			r.local = value
		case "from-tag":
			r.remote = value
		case "early-only":
			r.earlyOnly = true
		}
	}
	return r, r.callID != "" && r.local != "" && r.remote != ""
}
