package phone

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// MaxUnverifiedConns limits the connections per listener whose peer is not verified yet.
const MaxUnverifiedConns = 64

// acceptPause is the pause before the next connection is accepted after a failure.
const acceptPause = 50 * time.Millisecond

// Acceptor accepts connections of telephone systems and limits those of unverified peers. It continues after errors of
// Accept.
type Acceptor struct {
	net.Listener
	IsKnown    func(from netip.Addr) bool // reports whether an address is exempt from the limit; if nil, no address is
	Unverified chan struct{}              // holds one value per unverified connection; its capacity is the limit
	OnRefused  func(from net.Addr)        // gets the address of a connection that was closed because of the limit
	OnError    func(why error)            // gets accept errors
}

// Next blocks until a connection arrives. The caller must call markVerified once the peer is verified or the connection
// is closed. Until then the connection counts towards the limit of unverified ones. markVerified is nil for a known
// address, which has no limit. Next fails once the listener is closed.
func (a *Acceptor) Next() (conn net.Conn, markVerified func(), err error) {
	for {
		conn, err := a.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, nil, err
		case err != nil:
			a.OnError(err)
			time.Sleep(acceptPause)
			continue
		case a.IsKnown != nil && a.IsKnown(remoteAddr(conn)):
			return conn, nil, nil
		}
		select {
		case a.Unverified <- struct{}{}:
			return conn, sync.OnceFunc(func() { <-a.Unverified }), nil
		default:
			a.OnRefused(conn.RemoteAddr())
			_ = conn.Close()
		}
	}
}

func remoteAddr(conn net.Conn) netip.Addr {
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // stays invalid if the peer has no IP address
	return at.Addr().Unmap()
}
