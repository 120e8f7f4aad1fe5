package sip

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// replaces identifies the call that a new one is to replace (RFC 3891, section 6.1). The tags are named from our side.
type replaces struct {
	callID, local, remote string
	earlyOnly             bool // only if not answered yet
}

// readReplaces parses the header. ok is false if it is malformed.
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

// findReplaced returns the call that an INVITE is to replace, or nil for a new call. A trunk may replace only its own calls. It
// blocks until that call has a conversation, for at most [Options.Timeout].
func (d *Server) findReplaced(req *sip.Request, c *call) (*call, *refusal) {
	headers := req.GetHeaders("Replaces")
	if len(headers) == 0 {
		return nil, nil
	}
	r, ok := readReplaces(headers[0].Value())
	if !ok || len(headers) > 1 {
		return nil, &refusal{400, "Bad Request", "replaces: the header cannot be read", nil}
	}
	d.mu.Lock()
	old := d.calls[r.local]
	d.mu.Unlock()
	if old == nil || old.trunk != c.trunk || !old.dialog.isDialog(r.callID, r.remote) {
		return nil, &refusal{481, "Call/Transaction Does Not Exist", "replaces: there is no such call", nil}
	}
	select {
	case <-old.sessionStarted:
	case <-old.endRequested:
		return nil, &refusal{603, "Decline", "replaces: the call has ended", nil} // RFC 3891, section 3
	case <-time.After(d.timeout):
		return nil, &refusal{481, "Call/Transaction Does Not Exist", "replaces: the call has no conversation", nil}
	}
	if old.isBridged() || isClosed(old.conversation().Done()) {
		return nil, &refusal{603, "Decline", "replaces: the call was handed over", nil}
	}
	if r.earlyOnly {
		return nil, &refusal{486, "Busy Here", "replaces: the call was answered", nil}
	}
	return old, nil
}

// conversation returns the call's session, or nil before it begins.
func (c *call) conversation() *bridge.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// currentCall is the call that has the conversation. Another call may replace it.
type currentCall struct{ atomic.Pointer[call] }

// transferMessage returns the message that tells the model about its new caller after a transfer.
func transferMessage(to phone.Party) bridge.Message {
	return bridge.Message{Text: "The call was handed over: somebody else is on the line now. " + to.PromptData(), TurnComplete: true}
}
