package sip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/emiago/sipgo/sip"
	"github.com/gobwas/ws/wsutil"
	"golang.org/x/time/rate"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
)

const (
	// maxMessage bounds a message, in bytes: sipgo's limit (sip.ParseMaxMessageLength), which is twice the longest supported offer.
	maxMessage = 64<<10 - 1
	// maxLines bounds the calls of a phone in a web page: an active one, and others on hold.
	maxLines = 4
	// requestRate and requestBurst bound the computing time that a phone can cause: an offer costs 3 ms. A person triggers each
	// registration, call and change of a call.
	requestRate  = rate.Limit(1)
	requestBurst = 10
	// mostRegistered is the default and maximum duration of a registration. Nothing depends on it: phones in web pages get no calls.
	mostRegistered = 10 * time.Minute
)

var errSocket = errors.New("the WebSocket of the telephone is gone")

// page is a phone in a web page: one WebSocket (RFC 7118). Its user has a token, as for the other HTTP endpoints, and belongs to no trunk.
type page struct {
	door      *Door
	log       *slog.Logger
	socket    *signaling.Socket
	visitor   *access.Client
	contact   sip.Uri        // our Contact
	transport string         // in our Via: WS or WSS
	address   netip.AddrPort // the page's address at sipgo
	sipgo     net.Conn       // carries the page's messages to and from sipgo
	running   sync.WaitGroup // calls

	requests *rate.Limiter

	mu      sync.Mutex
	token   string // the newest valid one; if empty, the token of the WebSocket request counts, if it had one
	opened  bool
	uncount func()           // stops counting the page among the sockets of unknown clients
	calls   map[*call]string // Call-ID of each call
	leaving error            // why all calls end; nil while new ones may begin
}

// Pages returns the endpoint for phones in web pages: SIP over WebSocket, with media by WebRTC. It serves a phone until its socket closes.
func (d *Door) Pages() http.Handler { return http.HandlerFunc(d.servePage) }

func (d *Door) servePage(w http.ResponseWriter, r *http.Request) {
	o := signaling.SocketOptions{Limit: maxMessage, Subprotocol: "sip", RequireSubprotocol: true}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, socket *signaling.Socket) error {
		sipgo, address, err := d.pages.open()
		if err != nil {
			return bridge.ErrShutdown
		}
		p := &page{
			door: d, log: d.log.With("remote", socket.Remote()), socket: socket, sipgo: sipgo, visitor: access.From(r.Context()),
			contact: contactAt(r.Host), transport: "WS", requests: rate.NewLimiter(requestRate, requestBurst), uncount: func() {},
			calls: map[*call]string{}, address: netip.MustParseAddrPort(address),
		}
		if r.TLS != nil {
			p.transport = "WSS"
		}
		d.mu.Lock()
		d.phones[address] = p
		d.mu.Unlock()
		defer func() {
			d.mu.Lock()
			delete(d.phones, address)
			d.mu.Unlock()
		}()
		return p.run(ctx)
	})
}

// pageOf returns the page that has sent a request, or nil.
func (d *Door) pageOf(req *sip.Request) *page {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.phones[req.Source()]
}

// contactAt returns our Contact for a page. Its host is never resolved, because messages are sent by the socket.
func contactAt(hostport string) sip.Uri {
	host, text, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	port, _ := strconv.Atoi(text)
	uri := sip.Uri{Scheme: "sip", User: "voxgate", Host: host, Port: port, UriParams: sip.NewParams()}
	if strings.Contains(host, ":") {
		uri.Host = "[" + strings.Trim(host, "[]") + "]"
	}
	uri.UriParams.Add("transport", "ws") // RFC 7118, section 5.2: for either scheme
	return uri
}

// run serves a phone. It blocks until the phone's socket is closed or ctx is done.
func (p *page) run(ctx context.Context) (why error) {
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		pass(p.sipgo, func(m []byte) { p.socket.Put(signaling.Outgoing{Data: m, Text: utf8.Valid(m)}) })
	}()
	select {
	case <-p.socket.StartReading(p.take):
		_ = p.sipgo.Close() // so that our BYEs fail at once
		p.hangUp(errSocket)
	case <-ctx.Done():
		if why = context.Cause(ctx); errors.Is(why, context.Canceled) {
			why = bridge.ErrShutdown
		}
		p.hangUp(why)
		_ = p.sipgo.Close()
	}
	<-passed
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncount()
	return why
}

// hangUp ends all calls of the page for a reason, and blocks until they have ended.
func (p *page) hangUp(reason error) {
	p.mu.Lock()
	p.leaving = reason
	for c := range p.calls {
		c.endCall(reason)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// take passes a message to sipgo. It drops messages that cannot be parsed, since sipgo would close the socket.
func (p *page) take(m signaling.Message) {
	began := time.Now()
	if keepAlive := m.Err == nil && strings.Trim(string(m.Data), "\r\n") == ""; keepAlive ||
		m.Err == nil && p.parses(m.Data) { // RFC 5626, section 3.5.1
		_ = wsutil.WriteClientText(p.sipgo, m.Data) // fails when the socket is closed
	}
	p.socket.ChargeTime(time.Since(began))
}

func (p *page) parses(raw []byte) bool {
	m, err := sip.ParseMessage(raw)
	if err != nil || m.From() == nil || m.To() == nil || m.CallID() == nil || m.CSeq() == nil || m.Via() == nil {
		p.log.Debug("message not read", "err", err)
		return false
	}
	req, ok := m.(*sip.Request)
	if ok && req.IsCancel() && p.door.strangersCancel(p.address, raw) {
		p.log.Debug("message not read", "err", ruleCancel)
		return false
	}
	return !ok || m.CSeq().MethodName == req.Method
}

// refusalFor returns the SIP refusal for an error of the gateway.
func refusalFor(err error) *refusal {
	var offer *rtc.RefusedError
	switch {
	case errors.Is(err, errCancelled), errors.Is(err, errHungUp):
		return &refusal{code: 487, reason: "Request Terminated", rule: "cancelled"}
	case errors.As(err, &offer):
		return notAcceptable(fmt.Errorf("the offer %w", err))
	}
	e := bridge.AsError(err)
	r := &refusal{
		code: 500, reason: "Server Internal Error", rule: string(e.Code) + ": " + e.Message,
		headers: []sip.Header{sip.NewHeader("Warning", fmt.Sprintf("399 voxgate %q", e.Message))},
	}
	switch {
	case e.Code == bridge.CodeUnauthorized:
		r.code, r.reason = 401, "Unauthorized"
		r.headers = append(r.headers, sip.NewHeader("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", realm))) // RFC 8898
	case e.Code == bridge.CodeForbidden:
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

// errTooFast rejects requests that come faster than a person could trigger them: see requestRate.
var errTooFast = &bridge.Error{
	Code:    bridge.CodeBusy,
	Message: "Too many requests: 10 at once and one a second are served.",
	Retry:   time.Second,
}

// admit authenticates the sender of a request, by the request's own token (RFC 8898), the phone's last one, or that of the WebSocket
// request.
func (p *page) admit(req *sip.Request, open *bridge.SessionRequest) error {
	if !p.requests.Allow() {
		return errTooFast
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	token := p.token
	if h := req.GetHeader("Authorization"); h != nil {
		token = cmp.Or(access.BearerToken(h.Value()), token)
	}
	if err := p.visitor.Admit(open, token); err != nil {
		return err
	}
	p.token = token
	if p.opened {
		return nil
	}
	if open.Origin.Key == "" && open.Origin.Identity == "" { // a socket of an unknown client costs resources even without a call
		uncount, err := p.visitor.CountUnopened()
		if err != nil {
			return err
		}
		p.uncount = uncount
	}
	p.opened = true
	p.socket.MarkOpened()
	return nil
}

// admitCall authenticates a new call and counts it against the limit of its phone. The call's release undoes that.
func (p *page) admitCall(c *call, req *sip.Request) *refusal {
	c.open = bridge.SessionRequest{Origin: bridge.Origin{Protocol: doorName, Agent: c.agent.Name, Attributes: c.party.Attributes}}
	err := p.admit(req, &c.open)
	if err == nil {
		err = p.door.agents.Select(&c.open, nil)
	}
	if err != nil {
		return refusalFor(err)
	}
	s := &webSound{api: p.door.rtc, decoder: p.door.decoder, log: c.log}
	if err := s.offer(sessionIn(req)); err != nil {
		return notAcceptable(err)
	}
	c.page, c.sound = p, s
	var refused *refusal
	if c.replaces, refused = p.door.findReplaced(req, c); refused != nil {
		return refused
	}
	c.dialog = dialogFromRequest(req, p.contact)
	c.dialog.client, c.dialog.via = p.door.client, p.transport
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range p.calls {
		if id == c.dialog.callID {
			return &refusal{code: 482, reason: "Loop Detected", rule: "the call is there already"} // RFC 3261, section 8.2.2.2
		}
	}
	switch {
	case p.leaving != nil: // no new calls
		return refusalFor(bridge.ErrShutdown)
	case len(p.calls) >= maxLines:
		return &refusal{code: 486, reason: "Busy Here", rule: "calls of the telephone"}
	}
	p.calls[c] = c.dialog.callID
	p.running.Add(1)
	c.release = func() {
		p.mu.Lock()
		delete(p.calls, c)
		p.mu.Unlock()
		p.running.Done()
	}
	return nil
}

// onRegister handles REGISTER, which authenticates a phone in a web page. It succeeds, but such phones get no calls.
func (d *Door) onRegister(req *sip.Request, tx sip.ServerTransaction) {
	p := d.pageOf(req)
	if p == nil {
		d.answer(req, tx, 405, "Method Not Allowed", sip.NewHeader("Allow", allowed))
		return
	}
	if err := p.admit(req, &bridge.SessionRequest{Origin: bridge.Origin{Protocol: doorName}}); err != nil {
		r := refusalFor(err)
		d.reply(req, tx, r.code, r.reason, r.headers...)
		return
	}
	contact := req.Contact()
	asked := mostRegistered.Seconds()
	texts := []string{""}
	if h := req.GetHeader("Expires"); h != nil {
		texts[0] = strings.TrimSpace(h.Value())
	}
	if contact != nil {
		texts = append(texts, contact.Params.GetOr("expires", ""))
	}
	for _, text := range texts {
		if n, err := strconv.ParseUint(text, 10, 31); err == nil {
			asked = min(float64(n), mostRegistered.Seconds())
		}
	}
	var headers []sip.Header
	if contact != nil && !contact.Address.Wildcard && asked > 0 {
		own := &sip.ContactHeader{Address: contact.Address, Params: sip.NewParams()}
		own.Params.Add("expires", fmt.Sprintf("%.0f", asked))
		headers = append(headers, own)
	}
	d.reply(req, tx, 200, "OK", headers...)
}
