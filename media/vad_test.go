package media_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"voxgate/media"
)

// tone20 is 20 ms of a tone over noise.
func tone20(r *rand.Rand, tone, noise float64, at int) []int16 {
	pcm := make([]int16, 320)
	for i := range pcm {
		pcm[i] = int16(tone*math.Sin(2*math.Pi*440*float64(at*320+i)/16000) + noise*r.NormFloat64())
	}
	return pcm
}

func TestVAD(t *testing.T) {
	for name, c := range map[string]struct {
		tone, noise float64
		hears       bool
	}{
		"speech in silence":  {4000, 0, true},
		"speech in noise":    {6000, 300, true}, // 23 dB
		"soft speech":        {600, 20, true},
		"a hum below speech": {60, 5, false},
		"noise alone":        {0, 500, false},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		v := &media.VAD{Onset: 60 * time.Millisecond, Hangover: 240 * time.Millisecond}
		for at := range 900 { // steady noise ends as speech after some ten seconds
			v.Hear(tone20(r, 0, c.noise, at), 16000)
		}
		began, ended := -1, -1
		for at := range 150 { // one second of the tone, then two without
			tone := c.tone
			if at >= 50 {
				tone = 0
			}
			switch speaking := v.Hear(tone20(r, tone, c.noise, at), 16000); {
			case speaking && began < 0:
				began = at
			case !speaking && began >= 0 && ended < 0:
				ended = at
			}
		}
		switch {
		case !c.hears && began >= 0:
			t.Errorf("%s: speech after %d frames", name, began)
		case c.hears && (began != 2 || ended < 50+11 || ended > 50+13):
			t.Errorf("%s: speech from frame %d to %d", name, began, ended)
		case c.hears && (v.Voiced() < 980*time.Millisecond || v.Voiced() > 1020*time.Millisecond):
			t.Errorf("%s: %v were voiced", name, v.Voiced())
		}
	}
}
