package turns_test

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"voxgate/bridge/turns"
	"voxgate/media"
)

// readLevels returns the levels of a recording's frames of 20 ms.
func readLevels(t testing.TB, name string, rate int) (levels []float64) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	pcm := media.AppendSamples(nil, raw)
	for n := rate / 50; len(pcm) >= n; pcm = pcm[n:] {
		power := 1.0
		for _, x := range pcm[:n] {
			power += float64(x) * float64(x)
		}
		levels = append(levels, 10*math.Log10(power/float64(n))-20*math.Log10(32768))
	}
	return levels
}

func addLevels(a, b float64) float64 { return 10 * math.Log10(math.Pow(10, a/10)+math.Pow(10, b/10)) }

// TestEchoOfSpeech plays a voice to a loudspeaker that the microphone hears 20 dB lower, with a room's decay and noise, and another
// voice beside it. Of the loud frames nearly all must be recognized in the first case, and few in the second.
func TestEchoOfSpeech(t *testing.T) {
	played := readLevels(t, "../say-again.pcm", 24000)
	person := readLevels(t, "../../media/silero/testdata/speech.pcm", 16000)
	rng := rand.New(rand.NewPCG(1, 2))
	var echoes, echoFrames, voices, voiceFrames int
	for range 50 {
		delay, start := 5+rng.IntN(21), rng.IntN(len(person))
		var echo, voice turns.Echo
		tail := -70.0
		for i := range 6 * len(played) {
			p := played[i%len(played)]
			tail = addLevels(tail-4, -90) // reverberation of 0.3 s
			if i >= delay {
				tail = addLevels(tail, played[(i-delay)%len(played)]-20)
			}
			mic := addLevels(tail, -62) + rng.NormFloat64()
			found := echo.AddFrame(p, mic, true, true)
			if mic > -50 && i >= 50 {
				echoFrames++
				if found {
					echoes++
				}
			}
			mic = person[(start+i)%len(person)]
			found = voice.AddFrame(p, mic, true, true)
			if mic > -50 && i >= 50 {
				voiceFrames++
				if found {
					voices++
				}
			}
		}
	}
	hit, miss := float64(echoes)/float64(echoFrames), float64(voices)/float64(voiceFrames)
	t.Logf("recognized: %.1f %% of the echo's frames, %.1f %% of another voice's", 100*hit, 100*miss)
	if hit < 0.9 || miss > 0.1 {
		t.Error("want at least 90 % and at most 10 %")
	}
}

// TestEchoCutsNothing makes the second detector report speech for the echo of an answer. The first answer may be held once, while
// the delay is unknown. A person who speaks over the answer still interrupts it.
func TestEchoCutsNothing(t *testing.T) {
	played := readLevels(t, "../say-again.pcm", 24000)
	person := readLevels(t, "../../media/silero/testdata/speech.pcm", 16000)
	for delay := 5; delay <= 25; delay++ {
		m, at, holds := turns.New(turns.Settings{}), time.Duration(0), 0
		play := func(withPerson bool) (cuts int) {
			for i := range len(played) + 100 {
				at += turns.FrameLength
				f := turns.Frame{At: at, Sounding: i < len(played), Level: -62, PlayLevel: -70, Ear: 0.95}
				if f.Sounding {
					f.PlayLevel = played[i]
				}
				if j := i - delay; j >= 0 && j < len(played) {
					f.Level = addLevels(f.Level, played[j]-20)
				}
				if withPerson && i >= 30 {
					f.Level = addLevels(f.Level, person[(i-30)%len(person)])
				}
				f.Voice = f.Level > -50
				for _, a := range m.ProcessFrame(f) {
					switch a.Kind {
					case turns.Cut, turns.Start, turns.Retract:
						cuts++
					case turns.Hold:
						holds++
					}
				}
			}
			return cuts
		}
		if cuts := play(false); cuts > 0 || holds > 1 {
			t.Errorf("delay of %d frames, first answer: %d cuts, %d holds", delay, cuts, holds)
		}
		holds = 0
		if cuts := play(false); cuts > 0 || holds > 0 {
			t.Errorf("delay of %d frames, second answer: %d cuts, %d holds", delay, cuts, holds)
		}
		if play(true) == 0 {
			t.Errorf("delay of %d frames: the person cuts nothing", delay)
		}
	}
}
