package record

import "voxgate/media"

// Lengths on the timeline are in samples.
const (
	// writeDelay is the delay with which sound is written to the file. A client receives the voice up to 200 ms before
	// it plays it. An interruption must be able to remove from the recording the sound that was not played. The delay
	// of any usable network is also shorter than writeDelay.
	writeDelay = rate

	// maxDrift limits how far the caller's sound may be from its true time: 100 ms. Sound that is further away is
	// moved.
	maxDrift = rate / 10
	// maxDriftInPause replaces maxDrift while the caller pauses, because moving sound is inaudible then.
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

// writeAt writes pcm at position, over any other sound there. It drops the part before timelineStart, which is encoded
// already. If pcm ends more than maxAhead after timelineStart, it drops all of pcm.
func (c *channel) writeAt(pcm []int16, position, timelineStart, maxAhead int64) {
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

// silenceModelFrom silences the model's channel from position on.
func (t *timeline) silenceModelFrom(position int64) {
	c := &t.right
	position = max(position, t.start)
	if from := position - t.start; from < int64(len(c.pcm)) {
		clear(c.pcm[from:])
		for i := range min(int64(fadeSamples), from) {
			c.pcm[from-1-i] = int16(int64(c.pcm[from-1-i]) * i / fadeSamples)
		}
	}
	c.end = min(c.end, position)
}

// addCallerSound puts pcm directly after the caller's earlier sound, or at its time of arrival if the two places are
// far apart.
//
// After a gap it is not known whether the caller paused or the network was late. addCallerSound first assumes a pause
// and places the sound at its time of arrival. If more sound than real time then arrives, the network was late, and the
// sound since the gap is moved back. No sound arrives before it is spoken, so moving back is always in the right
// direction.
func (t *timeline) addCallerSound(pcm []int16, fromRate int, arrivedAt int64) {
	if t.inputRate != fromRate {
		t.flushResampler()
		t.resampler, t.inputRate = nil, fromRate
		if fromRate != rate {
			t.resampler = media.NewResampler(fromRate, rate)
		}
	}
	pause := meanAmplitude(pcm) < speechLevel
	tolerance := int64(maxDrift)
	if pause {
		tolerance = maxDriftInPause
	}
	arrivedAt = min(arrivedAt, t.start+maxEarly)
	t.moveSpeechBack(t.left.end + t.resamplerDelay() - arrivedAt)
	off := arrivedAt - t.left.end - t.resamplerDelay()
	switch {
	case off > tolerance:
		t.flushResampler()
		t.silenceStart, t.silenceEnd = t.left.end, max(arrivedAt, t.start)
		t.left.end = t.silenceEnd
	case off < -tolerance && pause:
		return // the sender's clock is fast, and this sound is silence, so it is dropped
	}
	t.left.end = max(t.left.end, t.start) // too late for its place: append it
	if t.resampler != nil {
		pcm = t.resampler.Resample(pcm)
	}
	t.left.writeAt(pcm, t.left.end, t.start, maxEarly)
}

// flushResampler appends the samples that the resampler still holds. It ends a stretch of the caller's sound.
func (t *timeline) flushResampler() {
	if t.resampler != nil && t.left.end >= t.start {
		t.left.writeAt(t.resampler.Flush(), t.left.end, t.start, maxEarly)
	}
}

// resamplerDelay returns how much of the caller's sound the resampler holds.
func (t *timeline) resamplerDelay() int64 {
	if t.resampler == nil {
		return 0
	}
	return t.resampler.BufferedSamples()
}

// moveSpeechBack removes up to n samples of the silence before the caller's last words.
func (t *timeline) moveSpeechBack(n int64) {
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

// takeFrame removes the first 20 ms and returns them interleaved.
func (t *timeline) takeFrame(frame *[2 * frameSamples]int16) {
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
