package media

import "time"

// The levels are those of 16-bit samples. Zero input is taken for -70 dBov, and what is below -50 dBov is no speech that is
// meant for a microphone: speech on a telephone averages -26 (ITU-T P.56 levels in ETSI ES 202 737).
const (
	quietFloor  = 10
	leastSpeech = 100
	// overFloor is how far above the noise floor speech begins unless a VAD says otherwise: 9.5 dB.
	overFloor = 3
)

// VAD tells speech from silence by its energy over a noise floor that it follows. It is made for one stream and not for
// concurrent use.
type VAD struct {
	// Onset is how much speech in a row begins one: short enough for "yes", long enough for no click. Hangover is how much
	// silence ends one. Both are counted in whole frames.
	Onset, Hangover time.Duration

	// OverFloor is how many times the level of the noise is speech; 0 is 3.
	OverFloor float64

	floor    float64
	loud     time.Duration // in a row
	quiet    time.Duration // in a row
	voiced   time.Duration
	speaking bool
}

// Hear takes the next 10 to 30 ms and reports whether somebody speaks now.
func (v *VAD) Hear(frame []int16, rate int) bool {
	d := durationOf(len(frame), rate)
	if v.judge(RMS(frame)) {
		v.loud, v.quiet = v.loud+d, 0
		v.voiced += d
	} else {
		v.loud, v.quiet = 0, v.quiet+d
	}
	switch {
	case !v.speaking && v.loud >= v.Onset && v.loud > 0:
		v.speaking = true
		v.voiced = v.loud
	case v.speaking && v.quiet >= v.Hangover:
		v.speaking = false
	}
	return v.speaking
}

// End ends the speech now, if there is one. What was learnt of the noise stays.
func (v *VAD) End() { v.speaking, v.loud, v.quiet = false, 0, 0 }

// Voiced is how much of the present or last speech was loud.
func (v *VAD) Voiced() time.Duration { return v.voiced }

// Quiet is how much silence was heard since the last loud frame.
func (v *VAD) Quiet() time.Duration { return v.quiet }

// judge reports whether a level is speech, and follows the noise floor: down at once, up by two thirds in a second of
// frames of 20 ms. It goes up during speech as well, more slowly, so that steady noise ends as speech after some ten
// seconds; the gaps of real speech bring it down again.
func (v *VAD) judge(level float64) bool {
	v.floor = max(v.floor, quietFloor)
	switch {
	case level < v.floor:
		v.floor = max(level, quietFloor)
	case v.speaking || v.loud > 0:
		v.floor *= 1.005
	default:
		v.floor = min(v.floor*1.01, max(level, quietFloor))
	}
	over := v.OverFloor
	if over == 0 {
		over = overFloor
	}
	return level >= max(leastSpeech, v.floor*over)
}
