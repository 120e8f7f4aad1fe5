package rtpaudio

import (
	"cmp"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
)

const (
	// gapWait is how long a missing packet is waited for at least, once a later one has come. Three packets: what has
	// overtaken another is mostly one or two ahead, and it is as much as concealment can cover. It costs delay only where
	// packets are missing.
	gapWait = 60 * time.Millisecond
	// maxGapWait is how long to wait for a packet that was asked for again, or on a path that delays packets so much. A person would hear the
	// gap and the rush after it; a model waits, and gets the word.
	maxGapWait = 200 * time.Millisecond
	// maxAsked is how often a packet is asked for: at 20 % loss each way the third request leaves 5 % of the missing out.
	maxAsked = 3
	// askAgain is how long after the round trip an answer may come before it is taken for lost: what a sender needs to
	// answer, and some jitter.
	askAgain = 10 * time.Millisecond
	// unknownRTT stands for a round trip that is not known yet: what is missing is then asked for once.
	unknownRTT = gapWait
)

// stream is the state of one Run: the packets in their sequence, and the state of the clock that their sound goes by.
type stream struct {
	clock
	dec     media.Decoder
	rtp     rtp.Packet
	blocks  [maxREDBlocks]redBlock
	reorder reorderer
	synced  bool // ssrc and reorder.next are known
	ssrc    uint32

	wait   time.Duration // how long the missing packets are waited for
	rtt    time.Duration // 0: unknown
	askAt  time.Time     // when a missing packet is to be asked for; zero: none is
	asking []uint16
}

// wake returns when tick has something to do if no packet comes; zero for never.
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

// tick gives up what has been waited for long enough.
func (s *stream) tick(now time.Time) error {
	for t := s.wake(); !t.IsZero() && !t.After(now); t = s.wake() {
		if err := s.giveUp(now); err != nil {
			return err
		}
	}
	return nil
}

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

// order plays p if it is its turn, and keeps or drops it if not. Copies of earlier packets that came in it go where those
// are missing.
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
	case ahead >= heldPackets: // so much is not reordered but lost, and there is no room to wait
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

// measure adds the delay of p to the clock's measurements, unless p is a retransmission or a duplicate: those say nothing about the path.
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

// hold keeps p, since packets before it are missing, and asks for them.
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

// expect decides how long what is missing is waited for.
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

// ask asks the sender for what is missing, as long as the answer can come while it is waited for, and notes when to ask
// again.
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

// askTime returns when to ask for a missing packet, and false if it is not to be asked for any more.
func (s *stream) askTime(m *request) (time.Time, bool) {
	at := m.since
	if m.times > 0 {
		at = m.asked.Add(cmp.Or(s.rtt, unknownRTT) + askAgain)
	}
	return at, m.times < maxAsked && !at.Add(s.rtt).After(m.since.Add(s.wait))
}

// playHeld plays the held packets that are due.
func (s *stream) playHeld(now time.Time) error {
	for s.reorder.held > 0 && s.reorder.first().seq == s.reorder.next {
		if err := s.play(s.reorder.take(), now); err != nil {
			return err
		}
	}
	return nil
}

// playAll plays all held packets and gives up what is missing between them.
func (s *stream) playAll(now time.Time) error {
	for s.reorder.held > 0 {
		if err := s.play(s.reorder.take(), now); err != nil {
			return err
		}
	}
	return nil
}

// reset begins a new stream with p. The clock goes on.
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

// play writes the sound of p, and before it what stands for the sound that is missing between the last packet and p.
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
		return nil // a copy of what came in time, in the place of lost padding
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

// fill writes what stands for a gap before the packet next. What was lost is restored from next if that holds a copy, else
// made up for a while. The rest, and a gap in which nothing was sent, is silence: as much as the clock has not written yet
// and as next would be, in time, beyond what was written.
func (s *stream) fill(gap time.Duration, lost bool, next *packet, now time.Time) error {
	var restored time.Duration
	if lost {
		if restored = min(gap, s.options.Codec.CopyDuration(next.payload)); restored > 0 {
			s.stats.Recovered++
		}
	}
	gap -= restored + s.filled
	if lost && s.filled == 0 { // only right after the last sound: a voice out of silence is no concealment
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

// conceal writes d of sound that is made up, or restored from next if that is not nil.
func (s *stream) conceal(next []byte, d time.Duration) error {
	const unit = 2500 * time.Microsecond // the shortest frame of Opus, whose decoders conceal no less and nothing between
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
