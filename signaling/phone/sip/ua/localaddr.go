package ua

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
	// lookupInterval is the time for which the addresses of our host name are cached. It is short, because the host may
	// have a dynamic address.
	lookupInterval = time.Minute
	// lookupTimeout limits a look-up, because a call is waiting for it.
	lookupTimeout = 2 * time.Second
)

// localAddr determines our address for a peer: the configured external address, or the address of the interface towards
// the peer.
type localAddr struct {
	external string        // an address or a name; empty if not configured
	fixed    netip.Addr    // external as an address; invalid if it is a name or empty
	resolver *net.Resolver // resolves external if it is a host name
	log      *slog.Logger

	mu         sync.Mutex
	addresses  []netip.Addr // addresses of the host name in external
	lookedUpAt time.Time
}

// newLocalAddr returns a localAddr for external. It fails if external is a host name that cannot be resolved, because
// calls would then have no audio.
func newLocalAddr(external string, resolver *net.Resolver, log *slog.Logger) (*localAddr, error) {
	o := &localAddr{external: external, resolver: resolver, log: log}
	var err error
	if o.fixed, err = netip.ParseAddr(external); err == nil || external == "" {
		return o, nil
	}
	return o, o.lookUp()
}

// lookUp resolves the host name in external, and stores its addresses.
func (l *localAddr) lookUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	list, err := l.resolver.LookupNetIP(ctx, "ip", l.external)
	if err != nil {
		return err
	}
	for i := range list {
		list[i] = list[i].Unmap()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addresses, l.lookedUpAt = list, time.Now()
	return nil
}

// host returns our host for Contact and Via.
func (l *localAddr) host(peer netip.Addr) string {
	if l.external != "" {
		return l.external
	}
	return l.address(peer).String()
}

// address returns our media address for a peer: the external address, or the address of the interface towards the peer.
// An external host name is resolved in the peer's address family, IPv4 or IPv6.
func (l *localAddr) address(peer netip.Addr) netip.Addr {
	switch {
	case l.fixed.IsValid():
		return l.fixed
	case l.external != "":
		return l.resolveAddr(peer)
	}
	conn, err := net.Dial("udp", netip.AddrPortFrom(peer, 9).String()) // UDP: no packet is sent
	if err != nil {
		return netip.IPv6Unspecified()
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// resolveAddr returns an address of the host name in external. It blocks for a look-up once in [lookupInterval]. If a
// look-up fails, the previous addresses remain valid.
func (l *localAddr) resolveAddr(peer netip.Addr) netip.Addr {
	l.mu.Lock()
	old := time.Since(l.lookedUpAt) > lookupInterval
	if old {
		l.lookedUpAt = time.Now() // set before the look-up, so that other calls do not wait for it
	}
	l.mu.Unlock()
	if old {
		if err := l.lookUp(); err != nil {
			l.log.Warn("external name not resolved", "external", l.external, "err", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.addresses, func(a netip.Addr) bool { return a.Is4() == peer.Is4() })
	return l.addresses[max(i, 0)]
}
