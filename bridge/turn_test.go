package bridge_test

import (
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

func TestTwoTurns(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendAnswer(7, 2*time.Second)
		time.Sleep(3 * time.Second)
		l.SendAnswer(8, time.Second)
		time.Sleep(3 * time.Second)
		c.checkLog("SetupComplete Speaking 7*100 TurnComplete Speaking 8*50 TurnComplete")
		_, spoke := findEvents[bridge.Speaking](c)
		for _, e := range c.entries() {
			if e.event == nil && e.tag == 7 {
				if e.at != spoke[0] {
					t.Errorf("got %v, and heard %v", spoke[0], e.at)
				}
				break
			}
		}
	})
}

func TestBurstPlaysInRealTime(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		begin := r.elapsed()
		l.SendAnswer(7, 30*time.Second)
		l.SendAnswer(8, time.Second) // the next turn waits in the playout
		time.Sleep(time.Minute)
		c.checkLog("SetupComplete Speaking 7*1500 TurnComplete Speaking 8*50 TurnComplete")
		_, at := findEvents[bridge.TurnComplete](c)
		if !isAbout(at[0]-begin, 30*time.Second) || !isAbout(at[1]-begin, 31*time.Second) {
			t.Errorf("the turns were over after %v and %v", at[0]-begin, at[1]-begin)
		}
	})
}

func TestInterrupted(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendVoice(7, 10*time.Second)
		time.Sleep(990 * time.Millisecond)
		begin := r.elapsed()
		l.SendContent(`%s,"interrupted":true`, bridgetest.VoiceField(9, time.Second))
		l.SendContent(`"turnComplete":true`)
		time.Sleep(5 * time.Second)
		c.checkLog("SetupComplete Speaking 7*50 Interrupted")
		if _, at := findEvents[bridge.Interrupted](c); at[0] != begin {
			t.Errorf("got after %v", at[0]-begin)
		}
		l.SendAnswer(8, time.Second)
		time.Sleep(5 * time.Second)
		c.checkLog("SetupComplete Speaking 7*50 Interrupted Speaking 8*50 TurnComplete")
	})
}

// An interruption of the model also ends an answer that was received completely and is still played.
func TestInterruptedDuringPlayback(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendAnswer(7, 10*time.Second)
		time.Sleep(990 * time.Millisecond)
		l.SendContent(`"interrupted":true`)
		time.Sleep(time.Minute)
		c.checkLog("SetupComplete Speaking 7*50 Interrupted")
	})
}

func TestTypedTextInterrupts(t *testing.T) {
	const before = "SetupComplete Speaking 7*50 Interrupted"
	for name, after := range map[string]func(l *bridgetest.Conn){
		"interrupted": func(l *bridgetest.Conn) {
			l.SendVoice(7, time.Second)
			l.InterruptTurn()
		},
		"generation completed": func(l *bridgetest.Conn) {
			l.SendVoice(7, time.Second)
			l.SendContent(`"generationComplete":true`)
		},
		"generation and turn completed": func(l *bridgetest.Conn) {
			l.SendVoice(7, time.Second)
			l.CompleteTurn()
		},
		"turn completed": func(l *bridgetest.Conn) {
			l.SendContent(`%s,"turnComplete":true`, bridgetest.VoiceField(7, time.Second))
		},
		"generation completed, then interrupted": func(l *bridgetest.Conn) {
			l.SendContent(`"generationComplete":true`)
			l.InterruptTurn()
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendVoice(7, 10*time.Second)
				time.Sleep(990 * time.Millisecond)
				begin := r.elapsed()
				c.typeText("stop")
				c.typeText("please")
				c.checkLog(before)
				if _, at := findEvents[bridge.Interrupted](c); at[0] != begin {
					t.Errorf("got after %v", at[0]-begin)
				}
				time.Sleep(100 * time.Millisecond)
				after(l)
				time.Sleep(time.Second)
				c.checkLog(before)
				l.SendAnswer(8, time.Second)
				time.Sleep(2 * time.Second)
				c.checkLog(before + " Speaking 8*50 TurnComplete")
			})
		})
	}
}

// Typed text interrupts an answer that was received completely. The server may or may not report an interruption.
func TestTypedTextInterruptsPlayback(t *testing.T) {
	for name, then := range map[string][]string{
		"interrupted":        {`"interrupted":true`, `"turnComplete":true`},
		"interrupted at all": {`"interrupted":true,"turnComplete":true`},
		"completed":          {`"turnComplete":true`},
		"nothing":            nil,
	} {
		for _, complete := range []bool{false, true} {
			if complete && then != nil {
				continue // the server has already ended the turn
			}
			t.Run(name, func(t *testing.T) {
				converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
					l.SendVoice(7, 10*time.Second)
					l.SendContent(`"generationComplete":true`)
					if complete {
						l.SendContent(`"turnComplete":true`)
					}
					time.Sleep(990 * time.Millisecond)
					c.typeText("stop")
					for _, content := range then {
						l.SendContent("%s", content)
					}
					l.SendAnswer(8, time.Second)
					time.Sleep(5 * time.Second)
					c.checkLog("SetupComplete Speaking 7*50 Interrupted Speaking 8*50 TurnComplete")
				})
			})
		}
	}
}

// If typed text interrupts a turn that the server has completed, and the next turn has no voice, its end is reported, too.
func TestSilentTurnAfterTypedText(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendAnswer(7, 10*time.Second)
		time.Sleep(990 * time.Millisecond)
		c.typeText("stop")
		l.SendContent(`"turnComplete":true`)
		c.checkLog("SetupComplete Speaking 7*50 Interrupted TurnComplete")
	})
}

func TestTypedTextIntoSilence(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("hello")
		l.SendAnswer(7, time.Second)
		time.Sleep(2 * time.Second)
		c.typeText("hello again")
		c.doCommand(bridge.Message{Parts: []byte(`[{"text":"a hint"}]`)})
		l.SendVoice(8, 2*time.Second)
		c.doCommand(bridge.Message{Parts: []byte(`[{"text":"another hint"}]`)}) // an incomplete turn interrupts nothing
		c.doCommand(bridge.Text{Text: "an action"})
		l.SendAnswer(8, time.Second)
		time.Sleep(5 * time.Second)
		c.checkLog("SetupComplete Speaking 7*50 TurnComplete Speaking 8*150 TurnComplete")
		if got := l.InputLog(); got != "typed hello, typed hello again, typed a hint, typed another hint, text an action" {
			t.Errorf("%q came", got)
		}
	})
}

func TestTextOnly(t *testing.T) {
	for name, config := range map[string]string{
		"a model with a voice": `{"generationConfig":{"responseModalities":["TEXT"]}}`,
		"a model that writes":  `{"model":"gemini-live-2.5-flash","generationConfig":{"responseModalities":["TEXT"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t, func(o *bridge.Options) {
					if strings.Contains(name, "writes") { // which only Vertex AI has
						onVertex(o)
					}
				})
				c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(config)})
				if strings.Contains(name, "voice") {
					l.SendContent(`%s,"outputTranscription":{"text":"good "}`, bridgetest.VoiceField(7, time.Second))
					l.SendContent(`"outputTranscription":{"text":"day"}`)
				} else {
					l.SendContent(`"modelTurn":{"parts":[{"text":"good "}]}`)
					l.SendContent(`"modelTurn":{"parts":[{"text":"day"}]}`)
				}
				l.CompleteTurn()
				c.checkLog("SetupComplete TurnComplete")
				seen := contents(c)
				for _, want := range []string{`"text":"good "`, `"text":"day"`, `"modelTurn":{`, `"turnComplete":true`} {
					if !strings.Contains(seen, want) {
						t.Errorf("no %s in %s", want, seen)
					}
				}
			})
		})
	}
}

// A written answer has no voice to interrupt. The server reports whether it was interrupted.
func TestTypedTextIntoText(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"generationConfig":{"responseModalities":["TEXT"]}}`)},
		func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.SendContent(`%s,"outputTranscription":{"text":"once"}`, bridgetest.VoiceField(7, time.Second))
			c.typeText("stop")
			c.checkLog("SetupComplete")
			l.InterruptTurn()
			l.SendContent(`%s,"outputTranscription":{"text":"twice"}`, bridgetest.VoiceField(7, time.Second))
			l.SendContent(`"generationComplete":true,"turnComplete":true`)
			c.checkLog("SetupComplete Interrupted TurnComplete")
		},
	)
}

func contents(c *caller) string {
	var all []string
	list, _ := findEvents[bridge.RawServerContent](c)
	for _, e := range list {
		all = append(all, string(e.ServerContent))
	}
	return strings.Join(all, "\n")
}

func TestOneMessageWithEverything(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(declare("weather"))}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.Send(`{"usageMetadata":{"totalTokenCount":5},"serverContent":{%s,"outputTranscription":{"text":"hi"},
			"groundingMetadata":{"webSearchQueries":["x"]},"novelty":[1],"generationComplete":true,"turnComplete":true},
			"toolCall":{"functionCalls":[{"id":"a","name":"weather","args":{"n":9007199254740993}}]},
			"voiceActivity":{"type":"ACTIVITY_START"},"future":{"x":1},
			"sessionResumptionUpdate":{"newHandle":"h","resumable":true}}`, bridgetest.VoiceField(7, time.Second))
		time.Sleep(2 * time.Second)
		c.checkLog("SetupComplete Speaking 7*1 Grounding ToolCall(a) 7*49 TurnComplete")
		if got := string(lastEvent[bridge.Grounding](c).Metadata); got != `{"webSearchQueries":["x"]}` {
			t.Errorf("grounding %s", got)
		}
		if got := string(lastEvent[bridge.ToolCall](c).Calls[0].Args); got != `{"n":9007199254740993}` {
			t.Errorf("args %s", got)
		}
		seen := contents(c)
		for _, want := range []string{
			`"usageMetadata":{"totalTokenCount":5}`, `"outputTranscription":{"text":"hi"}`, `"novelty":[1]`,
			`{"voiceActivity":{"type":"ACTIVITY_START"},"future":{"x":1}}`,
		} {
			if !strings.Contains(seen, want) {
				t.Errorf("no %s in %s", want, seen)
			}
		}
		if strings.Contains(seen, "inlineData") {
			t.Error("the audio was sent")
		}
	})
}

func TestMessagesWithASingleField(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.Send(`{}`)
		l.Send(`{"serverContent":{}}`)
		l.Send(`{"usageMetadata":{"totalTokenCount":5}}`)
		l.Send(`not JSON`)
		l.Send(`{"voiceActivity":{"type":"ACTIVITY_END"}}`)
		l.SendContent(`"inputTranscription":{"text":"hello"}`)
		want := `{"usageMetadata":{"totalTokenCount":5}}
{"voiceActivity":{"type":"ACTIVITY_END"}}
{"inputTranscription":{"text":"hello"}}`
		if got := contents(c); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestAudioOfAnotherRate(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent("%s", strings.Replace(bridgetest.VoiceField(7, time.Second), "24000", "48000", 1))
		l.SendContent("%s", strings.Replace(bridgetest.VoiceField(7, time.Second), "24000", "48000", 1))
		time.Sleep(time.Second)
		c.checkLog("SetupComplete ErrorEvent")
		c.checkWarning("48000 Hz")
	})
}
