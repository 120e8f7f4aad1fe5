package emulator

import (
	"time"

	"voxgate/bridge/gemini/emulator/live"
	"voxgate/media"
	"voxgate/media/vad"
)

const (
	frameTime = 20 * time.Millisecond

	// speechOnset is how much speech starts a turn by default: short enough for "yes", long enough for no click.
	speechOnset = 60 * time.Millisecond

	// longSilence is the silence in ms by which models of version 3.8 end a turn: between 500 and 1,400 were recorded.
	longSilence = 800

	// preRoll is how much audio before the start belongs to the speech: the beginning of a word is below the threshold.
	preRoll = 300 * time.Millisecond

	// longestSpeech ends a turn that background noise keeps open, and bounds what is said back.
	longestSpeech = 60 * time.Second
)

// speechDetector finds speech by its energy over the noise floor, per 20 ms. Its clock is the audio itself, as Google's is: without
// input nothing happens.
type speechDetector struct {
	rate     int
	detector vad.Detector
	rest     []int16 // less than a frame
	heard    []int16 // of the speech that is under way, else the last preRoll
	speaking bool
	offset   time.Duration // of the session's audio
}

// newSpeechDetector returns a detector as a client has asked for it, for audio at rate Hz that begins at offset of the session's.
func newSpeechDetector(o live.ActivityDetection, rate int, offset time.Duration) *speechDetector {
	v := &speechDetector{rate: rate, offset: offset, detector: vad.Detector{Onset: speechOnset, Hangover: 500 * time.Millisecond}}
	if o.StartOfSpeechSensitivity == "START_SENSITIVITY_LOW" {
		v.detector.OverFloor = 6
	}
	if o.EndOfSpeechSensitivity == "END_SENSITIVITY_LOW" {
		v.detector.Hangover = 800 * time.Millisecond
	}
	if o.PrefixPaddingMs != nil {
		v.detector.Onset = time.Duration(*o.PrefixPaddingMs) * time.Millisecond
	}
	if o.SilenceDurationMs != nil {
		v.detector.Hangover = time.Duration(*o.SilenceDurationMs) * time.Millisecond
	}
	v.detector.Onset = max(v.detector.Onset.Truncate(frameTime), frameTime)
	v.detector.Hangover = max(v.detector.Hangover.Truncate(frameTime), frameTime)
	return v
}

// samples returns how many samples d lasts.
func (v *speechDetector) samples(d time.Duration) int { return media.Samples(d, v.rate) }

// hear takes a piece of audio, and calls began and ended as speech does; ended gets the speech without the silence
// behind it, and may keep it.
func (v *speechDetector) hear(pcm []int16, began func(), ended func(speech []int16)) {
	v.rest = append(v.rest, pcm...)
	n := v.samples(frameTime)
	for len(v.rest) >= n {
		frame := v.rest[:n]
		v.rest = v.rest[n:]
		v.offset += frameTime
		v.heard = append(v.heard, frame...)
		switch speaks := v.detector.ProcessFrame(frame, v.rate); {
		case !v.speaking && speaks:
			v.speaking = true
			began()
		case !v.speaking:
			if keep := v.samples(preRoll + v.detector.Onset); len(v.heard) > keep {
				v.heard = append(v.heard[:0], v.heard[len(v.heard)-keep:]...)
			}
		case !speaks, len(v.heard) >= v.samples(longestSpeech):
			v.end(ended)
		}
	}
}

// end ends a speech now, if there is one: the client has said that its audio pauses.
func (v *speechDetector) end(ended func(speech []int16)) {
	if !v.speaking {
		return
	}
	tail := min(v.samples(v.detector.SilenceDuration()), len(v.heard)) - v.samples(100*time.Millisecond) // the fall of the last word stays
	speech := v.heard[:len(v.heard)-max(tail, 0)]
	v.heard, v.speaking = nil, false
	v.detector.EndSpeech()
	ended(speech)
}
