package sip

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// lookupInterval is how long the addresses of our name are good: it may be that of a line whose address changes.
	lookupInterval = time.Minute
	// lookupTimeout bounds a look-up, while a call waits.
	lookupTimeout = 2 * time.Second
)

// localAddr is how peers reach us: by what the configuration has as external, or by the interface towards them.
type localAddr struct {
	external string        // an address or a name; empty: there is none
	fixed    netip.Addr    // the address; invalid: it is a name, or none
	resolver *net.Resolver // of the name
	log      *slog.Logger

	mu         sync.Mutex
	addresses  []netip.Addr // of the name
	lookedUpAt time.Time
}

// newLocalAddr looks a name up: a gateway that does not know its own address could not be heard.
func newLocalAddr(external string, resolver *net.Resolver, log *slog.Logger) (*localAddr, error) {
	o := &localAddr{external: external, resolver: resolver, log: log}
	var err error
	if o.fixed, err = netip.ParseAddr(external); err == nil || external == "" {
		return o, nil
	}
	return o, o.lookUp()
}

// lookUp asks for the addresses of the name.
func (o *localAddr) lookUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	list, err := o.resolver.LookupNetIP(ctx, "ip", o.external)
	if err != nil {
		return err
	}
	for i := range list {
		list[i] = list[i].Unmap()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addresses, o.lookedUpAt = list, time.Now()
	return nil
}

// host is what a peer finds us by, in Contact and Via.
func (o *localAddr) host(peer netip.Addr) string {
	if o.external != "" {
		return o.external
	}
	return o.address(peer).String()
}

// address is where a peer's sound comes: the external one, of the name one of the peer's family, or that of the interface towards it.
func (o *localAddr) address(peer netip.Addr) netip.Addr {
	switch {
	case o.fixed.IsValid():
		return o.fixed
	case o.external != "":
		return o.resolvedAddr(peer)
	}
	conn, err := net.Dial("udp", netip.AddrPortFrom(peer, 9).String()) // nothing is sent
	if err != nil {
		return netip.IPv6Unspecified()
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// resolvedAddr is an address of the name. If it cannot be looked up again the last ones count.
func (o *localAddr) resolvedAddr(peer netip.Addr) netip.Addr {
	o.mu.Lock()
	old := time.Since(o.lookedUpAt) > lookupInterval
	if old {
		o.lookedUpAt = time.Now() // other calls need not wait
	}
	o.mu.Unlock()
	if old {
		if err := o.lookUp(); err != nil {
			o.log.Warn("our own name is not found", "external", o.external, "err", err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.addresses, func(a netip.Addr) bool { return a.Is4() == peer.Is4() })
	return o.addresses[max(i, 0)]
}
