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

// sockets gives sipgo the WebSockets of pages to serve. A page's own socket is the kit's, whose limits, pace and pings hold for telephones,
// too; what it brings goes on to sipgo by another one inside the process. It implements net.Listener.
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

// open has sipgo serve another socket, whose address is of no network, and returns our end of it.
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

// socket is sipgo's end.
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
