package sip

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// strangerTime bounds how long a TCP or TLS connection from an unknown address may exist without a call.
const strangerTime = 10 * time.Second

// connLimiter is a TCP listener for sipgo that limits connections and survives failures of Accept. sipgo itself stops at the first failure,
// and never closes idle connections.
type connLimiter struct{ *phone.Acceptor }

func (d *Server) limitConns(l net.Listener) connLimiter {
	rule, places := ruleStranger, 0
	if d.gate.passwords || d.gate.elsewhere {
		rule, places = ruleCrowd, phone.MaxUnverifiedConns
	}
	return connLimiter{&phone.Acceptor{
		Listener: l, IsKnown: d.gate.isTrunkAddress, Unverified: make(chan struct{}, places),
		OnRefused: func(from net.Addr) { d.countRefusal("connection closed", rule, from.String()) },
		OnError: func(why error) {
			if d.strangers.Allow() {
				d.log.Error("accepting a connection failed", "at", l.Addr(), "err", why)
			}
		},
	}}
}

// Accept implements net.Listener.
func (e connLimiter) Accept() (net.Conn, error) {
	conn, known, err := e.Next()
	if err != nil || known == nil {
		return conn, err
	}
	_ = conn.SetDeadline(time.Now().Add(strangerTime))
	return &unverifiedConn{conn, known}, nil
}

// unverifiedConn is a connection from an address that belongs to no trunk.
type unverifiedConn struct {
	net.Conn
	verified func()
}

// Close implements net.Conn.
func (s *unverifiedConn) Close() error {
	s.verified()
	return s.Conn.Close()
}

// markVerified stops counting the connection as unverified, and removes its deadline.
func (s *unverifiedConn) markVerified() {
	s.verified()
	_ = s.SetDeadline(time.Time{})
}

// verifyConn marks the connection of a call's request as verified.
func (d *Server) verifyConn(req *sip.Request) {
	if !sip.IsReliable(req.Transport()) {
		return
	}
	conn, err := d.agent.TransportLayer().GetConnection(req.Transport(), req.Source())
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
