package bridge_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/bridgetest"
)

// A long conversation with several consecutive connections: all speech reaches the model, and all answers are played on
// time.
func TestLongConversation(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}`)},
		func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			links := []*bridgetest.Conn{l}
			var said []int16
			for turn := range 12 {
				question := countingPCM(len(said), 16000*2)
				said = append(said, question...)
				c.doCommand(bridge.ActivityStart)
				c.sendInRealTime(question)
				c.doCommand(bridge.ActivityEnd)
				begin := r.elapsed()
				l.SendAnswer(int16(turn+1), 5*time.Second)
				l.SendHandle("h")
				if turn%6 == 5 {
					l.Send(`{"goAway":{"timeLeft":"60s"}}`)
					l = r.up.NextConn().AssertSetup("", "h").SendSetupComplete()
					links = append(links, l)
					l.SendHandle("h")
				}
				time.Sleep(16 * time.Second)
				if _, at := findEvents[bridge.TurnComplete](c); len(at) != 1 || !isAbout(at[0]-begin, 5*time.Second) {
					t.Fatalf("turn %d: complete after %v", turn, at)
				}
				if turn == 0 {
					c.checkLog("SetupComplete Speaking 1*250 TurnComplete")
				} else if got := c.summarizeLog(); !strings.HasSuffix(got, "*250 TurnComplete") || strings.Count(got, " ") != 2 {
					t.Fatalf("turn %d: %s", turn, got)
				}
				c.clearLog()
			}
			var heard []int16
			marks := 0
			for _, l := range links {
				heard = append(heard, l.ReceivedPCM()...)
				marks += strings.Count(l.InputLog(), "mark")
			}
			if !slices.Equal(heard, said) || marks != 24 {
				t.Errorf("%d of %d samples and %d of 24 marks arrived", len(heard), len(said), marks)
			}
			c.disconnect()
			end := r.log.find("conversation ended")
			if len(end) != 1 || end[0]["chunks_up"] != 1200.0 || end[0]["chunks_dropped"] != 0.0 ||
				end[0]["frames_down"] != 3000.0 || end[0]["underruns"] != 0.0 || end[0]["dials"] != 3.0 {
				t.Errorf("the end is logged as %v", end)
			}
		},
	)
}

func (h *harness) meets(o bridge.SessionRequest) *caller {
	h.t.Helper()
	c := h.startCaller(o)
	<-c.seated
	time.Sleep(time.Second) // time for the handle to arrive
	lastEvent[bridge.SetupComplete](c)
	return c
}

// loud returns a square wave of duration d, sampled at 16 kHz.
func loud(d time.Duration) []int16 {
	pcm := make([]int16, int(d.Seconds()*16000))
	for i := range pcm {
		pcm[i] = 8000
		if i/20%2 == 0 {
			pcm[i] = -8000
		}
	}
	return pcm
}

// speakFor sends speech of duration d and then a second of silence, in real time.
func (c *caller) speakFor(d time.Duration) {
	c.speakWithoutPause(d)
	c.staySilentFor(time.Second)
}

// speakWithoutPause speaks for d, in real time.
func (c *caller) speakWithoutPause(d time.Duration) { c.sendInRealTime(loud(d)) }

// summarizeEvents returns summarizeLog without the voice.
func (c *caller) summarizeEvents() string {
	var words []string
	for word := range strings.FieldsSeq(c.summarizeLog()) {
		if !strings.Contains(word, "*") {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// The microphone, commands and events from many goroutines at once, for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r, _ := emulated(t, emulator.Scenario{})
		c := r.meets(bridge.SessionRequest{Resumable: true, Config: []byte(declare("weather"))})
		for _, f := range []func(){
			func() { c.sendAudio(loud(100 * time.Millisecond)) },
			func() { c.session.AttachOutput(c) },
			func() { c.session.SetFrame("image/jpeg", []byte("x"), true) },
			func() { _ = c.session.Do(bridge.AudioStreamEnd) },
			func() {
				_ = c.session.Do(bridge.Message{Parts: []byte(`[{"text":"/tool weather"}]`), TurnComplete: true})
			},
			func() { _ = c.session.Do(bridge.ToolResponse{Name: "weather", Response: []byte(`{"x":1}`)}) },
			func() { _ = c.session.Do(bridge.UpdateConfig{Config: []byte(declare("weather"))}) },
			func() { c.session.HoldVoice(true); c.session.HoldVoice(false) },
		} {
			r.wg.Go(func() {
				for range 50 {
					f()
					time.Sleep(130 * time.Millisecond)
				}
			})
		}
		time.Sleep(3 * time.Second)
		d := r.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken()})
		time.Sleep(time.Minute)
		c.awaitEnd(bridge.ErrReplaced)
		if !lastEvent[bridge.SetupComplete](d).Resumed && len(d.entries()) < 2 {
			t.Error(d.summarizeLog())
		}
		d.leave(nil)
	})
}

// The Interrupted of ClearContext has the generation of the interrupted voice. Otherwise chunks in transit would be played
// after it.
func TestClearingEndsTheVoiceOfItsGeneration(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent(`%s,"outputTranscription":{"text":"one "}`, bridgetest.VoiceField(7, 5*time.Second))
		time.Sleep(time.Second)
		c.doCommand(bridge.ClearContext{})
		r.up.NextConn().SendSetupComplete()
		synctest.Wait()
		if i := lastEvent[bridge.Interrupted](c); i.Generation == 0 {
			t.Errorf("got %+v: no chunk is older than generation 0", i)
		}
	})
}
