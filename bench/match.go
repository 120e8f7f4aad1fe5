package main

import (
	"math"
	"slices"
	"time"

	"voxgate/media"
)

// This file finds the speech in what was heard, in blocks of 20 ms. A block counts only where its own wave is found: what a decoder makes
// up for a lost packet is mostly not like what was said.

const (
	// likeness is the least correlation of a block's wave with what was heard in its place, 1/√2: half of the energy is what
	// was said. Without losses every block passes, of those that a decoder makes up for lost packets four in ten do (TestJudge).
	likeness = 0.707
	// least10dB is a level 10 dB below another: the least of what was heard against what was said, and of a block that counts
	// as voiced against the speech as a whole.
	least10dB = 0.316

	// earliest and latest are when a block can be heard after it was spoken.
	earliest, latest = -20 * time.Millisecond, 1200 * time.Millisecond

	// groupFrames is how many blocks share their place in the search: long enough that a vowel is not taken for its
	// neighbour, short enough to follow a jitter buffer. They are looked at with as many around them.
	groupFrames = 5
	coarse      = 4   // samples: the step of the search, 0.25 ms
	sure        = 0.7 // correlation of a group above which no other place is looked for
	chance      = 0.5 // correlation that may be chance

	// cutoff is the frequency in Hz above which a codec does not keep waves, but their energy.
	cutoff = 1500
)

// utterance is a part of the speech that was said without a break.
type utterance struct {
	at       time.Time // the first frame was spoken
	from, to int       // frames; the last one is not in it
}

func (r utterance) spoken(frameNumber int) time.Time {
	return r.at.Add(time.Duration(frameNumber-r.from) * frame)
}

// verdict is what became of a voiced block.
type verdict struct {
	spoken  time.Time // its frame began
	present bool
	delay   time.Duration // until its end was heard, if it was
	begun   time.Duration // delay of the first sample of its utterance, voiced or not
}

// matcher finds a speech in what was heard.
type matcher struct {
	reference []float64   // filtered
	voiced    []bool      // of the blocks of the speech
	heard     []float64   // filtered
	at        []time.Time // of each sample of heard
	latest    time.Duration
	lag       int // of the last group that was found: its place in heard minus the one expected by time
}

var block = media.Samples(frame, modelRate)

// judge looks for utterances of a speech in what was heard, and says what became of each block of 20 ms that is voiced.
func judge(s *reference, utterances []utterance, heard []piece) (all []verdict) {
	return judgeWithin(s, utterances, heard, latest)
}

// judgeWithin is judge with another limit for what is late.
func judgeWithin(s *reference, utterances []utterance, heard []piece, latest time.Duration) (all []verdict) {
	m := &matcher{reference: filtered(s.pcm), latest: latest}
	var pcm []int16
	for _, p := range heard {
		pcm = append(pcm, p.pcm...)
		m.at = append(m.at, slices.Repeat([]time.Time{p.at}, len(p.pcm))...)
	}
	m.heard = filtered(pcm)
	whole := level(m.reference)
	for wave := range slices.Chunk(m.reference, block) {
		m.voiced = append(m.voiced, level(wave) >= least10dB*whole)
	}
	for _, r := range utterances {
		all = append(all, m.utterance(r)...)
	}
	return all
}

// utterance judges what was said at once.
func (m *matcher) utterance(r utterance) (all []verdict) {
	var origins []int // of frame 0 in heard, by what each group says; negative and far: it was not found
	for i := r.from; i < r.to; i += groupFrames {
		origins = append(origins, m.origin(r, max(r.from, i-groupFrames/2)))
	}
	var begun time.Duration
	if first := origins[0] + r.from*block; first >= 0 {
		begun = m.at[first].Sub(r.at)
	}
	for i := r.from; i < r.to; i++ {
		if !m.voiced[i] {
			continue
		}
		v := verdict{spoken: r.spoken(i), begun: begun}
		group := (i - r.from) / groupFrames
		for _, origin := range origins[max(0, group-1):min(len(origins), group+2)] {
			for at := origin + i*block - coarse; at <= origin+i*block+coarse; at++ {
				if !m.like(i, at) {
					continue
				}
				if delay := m.at[at+block-1].Sub(v.spoken); delay >= earliest && delay <= m.latest && (!v.present || delay < v.delay) {
					v.present, v.delay = true, delay
				}
			}
		}
		all = append(all, v)
	}
	return all
}

// origin finds where in heard the speech would begin, by the frames from i on.
func (m *matcher) origin(r utterance, i int) int {
	const nowhere = math.MinInt32
	wave := m.reference[i*block : min(i+2*groupFrames, r.to)*block]
	from := m.since(r.spoken(i).Add(earliest))
	to := min(m.since(r.spoken(i).Add(m.latest+2*groupFrames*frame)), len(m.heard)) - len(wave)
	if near := from + m.lag; near-coarse >= from && near+coarse < to {
		for at := near - coarse; at <= near+coarse; at += coarse {
			if alike(wave, m.heard[at:], coarse) >= sure {
				m.lag = at - from
				return at - i*block
			}
		}
	}
	best, found := chance, nowhere
	for at := from; at < to; at += coarse {
		if a := alike(wave, m.heard[at:], coarse); a > best {
			best, found = a, at
		}
	}
	if found == nowhere {
		return nowhere
	}
	m.lag = found - from
	return found - i*block
}

// since is the first sample that was heard at a time or later.
func (m *matcher) since(t time.Time) int {
	i, _ := slices.BinarySearchFunc(m.at, t, time.Time.Compare)
	return i
}

// like reports whether frame i was heard at a sample.
func (m *matcher) like(i, at int) bool {
	if at < 0 || at+block > len(m.heard) {
		return false
	}
	heard, said := m.heard[at:at+block], m.reference[i*block:(i+1)*block]
	return alike(said, heard, 1) >= likeness && level(heard) >= least10dB*level(said)
}

// alike is the normalized correlation of a wave with the beginning of another, of every n-th sample.
//
//go:norace // nobody else has them, and a hundred million looks at a sample take the detector 20 s
func alike(a, b []float64, n int) float64 {
	var ab, aa, bb float64
	for i := 0; i < len(a); i += n {
		ab += a[i] * b[i]
		aa += a[i] * a[i]
		bb += b[i] * b[i]
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

func level(wave []float64) float64 {
	var sum float64
	for _, x := range wave {
		sum += x * x
	}
	return math.Sqrt(sum / float64(max(1, len(wave))))
}

// filtered leaves what a codec keeps the wave of: below cutoff, by a windowed sinc whose delay is taken out. A pre-emphasis
// takes weight from the fundamental, which makes neighbouring periods alike.
//
//go:norace // as alike
func filtered(pcm []int16) []float64 {
	const (
		taps     = 49
		emphasis = 0.9
	)
	var sinc [taps + 1]float64
	for i := range taps {
		x := 2. * cutoff / modelRate * float64(i-taps/2)
		sinc[i] = 2. * cutoff / modelRate * (0.5 - 0.5*math.Cos(2*math.Pi*float64(i+1)/(taps+1))) // Hann
		if x != 0 {
			sinc[i] *= math.Sin(math.Pi*x) / (math.Pi * x)
		}
	}
	out := make([]float64, len(pcm))
	for i := range out {
		for j := range sinc {
			if at := i + taps/2 - j; at >= 0 && at < len(pcm) {
				weight := sinc[j]
				if j > 0 {
					weight -= emphasis * sinc[j-1]
				}
				out[i] += weight * float64(pcm[at])
			}
		}
	}
	return out
}

// play makes of the times at which the blocks came those at which they are played: in their order, by a player that begins
// with the first packet, which comes up to 20 ms before its time, and does not speed up before a pause.
func play(utterances []utterance, all []verdict) {
	var last time.Duration
	for i := range all {
		v := &all[i]
		for len(utterances) > 0 && !v.spoken.Before(utterances[0].at) {
			utterances, last = utterances[1:], 0
		}
		if v.present {
			last = max(last, v.delay, v.begun+frame)
			v.delay = last
		}
	}
}
