package ua

import (
	"net"
	"time"

	"voxgate/signaling/phone"
)

// StrangerTime limits how long a TCP or TLS connection from an unknown address may exist without a call.
const StrangerTime = 10 * time.Second

// connLimiter is a TCP listener for sipgo that limits connections. It also hides errors of Accept from sipgo, which
// would stop accepting at the first error.
type connLimiter struct{ *phone.Acceptor }

// limitUnverifiedConns returns a listener that limits the connections from addresses that belong to no trunk. It accepts
// none of them if no caller can authenticate.
func limitUnverifiedConns(l net.Listener, g *gate, r *refusals) connLimiter {
	rule, places := ruleStranger, 0
	if g.passwords || g.elsewhere {
		rule, places = ruleCrowd, phone.MaxUnverifiedConns
	}
	return connLimiter{&phone.Acceptor{
		Listener: l, IsKnown: g.isTrunkAddress, Unverified: make(chan struct{}, places),
		OnRefused: func(from net.Addr) { r.record("connection closed", rule, from.String()) },
		OnError: func(why error) {
			if r.strangers.Allow() {
				r.log.Error("accepting a connection failed", "at", l.Addr(), "err", why)
			}
		},
	}}
}

// Accept implements net.Listener.
func (c connLimiter) Accept() (net.Conn, error) {
	conn, known, err := c.Next()
	if err != nil || known == nil {
		return conn, err
	}
	_ = conn.SetDeadline(time.Now().Add(StrangerTime))
	return &unverifiedConn{conn, known}, nil
}

// unverifiedConn is a connection from an address that belongs to no trunk.
type unverifiedConn struct {
	net.Conn
	verified func()
}

// Close implements net.Conn.
func (u *unverifiedConn) Close() error {
	u.verified()
	return u.Conn.Close()
}

// markVerified stops counting the connection as unverified, and removes its deadline.
func (u *unverifiedConn) markVerified() {
	u.verified()
	_ = u.SetDeadline(time.Time{})
}
