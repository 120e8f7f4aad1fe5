package bridge_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/media"
)

// The text of an answer comes when its voice is played, not when the model sends it. The text of unplayed voice never comes.
// The client and the transcript have the played part, to the word.
func TestTranscriptKeepsStepWithTheVoice(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		begin := r.elapsed()
		for _, words := range []string{"Once upon a time ", "there was a parrot ", "that never stopped ", "talking at all."} {
			l.SendContent(`%s,"outputTranscription":{"text":%q}`, bridgetest.VoiceField(7, time.Second), words)
		}
		l.SendContent(`"generationComplete":true`)
		time.Sleep(2600 * time.Millisecond)
		l.InterruptTurn()
		time.Sleep(3 * time.Second)
		var texts []string
		for _, e := range c.entries() {
			content, ok := e.event.(bridge.RawServerContent)
			if !ok || !strings.Contains(string(content.ServerContent), "outputTranscription") {
				continue
			}
			// a frame is handed over 20 ms before its end
			if at, want := e.at-begin, time.Duration(len(texts))*time.Second; (at - want).Abs() > 20*time.Millisecond {
				t.Errorf("piece %d came after %v", len(texts), at)
			}
			texts = append(texts, string(content.ServerContent))
		}
		if len(texts) != 3 || !strings.Contains(texts[2], "never stopped") {
			t.Errorf("the client read %q", texts)
		}
		i := lastEvent[bridge.Interrupted](c)
		if want := "Once upon a time there was a parrot that never "; i.PlayedText != want || i.Generation == 0 {
			t.Errorf("interrupted: %+v, want %q heard", i, want)
		}
		if off := i.Played - 2600*time.Millisecond; off < 0 || off > 26*time.Millisecond {
			t.Errorf("%v were heard", i.Played)
		}
		got := c.contextEntries()
		if e := got[len(got)-1]; e.Content != i.PlayedText || !e.Interrupted || e.Played != i.Played {
			t.Errorf("kept %+v", e)
		}
	})
}

// If a sentence of the gateway is interrupted, the fully played turn before it stays complete. This holds while the sentence
// plays, and while an answer waits behind it.
func TestOurOwnSoundIsNoVoiceOfATurn(t *testing.T) {
	for name, cut := range map[string]func(*harness, *caller){
		"typed": func(_ *harness, c *caller) { c.typeText("second") },
		"interrupted": func(r *harness, _ *caller) {
			r.up.SetFailure(0, nil)
			l := r.up.NextConn().SendSetupComplete()
			l.SendContent(`%s,"outputTranscription":{"text":"five six "}`, bridgetest.VoiceField(8, 2*time.Second))
			l.InterruptTurn()
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				c.typeText("first")
				l.SendContent(`%s,"outputTranscription":{"text":"one two three four "}`, bridgetest.VoiceField(7, 4*time.Second))
				l.CompleteTurn()
				l.SendHandle("h")
				time.Sleep(6 * time.Second) // the whole answer is played
				r.cutNetwork(l)
				if name == "interrupted" {
					c.typeText("second")
				}
				time.Sleep(5100 * time.Millisecond) // "One moment, please." has begun
				cut(r, c)
				time.Sleep(time.Second)
				if i := lastEvent[bridge.Interrupted](c); i.PlayedText != "" || i.Played > 26*time.Millisecond { // if the link comes after the sentence
					t.Errorf("interrupted: %+v", i)
				}
				for _, e := range c.contextEntries() {
					if e.Content == "one two three four " && !e.Interrupted {
						return
					}
				}
				t.Errorf("kept %+v", c.contextEntries())
			})
		})
	}
}

// The time that a person takes for a form or a question does not count as the model's latency.
func TestLatencyLeavesOutThePersonsOwnTime(t *testing.T) {
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("book a table")
		time.Sleep(200 * time.Millisecond)
		l.CallTool("a", "show_canvas_tool", schema(question))
		time.Sleep(time.Minute)
		c.sendToolResponse("a", "show_canvas_tool", `{"action":"submit"}`)
		time.Sleep(400 * time.Millisecond)
		l.SendContent(`%s`, bridgetest.VoiceField(7, time.Second))
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		if got := lastEvent[bridge.Latency](c).Model; (got - 400*time.Millisecond).Abs() > 20*time.Millisecond {
			t.Errorf("the answer took %v after the form, want 400ms", got)
		}

		l.CallTool("b", "show_canvas_tool", schema(question))
		c.sendToolResponse("b", "show_canvas_tool", `{"dismissed":true}`) // the model does not reply to that
		time.Sleep(10 * time.Second)
		c.typeText("and now?")
		time.Sleep(300 * time.Millisecond)
		l.SendContent(`%s`, bridgetest.VoiceField(7, time.Second))
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		if got := lastEvent[bridge.Latency](c).Model; (got - 300*time.Millisecond).Abs() > 20*time.Millisecond {
			t.Errorf("the answer to the next question took %v, want 300ms", got)
		}
	})
}

// The latency of each answer is measured once, however the answer ends.
func TestLatencyOfEachAnswer(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.session.SetRoundTrip(80 * time.Millisecond)
		check := func(n int, model time.Duration) {
			t.Helper()
			found, _ := findEvents[bridge.Latency](c)
			if len(found) != n {
				t.Fatalf("%d latencies, want %d: %s", len(found), n, c.summarizeLog())
			}
			if n == 0 {
				return
			}
			got := found[n-1]
			if (got.Model-model).Abs() > 20*time.Millisecond || got.Gateway <= 0 || got.Gateway > 20*time.Millisecond ||
				got.RoundTrip != 80*time.Millisecond {
				t.Errorf("latency %d: %+v, want %v by the model", n, got, model)
			}
			if got.Total() != got.Model+got.Gateway+got.RoundTrip {
				t.Errorf("total %v", got.Total())
			}
		}
		answer := func() {
			l.SendContent(`%s`, bridgetest.VoiceField(7, time.Second))
			l.SendContent(`"turnComplete":true`)
		}
		c.speakWithoutPause(time.Second)
		c.staySilentFor(700 * time.Millisecond)
		answer()
		check(0, 0) // the answer is not over yet
		time.Sleep(2 * time.Second)
		check(1, 700*time.Millisecond)

		c.typeText("and now?")
		time.Sleep(900 * time.Millisecond)
		answer()
		time.Sleep(2 * time.Second)
		check(2, 900*time.Millisecond)

		answer() // nobody asked
		time.Sleep(2 * time.Second)
		check(2, 900*time.Millisecond)

		c.typeText("and now?")
		time.Sleep(300 * time.Millisecond)
		l.SendContent(`%s`, bridgetest.VoiceField(7, time.Second))
		time.Sleep(500 * time.Millisecond)
		l.InterruptTurn()
		time.Sleep(time.Second)
		check(3, 300*time.Millisecond)
	})
}

// The voice is ducked as soon as the person speaks. It becomes loud again if the model reports no interruption.
func TestVoiceIsDuckedDuringSpeech(t *testing.T) {
	for _, wish := range []bool{false, true} {
		runWithFakeClock(t, func(t *testing.T) {
			r := newHarness(t)
			config := `{}`
			if wish {
				config = `{"voxgate":{"ducking":true}}`
			}
			c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(config)})
			begin := r.elapsed()
			l.SendContent(`%s`, bridgetest.VoiceField(8000, 3*time.Second))
			c.staySilentFor(500 * time.Millisecond)
			c.speakWithoutPause(200 * time.Millisecond) // a cough
			c.staySilentFor(2 * time.Second)
			quiet := int16(8000 / math.Pow(10, 12.0/20))
			lowest, last := int16(8000), int16(0)
			var from, to time.Duration
			for _, e := range c.entries() {
				if e.event != nil {
					continue
				}
				if e.tag == quiet && from == 0 {
					from = e.at - begin
				}
				if e.tag == quiet {
					to = e.at - begin
				}
				lowest, last = min(lowest, e.tag), e.tag
			}
			switch {
			case !wish && lowest != 8000:
				t.Errorf("the voice went down to %d unasked", lowest)
			case wish && (lowest != quiet || from < 500*time.Millisecond || from > 640*time.Millisecond || to > 1100*time.Millisecond ||
				last != 8000):
				t.Errorf("ducked to %d from %v to %v, and ended at %d", lowest, from, to, last)
			}
		})
	}
}

func TestOnlyTheTranscriptWaitsForTheVoice(t *testing.T) {
	t.Run("cut off by the model", func(t *testing.T) {
		converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.SendContent(`%s,"outputTranscription":{"text":"one "}`, bridgetest.VoiceField(7, 2*time.Second))
			l.SendContent(`%s,"outputTranscription":{"text":"two "},"inputTranscription":{"text":"what I said"}`, bridgetest.VoiceField(7,
				2*time.Second))
			time.Sleep(500 * time.Millisecond)
			if !strings.Contains(contents(c), "what I said") {
				t.Error("the person's transcript waits for the model's voice")
			}
			l.InterruptTurn()
			time.Sleep(5 * time.Second)
			if !strings.Contains(contents(c), "what I said") {
				t.Error("the person's transcript never came")
			}
		})
	})
	t.Run("stale after typed text", func(t *testing.T) {
		converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.SendContent(`%s,"outputTranscription":{"text":"one "}`, bridgetest.VoiceField(7, 2*time.Second))
			time.Sleep(300 * time.Millisecond)
			c.typeText("stop")
			l.Send(`{"serverContent":{"outputTranscription":{"text":"two"},"turnComplete":true},"usageMetadata":{"totalTokenCount":42}}`)
			time.Sleep(5 * time.Second)
			if !strings.Contains(contents(c), "turnComplete") {
				t.Errorf("Gemini's own turnComplete and usageMetadata were never passed on: %s", contents(c))
			}
		})
	})
}

type early struct{ frames int }

func (e *early) Rate() int                      { return 24000 }
func (e *early) MaxLead() time.Duration         { return 200 * time.Millisecond }
func (e *early) WriteFrame(f media.Frame) error { e.frames++; return nil }

func TestWhatIsAheadWasNotHeard(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.session.AttachOutput(&early{})
		for i := range 50 {
			l.SendContent(`%s,"outputTranscription":{"text":"w%d "}`, bridgetest.VoiceField(7, 100*time.Millisecond), i)
		}
		time.Sleep(time.Second)
		l.InterruptTurn()
		synctest.Wait()
		i := lastEvent[bridge.Interrupted](c)
		if (i.Played - time.Second).Abs() > 30*time.Millisecond {
			t.Errorf("%v are said to be heard after 1 s: %+v", i.Played, i)
		}
		if strings.Contains(i.PlayedText, "w10 ") {
			t.Errorf("heard %q", i.PlayedText)
		}
	})
}

func TestTheTurnThatIsHeardIsCut(t *testing.T) {
	for name, next := range map[string]string{
		"a thought": `"modelTurn":{"parts":[{"text":"hm","thought":true}]}`,
		"a voice":   bridgetest.VoiceField(8, 2*time.Second) + `,"outputTranscription":{"text":"second turn"}`,
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				l.SendContent(`%s,"outputTranscription":{"text":"one two three four "}`, bridgetest.VoiceField(7, 4*time.Second))
				l.CompleteTurn()
				time.Sleep(500 * time.Millisecond)
				l.SendContent(`%s`, next)
				time.Sleep(1800 * time.Millisecond)
				l.InterruptTurn()
				time.Sleep(time.Second)
				if i := lastEvent[bridge.Interrupted](c); i.PlayedText != "one two " || (i.Played-2300*time.Millisecond).Abs() > 26*time.Millisecond {
					t.Errorf("interrupted after 2.3 s: %+v", i)
				}
				if got := c.contextEntries(); len(got) == 0 || got[0].Content != "one two " {
					t.Errorf("kept %+v", got)
				}
			})
		})
	}
}

func TestAnswerAfterACutIsKept(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent(`%s,"outputTranscription":{"text":"one two three four "}`, bridgetest.VoiceField(7, 4*time.Second))
		l.SendContent(`"generationComplete":true`)
		time.Sleep(time.Second)
		c.typeText("stop")
		time.Sleep(time.Second)
		l.SendContent(`%s,"outputTranscription":{"text":"as you like "}`, bridgetest.VoiceField(8, time.Second))
		l.CompleteTurn()
		time.Sleep(3 * time.Second)
		c.checkContext("a: one (cut after 1.0 s); u: stop; a: as you like")
	})
}

func TestWhatWasNeverPlayedWasNotHeard(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent(`"outputTranscription":{"text":"Hello "}`)
		l.SendContent(`"outputTranscription":{"text":"my dear friend "}`)
		c.session.HoldVoice(true) // a peer connects
		l.SendContent(`%s,"outputTranscription":{"text":"and colleague "}`, bridgetest.VoiceField(7, 4*time.Second))
		l.InterruptTurn()
		synctest.Wait()
		if i := lastEvent[bridge.Interrupted](c); i.PlayedText != "" || i.Played > 26*time.Millisecond { // if the link comes after the sentence
			t.Errorf("nothing was played, and this is said to be heard: %+v", i)
		}
		if n := len(c.contextEntries()); n > 0 {
			t.Errorf("kept %+v", c.contextEntries())
		}
	})
}

func TestNothingIsToldOfAVoiceThatIsHeld(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.session.HoldVoice(true)
		l.SendContent(`%s,"outputTranscription":{"text":"Hello "}`, bridgetest.VoiceField(7, 4*time.Second))
		time.Sleep(2 * time.Second)
		if got := c.summarizeLog(); got != "SetupComplete" {
			t.Errorf("reported though nothing is heard: %s", got)
		}
		if got := contents(c); got != "" {
			t.Errorf("transcript though nothing is heard: %s", got)
		}
		c.session.HoldVoice(false)
		time.Sleep(20 * time.Millisecond)
		if !strings.HasPrefix(c.summarizeLog(), "SetupComplete Speaking 7*") {
			t.Errorf("story %s", c.summarizeLog())
		}
	})
}

// The latency of an answer counts from the last question that it can answer. Questions that were cleared, answered without a
// caller or answered without sound do not count for later output of the model.
func TestWhatAnAnswerIsTimedFrom(t *testing.T) {
	text := bridge.SessionRequest{Config: []byte(`{"generationConfig":{"responseModalities":["text"]}}`)}
	for name, test := range map[string]struct {
		open bridge.SessionRequest
		talk func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn // returns the connection of the last answer
		want []time.Duration                                                  // latencies of the model
	}{
		"cleared": {bridge.SessionRequest{}, func(r *harness, c *caller, _ *bridgetest.Conn) *bridgetest.Conn {
			c.typeText("what?")
			time.Sleep(time.Second)
			c.doCommand(bridge.ClearContext{})
			l := r.up.NextConn().SendSetupComplete()
			time.Sleep(5 * time.Minute)
			return l
		}, nil},
		"answered with nothing": {bridge.SessionRequest{}, func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.typeText("what?")
			time.Sleep(time.Second)
			l.SendContent(`"turnComplete":true`)
			time.Sleep(2 * time.Minute)
			return l
		}, nil},
		"answered as text": {text, func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.typeText("what?")
			time.Sleep(time.Second)
			l.SendContent(`%s,"outputTranscription":{"text":"that"}`, bridgetest.VoiceField(7, time.Second))
			l.SendContent(`"turnComplete":true`)
			l.SendHandle("h")
			time.Sleep(time.Minute)
			c.updateConfig(`{}`) // needs no new connection
			time.Sleep(time.Second)
			return l
		}, nil},
		"the first of two was on its way": {bridge.SessionRequest{}, func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.typeText("one?")
			time.Sleep(3 * time.Second)
			c.typeText("two?")
			l.SendAnswer(7, time.Second)
			time.Sleep(2 * time.Second)
			return l
		}, []time.Duration{3 * time.Second, 2 * time.Second}},
		"two with one answer": {bridge.SessionRequest{}, func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			twoQuestions(c, l)
			time.Sleep(time.Minute)
			return l
		}, []time.Duration{2 * time.Second}},
		"two with one answer, and a third": {bridge.SessionRequest{}, func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			twoQuestions(c, l)
			c.typeText("three?")
			time.Sleep(500 * time.Millisecond)
			return l
		}, []time.Duration{2 * time.Second, 500 * time.Millisecond}},
		"with a breath": {bridge.SessionRequest{}, func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakWithoutPause(time.Second)
			c.staySilentFor(time.Second)
			c.speakWithoutPause(time.Second)
			c.staySilentFor(700 * time.Millisecond)
			return l
		}, []time.Duration{700 * time.Millisecond}},
		"with a cough after it": {bridge.SessionRequest{}, func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakWithoutPause(time.Second)
			c.staySilentFor(time.Second)
			c.speakWithoutPause(120 * time.Millisecond)
			c.staySilentFor(700 * time.Millisecond)
			return l
		}, []time.Duration{1820 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, test.open, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				test.talk(r, c, l).SendAnswer(8, time.Second)
				time.Sleep(3 * time.Second)
				found, _ := findEvents[bridge.Latency](c)
				var got []time.Duration
				for _, f := range found {
					got = append(got, f.Model)
				}
				if !slices.EqualFunc(got, test.want, isAbout) {
					t.Errorf("by the model %v, want %v", got, test.want)
				}
			})
		})
	}
}

// twoQuestions makes the model answer two questions together.
func twoQuestions(c *caller, l *bridgetest.Conn) {
	c.typeText("one?")
	time.Sleep(time.Second)
	c.typeText("and two?")
	time.Sleep(time.Second)
	l.SendAnswer(7, time.Second)
	time.Sleep(10 * time.Second)
}

// After a caller's return, latency does not count from a question before its departure. The round trip of the old connection
// does not count, either.
func TestLatencyAfterAReturn(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.session.SetRoundTrip(900 * time.Millisecond) // by a bad network
		c.typeText("what?")
		c.disconnect()
		l.SendAnswer(7, time.Second) // to nobody
		time.Sleep(2 * time.Second)
		c = r.resumeByToken(c.resumeToken())
		time.Sleep(2 * time.Minute)
		l.SendAnswer(8, time.Second) // unasked
		time.Sleep(3 * time.Second)
		if found, _ := findEvents[bridge.Latency](c); len(found) > 0 {
			t.Errorf("latency of a question that was answered before: %+v", found)
		}
		c.typeText("what?")
		time.Sleep(time.Second)
		l.SendAnswer(8, time.Second)
		time.Sleep(3 * time.Second)
		if got := lastEvent[bridge.Latency](c); got.RoundTrip != 0 {
			t.Errorf("the round trip of a connection that is gone is taken for that of the new one: %+v", got)
		}
	})
}

// When the detection of speech is changed, the voice does not stay ducked, and the person does not stay speaking.
func TestNobodySpeaksOnWhenTheWayOfHearingChanges(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(`{"voxgate":{"ducking":true}}`)},
		func(t *testing.T, r *harness, c *caller, _ *bridgetest.Conn) {
			c.sendInRealTime(countingPCM(0, 16000))
			c.doCommand(bridge.UpdateConfig{Config: []byte(`{"voxgate":{"ducking":true,"vad":{"enabled":false}}}`)})
			c.sendInRealTime(countingPCM(16000, 31*16000)) // goes on for 31 s, longer than the change of the config waits
			l := r.up.NextConn().SendSetupComplete()
			time.Sleep(20 * time.Second)
			if got := lastEvent[bridge.UserSpeaking](c); got.Speaking {
				t.Error("USER_SPEAKING stays true though nothing is sent for 20 s")
			}
			c.clearLog()
			l.SendContent(`%s`, bridgetest.VoiceField(8000, time.Second))
			time.Sleep(2 * time.Second)
			for _, e := range c.entries() {
				if e.event == nil && e.tag < 8000 && e.tag > 0 {
					t.Fatalf("the voice is ducked to %d", e.tag)
				}
			}
		})
}
