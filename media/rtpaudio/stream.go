package rtpaudio

import (
	"cmp"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
)

const (
	// gapWait is the minimum wait for a missing packet after a later one has arrived. It is three packets: reordered packets are
	// mostly one or two ahead, and concealment covers as much. It adds delay only if packets are missing.
	gapWait = 60 * time.Millisecond
	// maxGapWait is how long to wait for a packet that was requested again, or on a path with such delays. A person would hear the
	// gap and the rush after it; a model waits and gets the word.
	maxGapWait = 200 * time.Millisecond
	// maxRequests is how often a packet is requested: at 20 % loss each way, 5 % of the missing packets remain after three requests.
	maxAsked = 3
	// requestSlack is how long after the round trip a retransmission may arrive before it counts as lost: the sender's processing
	// time and some jitter.
	askAgain = 10 * time.Millisecond
	// unknownRTT replaces an unknown round-trip time, so that missing packets are requested once.
	unknownRTT = gapWait
)

// stream is the state of one Run: the sequence of packets, and the clock that their sound is played by.
type stream struct {
	clock
	dec     media.Decoder
	rtp     rtp.Packet
	blocks  [maxREDBlocks]redBlock
	reorder reorderer
	synced  bool // ssrc and reorder.next are known
	ssrc    uint32

	wait   time.Duration // how long to wait for missing packets
	rtt    time.Duration // 0: unknown
	askAt  time.Time     // when to request a missing packet; zero for never
	asking []uint16
}

// nextWake returns when tick has something to do if no packet arrives, or zero for never.
func (s *stream) wake() time.Time {
	if s.reorder.held == 0 {
		return s.silenceAt()
	}
	until := s.reorder.waitingSince().Add(s.wait)
	if !s.askAt.IsZero() && s.askAt.Before(until) {
		return s.askAt
	}
	return until
}

// tick gives up packets that were waited for long enough.
func (s *stream) tick(now time.Time) error {
	for t := s.wake(); !t.IsZero() && !t.After(now); t = s.wake() {
		if err := s.giveUp(now); err != nil {
			return err
		}
	}
	return nil
}

// handleTimeout does the next thing that is due: silence, a request, or playing what is held in spite of a gap.
func (s *stream) giveUp(now time.Time) error {
	switch {
	case s.reorder.held == 0:
		return s.tickSilence()
	case s.reorder.waitingSince().Add(s.wait).After(now):
		s.ask(now)
		return nil
	}
	if err := s.play(s.reorder.take(), now); err != nil {
		return err
	}
	return s.playHeld(now)
}

// handlePacket plays p if it is next in sequence, and holds or drops it if not. Copies of earlier packets in it replace missing
// ones.
func (s *stream) order(p packet, ssrc uint32, copies []redBlock) error {
	now := p.arrived
	ahead := int(int16(p.seq - s.reorder.next))
	if !s.synced || ssrc != s.ssrc || ahead < -maxMisorder || ahead >= maxDropout {
		if err := s.reset(p, ssrc, now); err != nil {
			return err
		}
		ahead = 0
	}
	s.measure(p, ahead)
	switch {
	case ahead < 0:
		if ahead >= -heldPackets && s.reorder.came(p.seq) {
			s.stats.Duplicate++
		} else {
			s.stats.Late++
		}
		return nil
	case ahead >= heldPackets: // that much is lost, not reordered, and there is no room to wait
		if err := s.playAll(now); err != nil {
			return err
		}
		return s.play(&p, now)
	case ahead > 0:
		return s.hold(p, copies)
	case s.reorder.held > 0:
		s.stats.Reordered++
	}
	if err := s.play(&p, now); err != nil {
		return err
	}
	return s.playHeld(now)
}

// measureDelay adds the delay of p to the clock's measurements, unless p is a retransmission or a duplicate, which say nothing
// about the path.
func (s *stream) measure(p packet, ahead int) {
	newest := ahead >= 0 && !s.reorder.overtaken(p.seq)
	if !newest {
		if ahead < -heldPackets || ahead < 0 && s.reorder.came(p.seq) || ahead >= 0 && s.reorder.holds(p.seq) {
			return
		}
		m := s.reorder.missing[p.seq%heldPackets]
		if m.times > 0 && p.arrived.Sub(m.asked) >= s.rtt-askAgain {
			return
		}
	}
	if len(p.payload) > 0 {
		s.meter.observe(p.ts, p.arrived, newest)
	}
}

// holdPacket holds p, since packets before it are missing, and requests them.
func (s *stream) hold(p packet, copies []redBlock) error {
	overtaken := s.reorder.overtaken(p.seq)
	switch {
	case !s.reorder.hold(p):
		s.stats.Duplicate++
		return nil
	case overtaken:
		s.stats.Reordered++
	}
	s.reorder.adopt(p, copies, s.ts)
	if s.reorder.holds(s.reorder.next) {
		if err := s.playHeld(p.arrived); err != nil || s.reorder.held == 0 {
			return err
		}
	}
	s.expect()
	s.ask(p.arrived)
	return nil
}

// updateWait decides how long to wait for missing packets.
func (s *stream) expect() {
	s.wait, s.rtt = max(gapWait, s.meter.late), 0
	if s.options.NACK != nil && s.options.RTT != nil {
		s.rtt = max(0, s.options.RTT())
	}
	if 0 < s.rtt && s.rtt < maxGapWait {
		s.wait = max(s.wait, maxAsked*(s.rtt+askAgain))
	}
	s.wait = min(s.wait, maxGapWait)
}

// requestMissing requests missing packets, as long as a retransmission can arrive in time, and schedules the next request.
func (s *stream) ask(now time.Time) {
	s.askAt = time.Time{}
	if s.options.NACK == nil || s.reorder.held == 0 {
		return
	}
	s.asking = s.asking[:0]
	for seq := s.reorder.next; seq != s.reorder.newest; seq++ {
		m := &s.reorder.missing[seq%heldPackets]
		if s.reorder.holds(seq) {
			continue
		}
		at, ok := s.askTime(m)
		if ok && !at.After(now) {
			s.asking = append(s.asking, seq)
			m.asked, m.times = now, m.times+1
			at, ok = s.askTime(m)
		}
		if ok && (s.askAt.IsZero() || at.Before(s.askAt)) {
			s.askAt = at
		}
	}
	if len(s.asking) > 0 {
		s.stats.Asked += uint64(len(s.asking))
		s.options.NACK(s.ssrc, s.asking)
	}
}

// nextRequest returns when to request a missing packet, and false if it should not be requested any more.
func (s *stream) askTime(m *request) (time.Time, bool) {
	at := m.since
	if m.times > 0 {
		at = m.asked.Add(cmp.Or(s.rtt, unknownRTT) + askAgain)
	}
	return at, m.times < maxAsked && !at.Add(s.rtt).After(m.since.Add(s.wait))
}

// playHeld plays the held packets that are next in sequence.
func (s *stream) playHeld(now time.Time) error {
	for s.reorder.held > 0 && s.reorder.first().seq == s.reorder.next {
		if err := s.play(s.reorder.take(), now); err != nil {
			return err
		}
	}
	return nil
}

// playAll plays all held packets and gives up those missing between them.
func (s *stream) playAll(now time.Time) error {
	for s.reorder.held > 0 {
		if err := s.play(s.reorder.take(), now); err != nil {
			return err
		}
	}
	return nil
}

// startStream begins a new stream with p. The clock continues.
func (s *stream) reset(p packet, ssrc uint32, now time.Time) error {
	if err := s.playAll(now); err != nil {
		return err
	}
	if s.synced {
		s.stats.Resets++
		dec, err := s.options.Codec.NewDecoder(s.rate)
		if err != nil {
			return err
		}
		s.dec = dec
	}
	s.synced, s.ssrc = true, ssrc
	s.ts = p.ts
	s.meter.restart()
	s.reorder.reset(p.seq)
	return nil
}

// playPacket writes the sound of p, after filling the gap between the last packet and p.
func (s *stream) play(p *packet, now time.Time) error {
	lost := s.reorder.advance(p.seq)
	s.stats.Lost += uint64(lost)
	if len(p.event.Payload) > 0 {
		s.options.Event(p.event)
	}
	if len(p.payload) == 0 {
		return nil
	}
	missing := int32(p.ts - s.ts)
	switch {
	case p.copied && missing < 0:
		return nil // a copy of sound that came in time, in place of lost padding
	case s.started && missing > 0:
		if err := s.fill(media.Duration(int(missing), s.meter.clock), lost > 0, p, now); err != nil {
			return err
		}
	}
	n, err := s.dec.Decode(p.payload, s.pcm[:s.most])
	if err != nil {
		s.stats.Malformed++
		return nil // the next packet's timestamp shows how much is missing
	}
	if p.copied {
		s.stats.Copied++
	}
	s.ts = p.ts + uint32(media.Samples(media.Duration(n, s.rate), s.meter.clock))
	return s.pace(n, now)
}

// fillGap fills the gap before the packet next. Lost sound is restored from next if that holds a copy, else concealed for a while.
// The rest is silence, as is a gap in which nothing was sent: as much as the clock has not written yet, and as next is later than
// the sound written so far.
func (s *stream) fill(gap time.Duration, lost bool, next *packet, now time.Time) error {
	var restored time.Duration
	if lost {
		if restored = min(gap, s.options.Codec.CopyDuration(next.payload)); restored > 0 {
			s.stats.Recovered++
		}
	}
	gap -= restored + s.filled
	if lost && s.filled == 0 { // only right after sound: a voice out of silence is not concealment
		madeUp := min(gap, maxConcealed)
		if err := s.conceal(nil, madeUp); err != nil {
			return err
		}
		gap -= madeUp
	}
	if t := s.meter.ideal(next.ts); !t.IsZero() && t.Before(now) {
		now = t
	}
	if err := s.writeSilence(min(gap, now.Sub(s.due)-restored)); err != nil {
		return err
	}
	return s.conceal(next.payload, restored)
}

// conceal writes d of concealed sound, or sound restored from next if that is not nil.
func (s *stream) conceal(next []byte, d time.Duration) error {
	const unit = 2500 * time.Microsecond // the shortest frame of Opus, and the unit of its concealment
	if d = d / unit * unit; d <= 0 {
		return nil
	}
	n := media.Samples(d, s.rate)
	if err := s.dec.Conceal(next, s.pcm[:n]); err != nil {
		clear(s.pcm[:n])
	}
	if next == nil {
		s.stats.Concealed += d
	}
	return s.writeSound(s.pcm[:n])
}
