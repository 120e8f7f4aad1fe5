package sip

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// maxOwners bounds the addresses of one dialog: a phone that moves gets a new one each time.
const maxOwners = 16

// ruleOwner is the rule for a request within a call from an address that does not belong to the call.
const ruleOwner = "a request of another's call"

// mayCome reports whether a request within a dialog may come from an address. The Call-ID and the tags prove nothing, since anyone who has
// seen a packet knows them. Accepted are the addresses of the INVITE and of its answer, those that have authenticated since, those of the
// trunk, and the hosts of the route set, or without one the Contact's. names are the host names that must be resolved to decide.
func (c *call) mayCome(from netip.Addr, transport string) (ok bool, names []string) {
	d := c.dialog
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.transport == "TLS" && transport != "TLS" { // source addresses of UDP can be spoofed
		return false, nil
	}
	if slices.Contains(d.owners, from) || c.trunk.hasAddress(from) || slices.ContainsFunc(d.servers,
		func(s netip.AddrPort) bool { return s.Addr().Unmap() == from }) {
		return true, nil
	}
	var hosts []string
	if c.trunk.Outbound != nil {
		if server, err := parseURI(c.trunk.Outbound.Server); err == nil {
			hosts = append(hosts, server.Host)
		}
	}
	for _, route := range d.routes {
		hosts = append(hosts, route.Host)
		if maddr, ok := route.UriParams.Get("maddr"); ok {
			hosts = append(hosts, maddr)
		}
	}
	if len(d.routes) == 0 && !behindNAT(d.target.Host, d.source) {
		hosts = append(hosts, d.target.Host)
	}
	for _, host := range hosts {
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err == nil && a.Unmap() == from {
			return true, nil
		}
		if err != nil && !phone.IsInvalidHost(host) {
			names = append(names, host)
		}
	}
	return false, names
}

// addOwner adds an address to the owners of a dialog: it may send further requests, and its challenges are answered.
func (d *dialog) addOwner(hostport string) {
	from, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := from.Addr().Unmap(); !slices.Contains(d.owners, a) && len(d.owners) < maxOwners {
		d.owners = append(d.owners, a)
	}
}

// followSource stores the source of the other side's newest request.
func (d *dialog) followSource(req *sip.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.EqualFold(d.transport, req.Transport()) {
		d.source = req.Source()
	}
}

// checkOwner reports whether a request within a call comes from its other side. If not, the sender may authenticate with the trunk's
// password. res is the challenge or refusal to send, or nil for no response.
func (d *Server) checkOwner(c *call, req *sip.Request) (ok bool, res *sip.Response) {
	from, known := sourceOf(req)
	if !known {
		return false, nil
	}
	if ok, names := c.mayCome(from, req.Transport()); ok || d.names.hasAddress(names, from) {
		c.dialog.followSource(req)
		return true, nil
	}
	if c.trunk.Username == "" || req.Method == sip.ACK || req.Method == sip.CANCEL {
		d.countRefusal("request refused", ruleOwner, req.Source())
		return false, nil
	}
	r := d.gate.admitRequest(req, from, []*trunkState{c.trunk})
	if r.trunk == nil {
		d.countRefusal("request refused", r.rule, req.Source())
		return false, d.gate.refusalResponse(r, req, from)
	}
	c.dialog.addOwner(req.Source())
	c.dialog.followSource(req)
	return true, nil
}

// checkPacketOwner is [Server.checkOwner] for a UDP packet from an unknown address, before anything is stored about its sender. If ok is
// true, sipgo may handle the request, which is then checked by checkOwner.
func (d *Server) checkPacketOwner(c *call, req *sip.Request, from netip.AddrPort) (ok bool, res *sip.Response) {
	if ok, names := c.mayCome(from.Addr(), "UDP"); ok || d.names.hasAddress(names, from.Addr()) {
		return true, nil
	}
	if c.trunk.Username == "" || req.Method == sip.ACK || req.Method == sip.CANCEL {
		d.countRefusal("packet dropped", ruleOwner, from.String())
		return false, nil
	}
	req.SetSource(from.String())
	r := d.gate.authenticatePacket(req, from, []*trunkState{c.trunk})
	if r.trunk != nil {
		return true, nil
	}
	d.countRefusal("packet dropped", r.rule, from.String())
	return false, d.gate.refusalResponse(r, req, from.Addr())
}

// maxNames bounds the cached names, and nameLife their time in the cache.
const (
	maxNames = 1000
	nameLife = time.Minute
)

// nameCache caches the addresses of hosts in route sets. They are resolved in the background, because packets must not wait.
type nameCache struct {
	resolver func() *net.Resolver // the system's, or one of a test
	running  sync.WaitGroup

	mu   sync.Mutex
	list map[string]*resolvedName
}

type resolvedName struct {
	addresses  []netip.Addr
	lookedUpAt time.Time
	isPending  bool
}

// hasAddress reports whether one of the hosts is known to have the given address. Unknown names are resolved for the next packet.
func (n *nameCache) hasAddress(hosts []string, from netip.Addr) (ok bool) {
	for _, host := range hosts {
		if slices.Contains(n.addressesOf(host), from) {
			ok = true
		}
	}
	return ok
}

// addressesOf returns the cached addresses of a host, and resolves it in the background if they are missing or old.
func (n *nameCache) addressesOf(host string) []netip.Addr {
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

func (n *nameCache) lookUp(host string, one *resolvedName) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	list, err := n.resolver().LookupNetIP(ctx, "ip", host)
	for i := range list {
		list[i] = list[i].Unmap()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	one.isPending, one.lookedUpAt = false, time.Now()
	if err == nil {
		one.addresses = list
	}
}

// maxReplyRatio bounds the length of a response to a stranger, relative to the request: with a spoofed source, its victim would get the
// response.
const maxReplyRatio = 3

// writeShortResponse sends a response to a stranger by the socket of the request, unless it is much longer than that. A long challenge is
// shortened to one algorithm.
func (d *Server) writeShortResponse(by net.Addr, to netip.AddrPort, res *sip.Response, packet []byte) {
	most := maxReplyRatio * len(packet)
	if len(res.String()) > most {
		offers := res.GetHeaders("WWW-Authenticate")
		for len(offers) > 1 && len(res.String()) > most {
			res.RemoveHeader("WWW-Authenticate") // removes the first of them
			offers = offers[1:]
		}
	}
	if len(res.String()) <= most {
		d.writeResponse(by, to, res)
	}
}

// withoutForeignCancel truncates data from a connection at a CANCEL for a call of another sender, since sipgo checks only the branch.
// Partial messages from a trunk are passed on.
func (d *Server) withoutForeignCancel(from netip.AddrPort, data []byte) []byte {
	begin := bytes.Index(data, []byte(sip.CANCEL+" "))
	if begin < 0 || begin > 0 && data[begin-1] != '\n' {
		return data
	}
	const end = "\r\n\r\n"
	whole := bytes.Index(data[begin:], []byte(end))
	if whole < 0 && d.gate.isKnown(from) || whole >= 0 && !d.isForeignCancel(from, data[begin:begin+whole+len(end)]) {
		return data
	}
	d.countRefusal("message dropped", ruleCancel, from.String())
	return data[:begin]
}

// lookUpHosts resolves the host names of a call in advance, before requests come from them.
func (d *Server) lookUpHosts(c *call) {
	_, names := c.mayCome(netip.Addr{}, c.dialog.transport)
	d.names.hasAddress(names, netip.Addr{})
}
