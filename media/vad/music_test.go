package vad_test

import (
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"voxgate/media"
	"voxgate/media/mediatest"
	"voxgate/media/vad"
)

// playing is for how much of some sound there was music, and whether there was at its end.
func playing(pcm []int16, rate int) (d time.Duration, end bool) {
	var m vad.Music
	for frame := media.Samples(20*time.Millisecond, rate); len(pcm) >= frame; pcm = pcm[frame:] {
		if end = m.ProcessAudio(pcm[:frame], rate); end {
			d += 20 * time.Millisecond
		}
	}
	return d, end
}

// Music that lasts is found; speech is not taken for it, without a pause, fast or slow, in noise or over soft music. Two seconds after its
// end it is over.
func TestMusic(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("espeak-ng"); err != nil {
		t.Fatal("espeak-ng is missing: make test-deps")
	}
	for _, rate := range []int{8000, 16000} {
		music := mediatest.Chords(30*time.Second, rate)
		if d, end := playing(music, rate); d < 20*time.Second || !end {
			t.Errorf("%d Hz: music was found for %v of 30 s", rate, d)
		}
		noise := rand.New(rand.NewPCG(1, 2))
		var all []int16
		for _, speed := range []string{"80", "260"} {
			for _, s := range said {
				voice := speak(t, s.voice, speed, s.text)
				for len(voice) > 0 && voice[0] == 0 {
					voice = voice[1:]
				}
				for len(voice) > 0 && voice[len(voice)-1] == 0 {
					voice = voice[:len(voice)-1]
				}
				voice, err := media.Resample(voice, 16000, rate)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, voice...)
			}
		}
		for name, beside := range map[string]func(i int) float64{
			"alone":           func(int) float64 { return 0 },
			"in noise":        func(int) float64 { return 500 * noise.NormFloat64() },
			"over soft music": func(i int) float64 { return float64(music[i%len(music)]) / 8 },
		} {
			pcm := make([]int16, len(all))
			for i := range pcm {
				pcm[i] = int16(max(-32768, min(32767, float64(all[i])+beside(i))))
			}
			if d, _ := playing(pcm, rate); d > 0 {
				t.Errorf("%d Hz: speech %s was taken for music for %v of %v", rate, name, d, media.Duration(len(pcm), rate))
			}
			if _, end := playing(append(music[:len(music):len(music)], pcm[:2*rate]...), rate); end && name != "over soft music" {
				t.Errorf("%d Hz: speech %s is music 2 s after the music has ended", rate, name)
			}
		}
		if d, _ := playing(mediatest.Speech(30*time.Second, rate), rate); d > 0 {
			t.Errorf("%d Hz: the speech of tests is music for %v", rate, d)
		}
	}
}
