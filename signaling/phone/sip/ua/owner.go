package ua

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// isAllowedSource reports whether a request within a dialog may come from an address. The Call-ID and the tags are no
// proof, because anyone who has seen a packet knows them. If ok is false, the address may still belong to a host in
// hostsToResolve.
func (c *Call) isAllowedSource(from netip.Addr, transport string) (ok bool, hostsToResolve []string) {
	d := c.dialog
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.transport == "TLS" && transport != "TLS" { // source addresses of UDP can be spoofed
		return false, nil
	}
	// The sources of the INVITE and its answer are allowed, and so are addresses that authenticated later, and the
	// addresses of the trunk.
	if slices.Contains(d.owners, from) || c.trunk.hasAddress(from) || slices.ContainsFunc(d.servers,
		func(s netip.AddrPort) bool { return s.Addr().Unmap() == from }) {
		return true, nil
	}
	var hosts []string
	if c.trunk.Outbound != nil {
		if server, err := ParseURI(c.trunk.Outbound.Server); err == nil {
			hosts = append(hosts, server.Host)
		}
	}
	// The hosts of the route set are allowed as well or, without a route set, the host of the Contact.
	for _, route := range d.routes {
		hosts = append(hosts, route.Host)
		if maddr, ok := route.UriParams.Get("maddr"); ok {
			hosts = append(hosts, maddr)
		}
	}
	if len(d.routes) == 0 && !isBehindNAT(d.target.Host, d.source) {
		hosts = append(hosts, d.target.Host)
	}
	for _, host := range hosts {
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err == nil && a.Unmap() == from {
			return true, nil
		}
		if err != nil && !phone.IsInvalidHost(host) {
			hostsToResolve = append(hostsToResolve, host)
		}
	}
	return false, hostsToResolve
}

// authorizeRequest reports whether a request within a call comes from the other side of the call. If so, it stores the
// request's source. A sender at an unknown address may authenticate. res is the response to a sender that has not
// authenticated, or nil if none is to be sent.
func (c *Call) authorizeRequest(req *sip.Request) (ok bool, res *sip.Response) {
	from, known := sourceOf(req)
	if !known {
		return false, nil
	}
	if ok, names := c.isAllowedSource(from, req.Transport()); ok || c.core.names.hasCachedAddress(names, from) {
		c.dialog.updateSource(req)
		return true, nil
	}
	if c.trunk.Username == "" || req.Method == sip.ACK || req.Method == sip.CANCEL {
		c.core.refusals.record("request refused", ruleOwner, req.Source())
		return false, nil
	}
	r := c.core.gate.admitRequest(req, from, []*trunkState{c.trunk})
	if r.trunk == nil {
		c.core.refusals.record("request refused", r.rule, req.Source())
		return false, c.core.gate.refusalResponse(r, req, from)
	}
	c.dialog.addOwner(req.Source())
	c.dialog.updateSource(req)
	return true, nil
}

// authorizePacket does the same as [Call.authorizeRequest] for a UDP packet from an unknown address, but does not
// change the dialog. If it accepts the packet, sipgo receives it, and authorizeRequest checks it again.
func (c *Call) authorizePacket(req *sip.Request, from netip.AddrPort) (ok bool, res *sip.Response) {
	if ok, names := c.isAllowedSource(from.Addr(), "UDP"); ok || c.core.names.hasCachedAddress(names, from.Addr()) {
		return true, nil
	}
	if c.trunk.Username == "" || req.Method == sip.ACK || req.Method == sip.CANCEL {
		c.core.refusals.record("packet dropped", ruleOwner, from.String())
		return false, nil
	}
	req.SetSource(from.String())
	r := c.core.gate.authenticatePacket(req, from, []*trunkState{c.trunk})
	if r.trunk != nil {
		return true, nil
	}
	c.core.refusals.record("packet dropped", r.rule, from.String())
	return false, c.core.gate.refusalResponse(r, req, from.Addr())
}

// prefetchHosts starts to resolve the host names of a call in the background. authorizeRequest needs their addresses.
func (c *Call) prefetchHosts() {
	_, names := c.isAllowedSource(netip.Addr{}, c.dialog.transport)
	c.core.names.hasCachedAddress(names, netip.Addr{})
}
