package prosody_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"voxgate/media/prosody"
)

// TestPredict compares predictions for synthetic voices with stored predictions, which depend only on the coefficients.
func TestPredict(t *testing.T) {
	for _, test := range []struct {
		name      string
		seconds   float64
		quiet     int // in units of 10 ms
		semitones float64
		want      float32
	}{
		{"fall", 4, 20, -6, 0.848},
		{"level", 4, 20, 0, 0.466},
		{"rise", 4, 20, 6, 0.223},
		{"short", 1, 20, -6, 0.095},
	} {
		pcm := voice(test.seconds, test.quiet, test.semitones)
		got := prosody.Predict(pcm)
		if math.Abs(float64(got-test.want)) > 0.01 {
			t.Errorf("%s: %.3f, want %.3f", test.name, got, test.want)
		}
		for i := range pcm {
			pcm[i] /= 2
		}
		if soft := prosody.Predict(pcm); math.Abs(float64(got-soft)) > 0.05 {
			t.Errorf("%s: %.3f at half the amplitude, %.3f before", test.name, soft, got)
		}
	}
}

// TestFeatures measures the pitch of synthetic voices. The last 60 ms of a falling voice are lower than its median, and those of a
// rising voice are higher.
func TestFeatures(t *testing.T) {
	const finalPitch = 21 // feature with the pitch of the last 60 ms, in semitones over the median
	fall, rise := prosody.Features(voice(4, 20, -6))[finalPitch], prosody.Features(voice(4, 20, 6))[finalPitch]
	if fall > -4 || fall < -6.5 || rise < 4 || rise > 6.5 {
		t.Errorf("pitch of the end: %.1f after a fall of 6 semitones, %.1f after a rise", fall, rise)
	}
	for _, length := range []int{0, 1, 159, 160, 1000, prosody.Rate, 5 * prosody.Rate} {
		if f := prosody.Features(make([]int16, length)); f != [prosody.FeatureCount]float32{} {
			t.Errorf("silence of %d samples has the features %v", length, f)
		}
		for _, f := range prosody.Features(voice(float64(length)/prosody.Rate, 0, 0)) {
			if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
				t.Errorf("a voice of %d samples has a feature of %v", length, f)
			}
		}
	}
}

func BenchmarkPredict(b *testing.B) {
	pcm := voice(4, 20, -6)
	b.ReportAllocs()
	for b.Loop() {
		prosody.Predict(pcm)
	}
}

// voice returns syllables of a synthetic voice at 120 Hz and then `quiet` units of 10 ms of silence. Together they last `seconds`.
// In the last 600 ms of the voice, the pitch changes by the given number of semitones.
func voice(seconds float64, quiet int, semitones float64) []int16 {
	rng := rand.New(rand.NewPCG(1, 2))
	length := int(seconds * prosody.Rate)
	end := length - quiet*prosody.Rate/100
	pcm := make([]int16, length)
	phase := 0.0
	for i := range pcm {
		x := rng.NormFloat64() * 10
		if i < end {
			t := float64(i) / prosody.Rate
			hz := 120 * math.Exp2(semitones/12*max(0, 1-float64(end-i)/(0.6*prosody.Rate)))
			phase += 2 * math.Pi * hz / prosody.Rate
			envelope := 0.2 + 0.8*math.Pow(math.Sin(math.Pi*t*4), 2)
			for k := 1.0; k <= 8; k++ {
				x += 2500 * envelope * math.Sin(k*phase) / k
			}
		}
		pcm[i] = int16(x)
	}
	return pcm
}
