package fault

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/gateway/bench/peer"
	"voxgate/gateway/bench/speech"
	"voxgate/media"
	"voxgate/media/opus"
)

// A sentence is four loud bursts with pauses too short to end it. Each burst of a conversation has a pitch of its own, and
// the model says back what it hears: so the answer tells which sentence it belongs to, what of it is missing and what came
// twice.
const (
	bursts         = 4
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

// sounds other than burst number 0 and more.
const (
	softTone = -1 - iota
	words    // loud, and neither a burst nor the tone
	quiet
)

// sound is a packet that came.
type sound struct {
	at   time.Time
	what int
}

// speakFrame writes frame i of a sentence, and reports false when it is over. What is not spoken is a quiet room.
func speakFrame(pcm []int16, sentence, i int) bool {
	const fade = 5 * time.Millisecond // against clicks
	at := time.Duration(i) * frame
	burst, into := int(at/burstEvery), at%burstEvery
	speaking := burst < bursts && into < burstLength
	pitch := lowestPitch + pitchStep*float64(sentence*bursts+burst)
	for j := range pcm {
		pcm[j] = int16(rand.IntN(61) - 30)
		if !speaking {
			continue
		}
		t := into + time.Duration(j)*time.Second/speech.MicRate
		level := min(1, float64(t)/float64(fade), float64(burstLength-t)/float64(fade))
		pcm[j] = int16(burstPeak * level * math.Sin(2*math.Pi*pitch*t.Seconds()))
	}
	return at < sentenceLength-frame
}

// recognize says what a frame is that the ear has.
func recognize(pcm []int16) int {
	level := media.RMS(pcm)
	switch {
	case level < leastSoft:
		return quiet
	case level < mostSoft && share(pcm, softPitch) >= purity:
		return softTone
	case level < leastBurst && !speech.Loud(pcm):
		return quiet
	case level < leastBurst:
		return words
	}
	for burst := range sentences * bursts {
		if share(pcm, lowestPitch+pitchStep*float64(burst)) >= purity {
			return burst
		}
	}
	return words
}

// share is how much of the energy is at a pitch, from 0 to 1 (Goertzel).
func share(pcm []int16, pitch float64) float64 {
	c := 2 * math.Cos(2*math.Pi*pitch/speech.EarRate)
	var s1, s2, energy float64
	for _, v := range pcm {
		x := float64(v)
		s1, s2 = x+c*s1-s2, s1
		energy += x * x
	}
	return 2 * (s1*s1 + s2*s2 - c*s1*s2) / (energy * float64(len(pcm)))
}

// record is all that a person hears and is told in a conversation, over all its calls.
type record struct {
	mu     sync.Mutex
	sounds []sound
	told   []told
}

// told is a message of the gateway.
type told struct {
	at time.Time
	peer.Message
}

// listener returns what takes the packets of a call.
func (r *record) listener() (func(time.Time, *rtp.Packet), error) {
	decoder, err := opus.NewDecoder(speech.EarRate, "")
	if err != nil {
		return nil, err
	}
	pcm := make([]int16, speech.EarRate*120/1000)
	return func(at time.Time, p *rtp.Packet) {
		if len(p.Payload) == 0 {
			return
		}
		n, err := decoder.Decode(p.Payload, pcm)
		if err != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sounds = append(r.sounds, sound{at, recognize(pcm[:n])})
	}, nil
}

// heard are the sounds since a time.
func (r *record) heard(since time.Time) []sound {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.sounds, func(s sound) bool { return s.at.After(since) })
	if i < 0 {
		return nil
	}
	return slices.Clone(r.sounds[i:])
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
func find(sounds []sound, sentence int) answer {
	var a answer
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
		first := s.at
		ran := 1
		if run == leastRun { // the run turns out to be one
			first, ran = sounds[i-leastRun+1].at, leastRun
			a.twice = a.twice || burst < furthest
		}
		if a.began.IsZero() {
			a.began = beginning(sounds[:i], first)
		} else {
			a.silence = max(a.silence, first.Sub(a.over))
		}
		furthest = max(furthest, burst)
		a.over = s.at
		a.frames += ran
		count[burst] += ran
		a.last = a.last || burst == bursts-1
	}
	const spare = 4 // frames with the fading and the codec's echo of a burst
	for _, n := range count {
		a.twice = a.twice || n > int(burstLength/frame)+spare
	}
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
