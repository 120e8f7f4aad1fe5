package ua

import (
	"bytes"
	"net"
	"net/netip"

	"github.com/emiago/sipgo/sip"
)

// packetFilter drops packets of strangers before sipgo processes them, because sipgo would store state for them.
type packetFilter struct {
	core      *core
	calls     *callTable
	registrar *registrar
}

// filterPacket returns the data that sipgo may process, or nil. It drops packets that cannot come from an authorized
// peer.
func (f *packetFilter) filterPacket(p sip.TransportReadProps, data []byte) ([]byte, error) {
	at, err := netip.ParseAddrPort(p.RemoteAddr.String())
	if err != nil {
		return nil, nil
	}
	from := netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	switch {
	case f.calls.hasStopped():
		return nil, nil
	case p.Transport == "UDP" && bytes.HasPrefix(data, []byte(sip.CANCEL)) && f.isForeignCancel(from, data):
		f.core.refusals.record("packet dropped", ruleCancel, from.String())
		return nil, nil
	case p.Transport != "UDP":
		if data = f.cutAtForeignCancel(from, data); len(data) == 0 {
			return nil, nil
		}
	}
	switch {
	case f.core.gate.isKnown(from):
		return data, nil
	case !f.core.gate.passwords && !f.core.gate.elsewhere:
		f.core.refusals.record("packet dropped", ruleStranger, from.String())
		return nil, nil
	case p.Transport != "UDP": // a stranger's connection is limited, and sipgo keeps its address only while it is open
		return data, nil
	case f.authorizePacket(from, p.LocalAddr, data):
		return data, nil
	}
	return nil, nil
}

// isForeignCancel reports whether a packet is a CANCEL for a call of another sender. sipgo does not check the sender.
// It compares only the branch.
func (f *packetFilter) isForeignCancel(from netip.AddrPort, data []byte) bool {
	m, err := sip.ParseMessage(data)
	req, ok := m.(*sip.Request)
	if err != nil || !ok || req.From() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil {
		return true
	}
	req.SetSource(from.String())
	return f.calls.hasForeignInvite(req)
}

// authorizePacket reports whether sipgo may process a UDP packet from an unknown address. The packet must belong to a
// call or registration, or authenticate with a password. If it does neither, authorizePacket may send a refusal or a
// challenge, from the socket that has localAddr.
func (f *packetFilter) authorizePacket(from netip.AddrPort, localAddr net.Addr, data []byte) (ok bool) {
	m, err := sip.ParseMessage(data)
	if err != nil || m.From() == nil || m.To() == nil || m.CallID() == nil || m.CSeq() == nil || m.Via() == nil {
		return false
	}
	if res, ok := m.(*sip.Response); ok {
		return f.isExpectedResponse(res)
	}
	req := m.(*sip.Request)
	if req.To().Params.Has("tag") {
		c := f.calls.findDialog(req)
		if c == nil {
			return false
		}
		ok, res := c.authorizePacket(req, from)
		if res != nil {
			f.writeShortResponse(localAddr, from, res, data)
		}
		return ok
	}
	if !f.core.gate.passwords || req.Method != sip.INVITE || !req.From().Params.Has("tag") {
		f.core.refusals.record("packet dropped", ruleStranger, from.String())
		return false
	}
	req.SetSource(from.String())
	r := f.core.gate.authenticatePacket(req, from, f.core.gate.trunks)
	if r.trunk != nil {
		return true
	}
	f.core.refusals.record("call refused", r.rule, from.String())
	// The challenge is sent here, without storing anything (RFC 3261, section 8.2.7). sipgo would keep the address in
	// memory as long as it runs.
	if res := f.core.gate.refusalResponse(r, req, from.Addr()); res != nil {
		f.writeShortResponse(localAddr, from, res, data)
	}
	return false
}

// isExpectedResponse reports whether a response belongs to one of our requests.
func (f *packetFilter) isExpectedResponse(res *sip.Response) bool {
	tag := res.From().Params.GetOr("tag", "")
	_, registers := f.registrar.tags.Load(tag)
	return registers || f.calls.find(tag) != nil
}

// maxReplyRatio limits the size of a response to a stranger, as a multiple of the request's size. If the source address
// is spoofed, its owner receives the response, so the gateway must not amplify traffic.
const maxReplyRatio = 3

// writeShortResponse sends a response to a stranger from the socket that received the request. If the response is
// longer than maxReplyRatio allows, it removes challenges, but keeps the last one. If that is not enough, it sends
// nothing.
func (f *packetFilter) writeShortResponse(localAddr net.Addr, to netip.AddrPort, res *sip.Response, packet []byte) {
	maxLength := maxReplyRatio * len(packet)
	if len(res.String()) > maxLength {
		offers := res.GetHeaders("WWW-Authenticate")
		for len(offers) > 1 && len(res.String()) > maxLength {
			res.RemoveHeader("WWW-Authenticate") // removes the first challenge
			offers = offers[1:]
		}
	}
	if len(res.String()) <= maxLength {
		f.core.writeResponse(localAddr, to, res)
	}
}

// cutAtForeignCancel returns data, which has arrived on a connection, up to the first CANCEL for a call of another
// sender. It is needed because sipgo compares only the branch of a CANCEL. It does not check incomplete messages from a
// trunk.
func (f *packetFilter) cutAtForeignCancel(from netip.AddrPort, data []byte) []byte {
	const end = "\r\n\r\n"
	for begin := 0; ; begin += len(sip.CANCEL) {
		next := bytes.Index(data[begin:], []byte(sip.CANCEL+" "))
		if next < 0 {
			return data
		}
		begin += next
		if begin > 0 && data[begin-1] != '\n' {
			continue
		}
		length := bytes.Index(data[begin:], []byte(end))
		if length < 0 && f.core.gate.isKnown(from) || length >= 0 && !f.isForeignCancel(from, data[begin:begin+length+len(end)]) {
			continue
		}
		f.core.refusals.record("message dropped", ruleCancel, from.String())
		return data[:begin]
	}
}
