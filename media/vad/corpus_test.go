package vad_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/vad"
)

// said lists the voices of the corpus, their speeds and their sentences.
var said = []struct{ voice, speed, text string }{
	{"en-us", "160", "Hello. Could you tell me what the weather will be like in Lisbon tomorrow afternoon?"},
	{"en-gb+f3", "180", "Yes. I would like to change my reservation, please, from six people to eight."},
	{"en-us+m3", "140", "Stop. That is not what I asked for."},
	{"de", "150", "Guten Tag, ich suche einen Zug von Hamburg nach Basel, möglichst ohne Umsteigen."},
	{"de+f2", "190", "Nein, am Freitag geht es leider nicht, vielleicht am Samstag nach sechs Uhr."},
	{"fr", "170", "Bonjour, je voudrais savoir si le musée est ouvert ce dimanche."},
	{"es+f4", "175", "¿Puedes repetir la última frase más despacio, por favor?"},
	{"it", "165", "Va bene, grazie mille, ci sentiamo domani mattina."},
	{"pl+f1", "160", "Proszę powtórzyć, nie zrozumiałem ostatniego słowa."},
	{"ru", "150", "Сколько стоит билет до Москвы и обратно?"},
}

// speak returns a sentence from espeak-ng at 16 kHz, at the level of a voice on a phone line.
func speak(t testing.TB, voice, speed, text string) []int16 {
	t.Helper()
	wav, err := exec.Command("espeak-ng", "--stdout", "-v", voice, "-s", speed, text).Output()
	if err != nil {
		t.Fatalf("espeak-ng: %v", err)
	}
	rate := int(binary.LittleEndian.Uint32(wav[24:]))
	pcm := media.AppendSamples(nil, wav[bytes.Index(wav, []byte("data"))+8:])
	if pcm, err = media.Resample(pcm, rate, 16000); err != nil {
		t.Fatal(err)
	}
	return loudness(pcm, 1600)
}

// loudness returns a copy of pcm with a level of speech of the given value. The level is the RMS of those frames that are within
// 20 dB of the loudest.
func loudness(pcm []int16, level float64) []int16 {
	gain := level / activeLevel(pcm)
	out := make([]int16, len(pcm))
	for i, x := range pcm {
		out[i] = int16(max(-32768, min(32767, float64(x)*gain)))
	}
	return out
}

func activeLevel(pcm []int16) float64 {
	loudest, sum, n := 0.0, 0.0, 0
	for i := 0; i+320 <= len(pcm); i += 320 {
		loudest = max(loudest, media.RMS(pcm[i:i+320]))
	}
	for i := 0; i+320 <= len(pcm); i += 320 {
		if l := media.RMS(pcm[i : i+320]); l > loudest/10 {
			sum += l * l
			n++
		}
	}
	return math.Sqrt(sum / float64(max(1, n)))
}

type corpus struct {
	pcm    []int16
	speech []bool // for each frame of 20 ms, whether it contains speech
	babble []int16
}

func spoken(t testing.TB) *corpus {
	if _, err := exec.LookPath("espeak-ng"); err != nil {
		t.Skip("espeak-ng is not installed: make test-deps")
	}
	rng := rand.New(rand.NewPCG(9, 9))
	var sentences [][]int16
	for _, s := range said {
		sentences = append(sentences, speak(t, s.voice, s.speed, s.text))
	}
	clips, err := media.Resample(mediatest.Conversation()[:9*48000], 48000, 16000)
	if err != nil {
		t.Fatal(err)
	}
	sentences = append(sentences, loudness(clips, 1600))
	pcm := make([]int16, 3*16000)
	for _, s := range sentences {
		pcm = append(append(pcm, s...), make([]int16, 16000+rng.IntN(16000))...)
	}
	pcm = pcm[:len(pcm)/320*320]
	c := &corpus{pcm: pcm}
	for i := 0; i < len(pcm); i += 320 {
		c.speech = append(c.speech, media.RMS(pcm[i:i+320]) >= 100) // the limit is 24 dB below the level of speech
	}
	sum := make([]float64, len(pcm))
	for range 6 {
		at := rng.IntN(16000)
		for at < len(sum) {
			for _, x := range sentences[rng.IntN(len(said))] {
				if at < len(sum) {
					sum[at] += float64(x)
				}
				at++
			}
			at += rng.IntN(4000)
		}
	}
	c.babble = make([]int16, len(sum))
	for i, x := range sum {
		c.babble[i] = int16(max(-32768, min(32767, x/3)))
	}
	return c
}

// noises returns noises as long as the corpus, by name. Each has the level of the speech.
func noises(c *corpus) map[string][]int16 {
	rng := rand.New(rand.NewPCG(3, 9))
	n := len(c.pcm)
	white, pink, fan, hum := make([]int16, n), make([]int16, n), make([]int16, n), make([]int16, n)
	var p [3]float64
	var brown float64
	for i := range n {
		x := rng.NormFloat64()
		white[i] = int16(1600 * x)
		// Paul Kellet's filter has three poles and falls by 3 dB per octave.
		p[0] = 0.99765*p[0] + x*0.0990460
		p[1] = 0.96300*p[1] + x*0.2965164
		p[2] = 0.57000*p[2] + x*1.0526913
		pink[i] = int16(800 * (p[0] + p[1] + p[2] + x*0.1848))
		brown = 0.95*brown + x
		fan[i] = int16(500 * brown * (1 + 0.2*math.Sin(2*math.Pi*23*float64(i)/16000)))
		wave := func(hz, phase float64) float64 { return math.Sin(2*math.Pi*hz*float64(i)/16000 + phase) }
		hum[i] = int16(1500 * (wave(50, 0) + 0.7*wave(100, 1) + 0.5*wave(150, 2) + 0.3*wave(250, 0) + 0.2*wave(350, 0)))
	}
	out := map[string][]int16{"white": white, "pink": pink, "fan": fan, "hum": hum, "6 voices": c.babble}
	for name, pcm := range out {
		gain := 1600 / media.RMS(pcm)
		for i, x := range pcm {
			pcm[i] = int16(max(-32768, min(32767, float64(x)*gain)))
		}
		out[name] = pcm
	}
	return out
}

// detection contains the results of a detector. The first two are percentages of frames.
type detection struct {
	hit, falseAlarm float64
	onset, end      time.Duration // means
	missed          int           // number of sentences
}

// detect runs a detector over the corpus with a noise added, and returns its results. The corpus begins with three seconds of noise
// alone, and the first two of them are not counted.
func detect(c *corpus, noise []int16, gain float64) detection {
	const hangover = 12 // in frames
	v := &vad.Detector{Onset: 60 * ms, Hangover: hangover * 20 * ms}
	var speech, hits, silence, alarms, onsets, ends int
	var onset, end int
	frame := make([]int16, 320)
	since := 1000 // frames since the last one with speech
	began := -1
	var h detection
	wasSpeaking := false
	for f := range c.speech {
		for i := range frame {
			frame[i] = int16(max(-32768, min(32767, float64(c.pcm[f*320+i])+gain*float64(noise[f*320+i]))))
		}
		speaking := v.ProcessFrame(frame, 16000)
		if f < 100 {
			continue
		}
		if c.speech[f] {
			if since > 25 {
				began = f
			}
			since = 0
			speech++
			if speaking {
				hits++
			}
		} else {
			if since == 25 && wasSpeaking { // the detector still reports speech half a second after the last word
				ends++
				end += 25
			}
			since++
			if wasSpeaking && !speaking && since <= 25 && !soon(c.speech[f:], 20) {
				ends++
				end += since
			}
			if since > hangover+2 && !soon(c.speech[f:], 3) {
				silence++
				if speaking {
					alarms++
				}
			}
		}
		if speaking && began >= 0 {
			onsets++
			onset += f + 1 - began
			began = -1
		}
		if began >= 0 && f-began > 50 {
			h.missed++
			began = -1
		}
		wasSpeaking = speaking
	}
	h.hit, h.falseAlarm = 100*float64(hits)/float64(speech), 100*float64(alarms)/float64(max(1, silence))
	h.onset, h.end = time.Duration(onset)*20*ms/time.Duration(max(1, onsets)), time.Duration(end)*20*ms/time.Duration(max(1, ends))
	return h
}

func soon(speech []bool, frames int) bool {
	for _, s := range speech[:min(frames, len(speech))] {
		if s {
			return true
		}
	}
	return false
}

// TestCorpus logs the figures of the table in the comment of Detector, and checks them against limits.
func TestCorpus(t *testing.T) {
	c := spoken(t)
	all := noises(c)
	check := func(name string, db float64, h detection, hit, falseAlarm float64, onset time.Duration) {
		t.Helper()
		t.Logf("%-8s %4.0f dB: hit %5.1f %% false %5.1f %% onset %4v end %4v", name, db, h.hit, h.falseAlarm, h.onset.Round(ms), h.end.Round(ms))
		if h.hit < hit || h.falseAlarm > falseAlarm || h.onset > onset || h.end > 420*ms {
			t.Errorf("want hit %v %% false %v %% onset %v", hit, falseAlarm, onset)
		}
		if h.missed > 0 {
			t.Errorf("%d sentences were not heard at all", h.missed)
		}
	}
	check("none", 0, detect(c, make([]int16, len(c.pcm)), 0), 97, 0, 80*ms)
	for _, n := range []struct {
		name       string
		hit, false [3]float64 // at 20, 10 and 5 dB
	}{
		{"white", [3]float64{95, 92, 86}, [3]float64{0.5, 0.5, 1}},
		{"pink", [3]float64{95, 90, 84}, [3]float64{0.5, 0.5, 1}},
		{"fan", [3]float64{96, 91, 84}, [3]float64{1, 1, 1.5}},
		{"hum", [3]float64{97, 97, 97}, [3]float64{1, 0.5, 0.5}},
		{"6 voices", [3]float64{97, 97, 97}, [3]float64{50, 90, 95}},
	} {
		for i, db := range []float64{20, 10, 5} {
			check(n.name, db, detect(c, all[n.name], math.Pow(10, -db/20)), n.hit[i], n.false[i], 220*ms)
		}
	}
}

// TestNoises checks sounds that begin suddenly and are not voices. The detector must report no speech in them, or only a short
// time of it.
func TestNoises(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	long := func(level func(t float64) float64) []int16 {
		pcm := make([]int16, 30*16000)
		for i := range pcm {
			pcm[i] = int16(max(-32768, min(32767, 20*rng.NormFloat64()+level(float64(i)/16000)*rng.NormFloat64())))
		}
		return pcm
	}
	brown := 0.0
	for _, c := range []struct {
		name string
		pcm  []int16
		most time.Duration
	}{
		{"keyboard", long(func(t float64) float64 { // 7 keys per second, each with two clicks of 5 ms
			at := math.Mod(t, 1./7)
			return 6000 * (math.Exp(-at/0.005) + 0.4*math.Exp(-max(0, at-0.08)/0.004)*step(at-0.08))
		}), 0},
		{"bursts of white noise", long(func(t float64) float64 { return 3000 * step(math.Mod(t, 1.3)-1) }), 0},
		{"white noise that begins", long(func(t float64) float64 { return 1500 * step(t-5) }), 0},
		{"a fan that begins", func() []int16 {
			pcm := long(func(float64) float64 { return 0 })
			for i := 5 * 16000; i < len(pcm); i++ {
				brown = 0.95*brown + rng.NormFloat64()
				pcm[i] += int16(200 * brown)
			}
			return pcm
		}(), 2500 * ms},
		{"hum that begins", func() []int16 {
			pcm := long(func(float64) float64 { return 0 })
			for i := 5 * 16000; i < len(pcm); i++ {
				t := 2 * math.Pi * float64(i) / 16000
				pcm[i] += int16(1000*math.Sin(50*t) + 700*math.Sin(100*t) + 500*math.Sin(150*t) + 200*math.Sin(250*t))
			}
			return pcm
		}(), 2500 * ms},
	} {
		v := &vad.Detector{Onset: 60 * ms, Hangover: 240 * ms}
		var speech time.Duration
		for i := 0; i < len(c.pcm); i += 320 {
			if v.ProcessFrame(c.pcm[i:i+320], 16000) {
				speech += 20 * ms
			}
		}
		t.Logf("%s: %v taken for speech", c.name, speech)
		if speech > c.most {
			t.Errorf("%s: %v of it were taken for speech, want %v at most", c.name, speech, c.most)
		}
	}
}

func step(x float64) float64 {
	if x < 0 {
		return 0
	}
	return 1
}

// TestFrames checks that the detector accepts frames of any length and sample rate.
func TestFrames(t *testing.T) {
	pcm := mediatest.SynthesizeSpeech(time.Second, 16000)
	for _, rate := range []int{4000, 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 96000} {
		for n := 0; n < 2000; n += 1 + n/20 {
			v := vad.Detector{Onset: ms}
			for range 2 {
				v.ProcessFrame(pcm[len(pcm)-n:], rate)
			}
		}
	}
}
