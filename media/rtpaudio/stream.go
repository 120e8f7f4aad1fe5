package rtpaudio

import (
	"cmp"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
)

const (
	// gapWait is the minimum wait for a missing packet after a later packet has arrived. Three packets can arrive in
	// this time, which covers most reordering. Concealment can fill as much. The wait applies only if a packet is
	// missing.
	gapWait = 60 * time.Millisecond
	// maxGapWait limits the wait for a missing packet. A person would hear the wait as a gap, but a model just waits
	// and gets the whole word.
	maxGapWait = 200 * time.Millisecond
	// maxRequests limits how often a packet is requested. At 20 % loss each way, three requests leave 5 % of the
	// missing packets.
	maxRequests = 3
	// requestSlack is added to the round-trip time. A retransmission that takes longer than both counts as lost. It
	// covers processing and some jitter.
	requestSlack = 10 * time.Millisecond
	// unknownRTT is used as the round-trip time while that is unknown. With a wait of gapWait, missing packets are then
	// requested only once.
	unknownRTT = gapWait
)

// stream is the state of one call of Run: the sequence of packets, and the clock that paces their sound.
type stream struct {
	clock
	dec      media.Decoder
	rtp      rtp.Packet
	blocks   [maxREDBlocks]redBlock
	reorder  reorderer
	isSynced bool // ssrc and reorder.next are known
	ssrc     uint32

	wait          time.Duration // how long to wait for missing packets
	rtt           time.Duration // round-trip time; 0 means unknown
	nextRequestAt time.Time     // when to request a missing packet; zero for never
	requests      []uint16
}

// nextWakeAt returns when tick must be called at the latest if no packet arrives, or zero for never.
func (s *stream) nextWakeAt() time.Time {
	if s.reorder.heldCount == 0 {
		return s.nextSilenceAt()
	}
	until := s.reorder.waitingSince().Add(s.wait)
	if !s.nextRequestAt.IsZero() && s.nextRequestAt.Before(until) {
		return s.nextRequestAt
	}
	return until
}

// tick carries out everything that is due by now, such as giving up a missing packet.
func (s *stream) tick(now time.Time) error {
	for t := s.nextWakeAt(); !t.IsZero() && !t.After(now); t = s.nextWakeAt() {
		if err := s.handleTimeout(now); err != nil {
			return err
		}
	}
	return nil
}

// handleTimeout does the next action that is due: it writes silence, requests a missing packet, or plays held packets
// although an earlier one is missing.
func (s *stream) handleTimeout(now time.Time) error {
	switch {
	case s.reorder.heldCount == 0:
		return s.writeSilenceTick()
	case s.reorder.waitingSince().Add(s.wait).After(now):
		s.requestMissing(now)
		return nil
	}
	if err := s.playPacket(s.reorder.takeFirstHeld(), now); err != nil {
		return err
	}
	return s.playHeld(now)
}

// handlePacket plays p if it is next in sequence, and otherwise holds or drops it. copies are the copies of earlier
// packets in p. They replace packets that are missing.
func (s *stream) handlePacket(p packet, ssrc uint32, copies []redBlock) error {
	now := p.arrived
	ahead := int(int16(p.seq - s.reorder.next))
	if !s.isSynced || ssrc != s.ssrc || ahead < -maxMisorder || ahead >= maxDropout {
		if err := s.startStream(p, ssrc, now); err != nil {
			return err
		}
		ahead = 0
	}
	s.measureDelay(p, ahead)
	switch {
	case ahead < 0:
		if ahead >= -maxHeldPackets && s.reorder.hasArrived(p.seq) {
			s.stats.Duplicate++
		} else {
			s.stats.Late++
		}
		return nil
	case ahead >= maxHeldPackets: // packets so far ahead mean a loss and not reordering, and the buffer is full
		if err := s.playAllHeld(now); err != nil {
			return err
		}
		return s.playPacket(&p, now)
	case ahead > 0:
		return s.holdPacket(p, copies)
	case s.reorder.heldCount > 0:
		s.stats.Reordered++
	}
	if err := s.playPacket(&p, now); err != nil {
		return err
	}
	return s.playHeld(now)
}

// measureDelay adds the delay of p to the clock's measurements. It ignores retransmissions and duplicates, because
// their delay is not that of the path.
func (s *stream) measureDelay(p packet, ahead int) {
	newest := ahead >= 0 && !s.reorder.hasLaterPacket(p.seq)
	if !newest {
		if ahead < -maxHeldPackets || ahead < 0 && s.reorder.hasArrived(p.seq) || ahead >= 0 && s.reorder.holds(p.seq) {
			return
		}
		m := s.reorder.missing[p.seq%maxHeldPackets]
		if m.count > 0 && p.arrived.Sub(m.lastRequest) >= s.rtt-requestSlack {
			return
		}
	}
	if len(p.payload) > 0 {
		s.meter.addArrival(p.ts, p.arrived, newest)
	}
}

// holdPacket holds p, because packets before p are missing, and requests those packets.
func (s *stream) holdPacket(p packet, copies []redBlock) error {
	overtaken := s.reorder.hasLaterPacket(p.seq)
	switch {
	case !s.reorder.holdPacket(p):
		s.stats.Duplicate++
		return nil
	case overtaken:
		s.stats.Reordered++
	}
	s.reorder.adoptCopies(p, copies, s.ts)
	if s.reorder.holds(s.reorder.next) {
		if err := s.playHeld(p.arrived); err != nil || s.reorder.heldCount == 0 {
			return err
		}
	}
	s.updateWaitTime()
	s.requestMissing(p.arrived)
	return nil
}

// updateWaitTime sets s.wait, the time to wait for missing packets.
func (s *stream) updateWaitTime() {
	s.wait, s.rtt = max(gapWait, s.meter.lateness), 0
	if s.options.SendNACK != nil && s.options.RTT != nil {
		s.rtt = max(0, s.options.RTT())
	}
	if 0 < s.rtt && s.rtt < maxGapWait {
		s.wait = max(s.wait, maxRequests*(s.rtt+requestSlack))
	}
	s.wait = min(s.wait, maxGapWait)
}

// requestMissing requests the missing packets whose retransmission can arrive in time, and schedules the next request.
func (s *stream) requestMissing(now time.Time) {
	s.nextRequestAt = time.Time{}
	if s.options.SendNACK == nil || s.reorder.heldCount == 0 {
		return
	}
	s.requests = s.requests[:0]
	for seq := s.reorder.next; seq != s.reorder.newest; seq++ {
		m := &s.reorder.missing[seq%maxHeldPackets]
		if s.reorder.holds(seq) {
			continue
		}
		at, ok := s.nextRequest(m)
		if ok && !at.After(now) {
			s.requests = append(s.requests, seq)
			m.lastRequest, m.count = now, m.count+1
			at, ok = s.nextRequest(m)
		}
		if ok && (s.nextRequestAt.IsZero() || at.Before(s.nextRequestAt)) {
			s.nextRequestAt = at
		}
	}
	if len(s.requests) > 0 {
		s.stats.Requested += uint64(len(s.requests))
		s.options.SendNACK(s.ssrc, s.requests)
	}
}

// nextRequest returns when to request a missing packet, and false if it should not be requested any more.
func (s *stream) nextRequest(m *request) (at time.Time, ok bool) {
	at = m.since
	if m.count > 0 {
		at = m.lastRequest.Add(cmp.Or(s.rtt, unknownRTT) + requestSlack)
	}
	return at, m.count < maxRequests && !at.Add(s.rtt).After(m.since.Add(s.wait))
}

// playHeld plays the held packets that are next in sequence.
func (s *stream) playHeld(now time.Time) error {
	for s.reorder.heldCount > 0 && s.reorder.firstHeld().seq == s.reorder.next {
		if err := s.playPacket(s.reorder.takeFirstHeld(), now); err != nil {
			return err
		}
	}
	return nil
}

// playAllHeld plays all held packets, and gives up the missing packets between them.
func (s *stream) playAllHeld(now time.Time) error {
	for s.reorder.heldCount > 0 {
		if err := s.playPacket(s.reorder.takeFirstHeld(), now); err != nil {
			return err
		}
	}
	return nil
}

// startStream begins a new stream whose first packet is p. It does not reset the clock, which paces the sink.
func (s *stream) startStream(p packet, ssrc uint32, now time.Time) error {
	if err := s.playAllHeld(now); err != nil {
		return err
	}
	if s.isSynced {
		s.stats.Resets++
		dec, err := s.options.Codec.NewDecoder(s.rate)
		if err != nil {
			return err
		}
		s.dec = dec
	}
	s.isSynced, s.ssrc = true, ssrc
	s.ts = p.ts
	s.meter.restart()
	s.reorder.reset(p.seq)
	return nil
}

// playPacket writes the sound of p, after filling the gap between the last packet and p.
func (s *stream) playPacket(p *packet, now time.Time) error {
	lostPackets := s.reorder.advancePast(p.seq)
	s.stats.Lost += uint64(lostPackets)
	if len(p.event.Payload) > 0 {
		s.options.OnEvent(p.event)
	}
	if len(p.payload) == 0 {
		return nil
	}
	missing := int32(p.ts - s.ts)
	switch {
	case p.isCopy && missing < 0:
		return nil // the sound of the copy was already played: the lost packet was padding
	case s.isStarted && missing > 0:
		if err := s.fillGap(media.Duration(int(missing), s.meter.clock), lostPackets > 0, p, now); err != nil {
			return err
		}
	}
	n, err := s.dec.Decode(p.payload, s.pcm[:s.maxSamples])
	if err != nil {
		s.stats.Malformed++
		return nil // the gap is filled when the next packet's timestamp shows its length
	}
	if p.isCopy {
		s.stats.Copied++
	}
	s.ts = p.ts + uint32(media.Samples(media.Duration(n, s.rate), s.meter.clock))
	return s.writePaced(n, now)
}

// fillGap fills the gap before nextPacket. The end of the gap is restored from the copy in nextPacket. Before that, up
// to maxConcealed is concealed, and the rest is silence.
func (s *stream) fillGap(gap time.Duration, isLost bool, nextPacket *packet, now time.Time) error {
	var restored time.Duration
	if isLost {
		if restored = min(gap, s.options.Codec.RedundancyDuration(nextPacket.payload)); restored > 0 {
			s.stats.Recovered++
		}
	}
	// The clock has already written insertedSilence into this gap.
	gap -= restored + s.insertedSilence
	if isLost && s.insertedSilence == 0 { // conceal only right after sound: after silence, concealment would produce a wrong voice
		madeUp := min(gap, maxConcealed)
		if err := s.conceal(nil, madeUp); err != nil {
			return err
		}
		gap -= madeUp
	}
	// No silence is written for the time after nextPacket was due.
	if t := s.meter.idealArrival(nextPacket.ts); !t.IsZero() && t.Before(now) {
		now = t
	}
	if err := s.writeSilence(min(gap, now.Sub(s.soundEnd)-restored)); err != nil {
		return err
	}
	return s.conceal(nextPacket.payload, restored)
}

// conceal writes sound of duration d in place of lost sound. It restores the sound from next, the payload of the next
// packet, or estimates it if next is nil.
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
	return s.playSound(s.pcm[:n])
}
