package turns

import (
	"math"
	"time"
)

// All of these are numbers of frames.
const (
	minDelayFrames = int(100 * time.Millisecond / FrameLength)
	maxDelayFrames = int(500 * time.Millisecond / FrameLength)

	echoWindow     = 60 // maximum of frames that are compared
	minEchoFrames  = 15 // minimum of frames that are compared, at the beginning of an answer
	echoRing       = 128
	delayDrift     = 2
	certainMatches = 15

	// echoCorrelation is the minimum correlation between an echo and the played sound. In TestEchoOfSpeech this value
	// detects 98 % of the frames of an echo, and 3 % of those of another voice.
	echoCorrelation = 0.8
	// echoFloor is the lowest level that is compared, in dBov. Below it there is only noise.
	echoFloor = -60.0
	// loudOverFloor is the minimum level of a loud frame above echoFloor, in dB.
	loudOverFloor = 10
)

// Echo detects whether the microphone picks up the played sound, as on devices without echo cancellation. It compares
// levels, so distortion does not matter. The zero value is ready for use.
//
// If both sides begin within half a second of each other, their levels look alike at first, because both were quiet
// before. So until the delay is known, only frames after both have begun are compared.
type Echo struct {
	played, picked [echoRing]float64
	frames         int
	from           int  // number of the first loud frame of the answer
	silence        int  // number of frames since an answer was loud
	pickedFrom     int  // number of the first loud frame that the microphone picks up
	quiet          int  // number of frames since the microphone picked up a loud one
	delay, matches int  // the delay found last, in frames, and how often it was found in a row
	isKnown        bool // the delay is certain
}

// AddFrame adds the levels of the next 20 ms, in dBov. isSounding means that an answer is being played. If isCompared
// is true, isEcho reports whether the last 1.2 s of the microphone are an echo. Echoes with a delay of 100 to 500 ms
// are detected.
func (e *Echo) AddFrame(playLevel, micLevel float64, isSounding, isCompared bool) (isEcho bool) {
	i := e.frames % echoRing
	e.played[i], e.picked[i] = max(playLevel, echoFloor), max(micLevel, echoFloor)
	if !isSounding || e.played[i] < echoFloor+loudOverFloor {
		e.silence++
	} else {
		if e.silence >= maxDelayFrames {
			e.from = e.frames
		}
		e.silence = 0
	}
	if e.picked[i] < echoFloor+loudOverFloor {
		e.quiet++
	} else {
		if e.quiet >= minDelayFrames {
			e.pickedFrom = e.frames
		}
		e.quiet = 0
	}
	e.frames++
	if !isCompared {
		return false
	}
	low, high, all := minDelayFrames, maxDelayFrames, 0
	if e.isKnown {
		low, high, all = max(low, e.delay-delayDrift), min(high, e.delay+delayDrift), echoWindow
	}
	best, bestDelay := 0.0, 0
	for delay := low; delay <= high; delay++ {
		n := min(max(min(e.frames-e.from-delay, e.frames-e.pickedFrom), all), e.frames-delay, echoWindow)
		if n < minEchoFrames {
			continue
		}
		if r := e.correlate(n, delay); r > best {
			best, bestDelay = r, delay
		}
	}
	if best < echoCorrelation {
		if !e.isKnown {
			e.matches = 0
		}
		return false
	}
	if e.matches > 0 && max(bestDelay-e.delay, e.delay-bestDelay) > delayDrift {
		e.matches = 0
	}
	e.delay, e.matches = bestDelay, e.matches+1
	e.isKnown = e.isKnown || e.matches >= certainMatches
	return true
}

// correlate returns the correlation of the microphone's last n levels with the levels that were played delay frames
// earlier. If the levels of either side are steady, it returns 0.
func (e *Echo) correlate(n, delay int) float64 {
	var x, y, xx, yy, xy float64
	for k := 1; k <= n; k++ {
		a, b := e.picked[(e.frames-k)%echoRing], e.played[(e.frames-k-delay)%echoRing]
		x, y, xx, yy, xy = x+a, y+b, xx+a*a, yy+b*b, xy+a*b
	}
	count := float64(n)
	varX, varY := xx-x*x/count, yy-y*y/count
	if least := 9 * count; varX < least || varY < least { // the standard deviation is below 3 dB
		return 0
	}
	return (xy - x*y/count) / math.Sqrt(varX*varY)
}
