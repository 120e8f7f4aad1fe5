package phone

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// MaxUnknown bounds the connections to one listener that have not shown whose they are.
const MaxUnknown = 64

// acceptPause is the pause before the next connection is accepted after a failure.
const acceptPause = 50 * time.Millisecond

// Acceptor accepts the connections of telephone systems. A failure, as when too many files are open, does not end it.
type Acceptor struct {
	net.Listener
	Known   func(from netip.Addr) bool // whose connections need no place; nil: nobody's
	Places  chan struct{}              // holds one for each connection that has not shown whose it is
	Refused func(from net.Addr)        // gets where a connection came from that finds no place
	Failed  func(why error)            // gets why a connection was not accepted
}

// Next returns the next connection. known gives its place back, and must be called when the connection has shown whose it is, or is closed;
// it is nil if the address is known. Once the listener is closed, Next fails.
func (a *Acceptor) Next() (conn net.Conn, known func(), err error) {
	for {
		conn, err := a.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, nil, err
		case err != nil:
			a.Failed(err)
			time.Sleep(acceptPause)
			continue
		case a.Known != nil && a.Known(addressOf(conn)):
			return conn, nil, nil
		}
		select {
		case a.Places <- struct{}{}:
			return conn, sync.OnceFunc(func() { <-a.Places }), nil
		default:
			a.Refused(conn.RemoteAddr())
			_ = conn.Close()
		}
	}
}

func addressOf(conn net.Conn) netip.Addr {
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // of what has no address: nobody's
	return at.Addr().Unmap()
}
