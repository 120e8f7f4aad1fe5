package media

import (
	"fmt"
	"time"

	"github.com/pion/rtp"
)

const (
	// endOfTurn is how much of a pause always reaches the sink in real time, even if it is ahead of the clock: the end of a
	// turn is found by the silence after it, and waiting for that would hold up every answer.
	endOfTurn = time.Second
	// aheadWait is how long after the last packet that silence begins if the sink is ahead: longer than jitterSlack, or
	// every late packet would put it further ahead.
	aheadWait = 200 * time.Millisecond
	// quiet is the RMS below which decoded sound may be skipped as silence: -54 dBov, 28 dB below speech.
	quiet = 64
)

// stream is the state of one Run.
type stream struct {
	*Receiver
	dec     OpusDecoder
	rate    int
	pcm     []int16 // what was decoded
	silence []int16 // 20 ms of zeros
	rtp     rtp.Packet
	reorder reorderer
	synced  bool // ssrc and reorder.next are known
	ssrc    uint32

	started bool          // sound has been written: the clock runs
	ts      uint32        // the RTP timestamp after the last sound
	due     time.Time     // when what was written ends on the wall clock
	filled  time.Duration // silence the clock has written since the last packet with sound
	pause   time.Duration // how long the sink has had silence
	resume  time.Time     // when silence is written, within endOfTurn, even if the sink is ahead
}

// wake returns when tick has something to do if no packet comes; zero for never.
func (s *stream) wake() time.Time {
	switch {
	case s.reorder.held > 0:
		return s.reorder.waitingSince().Add(gapWait)
	case !s.started:
		return time.Time{}
	}
	due := s.due.Add(jitterSlack)
	if s.pause < endOfTurn && s.resume.Before(due) {
		return s.resume
	}
	return due
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
	if s.reorder.held == 0 {
		s.filled += FrameDuration
		s.pause += FrameDuration
		s.resume = s.resume.Add(FrameDuration)
		return s.writeSilence(FrameDuration)
	}
	if err := s.play(s.reorder.take(), now); err != nil {
		return err
	}
	return s.playHeld(now)
}

// order plays p if it is its turn, and keeps or drops it if not.
func (s *stream) order(p packet, ssrc uint32) error {
	now := p.arrived
	ahead := int(int16(p.seq - s.reorder.next))
	if !s.synced || ssrc != s.ssrc || ahead < -maxMisorder || ahead >= maxDropout {
		if err := s.reset(p, ssrc, now); err != nil {
			return err
		}
		ahead = 0
	}
	switch {
	case ahead < 0:
		if ahead >= -heldPackets && s.reorder.came(p.seq) {
			s.n.duplicate.Add(1)
		} else {
			s.n.late.Add(1)
		}
		return nil
	case ahead > 0 && ahead < heldPackets:
		overtaken := s.reorder.overtaken(p.seq)
		switch {
		case !s.reorder.hold(p):
			s.n.duplicate.Add(1)
		case overtaken:
			s.n.reordered.Add(1)
		}
		return nil
	case ahead > 0: // so much is not reordered but lost, and there is no room to wait
		if err := s.playAll(now); err != nil {
			return err
		}
	case s.reorder.held > 0:
		s.n.reordered.Add(1)
	}
	if err := s.play(&p, now); err != nil {
		return err
	}
	return s.playHeld(now)
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
		s.n.resets.Add(1)
		dec, err := NewOpusDecoder(s.rate, s.choice)
		if err != nil {
			return err
		}
		s.dec = dec
	}
	s.synced, s.ssrc = true, ssrc
	s.ts = p.ts
	s.reorder.reset(p.seq)
	return nil
}

// play writes the sound of p, and before it what stands for the sound that is missing between the last packet and p.
func (s *stream) play(p *packet, now time.Time) error {
	lost := s.reorder.advance(p.seq)
	s.n.lost.Add(uint64(lost))
	if len(p.payload) == 0 {
		return nil
	}
	if missing := int32(p.ts - s.ts); s.started && missing > 0 {
		if err := s.fill(durationOf(int(missing), opusClock), lost > 0, p.payload, now); err != nil {
			return err
		}
	}
	n, err := s.dec.Decode(p.payload, s.pcm)
	if err != nil {
		s.n.malformed.Add(1)
		return nil // the next packet's timestamp tells how much is missing
	}
	if !s.started {
		s.started, s.due = true, now
	}
	d := durationOf(n, s.rate)
	s.ts = p.ts + uint32(samplesIn(d, opusClock))
	s.filled = 0
	if s.skips(s.pcm[:n], d, now) {
		s.n.skipped.Add(uint64(d))
		return nil
	}
	return s.write(s.pcm[:n])
}

// skips decides whether decoded sound is left out: silence that the sink, ahead of the clock, does not need.
func (s *stream) skips(pcm []int16, d time.Duration, now time.Time) bool {
	if s.due.Sub(now) < d || RMS(pcm) >= quiet {
		s.pause = 0
		s.resume = now.Add(d + aheadWait)
		return false
	}
	s.pause += d
	if t := now.Add(d + jitterSlack); t.After(s.resume) {
		s.resume = t
	}
	return s.pause > endOfTurn
}

// fill writes what stands for a gap before the packet next. What was lost is restored from next if that holds a copy, else
// made up for a while. The rest, and a gap in which nothing was sent, is silence: as much as the clock has not written yet
// and as the wall clock is beyond what was written.
func (s *stream) fill(gap time.Duration, lost bool, next []byte, now time.Time) error {
	var restored time.Duration
	if lost && s.choice != PionOpus && hasFEC(next) {
		restored = min(gap, opusFrameDuration(next[0]))
		s.n.recovered.Add(1)
	}
	gap -= restored + s.filled
	if lost && s.filled == 0 { // only right after the last sound: a voice out of silence is no concealment
		madeUp := min(gap, maxConcealed)
		if err := s.conceal(nil, madeUp); err != nil {
			return err
		}
		gap -= madeUp
	}
	if err := s.writeSilence(min(gap, now.Sub(s.due))); err != nil {
		return err
	}
	return s.conceal(next, restored)
}

// conceal writes d of sound that is made up, or restored from next if that is not nil.
func (s *stream) conceal(next []byte, d time.Duration) error {
	const unit = 2500 * time.Microsecond // the shortest frame; decoders conceal no less and nothing between
	if d = d / unit * unit; d <= 0 {
		return nil
	}
	n := samplesIn(d, s.rate)
	if err := s.dec.Conceal(next, s.pcm[:n]); err != nil {
		clear(s.pcm[:n])
	}
	if next == nil {
		s.n.concealed.Add(uint64(d))
	}
	return s.write(s.pcm[:n])
}

func (s *stream) writeSilence(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	s.n.silence.Add(uint64(d))
	for n := samplesIn(d, s.rate); n > 0; n -= len(s.silence) {
		if err := s.write(s.silence[:min(n, len(s.silence))]); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) write(pcm []int16) error {
	s.due = s.due.Add(durationOf(len(pcm), s.rate))
	if err := s.sink.WritePCM(pcm); err != nil {
		return fmt.Errorf("write PCM: %w", err)
	}
	return nil
}
