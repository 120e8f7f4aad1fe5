package media

import (
	"net/netip"
	"time"

	"github.com/pion/rtp"
)

const (
	// sourceSilence is the minimum silence of the current source before another one can replace it. A peer that speaks sends every 20 ms.
	sourceSilence = time.Second
	// movedPackets is the number of consecutive packets that a new source must send, unless SRTP authenticates it.
	movedPackets = 4
	// foreignPackets is the number of packets from a rejected address after which the address is logged.
	foreignPackets = 10
)

// sourceTracker tracks the source address of a stream's peer. The address changes when a NAT loses its binding, or
// another media server takes over (RFC 7362, section 4). All fields need the stream's mu.
type sourceTracker struct {
	latched   netip.AddrPort // the peer's actual source; invalid until a packet has come
	latchedAt time.Time      // time of the newest packet from the latched source
	sequence  uint16         // its sequence number
	candidate struct {       // a possible next source
		at       netip.AddrPort
		ssrc     uint32
		sequence uint16
		packets  int
	}
	foreign struct { // a rejected source
		from    netip.Addr
		packets int
	}
	onForeign func(from, described netip.AddrPort) // is called at most once; nil after that, or if not needed
}

// acceptSource reports whether packets from an address are accepted. h is the header of a packet from there. ssrc is
// that of the newest accepted packet. Needs mu.
func (s *sourceTracker) acceptSource(a netip.AddrPort, now time.Time, h *rtp.Header, terms *agreement, nat bool, ssrc uint32) bool {
	near := nat || a.Addr() == terms.remote.Addr()
	switch {
	case a == terms.remote, a == s.latched:
		return true
	// The first packet may come from another port. Only a peer behind a NAT may have another host.
	case !s.latched.IsValid():
		return near || s.noteForeign(a, terms.remote)
	case now.Sub(s.latchedAt) < sourceSilence || terms.isSilent: // the current source may still be there: its pause is short, or was agreed on
		s.candidate.packets = 0
		return false
	}
	// After a silence, another source may replace the current one. With SRTP, the right key is enough.
	goesOn := h.SSRC == ssrc && h.SequenceNumber-s.sequence < maxSequenceGap
	if terms.in != nil {
		return true
	}
	// Without SRTP, another source must have an allowed host, or continue the packets.
	if !near && a.Addr() != s.latched.Addr() && !goesOn {
		return s.noteForeign(a, terms.remote)
	}
	c := &s.candidate
	if c.at != a || c.ssrc != h.SSRC || c.sequence+1 != h.SequenceNumber {
		c.at, c.ssrc, c.packets = a, h.SSRC, 0
	}
	c.sequence = h.SequenceNumber
	c.packets++
	return c.packets >= movedPackets
}

// maxSequenceGap bounds the number of packets lost while the source changes: one minute of audio.
const maxSequenceGap = 3000

// noteForeign logs once that media comes from a rejected address. It always returns false. Needs mu.
func (s *sourceTracker) noteForeign(a, described netip.AddrPort) bool {
	if s.foreign.from != a.Addr() {
		s.foreign.from, s.foreign.packets = a.Addr(), 0
	}
	if s.foreign.packets++; s.foreign.packets == foreignPackets && s.onForeign != nil {
		s.onForeign(a, described)
		s.onForeign = nil
	}
	return false
}
