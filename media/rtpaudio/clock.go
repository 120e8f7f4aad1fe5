package rtpaudio

import (
	"fmt"
	"time"

	"voxgate/media"
)

const (
	// jitterSlack is the minimum lateness before silence replaces a packet. It exceeds the longest concealed loss by 20
	// ms. Lateness does no harm, but silence within a word does.
	jitterSlack = maxConcealed + 20*time.Millisecond
	// maxSlack limits the wait for late packets. If a sender stops in silence, this wait delays the end of each turn.
	maxSlack = 240 * time.Millisecond
	// endOfTurn is the part of a pause that always reaches the sink in real time. It shows the end of a turn, so a
	// delay would hold up every answer.
	endOfTurn = time.Second
	// aheadWait is the minimum wait after the last sound until the clock writes silence for missing packets although the
	// sink is ahead of the wall clock. With a wait of jitterSlack or less, each late packet would insert silence.
	aheadWait = 200 * time.Millisecond
	// quietLevel is the RMS below which decoded sound is a pause in any room: -54 dBov, 28 dB below speech.
	quietLevel = 64
	// minFloor is the RMS that zero input counts as: -70 dBov.
	minFloor = 10
	// pauseOverFloor is the maximum ratio of a pause to the noise floor: 6 dB. Steady noise reaches 3 dB over its
	// quietest frames.
	pauseOverFloor = 2
	// minLoud is the amount of sound in a row that ends a pause. Less sound is a click, which is kept but does not count as a word.
	minLoud = 2 * media.FrameDuration
	// minPause is the minimum length of a pause to be stretched: longer than the closure of a "p".
	minPause = 200 * time.Millisecond
	// minDrift is the minimum offset between sink and clock that changes a pause. Clocks of good devices drift as much
	// in two minutes.
	minDrift = 10 * time.Millisecond
	// spliceTime is the length of a crossfade where part of a pause is left out or repeated.
	spliceTime = 2500 * time.Microsecond
)

// clock writes sound to the sink, in step with the wall clock. It writes silence if no sound arrives in time. It
// shortens or stretches pauses, but never changes sound.
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

// slack returns how late a packet may be: the usual lateness, plus the longest loss that can be concealed.
func (c *clock) slack() time.Duration {
	return max(jitterSlack, min(c.meter.lateness+maxConcealed, maxSlack))
}

// nextSilence returns when silence replaces a missing packet, or zero for never. A packet is due when the written sound
// ends.
func (c *clock) nextSilence() time.Time {
	if !c.isStarted {
		return time.Time{}
	}
	deadline := c.soundEnd
	// If the sender's clock is slow, wait until the packet can have been sent. A later pause makes up for the delay.
	if t := c.meter.idealArrival(c.ts); t.After(deadline) {
		deadline = t
	}
	deadline = deadline.Add(c.slack())
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

// writePaced writes n samples of pcm, the sound before ts. In a pause it leaves out samples if the sink is ahead of the
// wall clock, or repeats some.
func (c *clock) writePaced(n int, now time.Time) error {
	d := media.Duration(n, c.rate)
	if !c.isStarted {
		c.isStarted, c.soundEnd = true, now
	}
	c.insertedSilence = 0
	ahead, behind := c.soundEnd.Sub(now), c.meter.idealArrival(c.ts).Sub(c.soundEnd.Add(d))
	switch {
	case !c.isPause(c.pcm[:n], d):
		c.resumeSilence = now.Add(d + max(aheadWait, c.slack()))
		return c.writeSound(c.pcm[:n])
	case c.pauseLength > endOfTurn && ahead >= minDrift:
		cut := n - cutSamples(c.pcm[:n], media.Samples(ahead, c.rate), media.Samples(spliceTime, c.rate))
		c.stats.Skipped += media.Duration(cut, c.rate)
		n -= cut
	case c.pauseLength > minPause && behind >= minDrift:
		more := repeatSamples(c.pcm, n, media.Samples(min(behind, media.FrameDuration), c.rate), media.Samples(spliceTime, c.rate))
		c.stats.Stretched += media.Duration(more, c.rate)
		n += more
	}
	if t := now.Add(d + c.slack()); t.After(c.resumeSilence) {
		c.resumeSilence = t
	}
	return c.writeSound(c.pcm[:n])
}

// isPause reports whether decoded sound is part of a pause, and measures the pause.
func (c *clock) isPause(pcm []int16, d time.Duration) bool {
	level := 0.0
	// The loudest 20 ms decide, because a word may begin within a long packet.
	for rest := pcm; len(rest) > 0; rest = rest[min(len(rest), len(c.silence)):] {
		level = max(level, media.RMS(rest[:min(len(rest), len(c.silence))]))
	}
	room := c.floor.update(level, c.loudLength > 0)
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

// cutSamples removes n samples from the middle of pcm, or as many as it can, and returns how many remain.
func cutSamples(pcm []int16, n, splice int) int {
	n = min(n, len(pcm)-splice)
	if n < 1 {
		return len(pcm)
	}
	remaining := len(pcm) - n
	crossfade(pcm[remaining-splice:remaining], pcm[len(pcm)-splice:])
	return remaining
}

// repeatSamples repeats up to n samples at the end of pcm[:size], and returns their number, or 0 if pcm[:size] is too
// short. pcm must have room for them.
func repeatSamples(pcm []int16, size, n, splice int) int {
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

// writeSound writes pcm to the sink. If pcm would begin with a step after silence, it fades pcm in.
func (c *clock) writeSound(pcm []int16) error {
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
		media.FadeOut(c.fade, c.tail)
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

// update adds the level of the next 20 ms and returns the noise level. It falls at once, and rises by two thirds in a
// second, more slowly during speech.
func (f *noiseFloor) update(level float64, speech bool) float64 {
	floor := max(float64(*f), minFloor)
	switch {
	case level < floor:
		floor = max(level, minFloor)
	case speech:
		floor *= 1.005
	default:
		floor = min(floor*1.01, max(level, minFloor))
	}
	*f = noiseFloor(floor)
	return floor
}
