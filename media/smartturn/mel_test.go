package smartturn

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"voxgate/media"
)

func readSpeech(t testing.TB) []int16 {
	t.Helper()
	raw, err := os.ReadFile("../silero/testdata/speech.pcm")
	if err != nil {
		t.Fatal(err)
	}
	return media.AppendSamples(nil, raw)
}

// TestFeaturesEqualThoseOfPython compares the spectrogram with the result of Pipecat's code (vectors.py). It does so twice, to check
// that a window leaves no state behind.
func TestFeaturesEqualThoseOfPython(t *testing.T) {
	wanted, err := os.ReadFile("testdata/mel.bin")
	if err != nil {
		t.Fatal(err)
	}
	var a analysis
	for range 2 {
		features := a.melSpectrogram(readSpeech(t))
		if len(wanted) != 2*len(features) {
			t.Fatalf("%d features, want %d", len(features), len(wanted)/2)
		}
		for i, f := range features {
			want := float64(int16(binary.LittleEndian.Uint16(wanted[2*i:]))) / 8192
			if math.Abs(float64(f)-want) > 0.002 {
				t.Fatalf("band %d, frame %d: %v, want %v", i/melFrames, i%melFrames, f, want)
			}
		}
		a.melSpectrogram(readSpeech(t)[:9000])
	}
}

func TestFeaturesOfSilence(t *testing.T) {
	var a analysis
	for _, length := range []int{0, 1, 159, samples, 5 * samples} {
		for _, f := range a.melSpectrogram(make([]int16, length)) {
			if f != -1.5 {
				t.Fatalf("silence of %d samples has a feature of %v", length, f)
			}
		}
	}
}

func BenchmarkFeatures(b *testing.B) {
	var a analysis
	pcm := readSpeech(b)
	b.ReportAllocs()
	for b.Loop() {
		a.melSpectrogram(pcm)
	}
}
