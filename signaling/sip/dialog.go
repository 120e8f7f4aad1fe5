package sip

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo"
	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// dialog is the signalling of a call with one peer (RFC 3261, section 12).
type dialog struct {
	client    *sipgo.Client
	callID    string
	transport string // "UDP"
	contact   sip.Uri
	via       string   // the transport as the top Via has it; empty: as sipgo says
	from      sip.Addr // by which socket its requests go, of UDP; zero: any
	localTag  string
	invite    *sip.Request     // that has begun it; nil: one of ours
	servers   []netip.AddrPort // where requests go before there is an answer, the first now; empty: by the target
	login     *Outbound        // by whose name and password a challenge is answered; nil: by none

	proof []sip.Header // of the password, in our INVITE that was answered: its ACK has it, too (RFC 3261, section 13.2.2.4)
	log   *slog.Logger // nil: nobody wants to know

	mu             sync.Mutex
	astray         bool           // our requests do not arrive where they should go, and go to source
	source         string         // where its newest request has come from: "192.0.2.1:5060"
	owners         []netip.Addr   // that it has begun or was answered from, or that have proved its password
	local          sip.FromHeader // we, as our requests have it
	remote         sip.ToHeader
	remoteTag      string
	target         sip.Uri // the peer's Contact
	routes         []sip.Uri
	sequence       uint32 // of our newest request
	remoteSequence uint32 // of their newest
}

func newTag() string { return strings.ToLower(rand.Text()) }

// dialogFromRequest is the dialog that a request begins.
func dialogFromRequest(req *sip.Request, contact sip.Uri) *dialog {
	d := &dialog{
		callID: req.CallID().Value(), transport: req.Transport(), source: req.Source(), contact: contact,
		localTag: newTag(), remoteSequence: req.CSeq().SeqNo, invite: req,
	}
	to := req.To()
	d.local = sip.FromHeader{DisplayName: to.DisplayName, Address: to.Address, Params: sip.NewParams()}
	d.local.Params.Add("tag", d.localTag)
	d.remote = req.From().AsTo()
	d.remoteTag = d.remote.Params.GetOr("tag", "")
	for _, h := range req.GetHeaders("Record-Route") {
		if route, ok := h.(*sip.RecordRouteHeader); ok {
			d.routes = append(d.routes, route.Address)
		}
	}
	d.addOwner(d.source)
	d.setTarget(req.Contact())
	return d
}

// forkDialog is the dialog of another answer to the INVITE of our dialog.
func (d *dialog) forkDialog(res *sip.Response) *dialog {
	d.mu.Lock()
	defer d.mu.Unlock()
	forked := &dialog{
		client: d.client, callID: d.callID, transport: d.transport, contact: d.contact, via: d.via, from: d.from, localTag: d.localTag,
		login: d.login, log: d.log, local: d.local, remote: d.remote, sequence: d.sequence, target: d.target,
	}
	forked.remote.Params = d.remote.Params.Clone()
	forked.handleAnswer(res)
	return forked
}

// setTarget takes the target of a request or an answer to one (RFC 3261, section 12.2).
func (d *dialog) setTarget(contact *sip.ContactHeader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if contact != nil && !contact.Address.Wildcard && contact.Address.Host != "" {
		d.target = *contact.Address.Clone()
	} else if d.target.Host == "" {
		d.target = *d.remote.Address.Clone()
	}
}

// isNextRequest reports whether a request is the next one of the peer. Only those that change the dialog are counted: news may
// overtake each other, since sipgo reads each packet in a goroutine of its own, and were one refused, a peer that reports what becomes
// of a REFER would report no more. A proxy that asks by OPTIONS whether the call is alive has a count of its own.
func (d *dialog) isNextRequest(req *sip.Request) bool {
	switch req.Method {
	case sip.INVITE, sip.UPDATE, sip.BYE, sip.PRACK:
	default:
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if req.CSeq().SeqNo <= d.remoteSequence && d.remoteSequence != 0 {
		return false
	}
	d.remoteSequence = req.CSeq().SeqNo
	return true
}

// isDialog reports whether a message belongs to the dialog.
func (d *dialog) isDialog(callID, remoteTag string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.callID == callID && d.remoteTag == remoteTag
}

// newRequest makes our next request.
func (d *dialog) newRequest(method sip.RequestMethod, headers ...sip.Header) *sip.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	if method != sip.ACK && method != sip.CANCEL {
		d.sequence++
	}
	target, routes := d.route()
	req := sip.NewRequest(method, target)
	req.SetTransport(d.transport)
	from, to, id, most := d.local, d.remote, sip.CallIDHeader(d.callID), sip.MaxForwardsHeader(70)
	from.Params, to.Params = d.local.Params.Clone(), d.remote.Params.Clone()
	if d.via != "" {
		via := &sip.ViaHeader{
			ProtocolName:    "SIP",
			ProtocolVersion: "2.0",
			Transport:       d.via,
			Host:            d.contact.Host,
			Port:            d.contact.Port,
			Params:          sip.NewParams(),
		}
		via.Params.Add("branch", sip.GenerateBranch())
		req.AppendHeader(via)
	}
	for _, route := range routes {
		req.AppendHeader(&sip.RouteHeader{Address: route})
	}
	req.AppendHeader(&from)
	req.AppendHeader(&to)
	req.AppendHeader(&id)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: d.sequence, MethodName: method})
	req.AppendHeader(&most)
	req.AppendHeader(&sip.ContactHeader{Address: d.contact})
	for _, h := range headers {
		req.AppendHeader(h)
	}
	req.SetBody(nil)
	req.SetDestination(d.destination())
	req.Laddr = d.from
	return req
}

// route is the request's URI and its route set. Where the first proxy is a strict router, as those of RFC 2543 were, its URI is the
// request's, and the target the last of the route set (RFC 3261, section 12.2.1.1). Needs mu.
func (d *dialog) route() (target sip.Uri, routes []sip.Uri) {
	target = *d.target.Clone()
	if len(d.routes) == 0 || d.routes[0].UriParams.Has("lr") {
		return target, d.routes
	}
	routes = append(slices.Clone(d.routes[1:]), target)
	target = *d.routes[0].Clone()
	target.Headers = nil
	target.UriParams.Remove("method")
	return target, routes
}

// destination is where our requests go. While the connection that the peer's own come by is open they go by that, unless a route leads to
// another host. A peer behind a NAT has a private address in its Contact, and is reached where its requests come from. Needs mu.
func (d *dialog) destination() string {
	if len(d.servers) > 0 && d.remoteTag == "" {
		return d.servers[0].String()
	}
	if d.astray && d.source != "" {
		return d.source
	}
	to := d.target
	if len(d.routes) > 0 {
		if to = d.routes[0]; sameHost(to.Host, d.source) && d.connected() || behindNAT(to.Host, d.source) && !to.UriParams.Has("maddr") {
			return d.source
		}
	} else if d.connected() || behindNAT(to.Host, d.source) {
		return d.source
	}
	if maddr, ok := to.UriParams.Get("maddr"); ok && maddr != "" { // RFC 3261, section 19.1.1
		to.Host = maddr
	}
	if _, err := netip.ParseAddr(strings.Trim(to.Host, "[]")); to.Port == 0 && err == nil { // a name may have SRV records
		to.Port = sip.DefaultPort(d.transport)
	}
	if to.Port == 0 {
		return to.Host
	}
	return fmt.Sprintf("%s:%d", to.Host, to.Port)
}

// connected reports whether the connection that the peer's requests come by is open. To a page there is no other way.
func (d *dialog) connected() bool {
	switch {
	case d.source == "" || !sip.IsReliable(d.transport):
		return false
	case strings.HasPrefix(d.transport, "WS"):
		return true
	case d.client == nil:
		return false
	}
	conn, err := d.client.TransportLayer().GetConnection(d.transport, d.source)
	if err == nil {
		_, _ = conn.TryClose() // it is counted as used from GetConnection on
	}
	return err == nil
}

// nextServer has a dialog without an answer go on with the next server, if there is one.
func (d *dialog) nextServer() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.servers) < 2 {
		return false
	}
	d.servers = d.servers[1:]
	return true
}

// behindNAT reports whether a host is an address that leads nowhere from where requests come from: of a private network or a carrier's NAT,
// while they come from the Internet, or of the peer's own machine or link, while they do not come from ours.
func behindNAT(host, source string) bool {
	contact, err := netip.ParseAddr(strings.Trim(host, "[]"))
	from, err2 := netip.ParseAddrPort(source)
	if phone.IsInvalidHost(host) {
		return source != ""
	}
	if err != nil || err2 != nil {
		return false
	}
	contact, real := contact.Unmap(), from.Addr().Unmap()
	return inside(contact) && !inside(real) && !real.IsLoopback() || contact.IsUnspecified() ||
		contact.IsLoopback() && !real.IsLoopback() || contact.IsLinkLocalUnicast() && !real.IsLinkLocalUnicast()
}

// carrierNAT are the addresses that carriers give to lines behind their NAT (RFC 6598).
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

func inside(a netip.Addr) bool { return a.IsPrivate() || carrierNAT.Contains(a) }

// sameHost reports whether a host is the address that requests come from.
func sameHost(host, source string) bool {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	from, err2 := netip.ParseAddrPort(source)
	return err == nil && err2 == nil && a.Unmap() == from.Addr().Unmap()
}

// setBody gives a message a body of a type.
func setBody(m sip.Message, kind string, body []byte) {
	contentType := sip.ContentTypeHeader(kind)
	m.AppendHeader(&contentType)
	m.SetBody(body)
}

// send sends a request of the dialog and waits for its final answer, for 32 s at most (RFC 3261, timer B and F). Challenges of the
// trunk are answered, with the next sequence number (section 22.2).
func (d *dialog) send(ctx context.Context, req *sip.Request) (*sip.Response, error) {
	res, err := d.deliver(ctx, req)
	if err != nil {
		return nil, err
	}
	for auth := (passwordAnswers{}); d.ofPeer(res) && auth.addChallenges(d.login, res); {
		again := req.Clone()
		d.renew(again)
		for _, h := range auth.authHeaders(d.login, again) {
			again.AppendHeader(h)
		}
		if res, err = transact(ctx, d.client, again); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// renew makes a request that is sent once more the next one.
func (d *dialog) renew(req *sip.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.via == "" {
		req.RemoveHeader("Via")
	} else {
		req.Via().Params.Add("branch", sip.GenerateBranch())
	}
	d.sequence++
	req.CSeq().SeqNo = d.sequence
	req.SetDestination(d.destination())
}

// strayTimeout is how long a request may have no answer from the peer's Contact, or its route, before it goes to where the peer's own come
// from: three tries by UDP (RFC 3261, section 17.1.2.1).
const strayTimeout = 2 * time.Second

// deliver sends a request to where it has to go. If that cannot be found or reached, or nobody answers there, it goes to where the newest
// request of the peer has come from, and so do those that follow: a telephone system in a container, or behind a NAT, gives an address
// that leads nowhere (RFC 3581).
func (d *dialog) deliver(ctx context.Context, req *sip.Request) (*sip.Response, error) {
	d.mu.Lock()
	source, astray := d.source, d.astray
	d.mu.Unlock()
	if source == "" || astray || req.Destination() == source {
		return transact(ctx, d.client, req)
	}
	first, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(strayTimeout, cancel)
	res, err := transactHearing(first, d.client, req, func() { late.Stop() })
	late.Stop()
	cancel()
	if err == nil || ctx.Err() != nil {
		return res, err
	}
	d.goAstray(req, err)
	again := req.Clone()
	d.renew(again)
	return transact(ctx, d.client, again)
}

// goAstray has requests go to where those of the peer come from.
func (d *dialog) goAstray(req *sip.Request, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.astray && d.log != nil {
		d.log.Warn("requests of this call go to where those of the other side come from: they do not arrive at its Contact or Record-Route",
			"method", req.Method, "at", req.Destination(), "instead", d.source, "err", why)
	}
	d.astray = true
}

// ofPeer reports whether a response comes from an address that the peer was let in by, or that has answered our call. A request may lead
// elsewhere by a Contact, and who is there must not learn how we prove the password: they could guess it by that. A registrar, which
// sends nothing by itself, is where the configuration says.
func (d *dialog) ofPeer(res *sip.Response) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, err := netip.ParseAddrPort(res.Source())
	return len(d.owners) == 0 || err == nil && slices.Contains(d.owners, from.Addr().Unmap())
}

// transact sends a request and returns its final answer.
func transact(ctx context.Context, client *sipgo.Client, req *sip.Request) (*sip.Response, error) {
	return transactHearing(ctx, client, req, func() {})
}

// transactHearing is [transact], and calls tried when a provisional answer comes.
func transactHearing(ctx context.Context, client *sipgo.Client, req *sip.Request, tried func()) (*sip.Response, error) {
	tx, err := client.TransactionRequest(ctx, req, addVia)
	if err != nil {
		return nil, err
	}
	defer tx.Terminate()
	for {
		select {
		case res := <-tx.Responses():
			if !res.IsProvisional() {
				return res, nil
			}
			tried()
		case <-tx.Done():
			return nil, tx.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// addVia says where answers go: to us as the peer knows us.
func addVia(c *sipgo.Client, req *sip.Request) error {
	if req.Via() != nil {
		return nil
	}
	err := sipgo.ClientRequestAddVia(c, req)
	if contact := req.Contact(); err == nil && contact != nil && contact.Address.Port > 0 {
		req.Via().Host, req.Via().Port = contact.Address.Host, contact.Address.Port
	}
	return err
}

// sendAck acknowledges a final answer to our INVITE within the dialog.
func (d *dialog) sendAck(sequence uint32) error {
	req := d.newRequest(sip.ACK, d.proofs()...)
	req.CSeq().SeqNo = sequence
	err := d.client.WriteRequest(req, addVia)
	d.mu.Lock()
	again := err != nil && !d.astray && d.source != "" && d.source != req.Destination()
	d.mu.Unlock()
	if again {
		d.goAstray(req, err)
		return d.sendAck(sequence)
	}
	return err
}

// proofs are those of our INVITE that was answered.
func (d *dialog) proofs() []sip.Header {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proof
}

// ackAgain acknowledges an answer that has come once more, as our acknowledgement has not arrived: also at where it comes from.
func (d *dialog) ackAgain(sequence uint32) error {
	err := d.sendAck(sequence)
	d.mu.Lock()
	source, astray := d.source, d.astray
	d.mu.Unlock()
	if astray || source == "" {
		return err
	}
	req := d.newRequest(sip.ACK, d.proofs()...)
	req.CSeq().SeqNo = sequence
	if req.Destination() == source {
		return err
	}
	req.SetDestination(source)
	return cmp.Or(d.client.WriteRequest(req, addVia), err)
}

// byeTimeout bounds the end of a call, which runs in the background.
const byeTimeout = 5 * time.Second

// sendBye ends the dialog. reason is for the peer's log (RFC 3326); "" is none.
func (d *dialog) sendBye(reason string) {
	req := d.newRequest(sip.BYE)
	if reason != "" {
		req.AppendHeader(sip.NewHeader("Reason", reason))
	}
	ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
	defer cancel()
	if _, err := d.send(ctx, req); err != nil && d.log != nil { // it may be gone, too
		d.log.Warn("the other side did not answer that we hang up", "at", req.Destination(), "err", err)
	}
}

// respond makes an answer to a request of the dialog.
func (d *dialog) respond(req *sip.Request, code int, reason string) *sip.Response {
	res := sip.NewResponseFromRequest(req, code, reason, nil)
	if to := res.To(); to != nil && code > 100 {
		to.Params.Remove("tag")
		to.Params.Add("tag", d.localTag)
	}
	if code > 100 && code < 300 {
		res.AppendHeader(&sip.ContactHeader{Address: d.contact})
	}
	return res
}
