package record

import "voxgate/media"

// Lengths on the timeline are in samples.
const (
	// hold is how long after its time sound is written. It must be longer than what a client is given ahead (200 ms), or
	// an interruption could not take it back, and than the delay of a network that is still worth talking over.
	hold = rate

	// loose is how far the person's sound may be from where it should be before it is moved. In a pause moving it is not
	// heard, so there it is half of that.
	loose      = rate / 10
	loosePause = rate / 20

	// early bounds how much of the person's sound is kept ahead of its time, for clients that send speech faster than it is spoken and for
	// wrong clocks. Of the model's there may be as much as a playout keeps: a client that paces the voice itself has it as soon as it comes.
	early      = 10 * rate
	earlyModel = 120 * rate

	// quiet is the mean amplitude below which there is no speech: -50 dBFS.
	quiet = 104

	fade = rate * 5 / 1000 // of a cut
)

// timeline is both channels from the sample on that is written next.
type timeline struct {
	start       int64
	left, right channel
	up          *media.Resampler // of the person's sound; nil: it has 24 kHz
	upRate      int
	gap         int64 // where the silence began before what the person says
	word        int64 // and where it ended
}

// channel is one side. Sample i of the line is pcm[i-start].
type channel struct {
	pcm []int16
	end int64 // of what was put in; silence follows
}

// put writes sound at a place, over what is there; what comes too late, or more than early before its time, is left out.
func (c *channel) put(pcm []int16, at, start, early int64) {
	c.end = at + int64(len(pcm))
	if late := start - at; late > 0 {
		pcm, at = pcm[min(late, int64(len(pcm))):], start
	}
	from := at - start
	to := from + int64(len(pcm))
	if to > early || len(pcm) == 0 {
		c.end = max(min(c.end, start+early), start)
		return
	}
	for int64(len(c.pcm)) < to {
		c.pcm = append(c.pcm, 0)
	}
	copy(c.pcm[from:to], pcm)
}

// cut silences the model from a place on.
func (t *timeline) cut(at int64) {
	c := &t.right
	at = max(at, t.start)
	if from := at - t.start; from < int64(len(c.pcm)) {
		clear(c.pcm[from:])
		for i := range min(int64(fade), from) {
			c.pcm[from-1-i] = int16(int64(c.pcm[from-1-i]) * i / fade)
		}
	}
	c.end = min(c.end, at)
}

// person puts sound where the last of it ended, or, if that is far off, where it belongs.
//
// Sound that comes after a while may follow a pause, or be late: the network held it up, and more comes at once. So it is
// put where it belongs by the clock, and if then more comes than time has passed, all of it is moved back into the silence
// before it. Nothing comes before it is spoken, so that only brings it nearer to its true place.
func (t *timeline) person(pcm []int16, from int, at int64) {
	if t.upRate != from {
		t.flush()
		t.up, t.upRate = nil, from
		if from != rate {
			t.up = media.NewResampler(from, rate)
		}
	}
	pause := level(pcm) < quiet
	tolerance := int64(loose)
	if pause {
		tolerance = loosePause
	}
	at = min(at, t.start+early)
	t.moveBack(t.left.end + t.held() - at)
	off := at - t.left.end - t.held()
	switch {
	case off > tolerance:
		t.flush()
		t.gap, t.word = t.left.end, max(at, t.start)
		t.left.end = t.word
	case off < -tolerance && pause:
		return // its sender's clock is fast, and there is nothing to hear
	}
	t.left.end = max(t.left.end, t.start) // too late for its place, but not for any
	if t.up != nil {
		pcm = t.up.Resample(pcm)
	}
	t.left.put(pcm, t.left.end, t.start, early)
}

// flush ends a stretch of the person's sound: what the resampler holds back belongs to it.
func (t *timeline) flush() {
	if t.up != nil && t.left.end >= t.start {
		t.left.put(t.up.Flush(), t.left.end, t.start, early)
	}
}

// held is how much of the person's sound the resampler holds back.
func (t *timeline) held() int64 {
	if t.up == nil {
		return 0
	}
	return t.up.Buffered()
}

// moveBack takes up to n samples out of the silence before the person's last words.
func (t *timeline) moveBack(n int64) {
	c := &t.left
	n = min(n, t.word-max(t.gap, t.start))
	if n <= 0 || c.end < t.word || c.end-t.start > int64(len(c.pcm)) {
		return
	}
	from, to := t.word-t.start, c.end-t.start
	copy(c.pcm[from-n:], c.pcm[from:to])
	clear(c.pcm[to-n : to])
	t.word -= n
	c.end -= n
}

// next takes the first 20 ms off the line, interleaved.
func (t *timeline) next(frame *[2 * frameSamples]int16) {
	clear(frame[:])
	for i, c := range []*channel{&t.left, &t.right} {
		n := min(frameSamples, len(c.pcm))
		for j, x := range c.pcm[:n] {
			frame[2*j+i] = x
		}
		c.pcm = c.pcm[:copy(c.pcm, c.pcm[n:])]
	}
	t.start += frameSamples
}

// level is the mean amplitude.
func level(pcm []int16) int {
	if len(pcm) == 0 {
		return 0
	}
	sum := 0
	for _, x := range pcm {
		sum += max(int(x), -int(x))
	}
	return sum / len(pcm)
}
