package sip

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// replaces names the call whose place a new one wants to take (RFC 3891, section 6.1), as its receiver has the tags.
type replaces struct {
	callID, local, remote string
	early                 bool // only if it has no answer yet
}

// readReplaces reads the header of a request; ok is false if it cannot be read.
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
			r.early = true
		}
	}
	return r, r.callID != "" && r.local != "" && r.remote != ""
}

// findReplaced is the call whose place an INVITE wants to take; nil: it is a new one. A trunk, or a page, may only replace its own calls.
func (d *Door) findReplaced(req *sip.Request, c *call) (*call, *refusal) {
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
	if old == nil || old.trunk != c.trunk || old.page != c.page || !old.dialog.isDialog(r.callID, r.remote) {
		return nil, &refusal{481, "Call/Transaction Does Not Exist", "replaces: there is no such call", nil}
	}
	select {
	case <-old.inSession:
	case <-old.ended:
		return nil, &refusal{603, "Decline", "replaces: the call has ended", nil} // RFC 3891, section 3
	case <-time.After(d.timeout):
		return nil, &refusal{481, "Call/Transaction Does Not Exist", "replaces: the call has no conversation", nil}
	}
	if old.isBridged() || isClosed(old.conversation().Done()) {
		return nil, &refusal{603, "Decline", "replaces: the call was handed over", nil}
	}
	if r.early {
		return nil, &refusal{486, "Busy Here", "replaces: the call was answered", nil}
	}
	return old, nil
}

// conversation is the one that a call has; nil: it has not begun.
func (c *call) conversation() *bridge.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// currentCall is the call that a conversation has: another may take its place.
type currentCall struct{ atomic.Pointer[call] }

// transferMessage is the model's notice that another call has replaced the one that it had.
func transferMessage(to phone.Party) bridge.Message {
	return bridge.Message{Text: "The call was handed over: somebody else is on the line now. " + to.PromptData(), TurnComplete: true}
}
