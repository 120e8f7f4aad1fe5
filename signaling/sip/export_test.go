package sip

import (
	"context"
	"net"
)

// ResolveBy has calls of ours find their trunk by another resolver.
func (d *Door) ResolveBy(r *net.Resolver) { d.resolver = r }

// Kept is how many addresses the library has a connection for.
func (d *Door) Kept() int { return d.agent.TransportLayer().Pool("udp").Size() }

// Refresh refreshes the session timer of the only call now. done is closed when that is over.
func (d *Door) Refresh() (done <-chan struct{}) {
	over := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		c.refreshing.Go(func() {
			defer close(over)
			c.sendRefresh(refresh{every: leastSession, ours: true})
		})
	}
	return over
}

// Transfer transfers the only call.
func (d *Door) Transfer(target string) <-chan error {
	result := make(chan error, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		go func() { result <- c.transferCall(context.Background(), target, "") }()
	}
	return result
}
