package sip

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// StrangerTime bounds how long a stranger's connection may exist without a call.
const StrangerTime = strangerTime

// SetResolver sets the resolver of trunks and hosts.
func (d *Server) SetResolver(r *net.Resolver) { d.resolver = r }

// OwnAddresses returns our address for a name, looked up with each resolver in turn.
func OwnAddresses(name string, resolvers ...*net.Resolver) (list []netip.Addr, err error) {
	o, err := newLocalAddr(name, resolvers[0], quiet)
	for _, r := range resolvers {
		if err != nil {
			return nil, err
		}
		o.resolver, o.lookedUpAt = r, time.Time{}
		list = append(list, o.address(netip.IPv4Unspecified()))
	}
	return list, nil
}

// UDPConnections returns the number of UDP addresses for which sipgo stores a connection.
func (d *Server) UDPConnections() int { return d.agent.TransportLayer().Pool("udp").Size() }

// TCPConnections is [Server.UDPConnections] for TCP.
func (d *Server) TCPConnections() int { return d.agent.TransportLayer().Pool("tcp").Size() }

// RefreshSession refreshes the session timer of the only call now. done is closed when that is over.
func (d *Server) RefreshSession() (done <-chan struct{}) {
	over := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		c.refreshing.Go(func() {
			defer close(over)
			c.sendRefresh(sessionTimer{every: minSessionInterval, isRefresher: true})
		})
	}
	return over
}

// Transfer transfers the only call.
func (d *Server) Transfer(target string) <-chan error {
	result := make(chan error, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		go func() { result <- c.transferCall(context.Background(), target, "") }()
	}
	return result
}

// EndUnanswered ends the call to a number as if it had rung for too long. Its trunk gets an hour to answer the CANCEL.
func (d *Server) EndUnanswered(number string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timeout = time.Hour
	for _, c := range d.calls {
		if c.party.IsOutbound && string(c.party.Number) == number {
			c.endCall(errNoAnswer)
		}
	}
}

// HangUp ends the only call.
func (d *Server) HangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		c.endCall(errByBackend)
	}
}
