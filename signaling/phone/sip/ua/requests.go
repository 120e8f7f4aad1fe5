package ua

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/emiago/sipgo/sip"

	"voxgate/internal/crash"
)

// onRepeatedAnswer handles another final response to our answered INVITE. Either our ACK was lost, or the call was
// forked and a second phone has answered. The second phone gets an ACK and then a BYE (RFC 3261, section 13.2.2.4).
func (u *UserAgent) onRepeatedAnswer(res *sip.Response) {
	if !res.IsSuccess() || res.CSeq() == nil || res.CSeq().MethodName != sip.INVITE || res.From() == nil || res.To() == nil {
		return
	}
	c := u.calls.find(res.From().Params.GetOr("tag", ""))
	if c == nil || res.CallID() == nil || res.CallID().Value() != c.dialog.callID || !u.calls.beginRequest() {
		return
	}
	go func() {
		defer u.calls.serving.Done()
		defer crash.Recover(c.Log, "sip call", c.End)
		dialog := c.dialog
		forked := !dialog.isDialog(dialog.callID, res.To().Params.GetOr("tag", ""))
		if forked {
			dialog = dialog.forkDialog(res)
		}
		if err := dialog.ackAgain(res.CSeq().SeqNo); err == nil && forked {
			dialog.sendBye(`SIP;cause=200;text="Call completed elsewhere"`) // RFC 3326
		}
	}()
}

// setHandlers sets the handler of each method.
func (u *UserAgent) setHandlers() {
	for method, f := range map[sip.RequestMethod]func(*sip.Request, sip.ServerTransaction){
		sip.INVITE: u.onInvite, sip.ACK: u.onAck, sip.BYE: u.onBye, sip.CANCEL: u.onCancel, sip.OPTIONS: u.onOptions,
		sip.INFO: u.withDialogCall((*Call).onInfo), sip.UPDATE: u.withDialogCall((*Call).onUpdate),
		sip.NOTIFY: u.withDialogCall((*Call).onNotify),
		sip.PRACK:  u.withDialogCall((*Call).onPrack),
	} {
		u.server.OnRequest(method, u.guardHandler(f))
	}
	u.server.OnNoRoute(u.guardHandler(u.onUnsupported))
}

// guardHandler returns a handler that calls f for well-formed requests only, and recovers from panics of f.
func (u *UserAgent) guardHandler(f func(*sip.Request, sip.ServerTransaction)) func(*sip.Request, sip.ServerTransaction) {
	return func(req *sip.Request, tx sip.ServerTransaction) {
		defer crash.Recover(u.log.With("method", req.Method, "from", req.Source()), "sip request", func(err error) {
			if c := u.calls.findDialog(req); c != nil {
				c.End(err)
			}
			if req.Method != sip.ACK { // no effect if a response was sent already
				u.respond(req, tx, 500, "Server Internal Error")
			}
		})
		if !u.calls.beginRequest() {
			return
		}
		defer u.calls.serving.Done()
		if req.From() == nil || req.To() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil ||
			!req.From().Params.Has("tag") {
			return
		}
		crash.RunTestHook("sip request")
		f(req, tx)
	}
}

// respondIfTrusted responds to a request outside of calls if it comes from a trunk or a recently authenticated address.
// Other senders, such as scanners, get no response.
func (u *UserAgent) respondIfTrusted(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	from, err := netip.ParseAddrPort(req.Source())
	if err == nil && u.gate.isKnown(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())) {
		u.respond(req, tx, code, reason, headers...)
	}
}

func (u *UserAgent) respond(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	res := sip.NewResponseFromRequest(req, code, reason, nil)
	for _, h := range headers {
		res.AppendHeader(h)
	}
	_ = tx.Respond(res)
}

func (u *UserAgent) withDialogCall(f func(*Call, *sip.Request, sip.ServerTransaction)) func(*sip.Request, sip.ServerTransaction) {
	return func(req *sip.Request, tx sip.ServerTransaction) {
		c := u.calls.findDialog(req)
		owned, refusal := false, (*sip.Response)(nil)
		if c != nil {
			owned, refusal = c.authorizeRequest(req)
		}
		switch {
		case refusal != nil:
			_ = tx.Respond(refusal)
		case !owned: // a sender who does not own the call gets the same response as for a call that does not exist
			u.respondIfTrusted(req, tx, 481, "Call/Transaction Does Not Exist")
		case !c.dialog.advanceRemoteSequence(req):
			_ = tx.Respond(c.dialog.buildResponse(req, 500, "Server Internal Error")) // for a CSeq that is too low (RFC 3261, section 12.2.2)
		default:
			u.verifyConn(req)
			f(c, req, tx)
		}
	}
}

// onOptions responds with what the gateway supports, inside or outside of a call. Proxies also use OPTIONS to check
// whether a call is still alive.
func (u *UserAgent) onOptions(req *sip.Request, tx sip.ServerTransaction) {
	headers := []sip.Header{sip.NewHeader("Allow", allowed), sip.NewHeader("Accept", accepted), sip.NewHeader("Supported", extensions)}
	u.respondInOrOutOfCall(req, tx, 200, "OK", headers...)
}

// onUnsupported refuses unsupported methods.
func (u *UserAgent) onUnsupported(req *sip.Request, tx sip.ServerTransaction) {
	u.respondInOrOutOfCall(req, tx, 405, "Method Not Allowed", sip.NewHeader("Allow", allowed))
}

// respondInOrOutOfCall responds to a request that may be sent within a call or outside of calls. If the request names a call, the
// call must exist.
func (u *UserAgent) respondInOrOutOfCall(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	if !req.To().Params.Has("tag") {
		u.respondIfTrusted(req, tx, code, reason, headers...)
		return
	}
	u.withDialogCall(func(c *Call, req *sip.Request, tx sip.ServerTransaction) {
		c.respond(tx, req, &Refusal{Code: code, Reason: reason, headers: headers})
	})(req, tx)
}

// onInvite handles an INVITE: a new call, or a re-INVITE.
func (u *UserAgent) onInvite(req *sip.Request, tx sip.ServerTransaction) {
	if req.To().Params.Has("tag") {
		u.withDialogCall((*Call).onReinvite)(req, tx)
		return
	}
	from, ok := sourceOf(req)
	if !ok {
		return
	}
	r := u.gate.admitRequest(req, from, u.gate.trunks)
	if r.trunk == nil {
		u.refusals.record("call refused", r.rule, req.Source())
		if res := u.gate.refusalResponse(r, req, from); res != nil {
			_ = tx.Respond(res)
		}
		return
	}
	u.verifyConn(req)
	dialog := dialogFromRequest(req, u.contactURI(req.Transport(), from))
	dialog.client, dialog.from, dialog.login = u.client, u.localUDPAddr(req.Transport()), r.trunk.Outbound
	c := newCall(u.core, r.trunk, dialog, u.log)
	c.tx, c.party = tx, partyOf(req, r.trunk.isIdentityTrusted(), u.gate.registeredNumbers())
	timer, refused := checkInvite(req)
	if refused != nil {
		c.Refuse(refused)
		return
	}
	c.timer = timer
	u.onCall(c)
}

// checkInvite checks the required extensions, the session timer and the body of an INVITE. It returns the timer, or a
// refusal if one of them is not supported.
func checkInvite(req *sip.Request) (timer sessionTimer, refused *Refusal) {
	if missing := missingOptions(req, extensions); len(missing) > 0 {
		list := strings.Join(missing, ", ")
		return timer, (&Refusal{Code: 420, Reason: "Bad Extension", Rule: "extension: " + list}).WithHeader("Unsupported", list)
	}
	timer, ok := requestedTimer(req)
	if !ok {
		return timer, (&Refusal{Code: 422, Reason: "Session Interval Too Small", Rule: "session timer"}).
			WithHeader("Min-SE", fmt.Sprintf("%.0f", minSessionInterval.Seconds()))
	}
	return timer, checkBody(req)
}

// onCancel handles a CANCEL that sipgo cannot match to an INVITE. The CANCEL may have overtaken the INVITE, because
// sipgo reads packets concurrently.
func (u *UserAgent) onCancel(req *sip.Request, tx sip.ServerTransaction) {
	u.gate.storeEarlyCancel(req)
	for _, c := range u.calls.all() {
		if c.dialog.invite == nil || inviteKey(c.dialog.invite) != inviteKey(req) {
			continue
		}
		if !c.isAnswered.Load() { // after the answer, a CANCEL has no effect (RFC 3261, section 9.2)
			c.End(ErrCancelled)
		}
	}
	u.respondIfTrusted(req, tx, 481, "Call/Transaction Does Not Exist")
}

func (u *UserAgent) onAck(req *sip.Request, _ sip.ServerTransaction) {
	c := u.calls.findDialog(req)
	if c == nil {
		return
	}
	if owned, _ := c.authorizeRequest(req); owned {
		c.onAck(req)
	}
}

func (u *UserAgent) onBye(req *sip.Request, tx sip.ServerTransaction) {
	u.withDialogCall(func(c *Call, req *sip.Request, tx sip.ServerTransaction) {
		// The reason is set before the response is sent, so that later requests do not find the call. The channel of
		// Ending is closed after the response.
		if c.setReason(hungUp{withReasonHeader(ErrHungUp.Error(), req)}) {
			defer close(c.ending)
		}
		_ = tx.Respond(c.dialog.buildResponse(req, 200, "OK"))
	})(req, tx)
}
