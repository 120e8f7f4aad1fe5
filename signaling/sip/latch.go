package sip

import (
	"net/netip"
	"time"

	"github.com/pion/srtp/v3"
)

const (
	// sourceSilence is how long nothing may have come from where the peer's sound comes before another source can take its place: a peer that
	// speaks sends every 20 ms.
	sourceSilence = time.Second
	// movedPackets is how many packets in order another source has to send then, unless SRTP proves whose they are.
	movedPackets = 4
	// foreignPackets is how many packets have to come from an address that is not let in until the log says so.
	foreignPackets = 10
)

// sourceTracker is what a stream knows of its peer's source. The peer may have another one in mid-call: a NAT has forgotten the way, or the
// media server has changed (RFC 7362, section 4). All of it needs the stream's mu.
type sourceTracker struct {
	latchedAt time.Time // when the newest packet has come from there
	sequence  uint16    // its sequence number
	candidate struct {  // that may be the next source
		at       netip.AddrPort
		ssrc     uint32
		sequence uint16
		packets  int
	}
	foreign struct { // that is not let in
		from    netip.Addr
		packets int
	}
	onForeign func(from, described netip.AddrPort) // is called once at most; nil: it was, or nobody wants to know
}

// acceptSource reports whether a packet is taken by where it comes from: from what the peer has described, always; as long as none has
// come from there, from the first other one, on the same host unless the peer is behind a NAT. While that one speaks no other can take
// its place; when it has been silent for a while, another one can that is let in by the same rule, that has the key, or that goes on
// with the same SSRC and sequence. Needs mu.
func (s *stream) acceptSource(a netip.AddrPort, now time.Time) bool {
	near := s.nat || a.Addr() == s.sound.remote.Addr()
	switch {
	case a == s.sound.remote, a == s.latched:
		return true
	case !s.latched.IsValid():
		return near || s.noteForeign(a)
	case now.Sub(s.latchedAt) < sourceSilence || s.sound.silent: // in a pause that was agreed on, nobody is missed
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

// maxSequenceGap is how many packets may be lost while a source moves: a minute of them.
const maxSequenceGap = 3000

// noteForeign has the log say once that sound comes from an address that is not let in, and returns false. Needs mu.
func (s *stream) noteForeign(a netip.AddrPort) bool {
	if s.foreign.from != a.Addr() {
		s.foreign.from, s.foreign.packets = a.Addr(), 0
	}
	if s.foreign.packets++; s.foreign.packets == foreignPackets && s.onForeign != nil {
		s.onForeign(a, s.sound.remote)
		s.onForeign = nil
	}
	return false
}

// decrypt decrypts a packet in place. A media server that takes over with the same key and SSRC may count anew, and the roll-over counter
// of the stream before does not fit (RFC 3711, section 3.3.1). That is tried where the sound before has ended, and for hosts that are
// known, so that nobody can replay what they have recorded. Needs mu.
func (s *stream) decrypt(packet []byte, from netip.AddrPort, now time.Time) ([]byte, error) {
	if s.latchedAt.IsZero() || now.Sub(s.latchedAt) < sourceSilence {
		return s.in.DecryptRTP(packet[:0], packet, &s.incoming)
	}
	clear, err := s.in.DecryptRTP(nil, packet, &s.incoming) // one that fails spoils what it decrypts in place
	if err == nil || from.Addr() != s.latched.Addr() && from.Addr() != s.sound.remote.Addr() {
		return clear, err
	}
	in, err := newContext(s.sound.in, srtp.SRTPReplayProtection(64), srtp.SRTCPReplayProtection(64))
	if err == nil {
		clear, err = in.DecryptRTP(nil, packet, &s.incoming)
	}
	if err == nil {
		s.in = in
	}
	return clear, err
}
