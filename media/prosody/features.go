package prosody

// FeatureCount is the number of inputs of the model.
const FeatureCount = 32

// shortestGap is the length of the shortest gap between two phrases, in frames. The silence before a "t" is shorter.
const shortestGap = 15

// features computes the inputs of the model from the contours. Levels and pitches are relative to the speaker's mean, so
// that neither the microphone nor the speaker's sex has an influence.
func (a *analysis) features() (f [FeatureCount]float32) {
	if a.last < 0 {
		return f
	}
	end := a.last + 1
	a.addRhythm(f[:7])
	a.addLevels(f[7:15], end)
	a.addVoicing(f[15:21], end)
	a.addPitch(f[21:], end)
	return f
}

// addRhythm adds lengths of phrases and syllables, in seconds.
func (a *analysis) addRhythm(f []float32) {
	gap, gaps, phrase, speech := 0, 0, a.first, 0
	syllables, lateSyllables, peak := 0, 0, a.first
	for i := a.first; i <= a.last; i++ {
		if !a.isSpeech[i] {
			gap++
			continue
		}
		if gap >= shortestGap {
			gaps++
			phrase = i
		}
		gap = 0
		speech++
		if a.isPeak(i) {
			syllables++
			peak = i
			if i > a.last-100 {
				lateSyllables++
			}
		}
	}
	f[0] = float32(speech) / 100
	f[1] = float32(a.last+1-phrase) / 100
	f[2] = float32(min(gaps, 4))
	f[3] = float32(syllables) / float32(speech+20) * 100
	f[4] = float32(lateSyllables)/float32(min(100, speech)+20)*100 - f[3]
	f[5] = min(0.6, float32(a.last-peak)/100) // from the peak of the last syllable to its end
	f[6] = min(1, f[1])
}

// isPeak reports whether a frame is the loudest of 130 ms.
func (a *analysis) isPeak(i int) bool {
	for k := max(a.first, i-6); k <= min(a.last, i+6); k++ {
		if a.level[k] > a.level[i] || a.level[k] == a.level[i] && k < i {
			return false
		}
	}
	return a.pitch[i] > 0
}

// addLevels stores in f the loudness (dB) and the treble of the last frames before end, relative to their means over
// the whole speech.
func (a *analysis) addLevels(f []float32, end int) {
	level, treble := a.meanOfSpeech(a.level[:], a.first, end), a.meanOfSpeech(a.treble[:], a.first, end)
	f[0] = a.meanOfSpeech(a.level[:], end-10, end) - level
	f[1] = a.meanOfSpeech(a.level[:], end-25, end) - level
	f[2] = a.meanOfSpeech(a.level[:], end-60, end) - level
	f[3] = a.meanOfSpeech(a.level[:], end-5, end) - a.meanOfSpeech(a.level[:], end-15, end-5)
	f[4] = a.slopeOfSpeech(a.level[:], end-30, end)
	f[5] = a.slopeOfSpeech(a.level[:], end-100, end) * 3
	f[6] = a.meanOfSpeech(a.treble[:], end-10, end) - treble
	f[7] = a.meanOfSpeech(a.treble[:], end-30, end) - treble
}

// addVoicing stores in f how much of the speech is voiced, overall and in the last 300 ms before end. It also stores
// the length of the last voiced part, how long before end that part ended, and how clear the voice is at the end.
func (a *analysis) addVoicing(f []float32, end int) {
	runs, voiced, length, lastLength, lastEnd := 0, 0, 0, 0, a.first
	for i := a.first; i <= end; i++ {
		if i < end && a.pitch[i] > 0 {
			voiced++
			length++
			continue
		}
		if length >= 3 {
			runs++
			lastLength, lastEnd = length, i
		}
		length = 0
	}
	mean := float32(voiced) / float32(max(1, runs))
	f[0] = min(1, float32(lastLength)/100)
	f[1] = min(3, float32(lastLength)/(mean+1))
	f[2] = a.voicedShare(end-30, end)
	f[3] = float32(voiced) / float32(end-a.first)
	f[4] = min(0.5, float32(end-lastEnd)/100)
	f[5] = a.meanOfSpeech(a.clarity[:], end-20, end) - a.meanOfSpeech(a.clarity[:], a.first, end)
}

// addPitch stores in f features of the pitch before end, in semitones relative to the median pitch.
func (a *analysis) addPitch(f []float32, end int) {
	var voiced [maxFrames]float32
	n := 0
	for _, p := range a.pitch[a.first:end] {
		if p > 0 {
			voiced[n] = p
			n++
		}
	}
	if n < 5 {
		return
	}
	median := a.percentile(voiced[:n], 0.5)
	low, high := a.percentile(voiced[:n], 0.1), a.percentile(voiced[:n], 0.9)
	recent := func(count int) (mean, lowest, highest float32) { // pitch of the newest voiced frames
		values := voiced[max(0, n-count):n]
		lowest, highest = values[0], values[0]
		for _, v := range values {
			mean += v
			lowest, highest = min(lowest, v), max(highest, v)
		}
		return mean / float32(len(values)), lowest, highest
	}
	final, _, _ := recent(6)
	late, lowest, _ := recent(20)
	wide, _, highest := recent(50)
	f[0] = clamp(final-median, 12)
	f[1] = clamp(late-median, 12)
	f[2] = clamp(wide-median, 12)
	f[3] = clamp(lowest-low, 12)
	f[4] = clamp(high-low, 16)
	f[5] = clamp((final-low)/(high-low+1), 2)
	f[6] = clamp(highest-median, 12)
	f[7] = clamp(final-late, 8)
	f[8] = clamp(a.slopeOfSpeech(a.pitch[:], end-40, end), 12)
	f[9] = clamp(a.slopeOfSpeech(a.pitch[:], end-120, end)*3, 12)
	f[10] = clamp(max(0, final-median), 8)
}

func clamp(x, bound float32) float32 { return max(-bound, min(bound, x)) }

func (a *analysis) voicedShare(from, to int) float32 {
	from = max(a.first, from)
	n := 0
	for _, p := range a.pitch[from:to] {
		if p > 0 {
			n++
		}
	}
	return float32(n) / float32(max(1, to-from))
}

// meanOfSpeech returns the mean of the values of frames that are speech.
func (a *analysis) meanOfSpeech(values []float32, from, to int) float32 {
	var sum, n float32
	for i := max(a.first, from); i < to; i++ {
		if a.isSpeech[i] {
			sum += values[i]
			n++
		}
	}
	return sum / max(1, n)
}

// slopeOfSpeech fits a line through the values of frames that are speech, and returns its rise over 300 ms. It ignores
// values of 0.
func (a *analysis) slopeOfSpeech(values []float32, from, to int) float32 {
	var n, x, y, xx, xy float32
	for i := max(a.first, from); i < to; i++ {
		if a.isSpeech[i] && values[i] != 0 {
			t := float32(i-to) / 30
			n++
			x += t
			y += values[i]
			xx += t * t
			xy += t * values[i]
		}
	}
	spread := n*xx - x*x
	if n < 4 || spread < 1e-3 {
		return 0
	}
	return (n*xy - x*y) / spread
}
