package sip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/emiago/sipgo/sip"
	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
)

// Page is the door for telephones in web pages: SIP over WebSocket (RFC 7118), and sound by WebRTC. Who may call is the matter of
// [access], as it is for the other doors of HTTP, and not of trunks.
type Page struct {
	Config  *Config // whose agents answer
	Host    *bridge.Host
	RTC     *rtc.API
	Decoder opus.DecoderChoice
	Logger  *slog.Logger
}

const (
	// maxMessage bounds a message, in bytes: what sipgo reads (sip.ParseMaxMessageLength), and twice the longest offer that is served.
	maxMessage = 64<<10 - 1
	// maxLines is how many calls a telephone may have: one that talks, and others on hold.
	maxLines = 4
	// requestRate and requestBurst bound what a telephone can make us compute: an offer costs 3 ms. It registers, calls, and changes
	// its calls by hand.
	requestRate  = rate.Limit(1)
	requestBurst = 10
	// mostRegistered is how long a registration holds. Nothing depends on it: calls are not made to such telephones.
	mostRegistered = 10 * time.Minute
	// pageAllowed are the methods that are served.
	pageAllowed = "INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, REGISTER"
	// pageExtensions are the extensions that are served.
	pageExtensions = "timer"
)

var errSocket = errors.New("the WebSocket of the telephone is gone")

// pagePhone is a telephone in a page: one WebSocket.
type pagePhone struct {
	door    *Page
	log     *slog.Logger
	line    *signaling.Line
	out     *signaling.Outbox[[]byte]
	visitor *access.Visitor
	contact sip.Uri // ours
	secure  bool
	gone    chan struct{} // closed when nothing comes by the socket any more

	// Of the goroutine that reads.
	token    string // the newest that was good; empty: that of the request counts, if it had one
	opened   bool
	uncount  func() // of the sockets of unknown visitors
	requests *rate.Limiter

	mu      sync.Mutex
	calls   map[string]*pageCall          // by our tag
	asked   map[string]chan *sip.Response // requests of ours, by their branch
	leaving error                         // no call begins any more
	running sync.WaitGroup                // calls
}

// ServeHTTP serves a telephone until its socket is gone.
func (d *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line, err := signaling.AcceptAs("sip", w, r)
	if err != nil {
		return // AcceptAs has answered
	}
	defer line.Close()
	p := &pagePhone{
		door: d, log: d.Logger.With("door", doorName, "remote", line.Remote()), line: line, out: signaling.NewOutbox[[]byte](),
		visitor: access.From(r.Context()), contact: contactAt(r.Host), secure: r.TLS != nil, gone: make(chan struct{}), uncount: func() {},
		requests: rate.NewLimiter(requestRate, requestBurst), calls: map[string]*pageCall{}, asked: map[string]chan *sip.Response{},
	}
	p.run(r.Context())
}

// contactAt is our own address, which is never resolved: messages go by the socket.
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

// run is the life of a telephone, to the last goroutine.
func (p *pagePhone) run(ctx context.Context) {
	var running sync.WaitGroup
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	running.Go(func() { p.line.Ping(living) })
	written := make(chan struct{})
	running.Go(func() {
		defer close(written)
		write := func(_ context.Context, m []byte) error { return p.line.Write(m, utf8.Valid(m)) }
		if err := p.out.Run(living, write); err != nil {
			p.line.Close() // which ends read
		}
	})
	running.Go(func() {
		select {
		case <-ctx.Done(): // the gateway stops: goodbyes need the socket
			p.hangUp(bridge.ErrShutdown)
			<-written
			p.line.Goodbye(signaling.Goodbye(bridge.ErrShutdown))
		case <-living.Done():
		}
	})
	p.read(ctx)
	close(p.gone)
	p.hangUp(errSocket)
	<-written
	cancel()
	running.Wait()
	p.uncount()
}

// hangUp ends the calls for a reason, and waits until they are gone and what was said of it is on its way.
func (p *pagePhone) hangUp(reason error) {
	p.mu.Lock()
	if p.leaving == nil {
		p.leaving = reason
	}
	for _, c := range p.calls {
		c.end(reason)
	}
	p.mu.Unlock()
	p.running.Wait()
	p.out.Close()
}

// read takes what comes until nothing does.
func (p *pagePhone) read(ctx context.Context) {
	for {
		raw, _, err := p.line.Read(maxMessage)
		if errors.Is(err, signaling.ErrTooLong) {
			p.log.Debug("message not read", "err", err)
			continue
		}
		if err != nil {
			return
		}
		began := time.Now()
		p.take(ctx, raw)
		p.line.Spent(time.Since(began))
	}
}

// take takes one message.
func (p *pagePhone) take(ctx context.Context, raw []byte) {
	defer p.survive()
	if strings.Trim(string(raw), "\r\n") == "" {
		if string(raw) == "\r\n\r\n" { // RFC 5626, section 3.5.1; RFC 7118, section 6
			p.out.Put([]byte("\r\n"), 2)
		}
		return
	}
	m, err := sip.ParseMessage(raw)
	if err != nil {
		p.log.Debug("message not read", "err", err)
		return
	}
	switch m := m.(type) {
	case *sip.Response:
		p.onResponse(m)
	case *sip.Request:
		if m.From() == nil || m.To() == nil || m.CallID() == nil || m.CSeq() == nil || m.Via() == nil || !m.From().Params.Has("tag") || m.CSeq().MethodName != m.Method {
			p.log.Debug("message not read", "err", "a header is missing", "method", m.Method)
			return
		}
		m.SetTransport("WS")
		m.SetSource(p.line.Remote())
		p.onRequest(ctx, m)
	}
}

// survive, deferred, keeps the process from what a stranger's message does.
func (p *pagePhone) survive() {
	if crash := recover(); crash != nil {
		p.log.Error("a message crashed its handler", "panic", crash, "stack", string(debug.Stack()))
	}
}

func (p *pagePhone) onRequest(ctx context.Context, req *sip.Request) {
	switch req.Method {
	case sip.REGISTER:
		p.onRegister(req)
	case sip.OPTIONS:
		p.reply(req, 200, "OK", sip.NewHeader("Allow", pageAllowed), sip.NewHeader("Accept", "application/sdp"), sip.NewHeader("Supported", pageExtensions))
	case sip.CANCEL:
		p.onCancel(req)
	case sip.INVITE:
		if !req.To().Params.Has("tag") {
			p.onInvite(ctx, req)
			return
		}
		p.inDialog(req)
	case sip.ACK, sip.BYE, sip.INFO, sip.UPDATE:
		p.inDialog(req)
	default:
		p.reply(req, 405, "Method Not Allowed", sip.NewHeader("Allow", pageAllowed))
	}
}

// put sends a message.
func (p *pagePhone) put(m sip.Message) {
	text := []byte(m.String())
	p.out.Put(text, len(text))
}

func (p *pagePhone) reply(req *sip.Request, code int, reason string, headers ...sip.Header) {
	res := sip.NewResponseFromRequest(req, code, reason, nil)
	for _, h := range headers {
		res.AppendHeader(h)
	}
	p.put(res)
}

// refuse answers with what a refusal of the gateway is in SIP.
func (p *pagePhone) refuse(req *sip.Request, err error) {
	r := refusalFor(err)
	p.reply(req, r.code, r.reason, r.headers...)
}

// refusalFor is what a refusal of the gateway is in SIP.
func refusalFor(err error) *refusal {
	var offer *rtc.RefusedError
	switch {
	case errors.Is(err, errCancelled), errors.Is(err, errHungUp):
		return &refusal{code: 487, reason: "Request Terminated"}
	case errors.As(err, &offer):
		return notAcceptable(fmt.Errorf("the offer %w", err))
	}
	e := bridge.AsError(err)
	r := &refusal{code: 500, reason: "Server Internal Error", headers: []sip.Header{sip.NewHeader("Warning", fmt.Sprintf("399 voxgate %q", e.Message))}}
	switch {
	case e.Code == bridge.CodeUnauthorized:
		r.code, r.reason = 401, "Unauthorized"
		r.headers = append(r.headers, sip.NewHeader("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", realm))) // RFC 8898
	case e.Code == bridge.CodeForbidden:
		r.code, r.reason = 403, "Forbidden"
	case e.Code == bridge.CodeBusy, errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		r.code, r.reason = 503, "Service Unavailable"
		if seconds := int(e.Retry.Seconds() + 0.999); seconds > 0 {
			r.headers = append(r.headers, sip.NewHeader("Retry-After", strconv.Itoa(seconds)))
		}
	}
	return r
}

// errTooFast refuses what a telephone asks for faster than a person can want it.
var errTooFast = &bridge.Error{Code: bridge.CodeBusy, Message: "Too many requests: 10 at once and one a second are served.", Retry: time.Second}

// admit finds out who sends a request, by the token that it has (RFC 8898), or that the telephone has shown before, or the socket.
func (p *pagePhone) admit(req *sip.Request, open *bridge.Open) error {
	token := p.token
	if h := req.GetHeader("Authorization"); h != nil {
		if scheme, text, ok := strings.Cut(strings.TrimSpace(h.Value()), " "); ok && strings.EqualFold(scheme, "Bearer") {
			token = strings.TrimSpace(text)
		}
	}
	if err := p.visitor.Authorize(open, token); err != nil {
		return err
	}
	p.token = token
	if p.opened {
		return nil
	}
	if open.Origin.Key == "" && open.Origin.Identity == "" { // a socket of nobody known costs without a call, too
		uncount, err := p.visitor.Wait()
		if err != nil {
			return err
		}
		p.uncount = uncount
	}
	p.opened = true
	p.line.Opened()
	return nil
}

// onRegister lets a telephone in. It is content, and is not called.
func (p *pagePhone) onRegister(req *sip.Request) {
	open := bridge.Open{Origin: bridge.Origin{Door: doorName}}
	var err error = errTooFast
	if p.requests.Allow() {
		err = p.admit(req, &open)
	}
	if err != nil {
		p.refuse(req, err)
		return
	}
	res := sip.NewResponseFromRequest(req, 200, "OK", nil)
	contact := req.Contact()
	asked := mostRegistered.Seconds()
	for _, text := range []string{headerValue(req, "Expires"), contactParam(contact, "expires")} {
		if n, err := strconv.ParseUint(text, 10, 31); err == nil {
			asked = min(float64(n), mostRegistered.Seconds())
		}
	}
	if contact != nil && !contact.Address.Wildcard && asked > 0 {
		own := &sip.ContactHeader{Address: contact.Address, Params: sip.NewParams()}
		own.Params.Add("expires", fmt.Sprintf("%.0f", asked))
		res.AppendHeader(own)
	}
	p.put(res)
}

func headerValue(req *sip.Request, name string) string {
	if h := req.GetHeader(name); h != nil {
		return strings.TrimSpace(h.Value())
	}
	return ""
}

func contactParam(h *sip.ContactHeader, name string) string {
	if h == nil {
		return ""
	}
	return h.Params.GetOr(name, "")
}

// exchange sends a request of ours and waits for its final answer.
func (p *pagePhone) exchange(ctx context.Context, req *sip.Request) (*sip.Response, error) {
	via := &sip.ViaHeader{ProtocolName: "SIP", ProtocolVersion: "2.0", Transport: "WS", Host: p.contact.Host, Port: p.contact.Port, Params: sip.NewParams()}
	if p.secure {
		via.Transport = "WSS"
	}
	branch := sip.GenerateBranch()
	via.Params.Add("branch", branch)
	req.PrependHeader(via)
	answer := make(chan *sip.Response, 1)
	p.mu.Lock()
	p.asked[branch] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.asked, branch)
		p.mu.Unlock()
	}()
	p.put(req)
	select {
	case res := <-answer:
		return res, nil
	case <-p.gone:
		return nil, errSocket
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pagePhone) onResponse(res *sip.Response) {
	if res.Via() == nil || res.IsProvisional() {
		return
	}
	p.mu.Lock()
	answer := p.asked[res.Via().Params.GetOr("branch", "")]
	p.mu.Unlock()
	select {
	case answer <- res: // nil if nobody waits
	default:
	}
}

// inDialog takes a request within a call.
func (p *pagePhone) inDialog(req *sip.Request) {
	p.mu.Lock()
	c := p.calls[req.To().Params.GetOr("tag", "")]
	p.mu.Unlock()
	switch {
	case c == nil || !c.dialog.is(req.CallID().Value(), req.From().Params.GetOr("tag", "")):
		if req.Method != sip.ACK {
			p.reply(req, 481, "Call/Transaction Does Not Exist")
		}
	case req.Method == sip.ACK:
		select {
		case c.acked <- nil:
		default: // it was acknowledged before
		}
	case !c.dialog.follows(req):
		p.put(c.dialog.respond(req, 500, "Server Internal Error")) // RFC 3261, section 12.2.2
	case req.Method == sip.BYE:
		p.put(c.dialog.respond(req, 200, "OK"))
		c.end(errHungUp)
	case req.Method == sip.INFO:
		p.put(c.info(req))
	default:
		p.onChange(c, req)
	}
}

// onChange takes an INVITE or an UPDATE within a call.
func (p *pagePhone) onChange(c *pageCall, req *sip.Request) {
	if len(req.Body()) == 0 && req.Method == sip.UPDATE {
		c.renewed()
		p.put(c.withTimer(c.dialog.respond(req, 200, "OK"), pageAllowed, pageExtensions))
		return
	}
	if !p.requests.Allow() {
		p.refuse(req, errTooFast)
		return
	}
	select {
	case c.changes <- req:
	default:
		p.put(c.dialog.respond(req, 491, "Request Pending"))
	}
}

// onCancel gives up a call that has no answer yet.
func (p *pagePhone) onCancel(req *sip.Request) {
	branch := req.Via().Params.GetOr("branch", "")
	var given *pageCall
	p.mu.Lock()
	for _, c := range p.calls {
		if c.branch == branch && c.dialog.is(req.CallID().Value(), req.From().Params.GetOr("tag", "")) {
			given = c
		}
	}
	p.mu.Unlock()
	if given == nil {
		p.reply(req, 481, "Call/Transaction Does Not Exist")
		return
	}
	p.reply(req, 200, "OK")
	given.cancel()
}
