// Package sip is the door for telephones: calls by SIP (RFC 3261), with sound by RTP from trunks and telephone systems that the
// operator has named, and by WebRTC from telephones in web pages. The signalling below calls is sipgo's; calls, their sound and who may
// call are this package's.
//
// Nobody gets a conversation with the model before their trunk is known and they have acknowledged our answer.
package sip

import (
	"bytes"
	"cmp"
	"context"
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
	"github.com/gobwas/ws"
	"golang.org/x/time/rate"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/crash"
	"voxgate/media/opus"
	"voxgate/signaling/rtc"
	"voxgate/tools/webhook"
)

// Door answers telephones. It is made by [New].
type Door struct {
	host          *bridge.Host
	account       func(trunk string, calls int) bridge.Account
	config        *Config
	agents        *agents.Folder
	log           *slog.Logger
	gate          *gate
	endpoint      *webhook.Endpoint // is asked about calls; nil: there is none
	ports         *portPool
	rtc           *rtc.API
	decoder       opus.DecoderChoice
	pages         *sockets
	outboundCalls callRegistry
	agent         *sipgo.UserAgent
	server        *sipgo.Server
	client        *sipgo.Client
	resolver      *net.Resolver
	localAddr     *localAddr
	names         nameCache // of hosts in route sets
	listens       []listener

	mu      sync.Mutex
	calls   map[string]*call // by our tag
	phones  map[string]*page // by their addresses among sipgo's connections
	closing chan struct{}    // closed: no call begins
	isDeaf  bool             // nothing is answered
	running sync.WaitGroup
	serving sync.WaitGroup // requests

	registrar registrar

	count     func(rule string)
	strangers *rate.Limiter // of the log's lines about them

	timeout time.Duration
}

// listener is where signalling comes by.
type listener struct {
	transport string
	at        netip.AddrPort
	packets   net.PacketConn // of UDP
	serve     func() error
	close     func() error
}

// Options make a Door.
type Options struct {
	Config *Config
	Agents *agents.Folder
	Host   *bridge.Host
	// Account counts a conversation of a trunk, of which so many may be at once, beside all others. It may be nil.
	Account func(trunk string, calls int) bridge.Account
	// RTC and Decoder are for the sound of telephones in pages.
	RTC     *rtc.API
	Decoder opus.DecoderChoice
	// Timeout is how long an answer is repeated until it is acknowledged, and how long an outgoing call that was given up has to end;
	// 0: 32 s.
	Timeout time.Duration
	// Refused counts calls and packets that are refused, by "sip no agent" and the like. It may be nil.
	Refused func(rule string)
	// Tell gets the status of a call that we make whenever it changes. It may be nil, and must not block.
	Tell   func(CallStatus)
	Logger *slog.Logger
}

// quiet is sipgo's log: what strangers send does not belong in ours. Some of it goes to a logger of the whole process.
var quiet = slog.New(slog.DiscardHandler)

func init() {
	sip.SetDefaultLogger(quiet)
	sip.TransportBufferReadSize = maxMessage // longer ones would be cut
	// sipgo sends nothing longer than this by UDP. RFC 3261, section 18.1.1, wants TCP for requests of more than 1,300 bytes where the peer
	// has it, which is for the operator to say; answers go by what their request came by, however long they are.
	sip.UDPMTUSize = maxMessage
}

// New opens the addresses of the configuration and answers calls. Shut the host down first, then Close the door.
func New(o Options) (*Door, error) {
	first, last, err := o.Config.RTP.parsePorts()
	if err == nil {
		err = o.Config.CheckFiles(o.Agents)
	}
	if err != nil {
		return nil, err
	}
	d := &Door{
		host: o.Host, account: o.Account, config: o.Config, agents: o.Agents, log: o.Logger.With("door", doorName),
		gate: newGate(o.Config, time.Now), ports: newPortPool(o.Config.RTP.Address, first, last), rtc: o.RTC, decoder: o.Decoder,
		pages: newSockets(), outboundCalls: callRegistry{tell: o.Tell},
		calls: map[string]*call{}, phones: map[string]*page{},
		strangers: rate.NewLimiter(rate.Every(10*time.Second), 3), timeout: cmp.Or(o.Timeout, usualTimeout), closing: make(chan struct{}),
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
	if len(o.Config.Trunks) > 0 && o.Config.Webhook == nil && len(o.Agents.PhoneAgents(doorName)) == 0 {
		d.log.Warn("no agent has numbers, so nobody answers these trunks")
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
			sip.WithTransportLayerReadFilter(d.filter),
			sip.WithTransportLayerTransports(sip.TransportsConfig{WS: pagesOnly()}),
		),
		sipgo.WithUserAgentTransactionLayerOptions(
			sip.WithTransactionLayerLogger(quiet),
			sip.WithTransactionLayerUnhandledResponseHandler(d.onAnswerAgain),
			sip.WithTransactionLayerTerminateOnConnClose(), // or a trunk that closes its connection is waited for, for 32 s
		),
	)
	if err == nil {
		d.server, err = sipgo.NewServer(d.agent, sipgo.WithServerLogger(quiet))
	}
	if err == nil {
		d.client, err = sipgo.NewClient(d.agent, sipgo.WithClientLogger(quiet), sipgo.WithClientNAT())
	}
	if err != nil {
		return nil, err
	}
	d.route()
	for i, l := range o.Config.Listen {
		if err := d.listen(l); err != nil {
			d.Close()
			return nil, fmt.Errorf("listen[%d]: %w", i, err)
		}
	}
	for _, l := range d.listens {
		d.log.Info("listening", "transport", l.transport, "at", l.at)
		d.running.Go(func() { _ = l.serve() }) // it ends with the listener
		d.await(l)
	}
	d.running.Go(func() { _ = d.server.ServeWS(d.pages) })
	d.registrar.registerAll(d)
	return d, nil
}

// doorName is what tools and grants know this door by.
const doorName = "sip"

func (d *Door) listen(l Listen) error {
	add := func(at net.Addr, serve, stop func() error) {
		where := netip.MustParseAddrPort(at.String())
		d.listens = append(d.listens, listener{transport: strings.ToUpper(l.Transport), at: where, serve: serve, close: stop})
	}
	if l.Transport == "udp" {
		conn, err := net.ListenPacket("udp", l.Address)
		if err != nil {
			return err
		}
		add(conn.LocalAddr(), func() error { return d.server.ServeUDP(conn) }, conn.Close)
		d.listens[len(d.listens)-1].packets = conn
		return nil
	}
	at, err := net.Listen("tcp", l.Address)
	if err != nil {
		return err
	}
	in := d.limitConns(at)
	if l.Transport == "tcp" {
		add(at.Addr(), func() error { return d.server.ServeTCP(in) }, at.Close)
		return nil
	}
	config, err := l.config(d.log)
	if err != nil {
		at.Close()
		return err
	}
	secure := tls.NewListener(in, config)
	add(at.Addr(), func() error { return d.server.ServeTLS(secure) }, secure.Close)
	return nil
}

// await waits until sipgo knows a UDP socket: our request would open it a second time.
func (d *Door) await(l listener) {
	for l.transport == "UDP" {
		if conn, err := d.agent.TransportLayer().GetConnection("udp", l.at.String()); err == nil {
			_, _ = conn.TryClose()
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Addresses are where the door listens, in the order of the configuration.
func (d *Door) Addresses() (list []netip.AddrPort) {
	for _, l := range d.listens {
		list = append(list, l.at)
	}
	return list
}

// Close ends the calls that are left and waits for them.
func (d *Door) Close() {
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
	d.isDeaf = true // an answer by a socket that is closed would have sipgo open another
	d.mu.Unlock()
	d.serving.Wait()
	_ = d.pages.Close()
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

// closeLate closes the sockets that sipgo opens for the answers to requests that it had read before we were deaf: it has a goroutine for
// each, does not say when that has ended, and opens a socket where the one that the request came by is gone.
func (d *Door) closeLate() {
	const (
		look  = 10 * time.Millisecond
		quiet = 5 // looks that find nothing; a request is through in microseconds
		most  = 200
	)
	for looks, empty := 0, 0; empty < quiet; looks++ {
		if looks == most {
			d.log.Warn("the door closes with sockets left", "sockets", d.agent.TransportLayer().Pool("udp").Size())
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

// waitForCalls waits until no call is left: their goodbyes need the sockets.
func (d *Door) waitForCalls() {
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
		<-one.closed
	}
}

// filter drops what no caller with a right to call can have sent, before anything is kept of it.
func (d *Door) filter(p sip.TransportReadProps, data []byte) ([]byte, error) {
	at, err := netip.ParseAddrPort(p.RemoteAddr.String())
	if err != nil {
		return nil, nil
	}
	from := netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	d.mu.Lock()
	deaf := d.isDeaf
	d.mu.Unlock()
	switch {
	case deaf:
		return nil, nil
	case p.Transport == "UDP" && bytes.HasPrefix(data, []byte(sip.CANCEL)) && d.strangersCancel(from, data):
		d.countRefusal("packet dropped", ruleCancel, from.String())
		return nil, nil
	case p.Transport == "WS": // a page's: its token is looked at with each call
		return data, nil
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
	case d.acceptsPacket(from, p.LocalAddr, data):
		return data, nil
	}
	return nil, nil
}

// strangersCancel reports whether a packet would cancel a call that its sender did not begin: sipgo looks at the branch alone.
func (d *Door) strangersCancel(from netip.AddrPort, data []byte) bool {
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

// acceptsPacket reports whether a packet of UDP is read that comes from an address that is not known: it is of a call or a
// registration that there is, or proves a password. A call without one is asked for it here, because the library keeps each address
// that it reads from until it ends (RFC 3261, section 8.2.7, has such a server without memory).
func (d *Door) acceptsPacket(from netip.AddrPort, by net.Addr, data []byte) bool {
	m, err := sip.ParseMessage(data)
	if err != nil || m.From() == nil || m.To() == nil || m.CallID() == nil || m.CSeq() == nil || m.Via() == nil {
		return false
	}
	if res, ok := m.(*sip.Response); ok {
		return d.asked(res)
	}
	req := m.(*sip.Request)
	if req.To().Params.Has("tag") {
		c := d.callOf(req)
		if c == nil {
			return false
		}
		ok, res := d.ownedPacket(c, req, from)
		if res != nil {
			d.writeShort(by, from, res, data)
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
		d.writeShort(by, from, res, data)
	}
	return false
}

// onAnswerAgain takes a final answer to our INVITE that has one already: the peer repeats it because our ACK was lost, or another
// telephone that the call was forked to has answered as well, which learns that it is too late (RFC 3261, section 13.2.2.4).
func (d *Door) onAnswerAgain(res *sip.Response) {
	if !res.IsSuccess() || res.CSeq() == nil || res.CSeq().MethodName != sip.INVITE || res.From() == nil || res.To() == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.calls[res.From().Params.GetOr("tag", "")]
	if c == nil || d.isDeaf || res.CallID() == nil || res.CallID().Value() != c.dialog.callID {
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

// asked reports whether a response is to our request.
func (d *Door) asked(res *sip.Response) bool {
	tag := res.From().Params.GetOr("tag", "")
	d.mu.Lock()
	defer d.mu.Unlock()
	_, registers := d.registrar.tags.Load(tag)
	return registers || d.calls[tag] != nil
}

// write sends a response by the socket that its request came by.
func (d *Door) write(by net.Addr, to netip.AddrPort, res *sip.Response) {
	for _, l := range d.listens {
		if l.packets != nil && l.packets.LocalAddr().String() == by.String() {
			_, _ = l.packets.WriteTo([]byte(res.String()), net.UDPAddrFromAddrPort(to)) // a peer that gets no answer asks again
		}
	}
}

// countRefusal counts a refusal and logs it, unless there were many: strangers must not fill the disk.
func (d *Door) countRefusal(what, rule, from string) {
	switch rule {
	case rulePassword, ruleAnswered, ruleStale:
	default:
		d.count("sip " + rule)
	}
	if rule != rulePassword && d.strangers.Allow() {
		d.log.Warn(what, "rule", rule, "from", from)
	}
}

// allowed are the methods that are served; REGISTER for telephones in pages alone.
const allowed = "INVITE, ACK, PRACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, NOTIFY, REGISTER"

// accepted are the types of bodies that are read.
const accepted = typeSDP + ", " + typeDTMFRelay + ", " + typeDTMF + ", " + typeFragment + ", multipart/mixed"

// extensions are those that are served in a call that comes in.
const extensions = "timer, 100rel, replaces"

// route sets the handler of each method.
func (d *Door) route() {
	for method, f := range map[sip.RequestMethod]func(*sip.Request, sip.ServerTransaction){
		sip.INVITE: d.onInvite, sip.ACK: d.onAck, sip.BYE: d.onBye, sip.CANCEL: d.onCancel, sip.OPTIONS: d.onOptions,
		sip.INFO: d.inDialog((*call).onInfo), sip.UPDATE: d.inDialog((*call).onUpdate), sip.NOTIFY: d.inDialog((*call).onNotify),
		sip.PRACK: d.inDialog((*call).onPrack), sip.REGISTER: d.onRegister,
	} {
		d.server.OnRequest(method, d.guardHandler(f))
	}
	d.server.OnNoRoute(d.guardHandler(d.onOther))
}

// guardHandler keeps what cannot be answered from f, and the process from what f does with it.
func (d *Door) guardHandler(f func(*sip.Request, sip.ServerTransaction)) func(*sip.Request, sip.ServerTransaction) {
	return func(req *sip.Request, tx sip.ServerTransaction) {
		defer crash.Recover(d.log.With("method", req.Method, "from", req.Source()), "sip request", func(err error) {
			if c := d.callOf(req); c != nil {
				c.endCall(err)
			}
			if req.Method != sip.ACK { // fails if there was an answer already
				d.reply(req, tx, 500, "Server Internal Error")
			}
		})
		d.mu.Lock()
		deaf := d.isDeaf
		if !deaf {
			d.serving.Add(1)
			defer d.serving.Done()
		}
		d.mu.Unlock()
		if deaf || req.From() == nil || req.To() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil ||
			!req.From().Params.Has("tag") {
			return
		}
		crash.CallInjected("sip request")
		f(req, tx)
	}
}

// answer answers a request that belongs to no call, if it is of a trunk, of a page or from where somebody has proved a password lately:
// scanners get no answer.
func (d *Door) answer(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	from, err := netip.ParseAddrPort(req.Source())
	if d.pageOf(req) != nil || err == nil && d.gate.isKnown(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())) {
		d.reply(req, tx, code, reason, headers...)
	}
}

func (d *Door) reply(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	res := sip.NewResponseFromRequest(req, code, reason, nil)
	for _, h := range headers {
		res.AppendHeader(h)
	}
	_ = tx.Respond(res)
}

// callOf finds the call of a request within a dialog.
func (d *Door) callOf(req *sip.Request) *call {
	d.mu.Lock()
	c := d.calls[req.To().Params.GetOr("tag", "")]
	d.mu.Unlock()
	if c == nil || !c.dialog.isDialog(req.CallID().Value(), req.From().Params.GetOr("tag", "")) || errors.Is(c.endReason(), errHungUp) {
		return nil
	}
	return c
}

func (d *Door) inDialog(f func(*call, *sip.Request, sip.ServerTransaction)) func(*sip.Request, sip.ServerTransaction) {
	return func(req *sip.Request, tx sip.ServerTransaction) {
		c := d.callOf(req)
		owned, refusal := false, (*sip.Response)(nil)
		if c != nil {
			owned, refusal = d.checkOwner(c, req)
		}
		switch {
		case refusal != nil:
			_ = tx.Respond(refusal)
		case !owned: // to others it is as if there were no such call
			d.answer(req, tx, 481, "Call/Transaction Does Not Exist")
		case !c.dialog.isNextRequest(req):
			_ = tx.Respond(c.dialog.respond(req, 500, "Server Internal Error")) // RFC 3261, section 12.2.2
		default:
			d.verifyConn(req)
			f(c, req, tx)
		}
	}
}

// onOptions says what is served, in a call and outside of one. A proxy finds out by it whether a call is still there.
func (d *Door) onOptions(req *sip.Request, tx sip.ServerTransaction) {
	headers := []sip.Header{sip.NewHeader("Allow", allowed), sip.NewHeader("Accept", accepted), sip.NewHeader("Supported", extensions)}
	d.inCallOrNot(req, tx, 200, "OK", headers...)
}

// onOther refuses a method that is not served.
func (d *Door) onOther(req *sip.Request, tx sip.ServerTransaction) {
	d.inCallOrNot(req, tx, 405, "Method Not Allowed", sip.NewHeader("Allow", allowed))
}

// inCallOrNot answers a request that means the same within a call, which must be there then, and outside of one.
func (d *Door) inCallOrNot(req *sip.Request, tx sip.ServerTransaction, code int, reason string, headers ...sip.Header) {
	if !req.To().Params.Has("tag") {
		d.answer(req, tx, code, reason, headers...)
		return
	}
	d.inDialog(func(c *call, req *sip.Request, tx sip.ServerTransaction) {
		c.respond(tx, req, &refusal{code: code, reason: reason, headers: headers})
	})(req, tx)
}

// onCancel takes a CANCEL whose transaction sipgo does not know. It may have overtaken its INVITE: sipgo reads each packet in
// a goroutine of its own.
func (d *Door) onCancel(req *sip.Request, tx sip.ServerTransaction) {
	d.gate.noteCancel(req)
	d.mu.Lock()
	for _, c := range d.calls {
		if c.dialog.invite == nil || inviteKey(c.dialog.invite) != inviteKey(req) {
			continue
		}
		if !isClosed(c.isAnswered) { // then it is too late (RFC 3261, section 9.2)
			c.endCall(errCancelled)
		}
	}
	d.mu.Unlock()
	d.answer(req, tx, 481, "Call/Transaction Does Not Exist")
}

func (d *Door) onAck(req *sip.Request, _ sip.ServerTransaction) {
	c := d.callOf(req)
	if c == nil {
		return
	}
	if owned, _ := d.checkOwner(c, req); owned {
		c.onAck(req)
	}
}

func (d *Door) onBye(req *sip.Request, tx sip.ServerTransaction) {
	d.inDialog(func(c *call, req *sip.Request, tx sip.ServerTransaction) {
		c.endCall(hungUp{reasonIn(errHungUp.Error(), req)}) // before the answer: what follows it finds no call
		_ = tx.Respond(c.dialog.respond(req, 200, "OK"))
	})(req, tx)
}

// errHungUp is the end of a call by the other side.
var errHungUp = errors.New("the other side has hung up")

// hungUp is [errHungUp] with the reason that the other side gives.
type hungUp struct{ reason string }

func (h hungUp) Error() string        { return h.reason }
func (h hungUp) Is(target error) bool { return target == errHungUp }

func sourceOf(req *sip.Request) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(req.Source())
	return at.Addr().Unmap(), err == nil
}

// contact is where a peer reaches us by a transport.
func (d *Door) contact(transport string, peer netip.Addr) sip.Uri {
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

// socket is the one that UDP comes and goes by: a firewall that admits our port need not admit others.
func (d *Door) socket(transport string) sip.Addr {
	for _, l := range d.listens {
		if l.transport == "UDP" && strings.EqualFold(transport, "udp") {
			return sip.Addr{IP: l.at.Addr().AsSlice(), Port: int(l.at.Port())}
		}
	}
	return sip.Addr{}
}

// addCall counts a call among those that there are; false: the door is closing.
func (d *Door) addCall(c *call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isClosed(d.closing) {
		return false
	}
	d.calls[c.dialog.localTag] = c
	return true
}

func (d *Door) removeCall(c *call) {
	d.mu.Lock()
	delete(d.calls, c.dialog.localTag)
	d.mu.Unlock()
	close(c.closed)
}

// pagesOnly is sipgo's WebSocket transport without a way to open connections: those that there are come from pages.
func pagesOnly() *sip.TransportWS {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errSocket }
	return &sip.TransportWS{DialerCreate: func(net.Addr) ws.Dialer { return ws.Dialer{NetDial: refuse} }}
}
