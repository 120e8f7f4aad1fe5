package sip

import (
	"encoding/binary"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/gobwas/ws"
)

// discard is a prefix without routes (RFC 6666). sipgo distinguishes the sockets of pages by addresses from it.
var discard = netip.MustParseAddr("100::")

// sockets is a net.Listener through which sipgo serves the phones in web pages. The page's own WebSocket is a [signaling.Socket], so that
// its limits, rate and pings apply to phones, too. Its messages are forwarded to sipgo by another WebSocket inside the process.
type sockets struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
	count    atomic.Uint64
}

func newSockets() *sockets {
	s := &sockets{accepted: make(chan net.Conn), closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

// open makes sipgo serve another socket, and returns our end of it and its remote address, which belongs to no network.
func (s *sockets) open() (ours net.Conn, address string, err error) {
	at := discard.As16()
	binary.BigEndian.PutUint64(at[8:], s.count.Add(1))
	ours, theirs := net.Pipe()
	remote := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom16(at), 5060))
	select {
	case s.accepted <- socket{theirs, remote}:
	case <-s.closed:
		return nil, "", net.ErrClosed
	}
	_, _, err = ws.Dialer{Protocols: []string{"sip"}}.Upgrade(ours, &url.URL{Scheme: "ws", Host: "localhost"})
	return ours, remote.String(), err
}

// Accept implements net.Listener.
func (s *sockets) Accept() (net.Conn, error) {
	select {
	case one := <-s.accepted:
		return one, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *sockets) Close() error {
	s.close()
	return nil
}

// Addr implements net.Listener.
func (s *sockets) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(discard, 1)) }

// socket is sipgo's end of a WebSocket inside the process.
type socket struct {
	net.Conn
	remote net.Addr
}

func (s socket) RemoteAddr() net.Addr { return s.remote }
func (s socket) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(discard, 1)) }

// pass calls put with what sipgo sends, until the socket is closed.
func pass(from net.Conn, put func([]byte)) {
	for {
		f, err := ws.ReadFrame(from)
		if err != nil {
			return
		}
		put(f.Payload)
	}
}
