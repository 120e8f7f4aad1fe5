package media

import (
	"net/netip"
	"time"

	"github.com/pion/rtp"
)

const (
	// sourceSilence is the time without packets from the current source after which another source can replace it. A
	// peer that speaks sends a packet every 20 ms.
	sourceSilence = time.Second
	// movedPackets is the number of consecutive packets that a new source must send before it is accepted. With SRTP,
	// which authenticates packets, one is enough.
	movedPackets = 4
	// foreignPackets is the number of packets from a rejected address after which that address is logged.
	foreignPackets = 10
)

// sourceTracker tracks the source address of a stream's peer. The address changes when a NAT loses its binding, or when
// another media server takes over (RFC 7362, section 4). The stream's mu guards all fields.
type sourceTracker struct {
	latched   netip.AddrPort // the address from which the peer sends; invalid until a packet was accepted
	latchedAt time.Time      // time of the newest packet from the latched source
	sequence  uint16         // sequence number of that packet
	candidate struct {       // the source that may replace the latched one
		at       netip.AddrPort
		ssrc     uint32
		sequence uint16
		packets  int
	}
	foreign struct { // the newest rejected source
		from    netip.Addr
		packets int
	}
	onForeign func(from, described netip.AddrPort) // called at most once, and then set to nil; may be nil
}

// acceptSource reports whether a packet from the address a is accepted, and counts the packets of other sources. h is
// the packet's header, and ssrc is the SSRC of the newest accepted packet. isBehindNAT is [Settings.NAT]. The caller must
// hold mu.
func (s *sourceTracker) acceptSource(
	a netip.AddrPort, now time.Time, h *rtp.Header, terms *agreement, isBehindNAT bool, ssrc uint32,
) (isAccepted bool) {
	near := isBehindNAT || a.Addr() == terms.remote.Addr()
	switch {
	case a == terms.remote, a == s.latched:
		return true
	// The first packet may come from a port other than the described one. It may come from another host only if the
	// peer is behind a NAT.
	case !s.latched.IsValid():
		if !near {
			s.countForeign(a, terms.remote)
		}
		return near
	case now.Sub(s.latchedAt) < sourceSilence || terms.isSilent: // the current source is still valid: its pause is short, or was agreed on
		s.candidate.packets = 0
		return false
	}
	// After a pause, another source may replace the current one. With SRTP, it only needs the right key.
	goesOn := h.SSRC == ssrc && h.SequenceNumber-s.sequence < maxSequenceGap
	if terms.in != nil {
		return true
	}
	// Without SRTP, another source must have an allowed host, or continue the sequence numbers of the current source.
	if !near && a.Addr() != s.latched.Addr() && !goesOn {
		s.countForeign(a, terms.remote)
		return false
	}
	c := &s.candidate
	if c.at != a || c.ssrc != h.SSRC || c.sequence+1 != h.SequenceNumber {
		c.at, c.ssrc, c.packets = a, h.SSRC, 0
	}
	c.sequence = h.SequenceNumber
	c.packets++
	return c.packets >= movedPackets
}

// maxSequenceGap limits the number of packets lost while the source changes: 3000 packets are one minute of audio.
const maxSequenceGap = 3000

// countForeign counts a packet from a rejected address, and calls onForeign once it has counted foreignPackets. The
// caller must hold mu.
func (s *sourceTracker) countForeign(a, described netip.AddrPort) {
	if s.foreign.from != a.Addr() {
		s.foreign.from, s.foreign.packets = a.Addr(), 0
	}
	if s.foreign.packets++; s.foreign.packets == foreignPackets && s.onForeign != nil {
		s.onForeign(a, described)
		s.onForeign = nil
	}
}
