package speech

import (
	"math"
	"slices"
	"time"
)

// This file finds what was said in what was heard, in blocks of 20 ms. A block counts only where its own wave is found: what
// a decoder makes up for a lost packet is mostly not like what was said.

const (
	// Likeness is the least correlation of a block's wave with what was heard in its place, 1/√2: half of the energy is what
	// was said. Without losses every block passes by the low-delay encoder, 99.5 % by a browser's; of the blocks that a
	// decoder makes up for lost packets four in ten do (TestJudge).
	Likeness = 0.707

	// quietest is the least level of what was heard, compared with what was said: -10 dB.
	quietest = 0.316

	// earliest and Latest are when a block can be heard after it was spoken.
	earliest, Latest = -20 * time.Millisecond, 1200 * time.Millisecond

	// groupFrames is how many blocks share their place in the search: long enough that a vowel is not taken for its
	// neighbour, short enough to follow a jitter buffer. They are looked at with as many around them.
	groupFrames = 5

	// voicedShare is the least level of a block that counts, compared with the speech as a whole: -10 dB.
	voicedShare = 0.316

	coarse = 4   // samples: the step of the search, 0.25 ms
	sure   = 0.7 // correlation of a group above which no other place is looked for

	// Cutoff is the frequency in Hz above which waves are not kept by a codec, but their energy.
	Cutoff = 1800

	taps     = 49
	emphasis = 0.9 // takes weight from the fundamental, which makes neighbouring periods alike
)

// Verdict is what became of a voiced block.
type Verdict struct {
	Spoken  time.Time // its frame began
	Present bool
	Delay   time.Duration // until its end was heard, if it was
	begun   time.Duration // that of the first sample of its recital, voiced or not
}

// Judge looks for recitals of a speech in a recording, and says what became of each block of 20 ms that is voiced.
func Judge(s *Speech, recitals []Recital, heard []Piece) []Verdict {
	m := newMatcher(s, heard)
	var all []Verdict
	for _, r := range recitals {
		all = append(all, m.recital(r)...)
	}
	return all
}

// Play makes of the times at which the blocks came those at which they are played: in their order, by a player that begins
// with the first packet, which comes up to 20 ms before its time, and does not speed up before a pause.
func Play(recitals []Recital, all []Verdict) {
	var last time.Duration
	for i := range all {
		v := &all[i]
		for len(recitals) > 0 && !v.Spoken.Before(recitals[0].At) {
			recitals, last = recitals[1:], 0
		}
		if v.Present {
			last = max(last, v.Delay, v.begun+frame)
			v.Delay = last
		}
	}
}

// Recital is a part of the speech that was said without a break.
type Recital struct {
	At       time.Time // the first frame was spoken
	From, To int       // frames; the last one is not in it
}

type matcher struct {
	said   [2][]float32 // filtered: as it was spoken, and as it sounds at 32 kb/s
	heard  []float32    // filtered
	pieces []Piece
	ends   []int // of the pieces, in heard
	voiced []bool
	lag    int // of the last group that was found: place in heard minus the one expected by time
}

func newMatcher(s *Speech, heard []Piece) *matcher {
	m := &matcher{said: [2][]float32{filtered(s.pcm), filtered(s.low)}, pieces: heard}
	var pcm []int16
	for _, p := range heard {
		pcm = append(pcm, p.pcm...)
		m.ends = append(m.ends, len(pcm))
	}
	m.heard = filtered(pcm)
	whole := level(m.said[0])
	for i := range s.Frames() {
		m.voiced = append(m.voiced, level(block(m.said[0], i, 1)) >= voicedShare*whole)
	}
	return m
}

// block is a number of frames.
func block(wave []float32, i, n int) []float32 {
	size := FrameSamples(ModelRate)
	return wave[max(0, i*size):min(len(wave), (i+n)*size)]
}

// recital judges what was said at once.
func (m *matcher) recital(r Recital) []Verdict {
	var places []int // where the speech as a whole began in heard, by what each group says
	for i := r.From; i < r.To; i += groupFrames {
		places = append(places, m.place(r, i-groupFrames/2))
	}
	var begun time.Duration
	if first := places[0] + r.From*FrameSamples(ModelRate); places[0] != nowhere && first >= 0 {
		begun = m.pieces[m.piece(first)].at.Sub(r.At)
	}
	var all []Verdict
	for i := r.From; i < r.To; i++ {
		if !m.voiced[i] {
			continue
		}
		v := Verdict{Spoken: r.spoken(i), begun: begun}
		group := (i - r.From) / groupFrames
		for _, begin := range places[max(0, group-1):min(len(places), group+2)] {
			if begin != nowhere {
				m.look(&v, i, begin+i*FrameSamples(ModelRate))
			}
		}
		all = append(all, v)
	}
	return all
}

// End is when the last frame was spoken.
func (r Recital) End() time.Time { return r.spoken(r.To) }

func (r Recital) spoken(i int) time.Time { return r.At.Add(time.Duration(i-r.From) * frame) }

// look looks for frame i at a sample and near it.
func (m *matcher) look(v *Verdict, i, at int) {
	for fine := -coarse; fine <= coarse; fine++ {
		end, ok := m.like(i, at+fine)
		if !ok {
			continue
		}
		delay := m.pieces[m.piece(end-1)].at.Sub(v.Spoken)
		if delay >= earliest && delay <= Latest && (!v.Present || delay < v.Delay) {
			v.Present, v.Delay = true, delay
		}
	}
}

const nowhere = math.MinInt

// place finds where the speech begins in heard, by what is said in the group from frame i on.
func (m *matcher) place(r Recital, i int) int {
	i = max(i, r.From)
	wave := block(m.said[0], i, min(2*groupFrames, r.To-i))
	offset, spoken := i*FrameSamples(ModelRate), r.spoken(i)
	from := m.since(spoken.Add(earliest))
	to := m.since(spoken.Add(Latest+2*groupFrames*frame)) - len(wave)
	if level(wave) == 0 {
		return nowhere
	}
	if near := from + m.lag; near >= from && near+coarse < to {
		for fine := -coarse; fine <= coarse; fine += coarse {
			if j := near + fine; j >= 0 && alike(wave, m.heard[j:j+len(wave)], coarse) >= sure {
				m.lag = j - from
				return j - offset
			}
		}
	}
	best, found := 0.5, nowhere // less is chance
	for j := from; j < to; j += coarse {
		if a := alike(wave, m.heard[j:j+len(wave)], coarse); a > best {
			best, found = a, j
		}
	}
	if found == nowhere {
		return nowhere
	}
	m.lag = found - from
	return found - offset
}

// since is the first sample that was heard at a time or later.
func (m *matcher) since(t time.Time) int {
	i, _ := slices.BinarySearchFunc(m.pieces, t, func(p Piece, t time.Time) int { return p.at.Compare(t) })
	if i == 0 {
		return 0
	}
	return m.ends[i-1]
}

// piece is the one with a sample.
func (m *matcher) piece(sample int) int {
	i, _ := slices.BinarySearch(m.ends, sample+1)
	return i
}

// like tells whether frame i was heard at a sample, and where that ends.
func (m *matcher) like(i, at int) (end int, ok bool) {
	end = at + FrameSamples(ModelRate)
	if at < 0 || end > len(m.heard) {
		return 0, false
	}
	got := m.heard[at:end]
	for _, said := range m.said {
		wave := block(said, i, 1)
		ok = ok || alike(wave, got, 1) >= Likeness && level(got) >= quietest*level(wave)
	}
	return end, ok
}

// alike is the normalized correlation of two waves of one length, of every n-th sample.
//
//go:norace // nobody else has them, and a hundred million looks at a sample take the detector 20 s
func alike(a, b []float32, n int) float64 {
	var ab, aa, bb float32
	for i := 0; i < len(a); i += n {
		ab += a[i] * b[i]
		aa += a[i] * a[i]
		bb += b[i] * b[i]
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return float64(ab) / math.Sqrt(float64(aa)*float64(bb))
}

func level(wave []float32) float64 {
	var sum float64
	for _, x := range wave {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum / float64(max(1, len(wave))))
}

// filtered leaves what a codec keeps the wave of, the lowest tones weighing less. The delay of the filter is taken out.
//
//go:norace // as alike
func filtered(pcm []int16) []float32 {
	var h [taps]float64 // sinc under a Hann window
	for i := range h {
		t := float64(i - taps/2)
		h[i] = 2 * Cutoff / float64(ModelRate)
		if t != 0 {
			h[i] = math.Sin(2*math.Pi*Cutoff/ModelRate*t) / (math.Pi * t)
		}
		h[i] *= 0.5 - 0.5*math.Cos(2*math.Pi*float64(i+1)/(taps+1))
	}
	var k [taps + 1]float32 // with the emphasis, in one
	for i := range k {
		var x float64
		if i < taps {
			x = h[i]
		}
		if i > 0 {
			x -= emphasis * h[i-1]
		}
		k[i] = float32(x)
	}
	out := make([]float32, len(pcm))
	for i := range out {
		var sum float32
		for j, c := range k {
			if at := i + taps/2 - j; at >= 0 && at < len(pcm) {
				sum += c * float32(pcm[at])
			}
		}
		out[i] = sum
	}
	return out
}
