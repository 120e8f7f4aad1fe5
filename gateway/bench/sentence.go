package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"voxgate/media"
	"voxgate/media/mediatest"
)

// A sentence is four loud bursts with pauses too short to end it. Each burst of a conversation has a pitch of its own, and
// the model says back what it hears: so the answer tells which sentence it belongs to, what of it is missing and what came
// twice.
const (
	sentences      = 3 // of a conversation
	bursts         = 4 // of a sentence
	burstLength    = 300 * time.Millisecond
	burstEvery     = 400 * time.Millisecond
	sentenceLength = (bursts-1)*burstEvery + burstLength

	lowestPitch = 600 // Hz: above the gateway's soft tone
	pitchStep   = 100 // two bins of a Fourier transform over 20 ms
	softPitch   = 440 // of the gateway's soft tone

	// Levels: a burst is spoken at an RMS of 8500 and said back like that; the soft tone has 700 at its loudest.
	burstPeak  = 12000
	leastBurst = 2000
	leastSoft  = 100
	mostSoft   = 1500

	// purity is the least share of a frame's energy at one pitch for it to be a tone. Inside a burst it is above 0.95.
	purity = 0.7

	// leastRun is how many frames in a row make a burst: single ones occur in what somebody says.
	leastRun = 3

	// mostLead is how much of what was heard before a sentence the model says back with it, at most. There is less of it
	// when the sentence is among the first that a link brings, and no wait should look shorter for that.
	mostLead = 400 * time.Millisecond
)

// What a packet may hold beside burst number 0 and more.
const (
	softTone = -1 - iota
	words    // loud, and neither a burst nor the tone
	quiet
)

// sound is a packet that came, and what it holds.
type sound struct {
	at   time.Time
	what int
}

// speakFrame writes a frame that begins somewhere in a sentence. What is not spoken is a quiet room; so is all of a sentence
// below 0.
func speakFrame(pcm []int16, sentence int, at time.Duration) {
	const fade = 5 * time.Millisecond // against clicks
	burst, into := int(at/burstEvery), at%burstEvery
	pitch := lowestPitch + pitchStep*float64(sentence*bursts+burst)
	for i := range pcm {
		pcm[i] = int16(rand.IntN(61) - 30)
		if t := into + media.Duration(i, micRate); sentence >= 0 && burst < bursts && t < burstLength {
			level := min(1, float64(t)/float64(fade), float64(burstLength-t)/float64(fade))
			pcm[i] = int16(burstPeak * level * math.Sin(2*math.Pi*pitch*t.Seconds()))
		}
	}
}

// recognize says what a frame is that was heard.
func recognize(pcm []int16) int {
	level := media.RMS(pcm)
	switch {
	case level < leastSoft:
		return quiet
	case level < mostSoft && mediatest.ToneLevel(pcm, voiceRate, softPitch) >= purity:
		return softTone
	case level < leastBurst && !loud(pcm):
		return quiet
	case level < leastBurst:
		return words
	}
	for burst := range sentences * bursts {
		if mediatest.ToneLevel(pcm, voiceRate, lowestPitch+pitchStep*float64(burst)) >= purity {
			return burst
		}
	}
	return words
}

// answer is what was heard of the answer to a sentence.
type answer struct {
	began, over time.Time // of its first packet, and of the last one with a burst; zero if nothing was heard
	frames      int       // of bursts
	silence     time.Duration
	twice       bool // something was heard again
	last        bool // its last burst was heard
}

// find looks for the answer to a sentence: runs of its bursts.
func find(sounds []sound, sentence int) (a answer) {
	run, furthest := 0, -1
	var count [bursts]int
	for i, s := range sounds {
		if i > 0 && sounds[i-1].what == s.what && s.at.Sub(sounds[i-1].at) < burstEvery-burstLength {
			run++
		} else {
			run = 1
		}
		burst := s.what - sentence*bursts
		if burst < 0 || burst >= bursts || run < leastRun {
			continue
		}
		first, frames := s.at, 1
		if run == leastRun { // it turns out to be one
			first, frames = sounds[i-leastRun+1].at, leastRun
			a.twice = a.twice || burst < furthest
		}
		if a.began.IsZero() {
			a.began = beginning(sounds[:i], first)
		} else {
			a.silence = max(a.silence, first.Sub(a.over))
		}
		furthest, a.over = max(furthest, burst), s.at
		a.frames += frames
		count[burst] += frames
		a.last = a.last || burst == bursts-1
	}
	const spare = 4 // frames with the fading and the codec's echo of a burst
	a.twice = a.twice || slices.Max(count[:]) > int(burstLength/frame)+spare
	return a
}

// beginning is when the first packet of an answer came whose first burst came at a time.
func beginning(before []sound, first time.Time) time.Time {
	began := first
	for _, s := range slices.Backward(before) {
		switch {
		case !s.at.Before(first):
		case s.what == softTone, s.what >= 0, began.Sub(s.at) > 3*frame, first.Sub(s.at) > mostLead:
			return began
		default:
			began = s.at
		}
	}
	return began
}
