package main

import (
	"math"
	"slices"
	"time"

	"voxgate/media"
)

// This file finds the speech in received audio, in blocks of 20 ms. A block counts as received only if its waveform is
// found. Concealed sound is mostly not counted, because its waveform differs.

const (
	// likeness is the minimum correlation of a block with the received audio. At 1/√2, they share half of the energy.
	// All blocks pass if no packet is lost, and four in ten concealed blocks pass (TestJudgeSpeech).
	likeness = 0.707
	// least10dB is -10 dB as an amplitude factor. Received audio must have at least this level relative to the speech.
	// A block of the speech counts as voiced if it has at least this level relative to the whole speech.
	least10dB = 0.316

	// earliest and latest limit the delay of a block.
	earliest, latest = -20 * time.Millisecond, 1200 * time.Millisecond

	// groupFrames is the number of blocks that the matcher searches for together. It could confuse a smaller group with
	// the next one. With a larger group, it could not follow the changing delay of a jitter buffer. The searched
	// waveform also includes some neighbouring blocks.
	groupFrames = 5
	coarse      = 4   // step of the search in samples: 0.25 ms
	sure        = 0.7 // correlation of a group above which the search ends early
	chance      = 0.5 // correlation that may be accidental

	// cutoff is the frequency in Hz above which a codec keeps only the energy, not the waveform.
	cutoff = 1500
)

// utterance is a part of the speech that was spoken without a break.
type utterance struct {
	at       time.Time // start of the first frame
	from, to int       // frame numbers; the frame `to` is excluded
}

func (u utterance) frameTime(frameNumber int) time.Time {
	return u.at.Add(time.Duration(frameNumber-u.from) * frame)
}

// verdict is the result for a voiced block.
type verdict struct {
	spokenAt   time.Time // start of its frame
	present    bool
	delay      time.Duration // from the start of its frame to the arrival of its end, if present
	startDelay time.Duration // delay of the first sample of its utterance, voiced or not
}

// matcher finds a speech in received audio.
type matcher struct {
	reference []float64   // the speech after lowPass
	voiced    []bool      // whether each block of the speech is voiced
	received  []float64   // received audio after lowPass
	at        []time.Time // arrival time of each sample of received
	latest    time.Duration
	lag       int // position of the last found group in received, minus the earliest expected position
}

var block = media.Samples(frame, modelRate)

// judgeSpeech searches for utterances of a speech in received audio, and returns a verdict on each voiced block of 20 ms.
func judgeSpeech(s *reference, utterances []utterance, received []piece) (all []verdict) {
	return judgeSpeechWithin(s, utterances, received, latest)
}

// judgeSpeechWithin is like [judgeSpeech], but with another maximum delay.
func judgeSpeechWithin(s *reference, utterances []utterance, received []piece, latest time.Duration) (all []verdict) {
	m := &matcher{reference: lowPass(s.pcm), latest: latest}
	var pcm []int16
	for _, p := range received {
		pcm = append(pcm, p.pcm...)
		m.at = append(m.at, slices.Repeat([]time.Time{p.at}, len(p.pcm))...)
	}
	m.received = lowPass(pcm)
	whole := rmsLevel(m.reference)
	for wave := range slices.Chunk(m.reference, block) {
		m.voiced = append(m.voiced, rmsLevel(wave) >= least10dB*whole)
	}
	for _, r := range utterances {
		all = append(all, m.judgeUtterance(r)...)
	}
	return all
}

// judgeUtterance returns the verdicts on one utterance.
func (m *matcher) judgeUtterance(r utterance) (all []verdict) {
	var origins []int // for each group: the position of frame 0 in received, or nowhere
	for i := r.from; i < r.to; i += groupFrames {
		origins = append(origins, m.findSpeechStart(r, max(r.from, i-groupFrames/2)))
	}
	var startDelay time.Duration
	if first := origins[0] + r.from*block; first >= 0 {
		startDelay = m.at[first].Sub(r.at)
	}
	for i := r.from; i < r.to; i++ {
		if !m.voiced[i] {
			continue
		}
		v := verdict{spokenAt: r.frameTime(i), startDelay: startDelay}
		group := (i - r.from) / groupFrames
		for _, origin := range origins[max(0, group-1):min(len(origins), group+2)] {
			for at := origin + i*block - coarse; at <= origin+i*block+coarse; at++ {
				if !m.isReceivedAt(i, at) {
					continue
				}
				if delay := m.at[at+block-1].Sub(v.spokenAt); delay >= earliest && delay <= m.latest && (!v.present || delay < v.delay) {
					v.present, v.delay = true, delay
				}
			}
		}
		all = append(all, v)
	}
	return all
}

// nowhere is the position of frames that were not received. It is far below 0, so that no offset makes it an index.
const nowhere = math.MinInt32

// findSpeechStart searches m.received for the frames of the utterance from frame i on. From their position it
// calculates the position of frame 0 in m.received, and returns it. If it does not find the frames, it returns nowhere.
// It keeps the lag as a hint for the next search.
func (m *matcher) findSpeechStart(r utterance, i int) (start int) {
	wave := m.reference[i*block : min(i+2*groupFrames, r.to)*block]
	from := m.indexAt(r.frameTime(i).Add(earliest))
	to := min(m.indexAt(r.frameTime(i).Add(m.latest+2*groupFrames*frame)), len(m.received)) - len(wave)
	if near := from + m.lag; near-coarse >= from && near+coarse < to {
		for at := near - coarse; at <= near+coarse; at += coarse {
			if correlation(wave, m.received[at:], coarse) >= sure {
				m.lag = at - from
				return at - i*block
			}
		}
	}
	best, found := chance, nowhere
	for at := from; at < to; at += coarse {
		if a := correlation(wave, m.received[at:], coarse); a > best {
			best, found = a, at
		}
	}
	if found == nowhere {
		return nowhere
	}
	m.lag = found - from
	return found - i*block
}

// indexAt returns the index of the first sample that was received at a time or later.
func (m *matcher) indexAt(t time.Time) int {
	i, _ := slices.BinarySearchFunc(m.at, t, time.Time.Compare)
	return i
}

// isReceivedAt reports whether frame i is found at this index of the received samples.
func (m *matcher) isReceivedAt(i, at int) bool {
	if at < 0 || at+block > len(m.received) {
		return false
	}
	received, original := m.received[at:at+block], m.reference[i*block:(i+1)*block]
	return correlation(original, received, 1) >= likeness && rmsLevel(received) >= least10dB*rmsLevel(original)
}

// correlation returns the normalized correlation of a with the beginning of b. It uses only every n-th sample.
//
//go:norace // the slices are not shared, and the detector would take 20 s for a hundred million reads
func correlation(a, b []float64, n int) float64 {
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

func rmsLevel(wave []float64) float64 {
	var sum float64
	for _, x := range wave {
		sum += x * x
	}
	return math.Sqrt(sum / float64(max(1, len(wave))))
}

// lowPass returns the part of the signal below cutoff, because a codec keeps the waveform of that part. It compensates
// the delay of its filter. A pre-emphasis weakens the fundamental frequency, because a strong one makes neighbouring
// periods look alike.
//
//go:norace // as correlation
func lowPass(pcm []int16) []float64 {
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

// applyPlayout replaces the arrival times of blocks by the times at which a player would play them. This player keeps
// the order of blocks, begins with the first packet, and does not speed up before a pause.
func applyPlayout(utterances []utterance, all []verdict) {
	var last time.Duration
	for i := range all {
		v := &all[i]
		for len(utterances) > 0 && !v.spokenAt.Before(utterances[0].at) {
			utterances, last = utterances[1:], 0
		}
		if v.present {
			last = max(last, v.delay, v.startDelay+frame)
			v.delay = last
		}
	}
}
