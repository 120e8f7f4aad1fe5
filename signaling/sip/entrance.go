package sip

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// strangerTime is how long a connection of TCP or TLS may take to have a call, if it does not come from a trunk's address.
const strangerTime = 10 * time.Second

// entrance is a listener of TCP, for sipgo to serve: sipgo gives up at the first failure, and keeps connections for ever.
type entrance struct{ *phone.Acceptor }

func (d *Door) entrance(l net.Listener) entrance {
	rule, places := ruleStranger, 0
	if d.gate.passwords || d.gate.elsewhere {
		rule, places = ruleCrowd, phone.MaxUnverifiedConns
	}
	return entrance{&phone.Acceptor{
		Listener: l, IsKnown: d.gate.listed, Slots: make(chan struct{}, places),
		OnRefused: func(from net.Addr) { d.refused("connection closed", rule, from.String()) },
		OnError: func(why error) {
			if d.strangers.Allow() {
				d.log.Error("accepting a connection failed", "at", l.Addr(), "err", why)
			}
		},
	}}
}

// Accept implements net.Listener.
func (e entrance) Accept() (net.Conn, error) {
	conn, known, err := e.Next()
	if err != nil || known == nil {
		return conn, err
	}
	_ = conn.SetDeadline(time.Now().Add(strangerTime))
	return &stranger{conn, known}, nil
}

// stranger is a connection that does not come from a trunk's address.
type stranger struct {
	net.Conn
	known func()
}

// Close implements net.Conn.
func (s *stranger) Close() error {
	s.known()
	return s.Conn.Close()
}

// stay gives its place back, and lifts its deadline.
func (s *stranger) stay() {
	s.known()
	_ = s.SetDeadline(time.Time{})
}

// welcome lets the connection stay that a request of a call came by.
func (d *Door) welcome(req *sip.Request) {
	if !sip.IsReliable(req.Transport()) {
		return
	}
	conn, err := d.agent.TransportLayer().GetConnection(req.Transport(), req.Source())
	if err != nil {
		return
	}
	defer conn.TryClose() // it is counted as used from GetConnection on
	c, ok := conn.(*sip.TCPConnection)
	if !ok {
		return
	}
	by := c.Conn
	if secure, ok := by.(*tls.Conn); ok {
		by = secure.NetConn()
	}
	if s, ok := by.(*stranger); ok {
		s.stay()
	}
}
