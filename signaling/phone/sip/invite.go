package sip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
)

const (
	usualTimeout          = 32 * time.Second       // 64 times T1 (RFC 3261, sections 9.1 and 13.3.1.4)
	retransmitInterval    = 500 * time.Millisecond // T1
	maxRetransmitInterval = 4 * time.Second        // T2
)

// onInvite handles an INVITE: a new call, or a re-INVITE.
func (d *Server) onInvite(req *sip.Request, tx sip.ServerTransaction) {
	if req.To().Params.Has("tag") {
		d.withDialogCall((*call).onReinvite)(req, tx)
		return
	}
	from, ok := sourceOf(req)
	if !ok {
		return
	}
	r := d.gate.admitRequest(req, from, d.gate.trunks)
	if r.trunk == nil {
		d.countRefusal("call refused", r.rule, req.Source())
		if res := d.gate.refusalResponse(r, req, from); res != nil {
			_ = tx.Respond(res)
		}
		return
	}
	d.verifyConn(req)
	log := d.log.With("trunk", r.trunk.Name, "sip", req.CallID().Value())
	d.runIncomingCall(req, tx, log, r.trunk.isAsserting(), func(c *call, req *sip.Request) *refusal {
		return d.admitCall(c, req, from, r.trunk)
	})
}

// runIncomingCall makes a call from an INVITE, unless admit refuses it, and runs it to its end. The call's release undoes what admit has
// reserved. If asserted is true, the network vouches for the caller's identity.
func (d *Server) runIncomingCall(
	req *sip.Request, tx sip.ServerTransaction, log *slog.Logger, asserted bool, admit func(*call, *sip.Request) *refusal,
) {
	c, refused := d.newIncomingCall(req, asserted)
	if refused == nil {
		c.log = log
		refused = admit(c, req)
	}
	if refused == nil && !d.addCall(c) {
		c.release()
		refused = refusalFor(bridge.ErrShutdown)
	}
	if refused != nil {
		d.refuseCall(req, tx, log, refused)
		return
	}
	d.runCallToEnd(c, func() error {
		refused := c.askWebhook()
		if d.gate.wasCancelled(req) {
			refused = refusalFor(errCancelled)
		}
		if refused != nil {
			d.refuseCall(req, tx, log, refused)
			return errRefused
		}
		c.logBegin(string(c.party.Number), string(c.party.Called))
		return c.answerInvite(req, tx)
	})
}

func (d *Server) refuseCall(req *sip.Request, tx sip.ServerTransaction, log *slog.Logger, r *refusal) {
	name, _, _ := strings.Cut(r.rule, ": ")
	d.count("sip " + name)
	log.Warn("call refused", "rule", phone.ClipField(r.rule), "from", req.Source())
	d.respond(req, tx, r.code, r.reason, r.headers...)
}

var errRefused = errors.New("the call was refused")

// runCallToEnd runs f for a registered call. When f returns, it releases the call's resources and logs the end.
func (d *Server) runCallToEnd(c *call, f func() error) {
	started := time.Now()
	var err error
	defer func() {
		c.log.Info("call ended", "reason", err, "duration", time.Since(started).Round(time.Millisecond))
	}()
	defer c.release()
	defer d.removeCall(c)
	crash.Run(c.log, "sip call", func(e error) {
		err = e
		c.endCall(e)
	}, func() { err = f() })
}

// refusal is the refusal of a request.
type refusal struct {
	code    int
	reason  string
	rule    string // for the log; the part before a colon is from a fixed list, and is counted
	headers []sip.Header
}

// refusalFor returns the SIP refusal for an error of the gateway.
func refusalFor(err error) *refusal {
	if errors.Is(err, errCancelled) || errors.Is(err, errHungUp) {
		return &refusal{code: 487, reason: "Request Terminated", rule: "cancelled"}
	}
	e := bridge.AsError(err)
	r := &refusal{
		code: 500, reason: "Server Internal Error", rule: string(e.Code) + ": " + e.Message,
		headers: []sip.Header{sip.NewHeader("Warning", fmt.Sprintf("399 voxgate %q", e.Message))},
	}
	switch {
	case e.Code == bridge.CodeForbidden, e.Code == bridge.CodeUnauthorized:
		r.code, r.reason = 403, "Forbidden"
	case e.Field == agents.ErrorField:
		r.code, r.reason = 404, "Not Found"
	case e.Code == bridge.CodeBusy, errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		r.code, r.reason = 503, "Service Unavailable"
		if seconds := int(e.Retry.Seconds() + 0.999); seconds > 0 {
			r.headers = append(r.headers, sip.NewHeader("Retry-After", strconv.Itoa(seconds)))
		}
	}
	return r
}

// newIncomingCall makes a call from an INVITE. Nothing is reserved for it yet.
func (d *Server) newIncomingCall(req *sip.Request, asserted bool) (*call, *refusal) {
	if missing := missingOptions(req, extensions); len(missing) > 0 {
		list := strings.Join(missing, ", ")
		return nil, &refusal{420, "Bad Extension", "extension: " + list, []sip.Header{sip.NewHeader("Unsupported", list)}}
	}
	timer, ok := readRefresh(req)
	if !ok {
		return nil, &refusal{
			422,
			"Session Interval Too Small",
			"session timer",
			[]sip.Header{sip.NewHeader("Min-SE", fmt.Sprintf("%.0f", minSessionInterval.Seconds()))},
		}
	}
	if refused := checkBody(req); refused != nil {
		return nil, refused
	}
	who := d.partyOf(req, asserted)
	agent := phone.FindAgent(d.agents, protocolName, who.Called)
	if agent == nil {
		return nil, &refusal{404, "Not Found", "no agent: for " + phone.ClipField(who.Called), nil}
	}
	if !d.host.IsReady() {
		return nil, refusalFor(bridge.ErrShutdown)
	}
	c := newCall(d, agent)
	c.party, c.timer = who, timer
	return c, nil
}

// admitCall counts an accepted call against the limits of its trunk, and gives it a media port.
func (d *Server) admitCall(c *call, req *sip.Request, from netip.Addr, t *trunkState) (refused *refusal) {
	c.trunk = t
	if c.replaces, refused = d.findReplaced(req, c); refused != nil {
		return refused
	}
	s := d.newMedia(t, from, c)
	if offer := sessionIn(req); offer != nil {
		if err := s.ApplyOffer(offer); err != nil {
			return notAcceptable(err)
		}
	}
	if rule := d.gate.countCall(t, c.party.Number.Key()); rule != "" {
		return &refusal{503, "Service Unavailable", rule, []sip.Header{sip.NewHeader("Retry-After", "10")}}
	}
	if err := s.OpenPort(); err != nil {
		d.gate.releaseCall(t, c.party.Number.Key())
		return &refusal{503, "Service Unavailable", "no port: " + err.Error(), []sip.Header{sip.NewHeader("Retry-After", "10")}}
	}
	c.assignTrunk(t, s, c.party.Number.Key())
	c.dialog = dialogFromRequest(req, d.contactURI(req.Transport(), from))
	c.dialog.client, c.dialog.from, c.dialog.login, c.dialog.log = d.client, d.localUDPAddr(req.Transport()), t.Outbound, c.log
	d.lookUpHosts(c)
	return nil
}

// newMedia returns the media of a trunk's call with a peer, without a port yet.
func (d *Server) newMedia(t *trunkState, peer netip.Addr, c *call) *sipmedia.Audio {
	return sipmedia.NewAudio(sipmedia.Options{
		Settings: t.Settings, Ports: d.ports, Resolver: d.resolver, Local: d.localAddr.address(peer), OnKey: c.keypad.PushKey,
		OnQuality: d.onQuality, Logger: c.log,
	})
}

// assignTrunk assigns a call to a trunk. counted is the caller that it counts for, or "" for an outgoing call.
func (c *call) assignTrunk(t *trunkState, s *sipmedia.Audio, counted string) {
	c.trunk, c.media = t, s
	c.party.Attributes.Add("trunk", t.Name)
	c.open = bridge.SessionRequest{
		Origin: bridge.Origin{
			Protocol: protocolName, Identity: string(c.party.Number), Key: protocolName + " " + t.Name,
			Attributes: c.party.Attributes,
		},
		Grant:   &bridge.Grant{Tools: []string{"*"}, MaxDuration: t.maxDuration()},
		Account: c.server.account(protocolName+" "+t.Name, t.Calls),
	}
	c.release = func() {
		s.ClosePort()
		c.server.gate.releaseCall(t, counted)
	}
}

func notAcceptable(err error) *refusal {
	return &refusal{
		488,
		"Not Acceptable Here",
		"SDP: " + err.Error(),
		[]sip.Header{sip.NewHeader("Warning", fmt.Sprintf("399 voxgate %q", err.Error()))},
	}
}

// answerInvite runs a call from its INVITE to its end, and returns why it ended.
func (c *call) answerInvite(req *sip.Request, tx sip.ServerTransaction) error {
	if !tx.OnCancel(func(*sip.Request) { c.endCall(errCancelled) }) {
		return errCancelled
	}
	talked, err := c.sendRinging(req, tx)
	if err != nil {
		return err
	}
	if err := c.sendAnswer(req, tx); err != nil {
		c.endCall(err)
		if talked != nil {
			<-talked
		}
		return c.hangUp(err)
	}
	if talked == nil {
		talked = c.startConversation()
	}
	return c.hangUp(<-talked)
}

// sendRinging sends the provisional responses. With early media it also starts the conversation, and blocks until the model speaks; talked
// then receives the end of the conversation. Otherwise talked is nil.
func (c *call) sendRinging(req *sip.Request, tx sip.ServerTransaction) (talked <-chan error, err error) {
	must := requiresOption(req, "100rel")
	rings := c.dialog.buildResponse(req, 180, "Ringing")
	switch offered := sessionIn(req) != nil; {
	case c.replaces != nil: // no ringing
		return nil, nil
	case !offered && must: // it would carry our offer, and its PRACK the answer
		return nil, nil
	case !offered || !c.trunk.EarlyMedia:
		return nil, c.sendReliable(req, rings, tx, must)
	default:
		must = supportsOption(req, "100rel")
		rings = c.dialog.buildResponse(req, 183, "Session Progress")
		setBody(rings, "application/sdp", c.media.LocalDescription())
	}
	if err := c.sendReliable(req, rings, tx, must); err != nil {
		return nil, err
	}
	talked = c.startConversation()
	select {
	case <-c.modelSpoke: // the model is connected: from here on the call costs money
		return talked, nil
	case err := <-talked:
		if why := c.endReason(); why != nil {
			err = why
		}
		c.respond(tx, req, refusalFor(err))
		return nil, err
	}
}

// respond sends the response r to a request of the call.
func (c *call) respond(tx sip.ServerTransaction, req *sip.Request, r *refusal) {
	res := c.dialog.buildResponse(req, r.code, r.reason)
	for _, h := range r.headers {
		res.AppendHeader(h)
	}
	_ = tx.Respond(res)
}

// startConversation begins the conversation. The channel receives the reason for its end.
func (c *call) startConversation() <-chan error {
	talked := make(chan error, 1)
	go crash.Run(c.log, "sip call", func(err error) { talked <- err }, func() { talked <- c.runCall() })
	return talked
}

// sendAnswer answers with 200, and blocks until that is acknowledged.
func (c *call) sendAnswer(req *sip.Request, tx sip.ServerTransaction) error {
	if why := c.endReason(); why != nil {
		c.respond(tx, req, refusalFor(why))
		return why
	}
	res := c.withTimer(c.dialog.buildResponse(req, 200, "OK"))
	setBody(res, "application/sdp", c.media.LocalDescription())
	body, err := c.sendUntilAcked(res, tx, c.acked)
	if err != nil {
		return err
	}
	if sessionIn(req) == nil { // the offer was ours
		if err := c.media.ApplyAnswer(body); err != nil {
			return err
		}
	}
	<-c.changing // from now on the agreement can change
	close(c.answerAcked)
	return nil
}

// sendUntilAcked repeats a response until it is acknowledged, and returns the body of the acknowledgement. It fails if the call ends, or
// after [Options.Timeout].
func (c *call) sendUntilAcked(res *sip.Response, tx sip.ServerTransaction, acked <-chan []byte) (body []byte, err error) {
	if isClosed(c.endRequested) {
		return nil, c.endReason()
	}
	select {
	case <-c.acked: // of an abandoned response
	default:
	}
	c.awaitedACK.Store(res.CSeq().SeqNo)
	defer c.awaitedACK.Store(0)
	if err := tx.Respond(res); err != nil {
		return nil, err
	}
	timeout := time.NewTimer(c.server.timeout)
	defer timeout.Stop()
	pause := retransmitInterval
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		select {
		case body := <-acked:
			return body, nil
		case ack := <-tx.Acks(): // from a peer that sends it with the branch of the INVITE
			return sessionIn(ack), nil
		case <-c.endRequested: // a BYE may overtake the ACK
			return nil, c.endReason()
		case <-timeout.C:
			return nil, errNoACK
		case <-again.C:
			_ = c.server.sipServer.WriteResponse(res)
			pause = min(2*pause, maxRetransmitInterval)
			again.Reset(pause)
		}
	}
}

// onAck handles the ACK of our newest response. A repeated ACK of an older one must not be mistaken for it.
func (c *call) onAck(req *sip.Request) {
	if c.awaitedACK.CompareAndSwap(req.CSeq().SeqNo, 0) {
		trySend(c.acked, sessionIn(req))
	}
}

// handleMediaChange handles a re-INVITE or an UPDATE, which may change the agreement.
func (c *call) handleMediaChange(req *sip.Request, tx sip.ServerTransaction, deliver func(*sip.Response) ([]byte, error)) {
	select { // a request right behind an ACK may be read before it
	case c.changing <- struct{}{}:
		defer func() { <-c.changing }()
	case <-time.After(retransmitInterval):
		_ = tx.Respond(c.dialog.buildResponse(req, 491, "Request Pending"))
		return
	}
	if refused := checkBody(req); refused != nil {
		c.respond(tx, req, refused)
		return
	}
	offer := sessionIn(req)
	describes := offer != nil || req.Method == sip.INVITE
	isOurOffer := describes && offer == nil // the offer is ours
	if describes && !isOurOffer {
		if err := c.media.ApplyOffer(offer); err != nil {
			c.respond(tx, req, notAcceptable(err))
			return
		}
	}
	c.dialog.setTarget(req.Contact())
	c.noteRefresh()
	res := c.withTimer(c.dialog.buildResponse(req, 200, "OK"))
	switch {
	case isOurOffer:
		setBody(res, "application/sdp", c.media.BuildReoffer())
	case describes:
		setBody(res, "application/sdp", c.media.LocalDescription())
	}
	body, err := deliver(res)
	if isOurOffer && err == nil && len(body) > 0 {
		err = c.media.ApplyAnswer(body)
	}
	if err != nil {
		c.endCall(err)
	}
}

func (c *call) onReinvite(req *sip.Request, tx sip.ServerTransaction) {
	c.handleMediaChange(req, tx, func(res *sip.Response) ([]byte, error) { return c.sendUntilAcked(res, tx, c.acked) })
}

func (c *call) onUpdate(req *sip.Request, tx sip.ServerTransaction) {
	c.handleMediaChange(req, tx, func(res *sip.Response) ([]byte, error) { return nil, tx.Respond(res) })
}

func (c *call) onInfo(req *sip.Request, tx sip.ServerTransaction) { _ = tx.Respond(c.handleInfo(req)) }
