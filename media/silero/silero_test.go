package silero_test

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"voxgate/media"
	"voxgate/media/silero"
)

func readSpeech(t testing.TB) []int16 {
	t.Helper()
	raw, err := os.ReadFile("testdata/speech.pcm")
	if err != nil {
		t.Fatal(err)
	}
	return media.AppendSamples(nil, raw)
}

// TestProbabilitiesEqualThoseOfONNX compares the network with the original in ONNX Runtime (weights.py). It does so twice, to check
// that Reset forgets the stream.
func TestProbabilitiesEqualThoseOfONNX(t *testing.T) {
	text, err := os.ReadFile("testdata/probabilities.txt")
	if err != nil {
		t.Fatal(err)
	}
	wanted := strings.Fields(string(text))
	d := silero.NewDetector()
	for range 2 {
		pcm := readSpeech(t)
		for i, want := range wanted {
			p, err := strconv.ParseFloat(want, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := float64(d.SpeechProbability(pcm[i*silero.FrameLength:])); math.Abs(got-p) > 1e-5 {
				t.Errorf("frame %d: %v, want %v", i, got, p)
			}
		}
		d.Reset()
	}
}

func TestProbabilityDoesNotAllocate(t *testing.T) {
	d, pcm := silero.NewDetector(), readSpeech(t)
	if n := testing.AllocsPerRun(10, func() { d.SpeechProbability(pcm) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkProbability(b *testing.B) {
	d, pcm := silero.NewDetector(), readSpeech(b)
	b.ReportAllocs()
	for range b.N {
		d.SpeechProbability(pcm)
	}
}
