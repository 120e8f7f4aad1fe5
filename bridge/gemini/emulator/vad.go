package emulator

import (
	"time"

	"voxgate/bridge/gemini/emulator/live"
	"voxgate/media"
	"voxgate/media/vad"
)

const (
	frameTime = 20 * time.Millisecond

	// speechOnset is the default amount of speech that starts a turn. The word "yes" is longer, and a click is shorter.
	speechOnset = 60 * time.Millisecond

	// longSilence is the silence in ms after which models of version 3.8 end a turn. In recordings they end it after
	// 500 to 1,400 ms.
	longSilence = 800

	// preRoll is the length of audio before the detected start that counts as part of the speech. Words begin softly,
	// so the detector triggers late.
	preRoll = 300 * time.Millisecond

	// longestSpeech limits the length of a user turn, in case background noise is detected as speech. It also limits
	// the echo of the turn.
	longestSpeech = 60 * time.Second
)

// speechDetector detects speech. In each frame of 20 ms, it compares the energy with the noise floor. Like Google's
// detector, it measures time by the amount of audio, not by a clock.
type speechDetector struct {
	rate     int
	detector vad.Detector
	rest     []int16 // audio that does not fill a frame yet
	buffer   []int16 // the current speech, or in silence the last preRoll of audio
	speaking bool
	offset   time.Duration // position in the session's audio
}

// newSpeechDetector returns a detector with the client's settings, for audio at rate Hz. offset is the position in the
// session's audio of the first sample that the detector gets.
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

// samplesIn returns the number of samples in d.
func (s *speechDetector) samplesIn(d time.Duration) int { return media.Samples(d, s.rate) }

// processAudio analyses audio. It calls onStart when speech starts, and onEnd when speech ends. The speech that onEnd
// receives does not include the silence after it. onEnd may keep the slice.
func (s *speechDetector) processAudio(pcm []int16, onStart func(), onEnd func(speech []int16)) {
	s.rest = append(s.rest, pcm...)
	n := s.samplesIn(frameTime)
	for len(s.rest) >= n {
		frame := s.rest[:n]
		s.rest = s.rest[n:]
		s.offset += frameTime
		s.buffer = append(s.buffer, frame...)
		switch speaks := s.detector.ProcessFrame(frame, s.rate); {
		case !s.speaking && speaks:
			s.speaking = true
			onStart()
		case !s.speaking:
			if keep := s.samplesIn(preRoll + s.detector.Onset); len(s.buffer) > keep {
				s.buffer = append(s.buffer[:0], s.buffer[len(s.buffer)-keep:]...)
			}
		case !speaks, len(s.buffer) >= s.samplesIn(longestSpeech):
			s.endSpeech(onEnd)
		}
	}
}

// endSpeech ends the current speech, if any. It is called when the client has announced that its audio pauses.
func (s *speechDetector) endSpeech(onEnd func(speech []int16)) {
	if !s.speaking {
		return
	}
	decay := s.samplesIn(100 * time.Millisecond) // of the last word
	tail := min(s.samplesIn(s.detector.SilenceDuration()), len(s.buffer)) - decay
	speech := s.buffer[:len(s.buffer)-max(tail, 0)]
	s.buffer, s.speaking = nil, false
	s.detector.EndSpeech()
	onEnd(speech)
}
