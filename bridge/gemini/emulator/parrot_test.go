package emulator_test

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/wire"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

func TestEcho(t *testing.T) {
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		for _, hz := range []float64{440, 1000, 3000} {
			p.speak(tone(16000, hz, 1400*time.Millisecond))
			s := p.turn()
			length := duration(len(s.audio), 24000)
			if length < 1400*time.Millisecond || length > 2*time.Second {
				t.Errorf("%v Hz: %v of voice for 1.4 s", hz, length)
			}
			if level := mediatest.ToneLevel(s.audio, 24000, hz); level < 0.5 {
				t.Errorf("%v Hz are %.2f of the answer", hz, level)
			}
			if !strings.HasSuffix(s.heard, "seconds of speech)") || s.text != "You said: "+strings.Trim(s.heard, "()")+"." {
				t.Errorf("heard %q, says %q", s.heard, s.text)
			}
			if sent := s.last.Sub(s.first); sent > length/3 {
				t.Errorf("%v of voice took %v to send", length, sent)
			}
			if !s.generated || s.generation.After(s.complete) || s.interrupted {
				t.Error("no generationComplete before turnComplete")
			}
			if played := s.complete.Sub(s.first); played != length {
				t.Errorf("turnComplete after %v of %v", played, length)
			}
			var usage struct{ TotalTokenCount int }
			if err := json.Unmarshal(s.usage, &usage); err != nil || usage.TotalTokenCount == 0 {
				t.Errorf("usage %s", s.usage)
			}
			if s.empty == 0 {
				t.Error("no empty message")
			}
		}
	})
}

func TestNoiseIsNotSpeech(t *testing.T) {
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		noise := make([]int16, 16000*30)
		for i := range noise {
			noise[i] = int16(rand.IntN(600) - 300) // rms 173
		}
		p.audio(noise) // the start of the noise may count as a turn
		speech := tone(16000, 700, time.Second)
		for i := range speech {
			speech[i] += noise[i]
		}
		time.Sleep(time.Minute)
		for len(p.in) > 0 {
			<-p.in
		}
		p.audio(speech)
		p.audio(noise[:16000])
		if s := p.turn(); mediatest.ToneLevel(s.audio, 24000, 700) < 0.5 {
			t.Error("speech in noise was not found")
		}
	})
}

func TestTypedTextIsAnsweredWhileTheUserSpeaks(t *testing.T) {
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		p.audio(tone(16000, 440, time.Second)) // and no end of it
		p.text("hello")
		if s := p.turn(); !strings.Contains(s.text, "hello") || s.interrupted {
			t.Errorf("the answer is %q, interrupted %v", s.text, s.interrupted)
		}
	})
}

func TestClickIsNotSpeech(t *testing.T) {
	parrot(
		t,
		`{"realtimeInputConfig":{"automaticActivityDetection":{"prefixPaddingMs":200,"silenceDurationMs":1000}}}`,
		func(t *testing.T, p *peer) {
			p.speak(tone(16000, 440, 150*time.Millisecond)) // less than prefixPaddingMs
			p.audio(tone(16000, 440, 500*time.Millisecond))
			p.audio(make([]int16, 16000*7/10)) // less than silenceDurationMs
			p.speak(tone(16000, 880, 500*time.Millisecond))
			p.audio(make([]int16, 3200))
			s := p.turn()
			if length := duration(len(s.audio), 24000); length < 2*time.Second {
				t.Errorf("two words became %v", length)
			}
			if n := len(s.audio); mediatest.ToneLevel(s.audio[:n/2], 24000, 440) < 0.4 || mediatest.ToneLevel(s.audio[n/2:], 24000, 880) < 0.4 {
				t.Error("a word is missing")
			}
		},
	)
}

func TestBargeIn(t *testing.T) {
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		p.speak(tone(16000, 440, 3*time.Second))
		first := p.until(func(m *message) bool { return m.audio != nil })
		time.Sleep(300 * time.Millisecond)
		p.speak(tone(16000, 1000, time.Second))
		s := p.turn()
		if !s.interrupted || s.generated {
			t.Errorf("interrupted %v, generationComplete %v", s.interrupted, s.generated)
		}
		if after := s.complete.Sub(first.at); after > 400*time.Millisecond {
			t.Errorf("interrupted %v after its begin", after)
		}
		if s := p.turn(); s.interrupted || mediatest.ToneLevel(s.audio, 24000, 1000) < 0.5 {
			t.Error("what was said over it is not answered")
		}
	})
}

func TestBargeInDuringPlayback(t *testing.T) {
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		p.speak(tone(16000, 440, 3*time.Second))
		p.until(func(m *message) bool { return m.Content != nil && m.Content.GenerationComplete })
		p.text("stop") // all was sent, but not yet played
		if s := p.turn(); !s.interrupted {
			t.Error("not interrupted")
		}
		if s := p.turn(); s.text != "You said: stop" {
			t.Errorf("says %q", s.text)
		}
	})
}

func TestNoInterruption(t *testing.T) {
	parrot(t, `{"realtimeInputConfig":{"activityHandling":"NO_INTERRUPTION"}}`, func(t *testing.T, p *peer) {
		p.speak(tone(16000, 440, 2*time.Second))
		p.until(func(m *message) bool { return m.audio != nil })
		p.speak(tone(16000, 1000, time.Second))
		if s := p.turn(); s.interrupted || !s.generated {
			t.Error("the first turn was interrupted")
		}
		if s := p.turn(); mediatest.ToneLevel(s.audio, 24000, 1000) < 0.5 {
			t.Error("the second speech was lost")
		}
	})
}

func TestManualActivity(t *testing.T) {
	parrot(
		t,
		`{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true},"turnCoverage":"TURN_INCLUDES_ALL_INPUT"}}`,
		func(t *testing.T, p *peer) {
			p.speak(tone(16000, 440, time.Second)) // outside of an activity
			p.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityStart: true}})
			p.audio(tone(16000, 1000, time.Second))
			p.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityEnd: true}})
			s := p.turn()
			if mediatest.ToneLevel(s.audio, 24000, 1000) < 0.5 || len(s.audio) != 24000 {
				t.Errorf("%d samples of the wrong kind", len(s.audio))
			}
			p.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityStart: true}})
			p.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityEnd: true}})
			p.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{AudioStreamEnd: true}})
			p.closes(1007, "automatic activity detection")
		},
	)
}

// audioStreamEnd ends a turn, but not for models of version 3.8: they want to hear silence (recorded, 12 of 12).
func TestAudioStreamEnd(t *testing.T) {
	for model, ends := range map[string]bool{"gemini-3.1-flash-live-preview": true, "gemini-3.8-live": false} {
		parrot(t, `{"model":"`+model+`"}`, func(t *testing.T, p *peer) {
			p.audio(tone(16000, 440, time.Second)) // and nothing more: the server's clock stands still
			time.Sleep(time.Minute)
			p.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{AudioStreamEnd: true}})
			if !ends {
				time.Sleep(time.Minute)
				synctest.Wait()
				for len(p.in) > 0 {
					if m := p.next(); m.Content != nil {
						t.Errorf("%s: an answer came at the mark", model)
					}
				}
				p.audio(make([]int16, 16000))
			}
			if s := p.turn(); mediatest.ToneLevel(s.audio, 24000, 440) < 0.5 {
				t.Errorf("%s: the speech was lost", model)
			}
		})
	}
}

func TestHistoryGetsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, newPeer(t, silent), livePath, nil)
		r.write(
			`{"setup":{"model":"models/gemini-3.1-flash-live-preview","outputAudioTranscription":{},` +
				`"historyConfig":{"initialHistoryInClientContent":true}}}`,
		)
		r.write(`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"earlier"}]}]}}`)
		r.write(`{"clientContent":{"turns":[{"role":"model","parts":[{"text":"indeed"}]}],"turnComplete":true}}`)
		r.write(`{"realtimeInput":{"text":"/history"}}`)
		if said := r.turn(); !strings.Contains(said, "I remember 3 turns. user: earlier | model: indeed") {
			t.Errorf("says %s", said)
		}
		r.write(`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"now"}]}],"turnComplete":true}}`) // which this model does not take
		r.closes(1007, "invalid argument")
	})
}

func TestCommands(t *testing.T) {
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		p.text("/ground the weather")
		if s := p.turn(); !strings.Contains(string(s.grounding), `"renderedContent"`) || !strings.Contains(string(s.grounding), "the weather") {
			t.Errorf("grounding %s", s.grounding)
		}
	})
}

// TestManualActivityNeedsItsCoverage is what gemini-3.x was seen to do without TURN_INCLUDES_ALL_INPUT.
func TestManualActivityNeedsItsCoverage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, newPeer(t, silent), livePath, nil)
		r.write(`{"setup":{"model":"models/gemini-3.8-live","realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}}`)
		r.write(`{"realtimeInput":{"activityStart":{}}}`)
		r.write(`{"realtimeInput":{"audio":{"mimeType":"audio/pcm","data":"` + base64.StdEncoding.EncodeToString(make([]byte, 32000)) + `"}}}`)
		r.write(`{"realtimeInput":{"activityEnd":{}}}`)
		if said := r.turn(); strings.Contains(said, "inlineData") || strings.Contains(said, "interrupted") {
			t.Errorf("%s", said)
		}
	})
}

func TestVoice(t *testing.T) {
	const text = "-v xx; $(touch /tmp/x) \"quoted\""
	p := join(t, newPeer(t, emulator.Options{}), `{}`) // espeak-ng, if there is one
	p.text(text)
	var said string
	var pcm []int16
	p.until(func(m *message) bool { // all is sent well before it could be played
		if m.Content != nil {
			said += m.Content.OutputTranscription
			pcm = append(pcm, m.audio...)
		}
		return m.Content != nil && m.Content.GenerationComplete
	})
	if said != "You said: "+text || media.RMS(pcm) < 200 {
		t.Errorf("says %q at %.0f", said, media.RMS(pcm))
	}
}
