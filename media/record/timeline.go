package record

import "voxgate/media"

// Lengths on the timeline are in samples.
const (
	// writeDelay is the delay with which sound is written to the file. A client receives the voice up to 200 ms before
	// it plays it, and an interruption must remove from the recording what was not played. The delay of any usable
	// network is shorter, too.
	writeDelay = rate

	// maxDrift limits how far the caller's sound may be from its true place, 100 ms, before it is moved there.
	maxDrift = rate / 10
	// maxDriftInPause is used in place of maxDrift while the caller pauses, where moving is inaudible.
	maxDriftInPause = rate / 20

	// maxEarly limits how far the caller's sound may be ahead of the written audio: 10 s. Fast clients and wrong clocks send
	// sound early. Sound that is further ahead is dropped.
	maxEarly = 10 * rate
	// maxEarlyModel limits how far the model's sound may be ahead of the written audio. A client that paces the voice itself
	// receives a whole answer at once. The limit is the maximum queue of a playout: 120 s.
	maxEarlyModel = 120 * rate

	// speechLevel is the mean amplitude of the quietest speech: -50 dBFS.
	speechLevel = 104

	fadeSamples = rate * 5 / 1000 // fade-out where the model is cut off
)

// timeline holds the sound of both channels that was not written yet.
type timeline struct {
	start        int64
	left, right  channel
	resampler    *media.Resampler // for the caller's sound; nil at 24 kHz
	inputRate    int
	silenceStart int64 // start of the silence before the caller's last words
	silenceEnd   int64 // end of that silence
}

// channel holds the sound of one side. Sample i of the timeline is pcm[i-start].
type channel struct {
	pcm []int16
	end int64 // end of the sound written; silence follows
}

// write puts sound at position, in place of other sound. Sound before timelineStart is encoded already, and is dropped.
// Sound that ends more than maxAhead after timelineStart is dropped as a whole.
func (c *channel) write(pcm []int16, position, timelineStart, maxAhead int64) {
	c.end = position + int64(len(pcm))
	if late := timelineStart - position; late > 0 {
		pcm, position = pcm[min(late, int64(len(pcm))):], timelineStart
	}
	from := position - timelineStart
	to := from + int64(len(pcm))
	if to > maxAhead || len(pcm) == 0 {
		c.end = max(min(c.end, timelineStart+maxAhead), timelineStart)
		return
	}
	for int64(len(c.pcm)) < to {
		c.pcm = append(c.pcm, 0)
	}
	copy(c.pcm[from:to], pcm)
}

// truncateModel silences the model from a position on.
func (t *timeline) truncateModel(at int64) {
	c := &t.right
	at = max(at, t.start)
	if from := at - t.start; from < int64(len(c.pcm)) {
		clear(c.pcm[from:])
		for i := range min(int64(fadeSamples), from) {
			c.pcm[from-1-i] = int16(int64(c.pcm[from-1-i]) * i / fadeSamples)
		}
	}
	c.end = min(c.end, at)
}

// addCaller puts sound at the end of the caller's earlier sound, or at its true place if that is far off.
//
// After a gap it is not known whether the caller paused or the network was late. addCaller first assumes a pause and
// places the sound at its time of arrival. If then more sound arrives than time passes, the network was late, and the
// sound since the gap is moved back. No sound arrives before it is spoken, so moving back is always in the right
// direction.
func (t *timeline) addCaller(pcm []int16, from int, at int64) {
	if t.inputRate != from {
		t.flushResampler()
		t.resampler, t.inputRate = nil, from
		if from != rate {
			t.resampler = media.NewResampler(from, rate)
		}
	}
	pause := meanAmplitude(pcm) < speechLevel
	tolerance := int64(maxDrift)
	if pause {
		tolerance = maxDriftInPause
	}
	at = min(at, t.start+maxEarly)
	t.moveBack(t.left.end + t.resamplerDelay() - at)
	off := at - t.left.end - t.resamplerDelay()
	switch {
	case off > tolerance:
		t.flushResampler()
		t.silenceStart, t.silenceEnd = t.left.end, max(at, t.start)
		t.left.end = t.silenceEnd
	case off < -tolerance && pause:
		return // the sender's clock is fast, and this sound is silence, so it is dropped
	}
	t.left.end = max(t.left.end, t.start) // too late for its place: append it
	if t.resampler != nil {
		pcm = t.resampler.Resample(pcm)
	}
	t.left.write(pcm, t.left.end, t.start, maxEarly)
}

// flushResampler ends a stretch of the caller's sound with the samples that the resampler still holds.
func (t *timeline) flushResampler() {
	if t.resampler != nil && t.left.end >= t.start {
		t.left.write(t.resampler.Flush(), t.left.end, t.start, maxEarly)
	}
}

// resamplerDelay returns how much of the caller's sound the resampler holds.
func (t *timeline) resamplerDelay() int64 {
	if t.resampler == nil {
		return 0
	}
	return t.resampler.Buffered()
}

// moveBack removes up to n samples of the silence before the caller's last words.
func (t *timeline) moveBack(n int64) {
	c := &t.left
	n = min(n, t.silenceEnd-max(t.silenceStart, t.start))
	if n <= 0 || c.end < t.silenceEnd || c.end-t.start > int64(len(c.pcm)) {
		return
	}
	from, to := t.silenceEnd-t.start, c.end-t.start
	copy(c.pcm[from-n:], c.pcm[from:to])
	clear(c.pcm[to-n : to])
	t.silenceEnd -= n
	c.end -= n
}

// nextFrame removes the first 20 ms and returns them interleaved.
func (t *timeline) nextFrame(frame *[2 * frameSamples]int16) {
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

// meanAmplitude returns the mean absolute sample.
func meanAmplitude(pcm []int16) int {
	if len(pcm) == 0 {
		return 0
	}
	sum := 0
	for _, x := range pcm {
		sum += max(int(x), -int(x))
	}
	return sum / len(pcm)
}
