// Package vad detects speech in silence and noise.
package vad

import (
	"math"
	"time"

	"voxgate/media"
)

// Levels are those of 16-bit samples. Zero input counts as -70 dBov. Sound below -50 dBov is not speech into a microphone:
// telephone speech averages -26 (ITU-T P.56 levels in ETSI ES 202 737).
const (
	quietFloor  = 10
	leastSpeech = 100
	// defaultOverFloor is the minimum level of speech above the noise floor: 9.5 dB.
	defaultOverFloor = 3
	// leastFrame is the shortest frame whose spectrum distinguishes noise from a voice.
	leastFrame = 5 * time.Millisecond
	// bandsOver is the share of the bands in which speech must exceed the noise floor by OverFloor. Fewer bands suffice if they exceed the
	// floor by more. All values without another source were found with the corpus of TestCorpus.
	bandsOver = 0.2
	// lowShare is the share of the required evidence that the bands below 450 Hz can contribute at most, so that hum alone is not speech.
	lowShare = 0.9
	// noiseFlat is the spectral flatness from which on a frame is noise. Steady noise has a flatness of 0.47 to 0.66 in 90 % of all frames
	// (0.56, exp of minus Euler's constant, in the mean). A click has nearly 1, and speech 0 to 0.25 in 75 % of its frames.
	noiseFlat = 0.42
	// longestHiss is the maximum duration of noise within speech: as long as an "s".
	longestHiss = 160 * time.Millisecond
	// steadyAfter is the maximum duration of an unchanging sound in speech: longer than any vowel, but shorter than the
	// noise of a fan.
	steadyAfter = 1500 * time.Millisecond
	// steadyChange is the maximum change of a steady sound: the difference of the bands from their mean, in nepers of power. Noise differs by
	// 0.53 to 0.67, speech by at least 1.3.
	steadyChange = 0.75
	// pureTone is the flatness below which a steady sound is a signal rather than noise, and counts as speech for longer. For comparison, a
	// loud hum with noise 33 dB below it has a flatness of 0.002.
	pureTone = 0.001
	// dcRate is the rate at which a DC offset is tracked, as a share of the difference in each frame. dcShare is the share of a frame's power
	// that must be DC for its offset to be taken over at once.
	dcRate  = 0.02
	dcShare = 0.9
	// loudBand is the ratio of a band's power to its floor that speech mostly reaches. Less may be a changing noise,
	// such as voices in the background.
	loudBand = 30
)

// The noise floor of a band follows its power. In each frame it moves by a share of the difference (floorRate), but it rises by no more
// than a factor (floorUp).
const (
	floorRate       = 0.08
	floorRateSpeech = 0.02
	floorUp         = 1.02 // per frame: takes 16 s for 70 dB
	floorUpNoise    = 2    // known noise is learnt at once
	floorUpBabble   = 1.05 // within speech, where the power is below that of speech
	floorUpSpeech   = 1.01 // within speech; its gaps bring the floor down again
)

// Detector distinguishes speech from silence and noise by its power in bands, each over a tracked noise floor, and by its spectral
// flatness. One Detector serves one stream; it must not be used concurrently.
//
// Measured by `go test -run TestCorpus -v ./media/vad` with ten voices of espeak-ng in seven languages and the clips of this
// project, at the level of a phone line, with an onset of 60 ms and a hangover of 240 ms. dB: speech over noise. Hit: share of the
// speech that was detected, in frames of 20 ms. False: share of the rest, beyond the hangover, detected as speech. Onset, end:
// delay of detection after the first and last frame of a sentence. Energy: hit and false of energy over one noise floor, without
// bands and flatness.
//
//	noise     dB   hit %  false %  onset ms  end ms  energy
//	none            97.4      0.0        67     235  98.1  0.0
//	white     20    95.6      0.0       100     207  95.2  4.9
//	white     10    93.0      0.0       115     184  79.8 14.1
//	white      5    87.6      0.0       135     152  25.8 14.1
//	pink      20    96.2      0.0        80     213  96.9  5.4
//	pink      10    91.3      0.0       131     176  88.4 14.1
//	pink       5    85.3      0.0       200     153  54.2 14.1
//	fan       20    97.0      0.0        80     216  96.9  5.8
//	fan       10    92.7      0.0       104     171  86.6 14.1
//	fan        5    85.8      0.0       196     148  57.8 14.1
//	hum       20    97.8      0.3        64     244  95.1  4.9
//	hum       10    97.6      0.0        69     242  78.7 14.1
//	hum        5    97.6      0.0        69     242  28.7 14.1
//	6 voices  20    97.8     43.5        47     268  99.3 62.8
//	6 voices  10    99.1     83.9        29     314  99.2 68.4
//	6 voices   5    99.2     91.1        20     400  99.1 72.5
//
// Voices in the background count as speech, unless they are far below the caller's. A DC offset does not. It costs 2.0 us for 20 ms
// at 16 kHz, and next to nothing in silence.
type Detector struct {
	// Onset is the amount of speech in a row that starts a talkspurt: short enough for "yes", too long for a click. Hangover is the amount of
	// silence that ends a talkspurt. Both are counted in whole frames.
	Onset, Hangover time.Duration

	// OverFloor is the minimum ratio of the level of speech to that of the noise floor; 0 means 3 (9.5 dB).
	OverFloor float64

	spectrum   spectrum
	dcOffset   float64        // the mean of the samples
	floor      [bands]float32 // power of the noise
	mean       [bands]float32 // mean of the power over 400 ms, in nepers
	change     float32        // difference of the bands from mean, smoothed over 400 ms
	steady     time.Duration  // how long the speech has not changed
	hiss       time.Duration  // how long noise over the floor has lasted
	loud       time.Duration  // newest frames of speech in a row
	quiet      time.Duration  // newest frames without speech in a row
	voiced     time.Duration
	isSpeaking bool
}

// ProcessFrame analyses the next frame and reports whether speech is in progress. The frame has 10 to 40 ms, of which at most 30 ms are
// used, at a rate of 8 kHz or more.
func (v *Detector) ProcessFrame(frame []int16, rate int) bool {
	d := media.Duration(len(frame), rate)
	if v.classifyFrame(frame, rate, d) {
		v.loud, v.quiet = v.loud+d, 0
		v.voiced += d
	} else {
		v.loud, v.quiet = 0, v.quiet+d
	}
	switch {
	case !v.isSpeaking && v.loud >= v.Onset && v.loud > 0:
		v.isSpeaking = true
		v.voiced = v.loud
	case v.isSpeaking && v.quiet >= v.Hangover:
		v.isSpeaking = false
	}
	return v.isSpeaking
}

// EndSpeech ends the current speech, if any. The learnt noise floors stay.
func (v *Detector) EndSpeech() { v.isSpeaking, v.loud, v.quiet = false, 0, 0 }

// VoicedDuration returns how much of the current or last speech was loud.
func (v *Detector) VoicedDuration() time.Duration { return v.voiced }

// SilenceDuration returns the silence since the last loud frame.
func (v *Detector) SilenceDuration() time.Duration { return v.quiet }

// classifyFrame reports whether a frame is speech, and learns the noise from it.
func (v *Detector) classifyFrame(frame []int16, rate int, d time.Duration) bool {
	level := v.levelWithoutDC(frame)
	if level < leastSpeech { // decides nearly all frames of a quiet room, without the cost of a spectrum
		v.hiss, v.steady = 0, 0
		for i := range v.floor { // no bin can have more power than the whole frame
			v.floor[i] = min(v.floor[i], float32(level*level)*bins)
		}
		return false
	}
	if len(frame) < media.Samples(leastFrame, rate) {
		return v.loud > 0 // the end of a clip: too short to judge
	}
	threshold := v.OverFloor
	if threshold == 0 {
		threshold = defaultOverFloor
	}
	for i := range v.floor {
		v.floor[i] = max(v.floor[i], quietFloor*quietFloor)
	}
	power, flatness := v.spectrum.analyze(frame, rate, float32(v.dcOffset), &v.floor)
	need := bandsOver * bands * evidence(float32(threshold*threshold))
	low, high := v.bandEvidence(power)
	speech, noise := min(low, lowShare*need)+high >= need, flatness >= noiseFlat
	if speech && noise {
		v.hiss += d
		speech = v.isSpeaking && v.hiss <= longestHiss
	} else {
		v.hiss = 0
	}
	if (speech || v.isSpeaking) && v.change < steadyChange && flatness > pureTone {
		v.steady += d
	} else {
		v.steady = 0
	}
	v.updateFloors(power, speech, noise)
	return speech
}

// levelWithoutDC returns the RMS of a frame without the DC offset that a cheap sound card adds, and tracks that offset. It does so slowly,
// because otherwise a rumble would count as DC, but at once if the frame has hardly anything except DC.
func (v *Detector) levelWithoutDC(frame []int16) float64 {
	if len(frame) == 0 {
		return 0
	}
	sum, squares := 0, 0
	for _, x := range frame {
		sum += int(x)
		squares += int(x) * int(x)
	}
	n := float64(len(frame))
	mean, square := float64(sum)/n, float64(squares)/n
	off := mean - v.dcOffset
	level := max(0, square-2*mean*v.dcOffset+v.dcOffset*v.dcOffset)
	if off*off > dcShare*level {
		v.dcOffset = mean
		return math.Sqrt(max(0, square-mean*mean))
	}
	v.dcOffset += off * dcRate
	return math.Sqrt(level)
}

// bandEvidence returns the evidence for speech in the low and in the other bands, and learns how much they change.
func (v *Detector) bandEvidence(power *[bands]float32) (low, high float32) {
	var change float32
	for i, p := range power {
		e := evidence(p / v.floor[i])
		if i < lowBands {
			low += e
		} else {
			high += e
		}
		c := float32(math.Log(float64(p + 1)))
		if v.mean[i] == 0 {
			v.mean[i] = c
		}
		c -= v.mean[i]
		v.mean[i] += c * 0.05
		change += max(c, -c)
	}
	v.change += (change/bands - v.change) * 0.05
	return low, high
}

// evidence returns the log likelihood ratio of speech in a band whose power is ratio times its noise: J. Sohn, N. S. Kim, W. Sung,
// "A statistical model-based voice activity detection", IEEE Signal Processing Letters 6(1), 1999. A band counts at most 30 dB.
func evidence(ratio float32) float32 {
	if ratio <= 1 {
		return 0
	}
	ratio = min(ratio, 1000)
	return ratio - 1 - float32(math.Log(float64(ratio)))
}

// updateFloors updates the noise floors from a frame.
func (v *Detector) updateFloors(power *[bands]float32, speech, noise bool) {
	steady := v.steady >= steadyAfter
	for i, p := range power {
		f := v.floor[i]
		rate, up := float32(floorRate), float32(floorUp)
		switch {
		case steady, noise && !speech:
			up = floorUpNoise
		case speech && p < loudBand*f:
			rate, up = floorRateSpeech, floorUpBabble
		case speech:
			rate, up = floorRateSpeech, floorUpSpeech
		}
		v.floor[i] = max(quietFloor*quietFloor, min(f*up, f+(p-f)*rate))
	}
}
