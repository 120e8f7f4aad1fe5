package sip

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/phone"
	"voxgate/signaling/rtc"
	"voxgate/tools"
)

const (
	// connectTimeout is how long WebRTC may take from our answer on.
	connectTimeout = 10 * time.Second
	// closeTimeout is how long the BYE may come after the end of the WebRTC connection: they go different ways.
	closeTimeout = time.Second
)

var (
	errNotConnected = &bridge.Error{Code: bridge.CodePeerFailed, Message: "WebRTC did not connect in time."}
	errClosed       = &bridge.Error{Code: bridge.CodePeerFailed, Message: "The telephone has closed its WebRTC connection."}
	errOtherPeer    = &rtc.RefusedError{Problem: "is of another WebRTC connection than the one of the call"}
	errNoOffer      = &rtc.RefusedError{Problem: "is missing: ours is never the first"}
)

// pageCall is a call from a page. It implements bridge.Caller.
type pageCall struct {
	leg
	phone   *pagePhone
	invite  *sip.Request
	branch  string // of the INVITE
	offer   rtc.Offer
	changes chan *sip.Request // that have an offer; it has room for one

	answered bool // the INVITE has its final answer; of leg.mu
}

// onInvite begins a call.
func (p *pagePhone) onInvite(ctx context.Context, req *sip.Request) {
	if !p.requests.Allow() {
		p.refuse(req, errTooFast)
		return
	}
	c, open, refused := p.incoming(req)
	if refused == nil {
		refused = p.enter(c)
	}
	if refused != nil {
		p.log.Warn("call refused", "rule", phone.Clip(refused.rule), "sip", phone.Clip(req.CallID().Value()))
		p.reply(req, refused.code, refused.reason, refused.headers...)
		return
	}
	if !requires(req, "100rel") { // which would want it acknowledged (RFC 3262)
		p.put(c.dialog.respond(req, 180, "Ringing"))
	}
	go func() {
		defer p.running.Done()
		defer p.survive()
		c.run(ctx, open)
	}()
}

// incoming makes a call of an INVITE.
func (p *pagePhone) incoming(req *sip.Request) (*pageCall, bridge.Open, *refusal) {
	fail := func(r *refusal, rule string) (*pageCall, bridge.Open, *refusal) {
		r.rule = rule
		return nil, bridge.Open{}, r
	}
	if missing := strings.Join(required(req, pageExtensions+", 100rel"), ", "); missing != "" {
		return fail(&refusal{code: 420, reason: "Bad Extension", headers: []sip.Header{sip.NewHeader("Unsupported", missing)}}, "extension "+missing)
	}
	timer, ok := readRefresh(req)
	if !ok {
		least := sip.NewHeader("Min-SE", fmt.Sprintf("%.0f", leastSession.Seconds()))
		return fail(&refusal{code: 422, reason: "Session Interval Too Small", headers: []sip.Header{least}}, "session timer")
	}
	open := bridge.Open{Origin: bridge.Origin{Door: doorName}}
	if err := p.admit(req, &open); err != nil {
		return fail(refusalFor(err), err.Error())
	}
	from := req.From()
	who := phone.Party{Number: from.Address.User, Name: from.DisplayName, Called: req.Recipient.User}
	agent := phone.AgentFor(p.door.Config.Agents, who.Called)
	if agent == nil {
		return fail(&refusal{code: 404, reason: "Not Found"}, "no agent for "+who.Called)
	}
	offer, err := offerOf(req)
	if err != nil {
		return fail(refusalFor(err), err.Error())
	}
	c := &pageCall{leg: newLeg(agent), phone: p, invite: req, branch: req.Via().Params.GetOr("branch", ""), offer: offer, changes: make(chan *sip.Request, 1)}
	c.party, c.timer, c.dialog = who, timer, answering(req, p.contact)
	c.dialog.exchange = p.exchange
	c.log = p.log.With("sip", phone.Clip(c.dialog.callID))
	own := agent.Open(who)
	open.Agent, open.Config, open.Farewell, open.Tools = own.Agent, own.Config, own.Farewell, []tools.Tool{c.endCall()}
	return c, open, nil
}

func offerOf(req *sip.Request) (rtc.Offer, error) {
	if len(req.Body()) == 0 {
		return rtc.Offer{}, errNoOffer
	}
	return rtc.ParseOffer(string(req.Body()))
}

// enter counts a call among those of the telephone, until leave.
func (p *pagePhone) enter(c *pageCall) *refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.calls {
		if other.dialog.is(c.dialog.callID, c.dialog.remoteTag) {
			return &refusal{code: 482, reason: "Loop Detected", rule: "the call is there already"}
		}
	}
	switch {
	case p.leaving != nil || !p.door.Host.Ready():
		r := refusalFor(bridge.ErrShutdown)
		r.rule = "the gateway is stopping"
		return r
	case len(p.calls) >= maxLines:
		return &refusal{code: 486, reason: "Busy Here", rule: "calls of the telephone"}
	}
	p.calls[c.dialog.localTag] = c
	p.running.Add(1)
	return nil
}

func (p *pagePhone) leave(c *pageCall) {
	p.mu.Lock()
	delete(p.calls, c.dialog.localTag)
	p.mu.Unlock()
}

// run has the conversation, and tells the other side of its end.
func (c *pageCall) run(ctx context.Context, open bridge.Open) {
	defer c.phone.leave(c)
	c.log.Info("call", "from", phone.Clip(c.party.Number), "to", phone.Clip(c.party.Called))
	started := time.Now()
	ctx, cancel := c.during(ctx)
	err := c.phone.door.Host.Serve(ctx, c, open)
	cancel(nil)
	if why := c.why(); why != nil {
		err = why
	}
	c.mu.Lock()
	answered := c.answered
	c.mu.Unlock()
	if answered {
		err = c.hangUp(err)
	} else {
		c.refuse(c.invite, err)
	}
	c.log.Info("call ended", "reason", err, "duration", time.Since(started).Round(time.Millisecond))
}

// answer tells whether the call can be answered, and that it is now.
func (c *pageCall) answer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = c.reason == nil
	return c.answered
}

// cancel ends the call if it has no answer yet.
func (c *pageCall) cancel() {
	c.mu.Lock()
	late := c.answered
	if !late && c.reason == nil {
		c.reason = errCancelled
		close(c.ended)
	}
	c.mu.Unlock()
}

// Serve implements bridge.Caller.
func (c *pageCall) Serve(ctx context.Context, s *bridge.Session) error {
	c.begin(s)
	var cameras rtc.Cameras
	defer cameras.Stop()
	connected, lost := make(chan struct{}, 1), make(chan string, 1)
	peer, err := c.phone.door.RTC.NewPeer(rtc.PeerOptions{
		Session: signaling.PeerSession{Session: s}, Cameras: &cameras, Decoder: c.phone.door.Decoder, Logger: c.log,
		Connected: func() {
			select {
			case connected <- struct{}{}:
			default:
			}
		},
		Lost: func(why string) {
			select {
			case lost <- why:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	defer peer.Close()
	sdp, err := peer.Answer(c.offer)
	if err != nil {
		return err
	}
	if err := c.steer(s, peer); err != nil {
		return err
	}
	if !c.answer() {
		return c.why()
	}
	res := c.withTimer(c.dialog.respond(c.invite, 200, "OK"), pageAllowed, pageExtensions)
	setBody(res, "application/sdp", []byte(sdp))
	c.phone.put(res)
	return c.talk(ctx, s, peer, connected, lost)
}

// talk is the call from our answer on.
func (c *pageCall) talk(ctx context.Context, s *bridge.Session, peer *rtc.Peer, connected <-chan struct{}, lost <-chan string) error {
	unacknowledged, unconnected := time.After(ackTimeout), time.After(connectTimeout)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	pressed := collector{}
	refreshed := time.Now()
	acked := c.acked
	var closed <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case why := <-lost:
			if why != "" {
				return &bridge.Error{Code: bridge.CodePeerFailed, Message: why + "."}
			}
			closed = time.After(closeTimeout)
		case <-closed:
			return errClosed
		case <-unacknowledged:
			return errLostACK
		case <-unconnected:
			return errNotConnected
		case <-acked:
			acked, unacknowledged = nil, nil
			if err := c.greet(s); err != nil {
				return err
			}
		case <-connected:
			unconnected = nil
			s.Hold(false)
		case req := <-c.changes:
			refreshed = time.Now()
			if err := c.change(req, s, peer); err != nil {
				return err
			}
		case digit := <-c.digits:
			if text, over := pressed.add(digit, time.Now()); over {
				c.typed(s, text)
			}
		case <-c.fresh:
			refreshed = time.Now()
		case now := <-tick.C:
			if text, over := pressed.due(now); over {
				c.typed(s, text)
			}
			if err := c.keepAlive(c.timer, now, &refreshed); err != nil {
				return err
			}
		}
	}
}

// steer has the voice go where the newest offer wants it; a telephone that takes none has us on hold.
func (c *pageCall) steer(s *bridge.Session, peer *rtc.Peer) error {
	voice := peer.Voice()
	s.Attach(voice)
	return s.Do(bridge.Pause{On: voice == nil})
}

// change answers another offer of the call. One that cannot be served changes nothing.
func (c *pageCall) change(req *sip.Request, s *bridge.Session, peer *rtc.Peer) error {
	offer, err := offerOf(req)
	if err == nil && !peer.Made(offer) {
		err = errOtherPeer
	}
	var sdp string
	if err == nil {
		sdp, err = peer.Answer(offer)
	}
	if err != nil {
		c.refuse(req, err)
		return nil
	}
	c.dialog.refresh(req.Contact())
	res := c.withTimer(c.dialog.respond(req, 200, "OK"), pageAllowed, pageExtensions)
	setBody(res, "application/sdp", []byte(sdp))
	c.phone.put(res)
	c.log.Info(map[bool]string{true: "on hold", false: "off hold"}[peer.Voice() == nil])
	return c.steer(s, peer)
}

// refuse answers a request of the call with what a refusal is in SIP.
func (c *pageCall) refuse(req *sip.Request, err error) {
	r := refusalFor(err)
	res := c.dialog.respond(req, r.code, r.reason)
	for _, h := range r.headers {
		res.AppendHeader(h)
	}
	c.phone.put(res)
}

// Notify implements bridge.Caller: what a telephone is told is said.
func (c *pageCall) Notify(e bridge.Event) {
	if b, ok := e.Body.(bridge.Log); ok {
		c.log.Debug(b.Message)
	}
}
