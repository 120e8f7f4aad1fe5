package media_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

func TestRMS(t *testing.T) {
	pcm := mediatest.Tone(100*time.Millisecond, 16000, 1000, 10000)
	if got := media.RMS(pcm); math.Abs(got-10000/math.Sqrt2) > 10 {
		t.Errorf("RMS = %.1f", got)
	}
	for _, silence := range [][]int16{nil, make([]int16, 100)} {
		if media.RMS(silence) != 0 {
			t.Error("silence has a level")
		}
	}
}

func TestResample(t *testing.T) {
	for _, c := range []struct{ from, to int }{
		{8000, 16000},
		{16000, 24000},
		{24000, 16000},
		{24000, 48000},
		{44100, 16000},
		{48000, 8000},
		{16000, 16000},
	} {
		for _, n := range []int{0, 1, 7, 333, c.from, c.from + 1, 3*c.from + 12345} {
			t.Run(fmt.Sprintf("%d samples from %d to %d", n, c.from, c.to), func(t *testing.T) {
				pcm := mediatest.Tone(6*time.Second, c.from, 440, 10000)[:n]
				got, err := media.Resample(pcm, c.from, c.to)
				if err != nil {
					t.Fatal(err)
				}
				if want := int(math.Round(float64(n) * float64(c.to) / float64(c.from))); len(got) != want {
					t.Fatalf("%d samples, want %d", len(got), want)
				}
				if n < c.from {
					return
				}
				want := mediatest.Tone(6*time.Second, c.to, 440, 10000)[:len(got)]
				edge := c.to / 20 // the filter rings at the two ends of the clip
				if db := mediatest.SNR(want[edge:len(want)-edge], got[edge:len(got)-edge]); db < 60 {
					t.Errorf("%.1f dB from the same tone at the other rate", db)
				}
			})
		}
	}
	if _, err := media.Resample([]int16{1}, 0, 16000); err == nil {
		t.Error("rate 0 is taken")
	}
}
