package sip

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

const (
	// ackTimeout is how long an answer waits to be acknowledged, and is repeated meanwhile (RFC 3261, section 13.3.1.4, has 32 s;
	// a telephone network needs none of it, and who sends no ACK holds a port).
	ackTimeout = 5 * time.Second
	firstAgain = 500 * time.Millisecond // T1
	mostAgain  = 4 * time.Second        // T2
)

// onInvite answers a call, or a change of one.
func (d *Door) onInvite(req *sip.Request, tx sip.ServerTransaction) {
	if req.To().Params.Has("tag") {
		d.inDialog((*call).onReinvite)(req, tx)
		return
	}
	from, ok := sourceOf(req)
	if !ok {
		return
	}
	r := d.gate.admit(req, from)
	if r.trunk == nil {
		d.refused("call refused", r.rule, req.Source())
		if res := d.gate.refusal(r, req, from); res != nil {
			_ = tx.Respond(res)
		}
		return
	}
	log := d.log.With("trunk", r.trunk.Name, "sip", req.CallID().Value())
	c, refused := d.incoming(req, from, r.trunk)
	if refused != nil {
		log.Warn("call refused", "rule", refused.rule, "from", req.Source())
		d.reply(req, tx, refused.code, refused.reason, refused.headers...)
		return
	}
	c.log = log
	if !d.enter(c) {
		c.release()
		d.reply(req, tx, 503, "Service Unavailable")
		return
	}
	d.carry(c, func() error {
		if refused := c.ask(); refused != nil {
			log.Warn("call refused", "rule", refused.rule, "from", req.Source())
			d.reply(req, tx, refused.code, refused.reason, refused.headers...)
			return errRefused
		}
		log.Info("call", "from", c.party.Number, "to", c.party.Called, "sound", c.stream.port)
		return c.answer(req, tx)
	})
}

var errRefused = errors.New("the call was refused")

// carry has a call that was entered, and gives back what it has taken before it says that it is over.
func (d *Door) carry(c *call, f func() error) {
	started := time.Now()
	var err error
	defer func() {
		c.log.Info("call ended", "reason", err, "duration", time.Since(started).Round(time.Millisecond))
	}()
	defer c.release()
	defer d.leave(c)
	err = f()
}

// refusal is how a call is refused.
type refusal struct {
	code    int
	reason  string
	rule    string // for the log
	headers []sip.Header
}

// newCall makes a call without anything.
func newCall(d *Door, t *lane, agent *phone.Agent) *call {
	c := &call{
		leg: newLeg(agent), door: d, lane: t, line: &line{}, over: make(chan struct{}), agreed: make(chan *sound, 1),
		spoken: make(chan struct{}), changing: make(chan struct{}, 1), reliable: reliable{acked: make(chan []byte, 1)},
	}
	c.changing <- struct{}{}
	return c
}

// release gives back what a call has taken.
func (c *call) release() {
	c.stream.close()
	c.door.gate.end(c.lane, c.counted)
}

// incoming makes a call of an INVITE that was let in. It has a port and counts among the trunk's.
func (d *Door) incoming(req *sip.Request, from netip.Addr, t *lane) (*call, *refusal) {
	if missing := required(req, extensions); len(missing) > 0 {
		list := strings.Join(missing, ", ")
		return nil, &refusal{420, "Bad Extension", "extension " + list, []sip.Header{sip.NewHeader("Unsupported", list)}}
	}
	timer, ok := readRefresh(req)
	if !ok {
		return nil, &refusal{422, "Session Interval Too Small", "session timer", []sip.Header{sip.NewHeader("Min-SE", fmt.Sprintf("%.0f", leastSession.Seconds()))}}
	}
	who := d.partyOf(req)
	agent := phone.AgentFor(d.config.Agents, who.Called)
	if agent == nil {
		return nil, &refusal{404, "Not Found", "no agent for " + who.Called, nil}
	}
	old, refused := d.replaced(req, t)
	if refused != nil {
		return nil, refused
	}
	c := newCall(d, t, agent)
	c.party, c.counted, c.timer, c.replaces = who, who.Number, timer, old
	if len(req.Body()) > 0 {
		var err error
		if c.peer, err = parseSDP(req.Body()); err == nil {
			c.sound, err = c.peer.agree(t.SRTP, nil)
		}
		if err != nil {
			return nil, notAcceptable(err)
		}
	}
	if !d.host.Ready() {
		return nil, &refusal{503, "Service Unavailable", "the gateway is stopping", nil}
	}
	if rule := d.gate.begin(t, who.Number); rule != "" {
		return nil, &refusal{503, "Service Unavailable", rule, []sip.Header{sip.NewHeader("Retry-After", "10")}}
	}
	var err error
	if c.stream, err = d.ports.open(); err != nil {
		d.gate.end(t, who.Number)
		return nil, &refusal{503, "Service Unavailable", err.Error(), []sip.Header{sip.NewHeader("Retry-After", "10")}}
	}
	c.dialog = answering(req, d.contact(req.Transport(), from))
	c.dialog.client, c.dialog.from = d.client, d.socket(req.Transport())
	c.local = local{address: d.ownAddress(from), port: c.stream.port, id: rand.Uint64() >> 1, version: 1}
	c.log = d.log
	return c, nil
}

func notAcceptable(err error) *refusal {
	return &refusal{488, "Not Acceptable Here", "SDP: " + err.Error(), []sip.Header{sip.NewHeader("Warning", fmt.Sprintf("399 voxgate %q", err.Error()))}}
}

// partyOf is who calls. What a trunk that is trusted asserts (RFC 3325) counts before what the caller says.
func (d *Door) partyOf(req *sip.Request) phone.Party {
	from := req.From()
	p := phone.Party{Number: from.Address.User, Name: from.DisplayName, Called: req.Recipient.User}
	if h := req.GetHeader("P-Asserted-Identity"); h != nil {
		var uri sip.Uri
		params := sip.NewParams()
		if name, err := sip.ParseAddressValue(h.Value(), &uri, &params); err == nil && uri.User != "" {
			p.Number = uri.User
			if name != "" {
				p.Name = name
			}
		}
	}
	if v, ok := from.Params.Get("verstat"); ok {
		p.Verify = v
	}
	if h := req.GetHeader("Privacy"); h != nil && !strings.EqualFold(strings.TrimSpace(h.Value()), "none") { // RFC 3323
		p.Number, p.Name = "", ""
	}
	return p
}

// answer takes a call from its INVITE to its end, and returns why it has ended.
func (c *call) answer(req *sip.Request, tx sip.ServerTransaction) error {
	if !tx.OnCancel(func(*sip.Request) { c.end(errCancelled) }) {
		return errCancelled
	}
	talked, err := c.ringing(req, tx)
	if err != nil {
		return err
	}
	if err := c.accept(req, tx); err != nil {
		c.end(err)
		if talked != nil {
			<-talked
		}
		return c.hangUp(err)
	}
	if talked == nil {
		talked = c.start()
	}
	return c.hangUp(<-talked)
}

// ringing is what comes before the answer: with early media the conversation itself, whose end the channel tells then.
func (c *call) ringing(req *sip.Request, tx sip.ServerTransaction) (talked <-chan error, err error) {
	must := requires(req, "100rel")
	switch {
	case c.replaces != nil: // nobody waits
		return nil, nil
	case c.agreement() == nil && must: // it would carry our offer, and its acknowledgement the answer
		return nil, nil
	case c.agreement() == nil || !c.lane.Early:
		return nil, c.provide(req, c.dialog.respond(req, 180, "Ringing"), tx, must)
	}
	if err := c.openSound(); err != nil {
		_ = tx.Respond(c.dialog.respond(req, 500, "Server Internal Error"))
		return nil, err
	}
	progress := c.describe(c.dialog.respond(req, 183, "Session Progress"))
	if err := c.provide(req, progress, tx, supports(req, "100rel")); err != nil {
		return nil, err
	}
	talked = c.start()
	select {
	case <-c.spoken: // the model is there: from here on the call is paid for
		return talked, nil
	case err := <-talked:
		_ = tx.Respond(c.dialog.respond(req, 480, "Temporarily Unavailable"))
		return nil, err
	}
}

// start begins the conversation; the channel says how it has ended.
func (c *call) start() <-chan error {
	talked := make(chan error, 1)
	go func() { talked <- c.converse() }()
	return talked
}

// accept answers with 200 and waits until that is acknowledged. Then sound goes both ways.
func (c *call) accept(req *sip.Request, tx sip.ServerTransaction) error {
	if c.agreement() != nil {
		if err := c.openSound(); err != nil {
			_ = tx.Respond(c.dialog.respond(req, 500, "Server Internal Error"))
			return err
		}
	}
	res := c.describe(c.withTimer(c.dialog.respond(req, 200, "OK"), allowed, extensions))
	body, err := c.deliver(res, tx, c.acked)
	if err != nil {
		return err
	}
	if c.agreement() == nil { // the offer was ours
		if err := c.takeAnswer(body); err != nil {
			return err
		}
	}
	<-c.changing // from now on it can be
	return c.openSound()
}

// deliver sends an answer until it is acknowledged, and returns the body of that.
func (c *call) deliver(res *sip.Response, tx sip.ServerTransaction, acked <-chan []byte) (body []byte, err error) {
	select {
	case <-c.ended:
		return nil, c.why()
	default:
	}
	if err := tx.Respond(res); err != nil {
		return nil, err
	}
	lost := time.NewTimer(ackTimeout)
	defer lost.Stop()
	pause := firstAgain
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		select {
		case body := <-acked:
			return body, nil
		case ack := <-tx.Acks(): // of who sends it with the branch of the INVITE
			return ack.Body(), nil
		case <-c.ended: // a BYE may overtake the ACK
			return nil, c.why()
		case <-lost.C:
			return nil, errLostACK
		case <-again.C:
			_ = c.door.server.WriteResponse(res)
			pause = min(2*pause, mostAgain)
			again.Reset(pause)
		}
	}
}

func (c *call) onAck(req *sip.Request) {
	select {
	case c.acked <- req.Body():
	default: // it was acknowledged before
	}
}

func (c *call) agreement() *sound {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sound
}

// openSound has the packets of the peer taken and ours sent as it was agreed.
func (c *call) openSound() error { return c.stream.set(c.agreement(), c.lane.NAT) }

// describe gives an answer our description: for the peer's, or of all that we have.
func (c *call) describe(res *sip.Response) *sip.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer != nil {
		setBody(res, "application/sdp", c.peer.answer(c.local, c.sound))
		return res
	}
	if c.lane.SRTP == srtpRequired {
		c.offered = offeredKeys()
	}
	setBody(res, "application/sdp", offer(c.local, c.offered, "sendrecv"))
	return res
}

// takeAnswer takes the peer's description for an offer of ours.
func (c *call) takeAnswer(body []byte) error {
	d, err := parseSDP(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sound, err = d.agree(c.lane.SRTP, c.offered)
	return err
}

// change is a change of what was agreed, by an INVITE or an UPDATE within the call.
func (c *call) change(req *sip.Request, tx sip.ServerTransaction, deliver func(*sip.Response) ([]byte, error)) {
	select { // what comes right behind an ACK may be read before it
	case c.changing <- struct{}{}:
		defer func() { <-c.changing }()
	case <-time.After(firstAgain):
		_ = tx.Respond(c.dialog.respond(req, 491, "Request Pending"))
		return
	}
	if len(req.Body()) > 0 {
		if err := c.renegotiate(req.Body()); err != nil {
			r := notAcceptable(err)
			res := c.dialog.respond(req, r.code, r.reason)
			res.AppendHeader(r.headers[0])
			_ = tx.Respond(res)
			return
		}
	}
	c.dialog.refresh(req.Contact())
	c.renewed()
	res := c.withTimer(c.dialog.respond(req, 200, "OK"), allowed, extensions)
	if len(req.Body()) > 0 || req.Method == sip.INVITE {
		c.describe(res)
	}
	body, err := deliver(res)
	if err != nil {
		c.end(err)
		return
	}
	if len(body) > 0 && len(req.Body()) == 0 { // the answer to an offer of ours
		if err := c.renegotiate(body); err != nil {
			c.end(err)
		}
	}
}

// renegotiate takes another description of the peer's.
func (c *call) renegotiate(body []byte) error {
	d, err := parseSDP(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	own := c.offered
	if c.sound.out != nil {
		own = append([]crypto{*c.sound.out}, own...)
	}
	agreed, err := d.agree(c.lane.SRTP, own)
	if err == nil {
		c.sound, c.peer = agreed, d
		c.local.version++
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.openSound(); err != nil {
		return err
	}
	select {
	case c.agreed <- agreed:
	case <-c.ended:
	}
	return nil
}

func (c *call) onReinvite(req *sip.Request, tx sip.ServerTransaction) {
	c.change(req, tx, func(res *sip.Response) ([]byte, error) { return c.deliver(res, tx, c.acked) })
}

func (c *call) onUpdate(req *sip.Request, tx sip.ServerTransaction) {
	c.change(req, tx, func(res *sip.Response) ([]byte, error) { return nil, tx.Respond(res) })
}

func (c *call) onInfo(req *sip.Request, tx sip.ServerTransaction) { _ = tx.Respond(c.info(req)) }
