package rtpaudio

import (
	"fmt"
	"time"

	"voxgate/media"
)

const (
	// jitterSlack is the minimum time to wait for a late packet before silence replaces it. It exceeds the longest loss
	// that is concealed by 20 ms. Waiting too long does no harm, but silence within a word does.
	jitterSlack = maxConcealed + 20*time.Millisecond
	// maxSlack limits the wait for a late packet. If a sender sends no packets in silence, this wait delays the end of
	// each turn.
	maxSlack = 240 * time.Millisecond
	// endOfTurn is the duration at the start of a pause that always reaches the sink in real time. The model detects
	// the end of a turn by it, so a delay would hold up every answer.
	endOfTurn = time.Second
	// aheadWait is the time that packets must be missing before the clock writes silence for them, if the sink is ahead
	// of the wall clock. It must be longer than jitterSlack. Otherwise each late packet would insert silence.
	aheadWait = 200 * time.Millisecond
	// quietLevel is the RMS below which decoded sound is a pause in any room: -54 dBov, 28 dB below speech.
	quietLevel = 64
	// minFloor is the lowest noise floor, as an RMS: -70 dBov. Digital silence counts as this.
	minFloor = 10
	// pauseOverFloor is the maximum ratio of the sound in a pause to the noise floor: 6 dB. Steady noise reaches 3 dB
	// over its quietest frames.
	pauseOverFloor = 2
	// minLoud is the duration of uninterrupted sound that ends a pause. Shorter sound is a click, which is written
	// but does not count as a word.
	minLoud = 2 * media.FrameDuration
	// minPause is the minimum length of a pause that may be stretched. The silence before a "p" is shorter.
	minPause = 200 * time.Millisecond
	// minDrift is the minimum offset between the sink and the clock at which a pause is shortened or stretched. The
	// clocks of good devices drift this far apart in two minutes.
	minDrift = 10 * time.Millisecond
	// spliceTime is the length of a crossfade where part of a pause is left out or repeated.
	spliceTime = 2500 * time.Microsecond
)

// clock writes sound to the sink, in step with the wall clock. It writes silence if no sound arrives in time. To stay
// in step it shortens or stretches pauses, but never words.
type clock struct {
	*Receiver
	rate       int
	meter      delayMeter
	pcm        []int16 // the decoded sound
	maxSamples int     // maximum samples of a packet; pcm has room for more
	silence    []int16 // 20 ms of zeros
	fade       []int16 // 20 ms that begin with a fade-out
	tail       []int16 // the last 5 ms written
	isSilent   bool    // the last sound written was inserted silence

	isStarted       bool          // sound has been written: the clock runs
	ts              uint32        // the RTP timestamp after the last sound
	soundEnd        time.Time     // when the sound written so far ends on the wall clock
	insertedSilence time.Duration // silence inserted since the last packet with sound
	pauseLength     time.Duration // length of the current pause, in sound and inserted silence
	loudLength      time.Duration // length of the sound in a row since the last pause
	resumeSilence   time.Time     // when silence is written in the first endOfTurn of a pause, even if the sink is ahead
	floor           noiseFloor
}

func newClock(r *Receiver) clock {
	rate := r.sink.Rate()
	most, frame := media.Samples(media.MaxPacketDuration, rate), media.Samples(media.FrameDuration, rate)
	return clock{
		Receiver:   r,
		rate:       rate,
		meter:      delayMeter{clock: r.options.Codec.ClockRate()},
		maxSamples: most,
		pcm:        make([]int16, most+frame),
		silence:    make([]int16, frame),
		fade:       make([]int16, frame),
		tail:       make([]int16, 0, media.Samples(media.FadeDuration, rate)),
	}
}

// allowedLateness returns how late a packet may be: the usual lateness of packets, plus the longest loss that can be
// concealed.
func (c *clock) allowedLateness() time.Duration {
	return max(jitterSlack, min(c.meter.lateness+maxConcealed, maxSlack))
}

// nextSilenceAt returns when silence is to replace a missing packet, or zero if the clock has not started. A packet is
// due when the sound written so far has been played.
func (c *clock) nextSilenceAt() time.Time {
	if !c.isStarted {
		return time.Time{}
	}
	deadline := c.soundEnd
	// If the sender's clock is slow, the packet is not sent before idealArrival, so the wait begins then. A later pause
	// makes up for the delay.
	if t := c.meter.idealArrival(c.ts); t.After(deadline) {
		deadline = t
	}
	deadline = deadline.Add(c.allowedLateness())
	if c.pauseLength < endOfTurn && c.resumeSilence.Before(deadline) {
		return c.resumeSilence
	}
	return deadline
}

// writeSilenceTick writes 20 ms of silence in place of a missing packet.
func (c *clock) writeSilenceTick() error {
	c.insertedSilence += media.FrameDuration
	c.pauseLength += media.FrameDuration
	c.resumeSilence = c.resumeSilence.Add(media.FrameDuration)
	return c.writeSilence(media.FrameDuration)
}

// writePaced writes the first n samples of pcm, the sound before ts. In a pause it leaves out samples if the sink is
// ahead of the wall clock, and repeats samples if the sink is behind.
func (c *clock) writePaced(n int, now time.Time) error {
	d := media.Duration(n, c.rate)
	if !c.isStarted {
		c.isStarted, c.soundEnd = true, now
	}
	c.insertedSilence = 0
	ahead, behind := c.soundEnd.Sub(now), c.meter.idealArrival(c.ts).Sub(c.soundEnd.Add(d))
	switch {
	case !c.trackPause(c.pcm[:n], d):
		c.resumeSilence = now.Add(d + max(aheadWait, c.allowedLateness()))
		return c.playSound(c.pcm[:n])
	case c.pauseLength > endOfTurn && ahead >= minDrift:
		cut := n - cutSamples(c.pcm[:n], media.Samples(ahead, c.rate), media.Samples(spliceTime, c.rate))
		c.stats.Skipped += media.Duration(cut, c.rate)
		n -= cut
	case c.pauseLength > minPause && behind >= minDrift:
		more := repeatSamples(c.pcm, n, media.Samples(min(behind, media.FrameDuration), c.rate), media.Samples(spliceTime, c.rate))
		c.stats.Stretched += media.Duration(more, c.rate)
		n += more
	}
	if t := now.Add(d + c.allowedLateness()); t.After(c.resumeSilence) {
		c.resumeSilence = t
	}
	return c.playSound(c.pcm[:n])
}

// trackPause measures the current pause, and reports whether pcm is part of the pause.
func (c *clock) trackPause(pcm []int16, d time.Duration) (isPause bool) {
	level := 0.0
	// A packet may hold 120 ms and a word may begin at its end, so the loudest 20 ms decide.
	for rest := pcm; len(rest) > 0; rest = rest[min(len(rest), len(c.silence)):] {
		level = max(level, media.RMS(rest[:min(len(rest), len(c.silence))]))
	}
	room := c.floor.updateFloor(level, c.loudLength > 0)
	if level < max(quietLevel, pauseOverFloor*room) {
		c.loudLength = 0
		c.pauseLength += d
		return true
	}
	if c.loudLength += d; c.loudLength >= minLoud {
		c.pauseLength = 0
	}
	return false
}

// cutSamples removes up to n samples from the middle of pcm, and returns how many samples remain.
func cutSamples(pcm []int16, n, splice int) (remaining int) {
	n = min(n, len(pcm)-splice)
	if n < 1 {
		return len(pcm)
	}
	remaining = len(pcm) - n
	crossfade(pcm[remaining-splice:remaining], pcm[len(pcm)-splice:])
	return remaining
}

// repeatSamples appends a copy of the last n samples of pcm[:size] to them. It returns the number of samples added:
// fewer than n if pcm is too short, and 0 if it cannot add as many as splice.
func repeatSamples(pcm []int16, size, n, splice int) (added int) {
	n = min(n, size-splice, len(pcm)-size)
	if n < splice {
		return 0
	}
	copy(pcm[size:], pcm[size-n:size])
	crossfade(pcm[size-splice:size], pcm[size-n-splice:size-n])
	return n
}

// crossfade changes a, which has at least two samples, so that it fades over to b. a and b may overlap.
func crossfade(a, b []int16) {
	last := len(a) - 1
	for i := range a {
		a[i] = int16((int(a[i])*(last-i) + int(b[i])*i) / last)
	}
}

// playSound writes pcm to the sink. If pcm follows silence and would begin with a step, it fades pcm in.
func (c *clock) playSound(pcm []int16) error {
	if len(pcm) == 0 {
		return nil
	}
	if c.isSilent && (pcm[0] > quietLevel || pcm[0] < -quietLevel) {
		n := min(len(pcm), media.Samples(spliceTime, c.rate))
		for i := range n {
			pcm[i] = int16(int(pcm[i]) * i / n)
		}
	}
	c.isSilent = false
	c.tail = append(c.tail[:0], pcm[max(0, len(pcm)-cap(c.tail)):]...)
	return c.writePCM(pcm)
}

// writeSilence writes d of silence. It first plays the last 5 ms backwards and fading out, which avoids a click. It does
// not use the decoder's concealment, which would harm the decoding of late sound.
func (c *clock) writeSilence(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	c.stats.Silence += d
	n := media.Samples(d, c.rate)
	if !c.isSilent {
		c.isSilent = true
		clear(c.fade)
		media.WriteFadeOut(c.fade, c.tail)
		first := min(n, len(c.fade))
		if err := c.writePCM(c.fade[:first]); err != nil {
			return err
		}
		n -= first
	}
	for ; n > 0; n -= len(c.silence) {
		if err := c.writePCM(c.silence[:min(n, len(c.silence))]); err != nil {
			return err
		}
	}
	return nil
}

func (c *clock) writePCM(pcm []int16) error {
	c.soundEnd = c.soundEnd.Add(media.Duration(len(pcm), c.rate))
	if err := c.sink.WritePCM(pcm); err != nil {
		return fmt.Errorf("write PCM: %w", err)
	}
	return nil
}

// noiseFloor tracks the noise level of a room.
type noiseFloor float64

// updateFloor adds the level of the next 20 ms and returns the noise level. The noise level falls at once. It rises by
// two thirds in a second, more slowly during speech.
func (f *noiseFloor) updateFloor(level float64, isSpeech bool) (floor float64) {
	floor = max(float64(*f), minFloor)
	switch {
	case level < floor:
		floor = max(level, minFloor)
	case isSpeech:
		floor *= 1.005
	default:
		floor = min(floor*1.01, max(level, minFloor))
	}
	*f = noiseFloor(floor)
	return floor
}
