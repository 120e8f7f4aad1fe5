package sip

import (
	"net/netip"
	"time"

	"github.com/pion/srtp/v3"
)

const (
	// sourceSilence is the minimum silence of the current source before another one can replace it. A peer that speaks sends every 20 ms.
	sourceSilence = time.Second
	// movedPackets is the number of consecutive packets that a new source must send, unless SRTP authenticates it.
	movedPackets = 4
	// foreignPackets is the number of packets from a rejected address after which that is logged.
	foreignPackets = 10
)

// sourceTracker tracks the source address of a stream's peer. It may change during a call: a NAT has lost its binding, or the media server
// has changed (RFC 7362, section 4). All fields need the stream's mu.
type sourceTracker struct {
	latchedAt time.Time // time of the newest packet from the latched source
	sequence  uint16    // its sequence number
	candidate struct {  // a possible next source
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

// acceptSource reports whether packets from an address are accepted. The address in the peer's description is always
// accepted. Until a packet from it has arrived, the first other source is accepted, too; it must be on the same host
// unless the peer is behind a NAT. While the current source sends, no other can replace it. After a silence another one
// can, if the same rule allows its host, or it has the SRTP key, or it continues the SSRC and sequence. Needs mu.
func (s *stream) acceptSource(a netip.AddrPort, now time.Time) bool {
	near := s.nat || a.Addr() == s.terms.remote.Addr()
	switch {
	case a == s.terms.remote, a == s.latched:
		return true
	case !s.latched.IsValid():
		return near || s.noteForeign(a)
	case now.Sub(s.latchedAt) < sourceSilence || s.terms.isSilent: // the source may be silent: the pause is short, or agreed on
		s.candidate.packets = 0
		return false
	}
	h := &s.incoming
	goesOn := h.SSRC == s.remoteSSRC.Load() && h.SequenceNumber-s.sequence < maxSequenceGap
	if s.in != nil {
		return true
	}
	if !near && a.Addr() != s.latched.Addr() && !goesOn {
		return s.noteForeign(a)
	}
	c := &s.candidate
	if c.at != a || c.ssrc != h.SSRC || c.sequence+1 != h.SequenceNumber {
		c.at, c.ssrc, c.packets = a, h.SSRC, 0
	}
	c.sequence = h.SequenceNumber
	c.packets++
	return c.packets >= movedPackets
}

// maxSequenceGap bounds the packets lost while a source moves: one minute.
const maxSequenceGap = 3000

// noteForeign logs once that media comes from a rejected address. It always returns false. Needs mu.
func (s *stream) noteForeign(a netip.AddrPort) bool {
	if s.foreign.from != a.Addr() {
		s.foreign.from, s.foreign.packets = a.Addr(), 0
	}
	if s.foreign.packets++; s.foreign.packets == foreignPackets && s.onForeign != nil {
		s.onForeign(a, s.terms.remote)
		s.onForeign = nil
	}
	return false
}

// decryptPacket decrypts a packet in place. A media server that takes over with the same key and SSRC may restart its counter, and then
// the old roll-over counter does not fit (RFC 3711, section 3.3.1). A restart is tried only after a silence and for known hosts, so that
// an attacker cannot replay recorded packets. Needs mu.
func (s *stream) decryptPacket(packet []byte, from netip.AddrPort, now time.Time) ([]byte, error) {
	if s.latchedAt.IsZero() || now.Sub(s.latchedAt) < sourceSilence {
		return s.in.DecryptRTP(packet[:0], packet, &s.incoming)
	}
	clear, err := s.in.DecryptRTP(nil, packet, &s.incoming) // a failed attempt overwrites what it decrypts in place
	if err == nil || from.Addr() != s.latched.Addr() && from.Addr() != s.terms.remote.Addr() {
		return clear, err
	}
	in, err := newContext(s.terms.in, srtp.SRTPReplayProtection(64), srtp.SRTCPReplayProtection(64))
	if err == nil {
		clear, err = in.DecryptRTP(nil, packet, &s.incoming)
	}
	if err == nil {
		s.in = in
	}
	return clear, err
}
