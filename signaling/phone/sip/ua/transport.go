package ua

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/emiago/sipgo"
	"github.com/emiago/sipgo/sip"
)

// listener is a listening address for signalling.
type listener struct {
	transport string
	at        netip.AddrPort
	packets   net.PacketConn // the socket, for UDP; else nil
	serve     func() error
	close     func() error
}

// maxMessage limits a SIP message, in bytes. It is sipgo's limit (sip.ParseMaxMessageLength).
const maxMessage = 64<<10 - 1

// quiet discards the log messages of sipgo, because strangers could fill our log. It also replaces sipgo's process-wide
// logger.
var quiet = slog.New(slog.DiscardHandler)

func init() {
	sip.SetDefaultLogger(quiet)
	sip.TransportBufferReadSize = maxMessage // sipgo would truncate longer messages
	// sipgo refuses to send longer messages by UDP. RFC 3261, section 18.1.1, demands TCP for messages above 1,300
	// bytes. We ignore this, because the operator chooses the transport, and a response must use the transport of its
	// request.
	sip.UDPMTUSize = maxMessage
}

// transport is the network side of the user agent: sipgo's transports and transactions, our sockets, and our addresses.
type transport struct {
	agent    *sipgo.UserAgent
	server   *sipgo.Server
	client   *sipgo.Client
	resolver *net.Resolver
	local    *localAddr
	listens  []listener
	log      *slog.Logger
}

// newTransport returns a transport without sockets. filter is called with each packet before sipgo processes it, and unhandled with
// each response that belongs to no transaction.
func newTransport(local *localAddr, secure *tls.Config, log *slog.Logger,
	filter func(sip.TransportReadProps, []byte) ([]byte, error), unhandled func(*sip.Response),
) (t *transport, err error) {
	t = &transport{resolver: local.resolver, local: local, log: log}
	t.agent, err = sipgo.NewUA(
		sipgo.WithUserAgent("voxgate"),
		sipgo.WithUserAgenTLSConfig(secure),
		sipgo.WithUserAgentTransportLayerOptions(
			sip.WithTransportLayerLogger(quiet),
			sip.WithTransportLayerReadFilter(filter),
		),
		sipgo.WithUserAgentTransactionLayerOptions(
			sip.WithTransactionLayerLogger(quiet),
			sip.WithTransactionLayerUnhandledResponseHandler(unhandled),
			sip.WithTransactionLayerTerminateOnConnClose(), // without this option, the end of a connection is noticed only after 32 s
		),
	)
	if err == nil {
		t.server, err = sipgo.NewServer(t.agent, sipgo.WithServerLogger(quiet))
	}
	if err == nil {
		t.client, err = sipgo.NewClient(t.agent, sipgo.WithClientLogger(quiet), sipgo.WithClientNAT())
	}
	return t, err
}

func (t *transport) openListener(l Listen, g *gate, r *refusals) error {
	add := func(at net.Addr, serve, stop func() error) {
		where := netip.MustParseAddrPort(at.String())
		t.listens = append(t.listens, listener{transport: strings.ToUpper(l.Transport), at: where, serve: serve, close: stop})
	}
	if l.Transport == "udp" {
		conn, err := net.ListenPacket("udp", l.Address)
		if err != nil {
			return err
		}
		add(conn.LocalAddr(), func() error { return t.server.ServeUDP(conn) }, conn.Close)
		t.listens[len(t.listens)-1].packets = conn
		return nil
	}
	at, err := net.Listen("tcp", l.Address)
	if err != nil {
		return err
	}
	in := limitUnverifiedConns(at, g, r)
	if l.Transport == "tcp" {
		add(at.Addr(), func() error { return t.server.ServeTCP(in) }, at.Close)
		return nil
	}
	config, err := l.Config(t.log)
	if err != nil {
		at.Close()
		return err
	}
	secure := tls.NewListener(in, config)
	add(at.Addr(), func() error { return t.server.ServeTLS(secure) }, secure.Close)
	return nil
}

// awaitSocket waits until sipgo has registered a UDP socket. If a request were sent before that, sipgo would open the
// socket a second time.
func (t *transport) awaitSocket(l listener) {
	for l.transport == "UDP" {
		if conn, err := t.agent.TransportLayer().GetConnection("udp", l.at.String()); err == nil {
			_, _ = conn.TryClose()
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Connections returns the number of peer addresses for which sipgo keeps a connection of a protocol, such as "udp".
func (t *transport) Connections(protocol string) int {
	return t.agent.TransportLayer().Pool(protocol).Size()
}

// closeLateSockets closes sockets that sipgo opens after callTable.stop, for responses to earlier requests. sipgo has no
// function that waits for its goroutines.
func (t *transport) closeLateSockets() {
	const (
		look  = 10 * time.Millisecond
		quiet = 5 // rounds in a row without a new socket, after which all requests are done: each takes microseconds
		most  = 200
	)
	for looks, empty := 0, 0; empty < quiet; looks++ {
		if looks == most {
			t.log.Warn("endpoint closed with open sockets", "sockets", t.Connections("udp"))
			return
		}
		time.Sleep(look)
		empty++
		if t.Connections("udp") > 0 {
			empty = 0
		}
		_ = t.agent.Close()
	}
}

// verifyConn marks the connection of an admitted request as verified: see [unverifiedConn].
func (t *transport) verifyConn(req *sip.Request) {
	if !sip.IsReliable(req.Transport()) {
		return
	}
	conn, err := t.agent.TransportLayer().GetConnection(req.Transport(), req.Source())
	if err != nil {
		return
	}
	defer conn.TryClose() // GetConnection has incremented its reference count
	c, ok := conn.(*sip.TCPConnection)
	if !ok {
		return
	}
	by := c.Conn
	if secure, ok := by.(*tls.Conn); ok {
		by = secure.NetConn()
	}
	if s, ok := by.(*unverifiedConn); ok {
		s.markVerified()
	}
}

// writeResponse sends a UDP response from the socket that received the request.
func (t *transport) writeResponse(localAddr net.Addr, to netip.AddrPort, res *sip.Response) {
	for _, l := range t.listens {
		if l.packets != nil && l.packets.LocalAddr().String() == localAddr.String() {
			_, _ = l.packets.WriteTo([]byte(res.String()), net.UDPAddrFromAddrPort(to)) // on a failure the peer repeats its request
		}
	}
}

// contactURI returns our Contact for requests and responses to a peer.
func (t *transport) contactURI(transport string, peer netip.Addr) sip.Uri {
	uri := sip.Uri{Scheme: "sip", User: "voxgate", Host: t.local.host(peer), UriParams: sip.NewParams()}
	for _, l := range t.listens {
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

// localUDPAddr returns the address of our UDP listener. UDP requests are sent from it, because firewalls admit its
// port. For other transports it returns the zero value.
func (t *transport) localUDPAddr(transport string) sip.Addr {
	for _, l := range t.listens {
		if l.transport == "UDP" && strings.EqualFold(transport, "udp") {
			return sip.Addr{IP: l.at.Addr().AsSlice(), Port: int(l.at.Port())}
		}
	}
	return sip.Addr{}
}

// maxServers limits the addresses that are tried for one name.
const maxServers = 8

// resolveServers returns the addresses of a server, best first. It does not use NAPTR records, which select the
// transport, because the transport is configured.
func (t *transport) resolveServers(ctx context.Context, server sip.Uri, transport string) ([]netip.AddrPort, error) {
	host, port := strings.Trim(server.Host, "[]"), uint16(cmp.Or(server.Port, sip.DefaultPort(transport)))
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(a, port)}, nil
	}
	names := []*net.SRV{{Target: host, Port: port}}
	// SRV records are looked up (RFC 3263, section 4.2), but not with TLS. There, sipgo would compare the certificate
	// with the name in the SRV record instead of the configured one (RFC 5922).
	if server.Port == 0 && transport != "TLS" {
		if _, list, err := t.resolver.LookupSRV(ctx, "sip", strings.ToLower(transport), host); err == nil && len(list) > 0 {
			names = list // sorted by priority, and randomly by weight
		}
	}
	var found []netip.AddrPort
	var failed error
	for _, name := range names[:min(len(names), maxServers)] {
		list, err := t.resolver.LookupNetIP(ctx, "ip", name.Target)
		if err != nil {
			failed = err
			continue
		}
		for _, a := range list { // addresses of one family only, because our Contact has one address
			if a = a.Unmap(); len(found) == 0 || len(found) < maxServers && a.Is4() == found[0].Addr().Is4() {
				found = append(found, netip.AddrPortFrom(a, name.Port))
			}
		}
	}
	if len(found) == 0 {
		return nil, failed
	}
	return found, nil
}
