// Package sip serves phone calls by SIP (RFC 3261), from and to trunks and phone systems that the operator has configured, with audio by
// RTP. sipgo implements transports and transactions; this package implements calls, their media and access control.
//
// A caller gets a conversation with the model only once their trunk is known. It begins when they have acknowledged our answer, or before
// that with early media.
package sip

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo"
	"github.com/emiago/sipgo/sip"
	"golang.org/x/time/rate"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/crash"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/rtc"
	"voxgate/tools/webhook"
)

// Server is the SIP endpoint. [New] makes it.
type Server struct {
	host          *bridge.Host
	account       func(trunk string, calls int) bridge.Account
	config        *Config
	agents        *agents.Folder
	log           *slog.Logger
	gate          *gate
	endpoint      *webhook.Endpoint // the webhook for incoming calls; may be nil
	ports         *sipmedia.PortPool
	onQuality     func(rtc.Quality) // may be nil
	outboundCalls callRegistry
	agent         *sipgo.UserAgent
	sipServer     *sipgo.Server
	client        *sipgo.Client
	resolver      *net.Resolver
	localAddr     *localAddr
	names         nameCache // cached addresses of hosts in route sets
	listens       []listener

	mu        sync.Mutex
	calls     map[string]*call // by our tag
	closing   chan struct{}    // closed when no new call may begin
	isStopped bool             // requests are not answered any more
	running   sync.WaitGroup
	serving   sync.WaitGroup // requests in progress

	registrar registrar

	count     func(rule string)
	strangers *rate.Limiter // limits log lines about strangers

	timeout time.Duration
}

// listener is a listening address for signalling.
type listener struct {
	transport string
	at        netip.AddrPort
	packets   net.PacketConn // for UDP
	serve     func() error
	close     func() error
}

// Options configure a Server.
type Options struct {
	Config *Config
	Agents *agents.Folder
	Host   *bridge.Host
	// Account returns the account for conversations of a trunk, with its limit on concurrent calls. It may be nil.
	Account func(trunk string, calls int) bridge.Account
	// OnQuality receives the quality of each ended stream, incoming and outgoing. It may be nil.
	OnQuality func(rtc.Quality)
	// Timeout bounds how long a response is repeated until it is acknowledged, and how long a cancelled outgoing call may take to end. The
	// default is 32 s.
	Timeout time.Duration
	// Refused counts refused calls and packets by rule, such as "sip no agent". It may be nil.
	Refused func(rule string)
	// Tell is called on each status change of an outgoing call. It may be nil, and must not block.
	Tell   func(CallStatus)
	Logger *slog.Logger
}

// maxMessage bounds a message, in bytes: sipgo's limit (sip.ParseMaxMessageLength).
const maxMessage = 64<<10 - 1

// quiet discards sipgo's log: input of strangers does not belong in ours. Some of it goes to a process-wide logger.
var quiet = slog.New(slog.DiscardHandler)

func init() {
	sip.SetDefaultLogger(quiet)
	sip.TransportBufferReadSize = maxMessage // longer messages would be cut
	// sipgo sends no longer message by UDP. RFC 3261, section 18.1.1, demands TCP for requests of more than 1,300 bytes if the peer
	// supports it, which is up to the operator. Responses use the transport of the request, whatever their length.
	sip.UDPMTUSize = maxMessage
}

// New listens at the configured addresses and answers calls. Shut down the host before you close the Server.
func New(o Options) (*Server, error) {
	ports, err := sipmedia.NewPortPool(o.Config.RTP)
	if err == nil {
		err = o.Config.CheckFiles(o.Agents)
	}
	if err != nil {
		return nil, err
	}
	d := &Server{
		host: o.Host, account: o.Account, config: o.Config, agents: o.Agents, log: o.Logger.With("door", protocolName),
		gate: newGate(o.Config, time.Now), ports: ports, onQuality: o.OnQuality,
		outboundCalls: callRegistry{tell: o.Tell},
		calls:         map[string]*call{},
		strangers:     rate.NewLimiter(rate.Every(10*time.Second), 3), timeout: cmp.Or(o.Timeout, usualTimeout), closing: make(chan struct{}),
		resolver: net.DefaultResolver,
	}
	d.names.resolver = func() *net.Resolver { return d.resolver }
	if d.localAddr, err = newLocalAddr(o.Config.External, d.resolver, d.log); err != nil {
		return nil, fmt.Errorf("external: %w", err)
	}
	if w := o.Config.Webhook; w != nil {
		if d.endpoint, err = webhook.NewEndpoint(w.URL, w.Secret); err != nil {
			return nil, err
		}
	}
	if d.count = o.Refused; d.count == nil {
		d.count = func(string) {}
	}
	if d.account == nil {
		d.account = func(string, int) bridge.Account { return bridge.Unlimited }
	}
	if len(o.Config.Trunks) > 0 && o.Config.Webhook == nil && len(o.Agents.PhoneAgents(protocolName)) == 0 {
		d.log.Warn("no agent has numbers, so calls from these trunks are not answered")
	}
	secure, err := o.Config.trunkTLS(d.log)
	if err != nil {
		return nil, err
	}
	d.agent, err = sipgo.NewUA(
		sipgo.WithUserAgent("voxgate"),
		sipgo.WithUserAgenTLSConfig(secure),
		sipgo.WithUserAgentTransportLayerOptions(
			sip.WithTransportLayerLogger(quiet),
			sip.WithTransportLayerReadFilter(d.filterPacket),
		),
		sipgo.WithUserAgentTransactionLayerOptions(
			sip.WithTransactionLayerLogger(quiet),
			sip.WithTransactionLayerUnhandledResponseHandler(d.onRepeatedAnswer),
			sip.WithTransactionLayerTerminateOnConnClose(), // without it, the end of a connection is noticed only after 32 s
		),
	)
	if err == nil {
		d.sipServer, err = sipgo.NewServer(d.agent, sipgo.WithServerLogger(quiet))
	}
	if err == nil {
		d.client, err = sipgo.NewClient(d.agent, sipgo.WithClientLogger(quiet), sipgo.WithClientNAT())
	}
	if err != nil {
		return nil, err
	}
	d.setHandlers()
	for i, l := range o.Config.Listen {
		if err := d.openListener(l); err != nil {
			d.Close()
			return nil, fmt.Errorf("listen[%d]: %w", i, err)
		}
	}
	for _, l := range d.listens {
		d.log.Info("listening", "transport", l.transport, "at", l.at)
		d.running.Go(func() { _ = l.serve() }) // ends with the listener
		d.awaitSocket(l)
	}
	d.registrar.registerAll(d)
	return d, nil
}

// protocolName is the name of this protocol in tools and grants.
const protocolName = "sip"

func (d *Server) openListener(l Listen) error {
	add := func(at net.Addr, serve, stop func() error) {
		where := netip.MustParseAddrPort(at.String())
		d.listens = append(d.listens, listener{transport: strings.ToUpper(l.Transport), at: where, serve: serve, close: stop})
	}
	if l.Transport == "udp" {
		conn, err := net.ListenPacket("udp", l.Address)
		if err != nil {
			return err
		}
		add(conn.LocalAddr(), func() error { return d.sipServer.ServeUDP(conn) }, conn.Close)
		d.listens[len(d.listens)-1].packets = conn
		return nil
	}
	at, err := net.Listen("tcp", l.Address)
	if err != nil {
		return err
	}
	in := d.limitConns(at)
	if l.Transport == "tcp" {
		add(at.Addr(), func() error { return d.sipServer.ServeTCP(in) }, at.Close)
		return nil
	}
	config, err := l.config(d.log)
	if err != nil {
		at.Close()
		return err
	}
	secure := tls.NewListener(in, config)
	add(at.Addr(), func() error { return d.sipServer.ServeTLS(secure) }, secure.Close)
	return nil
}

// awaitSocket waits until sipgo knows a UDP socket. Otherwise our request would open it a second time.
func (d *Server) awaitSocket(l listener) {
	for l.transport == "UDP" {
		if conn, err := d.agent.TransportLayer().GetConnection("udp", l.at.String()); err == nil {
			_, _ = conn.TryClose()
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Addresses returns the listening addresses, in the order of the configuration.
func (d *Server) Addresses() (list []netip.AddrPort) {
	for _, l := range d.listens {
		list = append(list, l.at)
	}
	return list
}

// Close ends the remaining calls, unregisters at the trunks and closes all sockets. It blocks until that is done.
func (d *Server) Close() {
	d.mu.Lock()
	if !isClosed(d.closing) {
		close(d.closing)
	}
	for _, c := range d.calls {
		c.endCall(bridge.ErrShutdown)
	}
	d.mu.Unlock()
	d.waitForCalls()
	d.registrar.unregisterAll()
	d.mu.Lock()
	d.isStopped = true // because sipgo opens another socket to respond by a closed one
	d.mu.Unlock()
	d.serving.Wait()
	_ = d.agent.Close()
	for _, l := range d.listens {
		_ = l.close()
	}
	if d.endpoint != nil {
		d.endpoint.Close()
	}
	d.running.Wait()
	d.names.running.Wait()
	d.config.Collect.Close()
	d.closeLate()
}

// closeLate closes sockets that sipgo opens late, for responses to requests that it had read before isStopped was set. sipgo handles each
// request in a goroutine of unknown end, and opens a new socket if the request's is closed.
func (d *Server) closeLate() {
	const (
		look  = 10 * time.Millisecond
		quiet = 5 // rounds without a new socket; a request takes microseconds
		most  = 200
	)
	for looks, empty := 0, 0; empty < quiet; looks++ {
		if looks == most {
			d.log.Warn("endpoint closed with open sockets", "sockets", d.agent.TransportLayer().Pool("udp").Size())
			return
		}
		time.Sleep(look)
		empty++
		if d.agent.TransportLayer().Pool("udp").Size() > 0 {
			empty = 0
		}
		_ = d.agent.Close()
	}
}

// waitForCalls waits until all calls have ended: their BYEs need the sockets.
func (d *Server) waitForCalls() {
	for {
		d.mu.Lock()
		var one *call
		for _, c := range d.calls {
			one = c
		}
		d.mu.Unlock()
		if one == nil {
			return
		}
		<-one.released
	}
}

// filterPacket drops packets that no authorized caller can have sent, before anything is stored about them.
func (d *Server) filterPacket(p sip.TransportReadProps, data []byte) ([]byte, error) {
	at, err := netip.ParseAddrPort(p.RemoteAddr.String())
	if err != nil {
		return nil, nil
	}
	from := netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	d.mu.Lock()
	deaf := d.isStopped
	d.mu.Unlock()
	switch {
	case deaf:
		return nil, nil
	case p.Transport == "UDP" && bytes.HasPrefix(data, []byte(sip.CANCEL)) && d.isForeignCancel(from, data):
		d.countRefusal("packet dropped", ruleCancel, from.String())
		return nil, nil
	case p.Transport != "UDP":
		if data = d.withoutForeignCancel(from, data); len(data) == 0 {
			return nil, nil
		}
	}
	switch {
	case d.gate.isKnown(from):
		return data, nil
	case !d.gate.passwords && !d.gate.elsewhere:
		d.countRefusal("packet dropped", ruleStranger, from.String())
		return nil, nil
	case p.Transport != "UDP": // the library forgets an address with its connection
		return data, nil
	case d.isAllowedPacket(from, p.LocalAddr, data):
		return data, nil
	}
	return nil, nil
}

// isForeignCancel reports whether a packet is a CANCEL for a call of another sender. sipgo checks only the branch.
func (d *Server) isForeignCancel(from netip.AddrPort, data []byte) bool {
	m, err := sip.ParseMessage(data)
	req, ok := m.(*sip.Request)
	if err != nil || !ok || req.From() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil {
		return true
	}
	req.SetSource(from.String())
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if i := c.dialog.invite; i != nil && branchOf(i) == branchOf(req) && inviteKey(i) != inviteKey(req) {
			return true
		}
	}
	return false
}

// isAllowedPacket reports whether a UDP packet from an unknown address is passed to sipgo. It must belong to an
// existing call or registration, or authenticate. A call without credentials is challenged here and not by sipgo, which
// stores each address that it reads from for as long as it runs. RFC 3261, section 8.2.7, describes such a stateless
// server.
func (d *Server) isAllowedPacket(from netip.AddrPort, by net.Addr, data []byte) bool {
	m, err := sip.ParseMessage(data)
	if err != nil || m.From() == nil || m.To() == nil || m.CallID() == nil || m.CSeq() == nil || m.Via() == nil {
		return false
	}
	if res, ok := m.(*sip.Response); ok {
		return d.isExpectedResponse(res)
	}
	req := m.(*sip.Request)
	if req.To().Params.Has("tag") {
		c := d.findDialogCall(req)
		if c == nil {
			return false
		}
		ok, res := d.checkPacketOwner(c, req, from)
		if res != nil {
			d.writeShortResponse(by, from, res, data)
		}
		return ok
	}
	if !d.gate.passwords || req.Method != sip.INVITE || !req.From().Params.Has("tag") {
		d.countRefusal("packet dropped", ruleStranger, from.String())
		return false
	}
	req.SetSource(from.String())
	r := d.gate.authenticatePacket(req, from, d.gate.trunks)
	if r.trunk != nil {
		return true
	}
	d.countRefusal("call refused", r.rule, from.String())
	if res := d.gate.refusalResponse(r, req, from.Addr()); res != nil {
		d.writeShortResponse(by, from, res, data)
	}
	return false
}

// onRepeatedAnswer handles a further final response to our answered INVITE. Either the peer repeats it because our ACK was lost, or a
// second phone of a forked call has answered. The second phone gets an ACK and a BYE (RFC 3261, section 13.2.2.4).
func (d *Server) onRepeatedAnswer(res *sip.Response) {
	if !res.IsSuccess() || res.CSeq() == nil || res.CSeq().MethodName != sip.INVITE || res.From() == nil || res.To() == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.calls[res.From().Params.GetOr("tag", "")]
	if c == nil || d.isStopped || res.CallID() == nil || res.CallID().Value() != c.dialog.callID {
		return
	}
	d.serving.Go(func() {
		defer crash.Recover(c.log, "sip call", c.endCall)
		dialog := c.dialog
		forked := !dialog.isDialog(dialog.callID, res.To().Params.GetOr("tag", ""))
		if forked {
			dialog = dialog.forkDialog(res)
		}
		if err := dialog.ackAgain(res.CSeq().SeqNo); err == nil && forked {
			dialog.sendBye(`SIP;cause=200;text="Call completed elsewhere"`) // RFC 3326
		}
	})
}

// isExpectedResponse reports whether a response belongs to one of our requests.
func (d *Server) isExpectedResponse(res *sip.Response) bool {
	tag := res.From().Params.GetOr("tag", "")
	d.mu.Lock()
	defer d.mu.Unlock()
	_, registers := d.registrar.tags.Load(tag)
	return registers || d.calls[tag] != nil
}

// writeResponse sends a response by the socket of its request.
func (d *Server) writeResponse(by net.Addr, to netip.AddrPort, res *sip.Response) {
	for _, l := range d.listens {
		if l.packets != nil && l.packets.LocalAddr().String() == by.String() {
			_, _ = l.packets.WriteTo([]byte(res.String()), net.UDPAddrFromAddrPort(to)) // on a failure the peer repeats its request
		}
	}
}

// countRefusal counts a refusal and logs it. The log is rate-limited, so that strangers cannot fill the disk.
func (d *Server) countRefusal(what, rule, from string) {
	switch rule {
	case rulePassword, ruleAnswered, ruleStale:
	default:
		d.count("sip " + rule)
	}
	if rule != rulePassword && d.strangers.Allow() {
		d.log.Warn(what, "rule", rule, "from", from)
	}
}

// allowed lists the supported methods.
const allowed = "INVITE, ACK, PRACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, NOTIFY"

// accepted lists the supported types of bodies.
const accepted = typeSDP + ", " + typeDTMFRelay + ", " + typeDTMF + ", " + typeFragment + ", multipart/mixed"

// extensions lists the supported extensions for incoming calls.
const extensions = "timer, 100rel, replaces"

// setHandlers sets the handler of each method.
func (d *Server) setHandlers() {
	for method, f := range map[sip.RequestMethod]func(*sip.Request, sip.ServerTransaction){
		sip.INVITE: d.onInvite, sip.ACK: d.onAck, sip.BYE: d.onBye, sip.CANCEL: d.onCancel, sip.OPTIONS: d.onOptions,
		sip.INFO: d.withDialogCall((*call).onInfo), sip.UPDATE: d.withDialogCall((*call).onUpdate),
		sip.NOTIFY: d.withDialogCall((*call).onNotify),
		sip.PRACK:  d.withDialogCall((*call).onPrack),
	} {
		d.sipServer.OnRequest(method, d.guardHandler(f))
	}
	d.sipServer.OnNoRoute(d.guardHandler(d.onUnsupported))
}

// guardHandler keeps malformed requests from f, and recovers from its panics.
func (d *Server) guardHandler(f func(*sip.Request, sip.ServerTransaction)) func(*sip.Request, sip.ServerTransaction) {
	return func(req *sip.Request, tx sip.ServerTransaction) {
		defer crash.Recover(d.log.With("method", req.Method, "from", req.Source()), "sip request", func(err error) {
			if c := d.findDialogCall(req); c != nil {
				c.endCall(err)
			}
			if req.Method != sip.ACK { // fails if a response was sent already
				d.respond(req, tx, 500, "Server Internal Error")
			}
		})
		d.mu.Lock()
		deaf := d.isStopped
		if !deaf {
			d.serving.Add(1)
			defer d.serving.Done()
		}
		d.mu.Unlock()
		if deaf || req.From() == nil || req.To() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil ||
			!req.From().Params.Has("tag") {
			return
		}
		crash.RunTestHook("sip request")
		f(req, tx)
	}
}

// respondIfKnown responds to a request outside of calls if it comes from a trunk or from an address that has authenticated recently.
// Scanners get no response.
func (d *Server) respondIfKnown(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	from, err := netip.ParseAddrPort(req.Source())
	if err == nil && d.gate.isKnown(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())) {
		d.respond(req, tx, code, reason, headers...)
	}
}

func (d *Server) respond(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	res := sip.NewResponseFromRequest(req, code, reason, nil)
	for _, h := range headers {
		res.AppendHeader(h)
	}
	_ = tx.Respond(res)
}

// findDialogCall returns the call of a request within a dialog, or nil.
func (d *Server) findDialogCall(req *sip.Request) *call {
	d.mu.Lock()
	c := d.calls[req.To().Params.GetOr("tag", "")]
	d.mu.Unlock()
	if c == nil || !c.dialog.isDialog(req.CallID().Value(), req.From().Params.GetOr("tag", "")) || errors.Is(c.endReason(), errHungUp) {
		return nil
	}
	return c
}

func (d *Server) withDialogCall(f func(*call, *sip.Request, sip.ServerTransaction)) func(*sip.Request, sip.ServerTransaction) {
	return func(req *sip.Request, tx sip.ServerTransaction) {
		c := d.findDialogCall(req)
		owned, refusal := false, (*sip.Response)(nil)
		if c != nil {
			owned, refusal = d.checkOwner(c, req)
		}
		switch {
		case refusal != nil:
			_ = tx.Respond(refusal)
		case !owned: // pretend to others that the call does not exist
			d.respondIfKnown(req, tx, 481, "Call/Transaction Does Not Exist")
		case !c.dialog.isNextRequest(req):
			_ = tx.Respond(c.dialog.buildResponse(req, 500, "Server Internal Error")) // RFC 3261, section 12.2.2
		default:
			d.verifyConn(req)
			f(c, req, tx)
		}
	}
}

// onOptions lists what is supported, inside or outside of a call. Proxies use it to check whether a call is still alive.
func (d *Server) onOptions(req *sip.Request, tx sip.ServerTransaction) {
	headers := []sip.Header{sip.NewHeader("Allow", allowed), sip.NewHeader("Accept", accepted), sip.NewHeader("Supported", extensions)}
	d.respondInOrOutOfCall(req, tx, 200, "OK", headers...)
}

// onUnsupported refuses unsupported methods.
func (d *Server) onUnsupported(req *sip.Request, tx sip.ServerTransaction) {
	d.respondInOrOutOfCall(req, tx, 405, "Method Not Allowed", sip.NewHeader("Allow", allowed))
}

// respondInOrOutOfCall responds to a request that is handled alike inside and outside of a call. If it names a call, that must exist.
func (d *Server) respondInOrOutOfCall(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	if !req.To().Params.Has("tag") {
		d.respondIfKnown(req, tx, code, reason, headers...)
		return
	}
	d.withDialogCall(func(c *call, req *sip.Request, tx sip.ServerTransaction) {
		c.respond(tx, req, &refusal{code: code, reason: reason, headers: headers})
	})(req, tx)
}

// onCancel handles a CANCEL whose transaction sipgo does not know. It may have overtaken its INVITE, since sipgo reads each packet in its
// own goroutine.
func (d *Server) onCancel(req *sip.Request, tx sip.ServerTransaction) {
	d.gate.noteCancel(req)
	d.mu.Lock()
	for _, c := range d.calls {
		if c.dialog.invite == nil || inviteKey(c.dialog.invite) != inviteKey(req) {
			continue
		}
		if !isClosed(c.answerAcked) { // afterwards it is too late (RFC 3261, section 9.2)
			c.endCall(errCancelled)
		}
	}
	d.mu.Unlock()
	d.respondIfKnown(req, tx, 481, "Call/Transaction Does Not Exist")
}

func (d *Server) onAck(req *sip.Request, _ sip.ServerTransaction) {
	c := d.findDialogCall(req)
	if c == nil {
		return
	}
	if owned, _ := d.checkOwner(c, req); owned {
		c.onAck(req)
	}
}

func (d *Server) onBye(req *sip.Request, tx sip.ServerTransaction) {
	d.withDialogCall(func(c *call, req *sip.Request, tx sip.ServerTransaction) {
		c.endCall(hungUp{reasonIn(errHungUp.Error(), req)}) // before the response, so that later requests find no call
		_ = tx.Respond(c.dialog.buildResponse(req, 200, "OK"))
	})(req, tx)
}

// errHungUp is the reason of a call that the other side ended.
var errHungUp = errors.New("the other side has hung up")

// hungUp is [errHungUp] with the other side's reason.
type hungUp struct{ reason string }

func (h hungUp) Error() string        { return h.reason }
func (h hungUp) Is(target error) bool { return target == errHungUp }

func sourceOf(req *sip.Request) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(req.Source())
	return at.Addr().Unmap(), err == nil
}

// contactURI returns our Contact for a peer and a transport.
func (d *Server) contactURI(transport string, peer netip.Addr) sip.Uri {
	uri := sip.Uri{Scheme: "sip", User: "voxgate", Host: d.localAddr.host(peer), UriParams: sip.NewParams()}
	for _, l := range d.listens {
		if l.transport == strings.ToUpper(transport) {
			uri.Port = int(l.at.Port())
			break
		}
	}
	if transport = strings.ToLower(transport); transport != "udp" {
		uri.UriParams.Add("transport", transport)
	}
	return uri
}

// localUDPAddr returns our socket for UDP requests: a firewall that admits our port may block others.
func (d *Server) localUDPAddr(transport string) sip.Addr {
	for _, l := range d.listens {
		if l.transport == "UDP" && strings.EqualFold(transport, "udp") {
			return sip.Addr{IP: l.at.Addr().AsSlice(), Port: int(l.at.Port())}
		}
	}
	return sip.Addr{}
}

// addCall registers a call. It returns false if the endpoint is closing.
func (d *Server) addCall(c *call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isClosed(d.closing) {
		return false
	}
	d.calls[c.dialog.localTag] = c
	return true
}

func (d *Server) removeCall(c *call) {
	d.mu.Lock()
	delete(d.calls, c.dialog.localTag)
	d.mu.Unlock()
	close(c.released)
}
