package phone_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/signaling/phone"
)

// pcmRecorder is a sink that stores all audio.
type pcmRecorder struct {
	rate int
	pcm  []int16
}

func (p *pcmRecorder) Rate() int { return p.rate }
func (p *pcmRecorder) WritePCM(pcm []int16) error {
	p.pcm = append(p.pcm, pcm...)
	return nil
}

// newCollectingKeypad returns a keypad with an open collection.
func newCollectingKeypad(t *testing.T) *phone.Keypad {
	t.Helper()
	var list phone.Collections
	_ = json.Unmarshal([]byte(`[{"name":"PIN","max":4,"seconds":60,"url":"http://127.0.0.1:9/","secret":"s"}]`), &list)
	agent := agents.Agent{Collect: []string{"PIN"}}
	if err := list.CheckAndSetDefaults(); err != nil {
		t.Fatal(err)
	}
	pad := phone.NewKeypad()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	opened := make(chan struct{}, 1)
	go pad.Run(ctx, slog.New(slog.NewTextHandler(writer(func(b []byte) {
		if strings.Contains(string(b), "collecting keys") {
			opened <- struct{}{}
		}
	}), nil)), 0, func(bridge.Command) error { return nil })
	tool := list.BuildTools(&agent, func() *phone.Keypad { return pad })[0]
	go tool.Run(ctx, json.RawMessage(`{"what":"PIN"}`))
	<-opened
	return pad
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// While a number is collected, key tones are silenced, whatever their length, sample rate, loudness and offset. A voice is not.
func TestKeyTonesMuted(t *testing.T) {
	pad := newCollectingKeypad(t)
	low, high := []float64{697, 770, 852, 941}, []float64{1209, 1336, 1477, 1633}
	random := rand.New(rand.NewPCG(1, 2))
	for _, rate := range []int{8000, 16000, 48000} {
		for try := range 16 {
			lasts := time.Duration(40+random.IntN(300)) * time.Millisecond
			begin := media.Samples(time.Duration(100000+random.IntN(20000))*time.Microsecond, rate)
			loud := 300 + 9000*random.Float64()
			off := 1 + 0.015*(2*random.Float64()-1)
			tone := mediatest.Tone(lasts, rate, low[try%4]*off, loud)
			for i, s := range mediatest.Tone(lasts, rate, high[try/4%4]*off, loud*(0.5+random.Float64())) {
				tone[i] += s
			}
			pcm := make([]int16, begin+len(tone)+rate/2)
			copy(pcm[begin:], tone)
			for i := range pcm {
				pcm[i] += int16(20 * random.NormFloat64()) // line noise
			}
			out := &pcmRecorder{rate: rate}
			sink := pad.FilterSecret(out)
			for len(pcm) > 0 { // packets of any length
				n := min(len(pcm), 1+random.IntN(rate/20))
				if err := sink.WritePCM(pcm[:n]); err != nil {
					t.Fatal(err)
				}
				pcm = pcm[n:]
			}
			for i, s := range out.pcm {
				if s > 150 || s < -150 {
					t.Fatalf("%d Hz, key %d of %v: sample %d of %d (the tone is at %d) is %d", rate, try, lasts, i, len(out.pcm), begin, s)
				}
			}
		}
		voice := mediatest.SynthesizeSpeech(2*time.Second, rate)
		out := &pcmRecorder{rate: rate}
		if err := pad.FilterSecret(out).WritePCM(voice); err != nil {
			t.Fatal(err)
		}
		if got, want := media.RMS(out.pcm), media.RMS(voice); got < 0.95*want || len(voice)-len(out.pcm) > rate/25 {
			t.Errorf("at %d Hz a voice of %.0f is %.0f, and %d samples are missing", rate, want, got, len(voice)-len(out.pcm))
		}
	}
}
