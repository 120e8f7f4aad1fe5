package ua

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxNames limits the number of cached names. A name is resolved again after nameLife.
const (
	maxNames = 1000
	nameLife = time.Minute
)

// nameCache caches the addresses of hosts in route sets. The hosts are resolved in the background, because packets must
// not wait.
type nameCache struct {
	resolver *net.Resolver
	running  sync.WaitGroup

	mu   sync.Mutex
	list map[string]*resolvedName
}

type resolvedName struct {
	addresses  []netip.Addr
	lookedUpAt time.Time
	isPending  bool
}

// hasCachedAddress reports whether one of the hosts has the address, according to the cache. Names that are not in the
// cache are resolved in the background, so that the next packet finds them.
func (n *nameCache) hasCachedAddress(hosts []string, from netip.Addr) (ok bool) {
	for _, host := range hosts {
		if slices.Contains(n.cachedAddresses(host), from) {
			ok = true
		}
	}
	return ok
}

// cachedAddresses returns the cached addresses of a host, and resolves the host in the background if they are missing or
// old.
func (n *nameCache) cachedAddresses(host string) []netip.Addr {
	host = strings.ToLower(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.list[host]
	if one == nil {
		if n.list == nil || len(n.list) >= maxNames {
			n.list = map[string]*resolvedName{}
		}
		one = &resolvedName{}
		n.list[host] = one
	}
	if !one.isPending && time.Since(one.lookedUpAt) > nameLife {
		one.isPending = true
		n.running.Go(func() { n.lookUp(host, one) })
	}
	return one.addresses
}

func (n *nameCache) lookUp(host string, entry *resolvedName) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	list, err := n.resolver.LookupNetIP(ctx, "ip", host)
	for i := range list {
		list[i] = list[i].Unmap()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	entry.isPending, entry.lookedUpAt = false, time.Now()
	if err == nil {
		entry.addresses = list
	}
}
