package emulator

import (
	"time"

	"voxgate/media"
)

// vadOptions is automaticActivityDetection.
type vadOptions struct {
	Disabled                 bool
	StartOfSpeechSensitivity string
	EndOfSpeechSensitivity   string
	PrefixPaddingMs          *int // what was heard of speech before its start is committed
	SilenceDurationMs        *int // what was heard of silence before its end is committed
}

const (
	frameMs = 20

	// onset is how much speech starts a turn by default: short enough for "yes", long enough for no click.
	onset = 60 * time.Millisecond

	// preRoll is how much audio before the start belongs to the speech: the beginning of a word is below the threshold.
	preRoll = 300 * time.Millisecond

	// quietFloor (-70 dBov) stands for digital silence, and leastSpeech (-50 dBov) is below any microphone that is
	// spoken into: speech on a telephone averages -26.
	quietFloor  = 10
	leastSpeech = 100

	// longestSpeech ends a turn that background noise keeps open, and bounds what is said back.
	longestSpeech = 60 * time.Second
)

// vad finds speech by its energy over the noise floor, per 20 ms. Its clock is the audio itself, as Google's is: without
// input nothing happens.
type vad struct {
	rate    int
	factor  float64 // of the noise floor that is speech
	start   int     // frames of it that start a speech
	silence int     // frames without it that end one

	floor    float64
	rest     []int16 // less than a frame
	heard    []int16 // the speech, or the last preRoll
	loud     int     // frames in a row
	quiet    int
	speaking bool
	offset   time.Duration // of the session's audio
}

func newVAD(o vadOptions, rate int) *vad {
	v := &vad{rate: rate, factor: 3, floor: quietFloor}
	if o.StartOfSpeechSensitivity == "START_SENSITIVITY_LOW" {
		v.factor = 6
	}
	start, silence := onset, 500*time.Millisecond
	if o.EndOfSpeechSensitivity == "END_SENSITIVITY_LOW" {
		silence = 800 * time.Millisecond
	}
	if o.PrefixPaddingMs != nil {
		start = time.Duration(*o.PrefixPaddingMs) * time.Millisecond
	}
	if o.SilenceDurationMs != nil {
		silence = time.Duration(*o.SilenceDurationMs) * time.Millisecond
	}
	v.start = max(1, int(start.Milliseconds()/frameMs))
	v.silence = max(1, int(silence.Milliseconds()/frameMs))
	return v
}

// samples returns how many samples d lasts.
func (v *vad) samples(d time.Duration) int { return int(int64(d) * int64(v.rate) / int64(time.Second)) }

// frame is the length of 20 ms.
func (v *vad) frame() int { return v.rate * frameMs / 1000 }

// hear takes a piece of audio, and calls began and ended as speech does; ended gets the speech without the silence
// behind it, and may keep it.
func (v *vad) hear(pcm []int16, began func(), ended func(speech []int16)) {
	v.rest = append(v.rest, pcm...)
	n := v.frame()
	for len(v.rest) >= n {
		frame := v.rest[:n]
		v.rest = v.rest[n:]
		v.offset += frameMs * time.Millisecond
		v.heard = append(v.heard, frame...)
		if v.judge(media.RMS(frame)) {
			v.loud, v.quiet = v.loud+1, 0
		} else {
			v.loud, v.quiet = 0, v.quiet+1
		}
		switch {
		case !v.speaking && v.loud >= v.start:
			v.speaking = true
			began()
		case !v.speaking:
			if keep := v.samples(preRoll) + v.start*n; len(v.heard) > keep {
				v.heard = append(v.heard[:0], v.heard[len(v.heard)-keep:]...)
			}
		case v.quiet >= v.silence, len(v.heard) >= v.samples(longestSpeech):
			v.end(ended)
		}
	}
}

// judge reports whether a level is speech, and follows the noise floor: down at once, up by two thirds in a second. It
// goes up during speech as well, more slowly, so that steady noise ends as a turn after some ten seconds; the gaps of
// real speech bring it down again.
func (v *vad) judge(level float64) bool {
	switch {
	case level < v.floor:
		v.floor = max(level, quietFloor)
	case v.speaking || v.loud > 0:
		v.floor *= 1.005
	default:
		v.floor = min(v.floor*1.01, max(level, quietFloor))
	}
	return level >= max(leastSpeech, v.floor*v.factor)
}

// end ends a speech now, if there is one: the client has said that its audio pauses.
func (v *vad) end(ended func(speech []int16)) {
	if !v.speaking {
		return
	}
	tail := min(v.quiet*v.frame(), len(v.heard)) - v.samples(100*time.Millisecond) // the fall of the last word stays
	speech := v.heard[:len(v.heard)-max(tail, 0)]
	v.heard, v.speaking, v.loud, v.quiet = nil, false, 0, 0
	ended(speech)
}
