package vad_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media/vad"
)

const ms = time.Millisecond

// tone20 returns 20 ms of a tone with noise at 16 kHz. The parameter `at` is the number of the frame.
func tone20(r *rand.Rand, tone, noise float64, at int) []int16 {
	pcm := make([]int16, 320)
	for i := range pcm {
		pcm[i] = int16(tone*math.Sin(2*math.Pi*440*float64(at*320+i)/16000) + noise*r.NormFloat64())
	}
	return pcm
}

func TestDetector(t *testing.T) {
	for name, c := range map[string]struct {
		tone, noise float64
		hears       bool
	}{
		"speech in silence":  {4000, 0, true},
		"speech in noise":    {6000, 300, true}, // a ratio of 23 dB
		"soft speech":        {600, 20, true},
		"a hum below speech": {60, 5, false},
		"noise alone":        {0, 500, false},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		v := &vad.Detector{Onset: 60 * ms, Hangover: 240 * ms}
		for at := range 900 { // a steady noise no longer counts as speech after about ten seconds
			v.ProcessFrame(tone20(r, 0, c.noise, at), 16000)
		}
		began, ended := -1, -1
		for at := range 150 { // one second with the tone, then two seconds without it
			tone := c.tone
			if at >= 50 {
				tone = 0
			}
			switch speaking := v.ProcessFrame(tone20(r, tone, c.noise, at), 16000); {
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
		case c.hears && (v.VoicedDuration() < 980*time.Millisecond || v.VoicedDuration() > 1020*time.Millisecond):
			t.Errorf("%s: %v were voiced", name, v.VoicedDuration())
		}
	}
}

// hearAll runs a new detector over pcm. It returns how long the detector reported speech, and whether it did so for the last
// frame.
func hearAll(pcm []int16, rate int) (spoke time.Duration, end bool) {
	v := vad.Detector{Onset: 60 * ms, Hangover: 240 * ms}
	n := rate / 50
	for len(pcm) >= n {
		if end = v.ProcessFrame(pcm[:n], rate); end {
			spoke += 20 * ms
		}
		pcm = pcm[n:]
	}
	return spoke, end
}

// TestDCOffsetIsNotSpeech checks that a constant offset in the sound of a sound card does not count as speech.
func TestDCOffsetIsNotSpeech(t *testing.T) {
	const rate = 16000
	for _, offset := range []int{500, 3000, 12000} {
		pcm := make([]int16, 60*rate)
		for i := range pcm {
			pcm[i] = int16(offset + i*i%7 - 3)
		}
		if spoke, _ := hearAll(pcm, rate); spoke > time.Second {
			t.Errorf("a silent microphone with an offset of %d speaks for %v", offset, spoke)
		}
		s := mediatest.SynthesizeSpeech(8*time.Second, rate)
		clean, _ := hearAll(append(make([]int16, rate), s...), rate)
		for i := range s {
			s[i] = int16(max(-32768, min(32767, int(s[i])+offset)))
		}
		copy(pcm[40*rate:], s)
		if spoke, _ := hearAll(pcm[39*rate:50*rate], rate); spoke > clean+2*time.Second {
			t.Errorf("with an offset of %d, %v are heard of %v of speech in 11 s", offset, spoke, clean)
		}
	}
}

// TestSpeechThatIsClippedOrPumped checks that clipping, a level that an automatic gain control changes, and the sample rate do not
// disturb the detector.
func TestSpeechThatIsClippedOrPumped(t *testing.T) {
	const rate = 16000
	s := mediatest.SynthesizeSpeech(8*time.Second, rate)
	clean, _ := hearAll(append(make([]int16, rate), s...), rate)
	with := func(f func(i int, x int16) float64) []int16 {
		out := append(make([]int16, rate), s...)
		out = append(out, make([]int16, 3*rate)...)
		for i, x := range out {
			out[i] = int16(max(-32768, min(32767, f(i, x))))
		}
		return out
	}
	for name, pcm := range map[string][]int16{
		"clipped": with(func(_ int, x int16) float64 { return 40 * float64(x) }),
		"AGC": with(func(i int, x int16) float64 {
			return (float64(x) + 30*math.Sin(float64(i*i%9973))) * (1 + 4*float64(i%(2*rate))/float64(2*rate))
		}),
	} {
		if spoke, end := hearAll(pcm, rate); end || spoke < clean*7/10 || spoke > clean+2*time.Second {
			t.Errorf("%s: heard %v of speech, want about %v; at the end %v", name, spoke, clean, end)
		}
	}
	for _, rate := range []int{8000, 11025, 12000, 15999, 22050, 44100, 47999, 48000} {
		got, _ := hearAll(append(make([]int16, rate), mediatest.SynthesizeSpeech(8*time.Second, rate)...), rate)
		if got < clean*8/10 || got > clean*12/10 {
			t.Errorf("at %d Hz %v, at 16 kHz %v", rate, got, clean)
		}
	}
}
