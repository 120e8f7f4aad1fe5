// Package vad detects speech in silence and noise.
package vad

import (
	"math"
	"time"

	"voxgate/media"
)

// Levels are the RMS of 16-bit samples. quietFloor, the lowest noise floor, is -70 dBov. Sound below leastSpeech, -50
// dBov, is not speech into a microphone, because telephone speech averages -26 dBov (ITU-T P.56 levels in ETSI ES 202
// 737).
const (
	quietFloor  = 10
	leastSpeech = 100
	// defaultOverFloor is the minimum ratio of the level of speech to the noise floor: 3, which is 9.5 dB.
	defaultOverFloor = 3
	// leastFrame is the shortest frame whose spectrum distinguishes noise from a voice.
	leastFrame = 5 * time.Millisecond
	// bandsOver is the share of the bands in which speech must exceed the noise floor by OverFloor. This value and
	// those below that name no source were found with TestCorpus.
	bandsOver = 0.2
	// lowShare is the maximum share of the required evidence that the bands below 450 Hz may contribute. Without this
	// limit, hum alone would be speech.
	lowShare = 0.9
	// noiseFlat is the minimum spectral flatness of noise. Steady noise has 0.47 to 0.66 in 90 % of its frames. A click
	// has nearly 1, and speech at most 0.25 in 75 % of its frames.
	noiseFlat = 0.42
	// longestHiss is the maximum duration of noise that counts as part of speech. An "s" is not longer.
	longestHiss = 160 * time.Millisecond
	// steadyAfter is the time after which a sound that does not change no longer counts as speech. Vowels are shorter,
	// a fan's noise is longer.
	steadyAfter = 1500 * time.Millisecond
	// steadyChange limits, in nepers of power, how far the bands of a steady sound may be from their mean. For noise
	// the difference is 0.53 to 0.67, for speech at least 1.3.
	steadyChange = 0.75
	// pureTone is the flatness below which a steady sound is a signal tone, which counts as speech for longer. A loud
	// hum has a flatness of 0.002 with noise 33 dB below it.
	pureTone = 0.001
	dcRate   = 0.02 // factor with which dcOffset approaches the mean of each frame
	dcShare  = 0.9  // share of DC in a frame's power above which dcOffset becomes the frame's mean at once
	// loudBand is the ratio of a band's power to its noise floor that speech exceeds in most frames. A lower ratio may
	// come from voices in the background.
	loudBand = 30
)

// The noise floor of a band follows the band's power. In each frame the floor moves towards the power by the share
// floorRate of their difference. It rises at most by the factor floorUp.
const (
	floorRate       = 0.08
	floorRateSpeech = 0.02
	floorUp         = 1.02 // outside of speech: rises by 70 dB in 16 s
	floorUpNoise    = 2    // in noise, by flatness or steadiness, which is learnt at once
	floorUpBabble   = 1.05 // within speech, in bands below loudBand
	floorUpSpeech   = 1.01 // within speech, in other bands; the gaps in speech bring the floor down again
)

// Detector distinguishes speech from silence and noise. It compares the power in each band with a tracked noise floor,
// and measures the spectral flatness. One Detector serves one stream. It must not be used concurrently.
//
// Measured by `go test -run TestCorpus -v ./media/vad` with ten voices of espeak-ng in seven languages and the clips of
// this project. The level is that of a phone line, with an onset of 60 ms and a hangover of 240 ms. The columns:
//
//   - dB: speech over noise
//   - hit: share of the speech that was detected, in frames of 20 ms
//   - false: share of the rest, beyond the hangover, detected as speech
//   - onset, end: delay of detection after the first and last frame of a sentence
//   - energy: hit and false of a detector that only compares the energy with one noise floor
//
// The table:
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
// Voices in the background count as speech, unless they are far below the caller's level. A DC offset does not count as
// speech. Analysing a frame of 20 ms at 16 kHz takes 2.0 us, and a silent frame almost no time.
type Detector struct {
	// Onset is the duration of uninterrupted speech that starts a talkspurt: short enough for "yes", too long for a
	// click. Hangover is the duration of silence that ends it. Both are counted in whole frames.
	Onset, Hangover time.Duration

	// OverFloor is the minimum ratio of the level of speech to the noise floor; 0 means 3 (9.5 dB).
	OverFloor float64

	spectrum   spectrum
	dcOffset   float64        // tracked mean of the samples
	floor      [bands]float32 // tracked power of the noise in each band
	mean       [bands]float32 // mean of the power over 400 ms, in nepers
	change     float32        // difference of the bands from mean, smoothed over 400 ms
	steady     time.Duration  // duration of speech without change; see steadyAfter
	hiss       time.Duration  // duration of flat noise within speech; see longestHiss
	loud       time.Duration  // duration of the speech in progress; 0 without speech
	quiet      time.Duration  // duration of the silence in progress; 0 during speech
	voiced     time.Duration
	isSpeaking bool
}

// ProcessFrame analyses the next frame and reports whether speech is in progress. A frame lasts 10 to 40 ms, of which
// at most 30 ms are used. rate is at least 8 kHz.
func (det *Detector) ProcessFrame(frame []int16, rate int) (isSpeaking bool) {
	d := media.Duration(len(frame), rate)
	if det.classifyFrame(frame, rate, d) {
		det.loud, det.quiet = det.loud+d, 0
		det.voiced += d
	} else {
		det.loud, det.quiet = 0, det.quiet+d
	}
	switch {
	case !det.isSpeaking && det.loud >= det.Onset && det.loud > 0:
		det.isSpeaking = true
		det.voiced = det.loud
	case det.isSpeaking && det.quiet >= det.Hangover:
		det.isSpeaking = false
	}
	return det.isSpeaking
}

// EndSpeech ends the current speech, if any. The learnt noise floors stay.
func (det *Detector) EndSpeech() { det.isSpeaking, det.loud, det.quiet = false, 0, 0 }

// VoicedDuration returns how much of the current or last speech was loud.
func (det *Detector) VoicedDuration() time.Duration { return det.voiced }

// SilenceDuration returns the silence since the last loud frame.
func (det *Detector) SilenceDuration() time.Duration { return det.quiet }

// classifyFrame reports whether a frame is speech, and updates the noise floors.
func (det *Detector) classifyFrame(frame []int16, rate int, d time.Duration) (isSpeech bool) {
	level := det.levelWithoutDC(frame)
	if level < leastSpeech { // decides nearly all frames of a quiet room, without the cost of a spectrum
		det.hiss, det.steady = 0, 0
		for i := range det.floor { // a band has at most the power of the whole frame
			det.floor[i] = min(det.floor[i], float32(level*level)*bins)
		}
		return false
	}
	if len(frame) < media.Samples(leastFrame, rate) {
		return det.loud > 0 // the end of a clip: too short to judge
	}
	threshold := det.OverFloor
	if threshold == 0 {
		threshold = defaultOverFloor
	}
	for i := range det.floor {
		det.floor[i] = max(det.floor[i], quietFloor*quietFloor)
	}
	power, flatness := det.spectrum.analyze(frame, rate, float32(det.dcOffset), &det.floor)
	need := bandsOver * bands * speechEvidence(float32(threshold*threshold))
	low, high := det.bandEvidence(power)
	speech, noise := min(low, lowShare*need)+high >= need, flatness >= noiseFlat
	if speech && noise {
		det.hiss += d
		speech = det.isSpeaking && det.hiss <= longestHiss
	} else {
		det.hiss = 0
	}
	if (speech || det.isSpeaking) && det.change < steadyChange && flatness > pureTone {
		det.steady += d
	} else {
		det.steady = 0
	}
	det.updateFloors(power, speech, noise)
	return speech
}

// levelWithoutDC returns the RMS of a frame without the DC offset of a cheap sound card, and tracks that offset.
func (det *Detector) levelWithoutDC(frame []int16) float64 {
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
	off := mean - det.dcOffset
	level := max(0, square-2*mean*det.dcOffset+det.dcOffset*det.dcOffset)
	// Almost all power is DC, so the offset becomes the mean at once.
	if off*off > dcShare*level {
		det.dcOffset = mean
		return math.Sqrt(max(0, square-mean*mean))
	}
	// Otherwise the offset moves slowly, so that a rumble does not count as DC.
	det.dcOffset += off * dcRate
	return math.Sqrt(level)
}

// bandEvidence returns the sum of the evidence for speech in the bands below lowBands, and in the other bands. It also
// updates det.change, which measures how much the bands change.
func (det *Detector) bandEvidence(power *[bands]float32) (low, high float32) {
	var change float32
	for i, p := range power {
		e := speechEvidence(p / det.floor[i])
		if i < lowBands {
			low += e
		} else {
			high += e
		}
		c := float32(math.Log(float64(p + 1)))
		if det.mean[i] == 0 {
			det.mean[i] = c
		}
		c -= det.mean[i]
		det.mean[i] += c * 0.05
		change += max(c, -c)
	}
	det.change += (change/bands - det.change) * 0.05
	return low, high
}

// speechEvidence returns the log likelihood ratio of speech in a band whose power is ratio times its noise: J. Sohn, N.
// S. Kim, W. Sung, "A statistical model-based voice activity detection", IEEE Signal Processing Letters 6(1), 1999.
// ratio is limited to 30 dB.
func speechEvidence(ratio float32) float32 {
	if ratio <= 1 {
		return 0
	}
	ratio = min(ratio, 1000)
	return ratio - 1 - float32(math.Log(float64(ratio)))
}

// updateFloors updates the noise floors from a frame.
func (det *Detector) updateFloors(power *[bands]float32, isSpeech, isNoise bool) {
	steady := det.steady >= steadyAfter
	for i, p := range power {
		f := det.floor[i]
		rate, up := float32(floorRate), float32(floorUp)
		switch {
		case steady, isNoise && !isSpeech:
			up = floorUpNoise
		case isSpeech && p < loudBand*f:
			rate, up = floorRateSpeech, floorUpBabble
		case isSpeech:
			rate, up = floorRateSpeech, floorUpSpeech
		}
		det.floor[i] = max(quietFloor*quietFloor, min(f*up, f+(p-f)*rate))
	}
}
