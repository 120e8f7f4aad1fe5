// Package mediatest is for tests and measurements: it generates sound, finds it in recordings, and simulates bad networks.
package mediatest

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"voxgate/media"
)

// SynthesizeSpeech returns d of synthetic speech that codecs treat as a voice. It has voiced syllables with gliding pitch and
// formants, hissing syllables, and pauses with a little noise.
func SynthesizeSpeech(d time.Duration, rate int) []int16 {
	rng := rand.New(rand.NewPCG(1, 2))
	pcm := make([]int16, media.Samples(d, rate))
	phase, f0, env, syllable := 0.0, 0.0, 0.0, 0
	var gains []float64 // gain of each harmonic
	for i := range pcm {
		if i%(rate/500) == 0 { // every 2 ms, for speed
			t := float64(i) / float64(rate)
			syllable = int(t * 4)
			env = math.Sin(math.Pi * (t*4 - float64(syllable)))
			f0 = 110 + 25*math.Sin(2*math.Pi*0.7*t)
			f1, f2 := 400+100*float64(syllable%3), 1200+300*float64(syllable%4)
			gains = gains[:0]
			for f := f0; f < min(3000, float64(rate)/2); f += f0 {
				gains = append(gains, math.Exp(-math.Pow((f-f1)/200, 2))+0.5*math.Exp(-math.Pow((f-f2)/300, 2))+0.02)
			}
		}
		v := 0.0
		switch syllable % 7 {
		case 3: // hiss
			v = 1500 * env * rng.NormFloat64()
		case 6: // pause
		default:
			phase += f0 / float64(rate)
			// sin(kx) from sin((k-1)x) and sin((k-2)x)
			c, s0, s1 := 2*math.Cos(2*math.Pi*phase), 0.0, math.Sin(2*math.Pi*phase)
			for _, g := range gains {
				v += g * s1
				s0, s1 = s1, c*s1-s0
			}
			v *= 4000 * env
		}
		pcm[i] = int16(max(-32000, min(32000, v+15*rng.NormFloat64())))
	}
	return pcm
}

// Tone returns a sine of hz.
func Tone(d time.Duration, rate int, hz, amplitude float64) []int16 {
	pcm := make([]int16, media.Samples(d, rate))
	for i := range pcm {
		pcm[i] = int16(amplitude * math.Sin(2*math.Pi*hz*float64(i)/float64(rate)))
	}
	return pcm
}

// Chords returns music: four chords that are struck in turn every 600 ms and fade, each note with overtones.
func Chords(d time.Duration, rate int) []int16 {
	pcm := make([]int16, media.Samples(d, rate))
	struck := media.Samples(600*time.Millisecond, rate)
	for i := range pcm {
		at, v := float64(i%struck)/float64(rate), 0.0
		for _, semitones := range [4][3]float64{{0, 4, 7}, {5, 9, 12}, {7, 11, 14}, {-3, 0, 4}}[i/struck%4] {
			hz := 261.6 * math.Pow(2, semitones/12)
			for overtone := 1.0; overtone <= 4; overtone++ {
				v += math.Sin(2*math.Pi*hz*overtone*float64(i)/float64(rate)) / overtone
			}
		}
		pcm[i] = int16(1500 * v * math.Exp(-3*at) * min(1, at/0.01))
	}
	return pcm
}

// SNR returns the signal-to-noise ratio of got, compared with want, in dB. got must not be shorter than want.
func SNR(want, got []int16) float64 {
	var signal, noise float64
	for i, w := range want {
		signal += float64(w) * float64(w)
		d := float64(w) - float64(got[i])
		noise += d * d
	}
	return 10 * math.Log10((signal+1)/(noise+1e-3))
}

// MaxStep returns the largest difference between neighbouring samples.
func MaxStep(pcm []int16) int {
	m := 0
	for i := 1; i < len(pcm); i++ {
		m = max(m, int(math.Abs(float64(pcm[i])-float64(pcm[i-1]))))
	}
	return m
}

// ToneLevel returns the share of the energy of pcm, 0 to 1, that is a sine of hz (Goertzel's algorithm). Its resolution is
// rate/len(pcm) Hz.
func ToneLevel(pcm []int16, rate int, hz float64) float64 {
	c := 2 * math.Cos(2*math.Pi*hz/float64(rate))
	var s1, s2, energy float64
	for _, x := range pcm {
		v := float64(x)
		energy += v * v
		s1, s2 = v+c*s1-s2, s1
	}
	if energy == 0 {
		return 0
	}
	power := s1*s1 + s2*s2 - c*s1*s2 // (amplitude*n/2)^2 for a pure tone
	return min(1, 2*power/(energy*float64(len(pcm))))
}

// Conversation returns half a minute of spoken clips at 48 kHz, with short and long pauses and some room noise.
var Conversation = sync.OnceValue(func() []int16 {
	rng := rand.New(rand.NewPCG(7, 7))
	room := func(pcm []int16, d time.Duration) []int16 {
		for range media.Samples(d, 16000) {
			pcm = append(pcm, 0)
		}
		return pcm
	}
	clip := func(name string, header, rate int) []int16 {
		b, err := os.ReadFile(repositoryFile(name))
		if err != nil {
			panic(err)
		}
		pcm := media.AppendSamples(nil, b[header:])
		if pcm, err = media.Resample(pcm, rate, 16000); err != nil {
			panic(err)
		}
		return pcm
	}
	speech := clip("web/test/speech.wav", 44, 16000)
	one, again := clip("bridge/one-moment.pcm", 0, 24000), clip("bridge/say-again.pcm", 0, 24000)
	pcm := room(nil, 200*time.Millisecond)
	for range 3 {
		pcm = room(append(pcm, again...), 250*time.Millisecond)
		pcm = room(append(pcm, speech...), 400*time.Millisecond)
		pcm = room(append(pcm, one...), 2500*time.Millisecond)
	}
	for i := range pcm {
		pcm[i] = int16(max(-32768, min(32767, float64(pcm[i])+40*rng.NormFloat64())))
	}
	pcm, err := media.Resample(pcm, 16000, 48000)
	if err != nil {
		panic(err)
	}
	return pcm
})

// repositoryFile returns the path of a file of this repository.
func repositoryFile(name string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "../../..", name)
}

// RealVoice returns a real voice, which a neural detector recognizes as speech. It repeats a clip of 0.9 s up to this
// length.
func RealVoice(t testing.TB, d time.Duration, rate int) []int16 {
	t.Helper()
	raw, err := os.ReadFile(repositoryFile("media/silero/testdata/speech.pcm"))
	if err != nil {
		t.Fatal(err)
	}
	const voiceRate, from, to = 16000, 32, 124 // hundredths of a second
	voice := media.AppendSamples(nil, raw)[voiceRate*from/100 : voiceRate*to/100]
	var pcm []int16
	for media.Duration(len(pcm), voiceRate) < d {
		pcm = append(pcm, voice...)
	}
	if pcm, err = media.Resample(pcm, voiceRate, rate); err != nil {
		t.Fatal(err)
	}
	return pcm[:media.Samples(d, rate)]
}

// Cough returns a burst of noise that fades. A simple detector mistakes it for a voice.
func Cough(d time.Duration, rate int) []int16 {
	rng := rand.New(rand.NewPCG(1, 1))
	pcm := make([]int16, media.Samples(d, rate))
	for i := range pcm {
		pcm[i] = int16(5000 * (1 - float64(i)/float64(len(pcm))) * rng.NormFloat64())
	}
	return pcm
}
