package ua

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

// dialog is the SIP dialog of a call or registration with one peer (RFC 3261, section 12).
type dialog struct {
	client      *sipgo.Client
	callID      string
	transport   string // SIP transport in upper case, such as "UDP"
	contact     sip.Uri
	from        sip.Addr   // local socket for UDP requests; any if zero
	firstServer netip.Addr // address of the first server of the trunk; only for an outgoing call
	localTag    string
	invite      *sip.Request     // the peer's INVITE; nil if we sent the INVITE
	servers     []netip.AddrPort // destinations of requests before the answer, current server first; if empty, target is used
	login       *Outbound        // credentials to answer challenges with; may be nil

	proof []sip.Header // digest headers of our answered INVITE, repeated in its ACK (RFC 3261, section 13.2.2.4)
	log   *slog.Logger // may be nil

	mu             sync.Mutex
	useSource      bool           // requests are sent to source, because they did not reach their destination
	source         string         // source of the peer's newest request: "192.0.2.1:5060"
	owners         []netip.Addr   // addresses that may send requests: sources of the INVITE, its answer and authenticated requests
	local          sip.FromHeader // our From in requests
	remote         sip.ToHeader
	remoteTag      string
	target         sip.Uri // the peer's Contact
	routes         []sip.Uri
	sequence       uint32 // CSeq of our newest request
	remoteSequence uint32 // CSeq of the peer's newest request
}

func newTag() string { return strings.ToLower(rand.Text()) }

// dialogFromRequest returns the dialog that an incoming INVITE creates.
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

// newOutboundDialog returns the dialog of an outgoing call before its answer.
func (t *transport) newOutboundDialog(to, from sip.Uri, servers []netip.AddrPort, transport string, login *Outbound) *dialog {
	out := &dialog{
		client: t.client, callID: rand.Text(), transport: transport, contact: t.contactURI(transport, servers[0].Addr()),
		from:     t.localUDPAddr(transport),
		localTag: newTag(), target: to, login: login, firstServer: servers[0].Addr(),
	}
	if transport != "TLS" { // with TLS, requests go to the name, because the certificate is valid for the name
		out.servers = servers
	}
	out.contact.User = cmp.Or(from.User, out.contact.User) // the user that a trunk calls if we are registered there
	out.local = sip.FromHeader{Address: from, Params: sip.NewParams()}
	out.local.Params.Add("tag", out.localTag)
	out.remote = sip.ToHeader{Address: to, Params: sip.NewParams()}
	return out
}

// peerAddr returns the address of the other side: the source of its INVITE, or the first server of its trunk.
func (d *dialog) peerAddr() netip.Addr {
	if d.invite != nil {
		from, _ := sourceOf(d.invite)
		return from
	}
	return d.firstServer
}

// forkDialog returns the dialog with a second phone that has answered our INVITE with res (a forked call).
func (d *dialog) forkDialog(res *sip.Response) *dialog {
	d.mu.Lock()
	defer d.mu.Unlock()
	forked := &dialog{
		client: d.client, callID: d.callID, transport: d.transport, contact: d.contact, from: d.from, localTag: d.localTag,
		login: d.login, log: d.log, local: d.local, remote: d.remote, sequence: d.sequence, target: d.target,
	}
	forked.remote.Params = d.remote.Params.Clone()
	forked.updateFromAnswer(res)
	return forked
}

// updateFromAnswer updates the dialog from a successful response to our INVITE.
func (d *dialog) updateFromAnswer(res *sip.Response) {
	d.mu.Lock()
	d.remoteTag = res.To().Params.GetOr("tag", "")
	d.remote.Params.Remove("tag")
	d.remote.Params.Add("tag", d.remoteTag)
	d.routes = nil
	for _, h := range res.GetHeaders("Record-Route") { // collected in reverse order (RFC 3261, section 12.1.2)
		if route, ok := h.(*sip.RecordRouteHeader); ok {
			d.routes = append([]sip.Uri{route.Address}, d.routes...)
		}
	}
	d.source = res.Source()
	d.mu.Unlock()
	d.addOwner(res.Source())
	d.setTarget(res.Contact())
}

// setTarget updates the target from the Contact of a request or response (RFC 3261, section 12.2).
func (d *dialog) setTarget(contact *sip.ContactHeader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if contact != nil && !contact.Address.Wildcard && contact.Address.Host != "" {
		d.target = *contact.Address.Clone()
	} else if d.target.Host == "" {
		d.target = *d.remote.Address.Clone()
	}
}

// maxOwners limits the addresses in dialog.owners, because a phone adds an address each time it changes its network
// during a call.
const maxOwners = 16

// addOwner adds an address to dialog.owners. The address may then send requests of the dialog, and we answer its
// challenges.
func (d *dialog) addOwner(hostport string) {
	from, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := from.Addr().Unmap(); !slices.Contains(d.owners, a) && len(d.owners) < maxOwners {
		d.owners = append(d.owners, a)
	}
}

// updateSource stores the source of the other side's newest request.
func (d *dialog) updateSource(req *sip.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.EqualFold(d.transport, req.Transport()) {
		d.source = req.Source()
	}
}

// advanceRemoteSequence stores the CSeq of a request from the peer. ok is false if the CSeq is not higher than the
// stored one. For a request that does not change the dialog, ok is always true, and the CSeq is not stored.
func (d *dialog) advanceRemoteSequence(req *sip.Request) (ok bool) {
	switch req.Method {
	case sip.INVITE, sip.UPDATE, sip.BYE, sip.PRACK:
	default:
		// Other requests may be out of order: sipgo reads each packet in its own goroutine, and some proxies count
		// their own CSeq for OPTIONS.
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

// newRequest returns our next request in the dialog.
func (d *dialog) newRequest(method sip.RequestMethod, headers ...sip.Header) *sip.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	if method != sip.ACK && method != sip.CANCEL {
		d.sequence++
	}
	target, routes := d.requestRoute()
	req := sip.NewRequest(method, target)
	req.SetTransport(d.transport)
	from, to, id, most := d.local, d.remote, sip.CallIDHeader(d.callID), sip.MaxForwardsHeader(70)
	from.Params, to.Params = d.local.Params.Clone(), d.remote.Params.Clone()
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
	req.SetDestination(d.requestDestination())
	req.Laddr = d.from
	return req
}

// requestRoute returns the Request-URI and the route set. The caller must hold mu.
func (d *dialog) requestRoute() (target sip.Uri, routes []sip.Uri) {
	target = *d.target.Clone()
	if len(d.routes) == 0 || d.routes[0].UriParams.Has("lr") {
		return target, d.routes
	}
	// The first proxy is a strict router (RFC 2543): its URI becomes the Request-URI (RFC 3261, section 12.2.1.1).
	routes = append(slices.Clone(d.routes[1:]), target)
	target = *d.routes[0].Clone()
	target.Headers = nil
	target.UriParams.Remove("method")
	return target, routes
}

// requestDestination returns the address to which our requests are sent. If the peer is behind a NAT, that is the
// source of the peer's requests, or the other end of the connection that the peer has opened. The caller must hold mu.
func (d *dialog) requestDestination() string {
	if len(d.servers) > 0 && d.remoteTag == "" {
		return d.servers[0].String()
	}
	if d.useSource && d.source != "" {
		return d.source
	}
	to := d.target
	if len(d.routes) > 0 {
		if to = d.routes[0]; sameHost(to.Host, d.source) && d.hasOpenConn() || isBehindNAT(to.Host, d.source) && !to.UriParams.Has("maddr") {
			return d.source
		}
	} else if d.hasOpenConn() || isBehindNAT(to.Host, d.source) {
		return d.source
	}
	if maddr, ok := to.UriParams.Get("maddr"); ok && maddr != "" { // RFC 3261, section 19.1.1
		to.Host = maddr
	}
	// A host name gets no default port, because it may have SRV records.
	if _, err := netip.ParseAddr(strings.Trim(to.Host, "[]")); to.Port == 0 && err == nil {
		to.Port = sip.DefaultPort(d.transport)
	}
	if to.Port == 0 {
		return to.Host
	}
	return fmt.Sprintf("%s:%d", to.Host, to.Port)
}

// hasOpenConn reports whether the connection on which the peer's requests arrived is still open.
func (d *dialog) hasOpenConn() bool {
	switch {
	case d.source == "" || !sip.IsReliable(d.transport):
		return false
	case d.client == nil:
		return false
	}
	conn, err := d.client.TransportLayer().GetConnection(d.transport, d.source)
	if err == nil {
		_, _ = conn.TryClose() // GetConnection has incremented its reference count
	}
	return err == nil
}

// switchToNextServer makes a dialog that has no answer yet use the next server. It returns false if no server is left.
func (d *dialog) switchToNextServer() (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.servers) < 2 {
		return false
	}
	d.servers = d.servers[1:]
	return true
}

// isBehindNAT reports whether a peer's host address cannot be reached from here. source is the address from which the
// peer's requests come. If source is public, a private host cannot be reached. 0.0.0.0 and names in .invalid can never
// be reached.
func isBehindNAT(host, source string) bool {
	contact, err := netip.ParseAddr(strings.Trim(host, "[]"))
	from, err2 := netip.ParseAddrPort(source)
	if phone.IsInvalidHost(host) {
		return source != ""
	}
	if err != nil || err2 != nil {
		return false
	}
	contact, real := contact.Unmap(), from.Addr().Unmap()
	return isPrivateOrCarrierNAT(contact) && !isPrivateOrCarrierNAT(real) && !real.IsLoopback() || contact.IsUnspecified() ||
		contact.IsLoopback() && !real.IsLoopback() || contact.IsLinkLocalUnicast() && !real.IsLinkLocalUnicast()
}

// carrierNAT holds the addresses that carriers assign behind their NAT (RFC 6598).
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

func isPrivateOrCarrierNAT(a netip.Addr) bool { return a.IsPrivate() || carrierNAT.Contains(a) }

// sameHost reports whether a host is the source address of requests.
func sameHost(host, source string) bool {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	from, err2 := netip.ParseAddrPort(source)
	return err == nil && err2 == nil && a.Unmap() == from.Addr().Unmap()
}

// send sends a request of the dialog and waits for its final response, 32 s at most (RFC 3261, timers B and F). It
// answers challenges with the next CSeq (section 22.2).
func (d *dialog) send(ctx context.Context, req *sip.Request) (*sip.Response, error) {
	res, err := d.sendWithFallback(ctx, req)
	if err != nil {
		return nil, err
	}
	for auth := (passwordAnswers{}); d.isFromPeer(res) && auth.addChallenges(d.login, res); {
		again := req.Clone()
		d.prepareRetry(again)
		for _, h := range auth.authHeaders(d.login, again) {
			again.AppendHeader(h)
		}
		if res, err = transact(ctx, d.client, again); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// prepareRetry prepares a request for sending it again: it removes the Via, sets the next CSeq, and sets the
// destination.
func (d *dialog) prepareRetry(req *sip.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	req.RemoveHeader("Via")
	d.sequence++
	req.CSeq().SeqNo = d.sequence
	req.SetDestination(d.requestDestination())
}

// unreachableTimeout is the time that a peer has to respond before a request is sent again, to the source of the peer's
// requests. In this time it was sent three times by UDP (RFC 3261, section 17.1.2.1).
const unreachableTimeout = 2 * time.Second

// sendWithFallback sends a request to its destination. If that fails, this request and all further requests go to the
// source of the peer's requests. This helps with phone systems in containers, which announce unreachable addresses (RFC
// 3581).
func (d *dialog) sendWithFallback(ctx context.Context, req *sip.Request) (*sip.Response, error) {
	d.mu.Lock()
	source, useSource := d.source, d.useSource
	d.mu.Unlock()
	if source == "" || useSource || req.Destination() == source {
		return transact(ctx, d.client, req)
	}
	firstTry, cancel := context.WithCancel(ctx)
	fallbackTimer := time.AfterFunc(unreachableTimeout, cancel)
	res, err := transactWithProgress(firstTry, d.client, req, func() { fallbackTimer.Stop() })
	fallbackTimer.Stop()
	cancel()
	if err == nil || ctx.Err() != nil {
		return res, err
	}
	d.switchToSource(req, err)
	retry := req.Clone()
	d.prepareRetry(retry)
	return transact(ctx, d.client, retry)
}

// switchToSource makes all further requests go to the source of the peer's requests.
func (d *dialog) switchToSource(req *sip.Request, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.useSource && d.log != nil {
		d.log.Warn("requests cannot reach the peer's Contact or Record-Route; using the source of its requests",
			"method", req.Method, "at", req.Destination(), "instead", d.source, "err", why)
	}
	d.useSource = true
}

// isFromPeer reports whether a response comes from an address in owners, so that its challenge may be answered. If it
// came from a stranger, the stranger could guess the password from our answer. A registration has no owners, so it is
// always true there.
func (d *dialog) isFromPeer(res *sip.Response) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, err := netip.ParseAddrPort(res.Source())
	return len(d.owners) == 0 || err == nil && slices.Contains(d.owners, from.Addr().Unmap())
}

// transact sends a request, waits for its final response, and returns that response.
func transact(ctx context.Context, client *sipgo.Client, req *sip.Request) (*sip.Response, error) {
	return transactWithProgress(ctx, client, req, func() {})
}

// transactWithProgress is like [transact], but also calls onProvisional for each provisional response.
func transactWithProgress(ctx context.Context, client *sipgo.Client, req *sip.Request, onProvisional func()) (*sip.Response, error) {
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
			onProvisional()
		case <-tx.Done():
			return nil, tx.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// addVia adds the Via header, with our address as the peer sees it.
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

// sendAck acknowledges a successful response to our INVITE.
func (d *dialog) sendAck(sequence uint32) error {
	req := d.newRequest(sip.ACK, d.inviteProof()...)
	req.CSeq().SeqNo = sequence
	err := d.client.WriteRequest(req, addVia)
	d.mu.Lock()
	again := err != nil && !d.useSource && d.source != "" && d.source != req.Destination()
	d.mu.Unlock()
	if again {
		d.switchToSource(req, err)
		return d.sendAck(sequence)
	}
	return err
}

// inviteProof returns the digest headers of our answered INVITE. The ACK must repeat them.
func (d *dialog) inviteProof() []sip.Header {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proof
}

// ackAgain acknowledges a final response again, because the peer has repeated it: our first ACK was lost. It also sends
// the ACK to the source of the response.
func (d *dialog) ackAgain(sequence uint32) error {
	err := d.sendAck(sequence)
	d.mu.Lock()
	source, astray := d.source, d.useSource
	d.mu.Unlock()
	if astray || source == "" {
		return err
	}
	req := d.newRequest(sip.ACK, d.inviteProof()...)
	req.CSeq().SeqNo = sequence
	if req.Destination() == source {
		return err
	}
	req.SetDestination(source)
	return cmp.Or(d.client.WriteRequest(req, addVia), err)
}

// ByeTimeout limits the requests that end a call or a registration. No user waits for their result.
const ByeTimeout = 5 * time.Second

// sendBye ends the dialog with a BYE. reason is the Reason header, for the peer's log (RFC 3326), or "". It blocks for
// at most ByeTimeout.
func (d *dialog) sendBye(reason string) {
	req := d.newRequest(sip.BYE)
	if reason != "" {
		req.AppendHeader(sip.NewHeader("Reason", reason))
	}
	ctx, cancel := context.WithTimeout(context.Background(), ByeTimeout)
	defer cancel()
	if _, err := d.send(ctx, req); err != nil && d.log != nil { // the peer may be gone, too
		d.log.Warn("BYE not answered", "at", req.Destination(), "err", err)
	}
}

// buildResponse makes a response to a request of the dialog.
func (d *dialog) buildResponse(req *sip.Request, code int, reason string) *sip.Response {
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
