package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// sendInRealTime sends audio in real time.
func (c *caller) sendInRealTime(pcm []int16) {
	for part := range slices.Chunk(pcm, 320) {
		c.sendAudio(part)
		time.Sleep(20 * time.Millisecond)
	}
}

// In a long sentence with a pause of 300 ms, no remedy for a silent model is tried: it would cut off the sentence.
func TestWatchdogInMidSentence(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{}, watchful)
		c := r.meets(bridge.SessionRequest{})
		c.sendInRealTime(loud(time.Second))
		c.staySilentFor(300 * time.Millisecond)
		c.speakAndPause(9*time.Second, 5*time.Second)
		m.heard(10 * time.Second)
		if got := c.watchdogAttempts(); got != "" {
			t.Errorf("tried %s", got)
		}
	})
}

// The next connection gets unanswered speech again, from its beginning. Answered speech is not replayed.
func TestUnansweredSpeechIsReplayed(t *testing.T) {
	for name, test := range map[string]struct {
		talk func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn // returns the connection that gets the replay
		want time.Duration
	}{
		// A tool call does not count as a reaction to the sentence during which it comes.
		"a call comes in the middle": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakFor(time.Second)
			c.speakWithoutPause(2 * time.Second)
			l.CallTools("a weather")
			l.SendHandle("h2")
			c.speakWithoutPause(2 * time.Second)
			return r.dropConnection(l)
		}, 4 * time.Second},
		"a thought is no answer": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakFor(2 * time.Second)
			l.SendContent(`"modelTurn":{"parts":[{"text":"Hm.","thought":true}]}`)
			return r.dropConnection(l)
		}, 2 * time.Second},
		// The handle covered the question and the call. The fresh session has neither.
		"the handle is dead": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakFor(2 * time.Second)
			l.CallTools("a weather")
			l.SendHandle("h2")
			l.DropConnection()
			r.up.NextConn().CloseWith(1008, "BidiGenerateContent session not found")
			return r.up.NextConn().AssertSetup("", "").SendSetupComplete()
		}, 2 * time.Second},
		"the first of two is answered while both are said again": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakFor(2 * time.Second)
			c.speakFor(4 * time.Second)
			m := r.dropConnection(l)
			c.staySilentFor(2 * time.Second) // 4 s of the replay
			m.SendAnswer(7, time.Second)
			c.staySilentFor(500 * time.Millisecond)
			return r.dropConnection(m)
		}, 4 * time.Second},
		"after a long gap": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakFor(2 * time.Second)
			r.cutNetwork(l)
			time.Sleep(26 * time.Second)
			r.up.SetFailure(0, nil)
			return r.up.NextConn().SendSetupComplete()
		}, 2 * time.Second},
		"cleared while it is said again": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.speakFor(6 * time.Second)
			r.dropConnection(l)
			c.staySilentFor(time.Second)
			c.doCommand(bridge.ClearContext{})
			return r.up.NextConn().SendSetupComplete()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				m := test.talk(r, c, l)
				c.staySilentFor(6 * time.Second)
				if d := voiced(m.ReceivedPCM()); d < test.want-100*time.Millisecond || test.want == 0 && d > 0 {
					t.Errorf("%v of %v came", d, test.want)
				}
			})
		})
	}
}

// If the next session makes the same call, with arguments in any order, it gets the earlier answer. But the tool runs again
// if the person has asked again, or if the history was cleared.
func TestSameCallAgain(t *testing.T) {
	const sorted = `{"n":[{"a":9007199254740993,"b":1}],"to":"Ada"}`
	answer := func(c *caller) { c.sendToolResponse("a", "", `{"sent":true}`) }
	lost := func(r *harness, l *bridgetest.Conn) *bridgetest.Conn {
		l.DropConnection()
		return r.up.NextConn().AssertSetup("", "h").SendSetupComplete()
	}
	for name, test := range map[string]struct {
		happens func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn // returns the connection whose model calls again
		args    string
		runs    int
	}{
		"in another order": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			return lost(r, l)
		}, `{"to":"Ada","n":[{"b":1,"a":9007199254740993}]}`, 1},
		"with another number": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			return lost(r, l)
		}, `{"n":[{"b":1,"a":9007199254740992}],"to":"Ada"}`, 2},
		"asked for again": {func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			l.SendAnswer(7, time.Second)
			time.Sleep(2 * time.Second)
			m := lost(r, l)
			c.typeText("again")
			return m
		}, sorted, 2},
		"answered and cleared": {func(r *harness, c *caller, _ *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			c.doCommand(bridge.ClearContext{})
			return r.up.NextConn().SendSetupComplete()
		}, sorted, 2},
		"answered when it was cleared": {func(r *harness, c *caller, _ *bridgetest.Conn) *bridgetest.Conn {
			c.doCommand(bridge.ClearContext{})
			m := r.up.NextConn()
			_ = c.session.Do(bridge.ToolResponse{ID: "a", Response: json.RawMessage(`{"sent":true}`)})
			return m.SendSetupComplete()
		}, sorted, 2},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				synctest.Wait()
				l.CallTool("a", "weather", sorted)
				m := test.happens(r, c, l)
				synctest.Wait()
				m.CallTool("b", "weather", test.args)
				if calls, _ := findEvents[bridge.ToolCall](c); len(calls) != test.runs {
					t.Errorf("the tool ran %d times, want %d", len(calls), test.runs)
				}
			})
		})
	}
}

// The model was told that the result of a call follows, and then the call was cancelled with its session. If the next session
// calls again, the tool runs, because no result would follow.
func TestDetachedCallAskedAgain(t *testing.T) {
	const first = ` pay {"status":"not done yet","result":"follows as text; do not call again"}`
	converse(t, canvasOn("gemini-3.1-flash-live-preview"), func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		synctest.Wait()
		l.CallTool("a", "pay", `{}`)
		l.AssertToolResponses("a" + first)
		l.DropConnection()
		m := r.up.NextConn().AssertSetup("", "h").SendSetupComplete()
		synctest.Wait()
		m.CallTool("b", "pay", `{}`)
		c.checkLog("SetupComplete ToolStatus ToolCall(ask) ToolStatus ToolCallCancellation(ask) ToolStatus ToolCall(ask)")
		c.sendToolResponse(lastEvent[bridge.ToolCall](c).Calls[0].ID, "", `{"action":"submit"}`)
		m.AssertToolResponses("b" + first)
		if got := m.InputLog(); got != `tool, text {"args":{},"result":{"paid":true},"tool":"pay"}` {
			t.Errorf("Gemini got %s", got)
		}
	}, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		yes, err := tools.Confirm(ctx, "Pay 5 €?")
		return fmt.Appendf(nil, `{"paid":%v}`, yes), err
	}))
}

// A sentence that the client has marked is replayed with its mark.
func TestMarkSurvivesAnAnswer(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"voxgate":{"vad":{"enabled":false,"prefixPaddingMs":600}}}`)},
		func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.sendInRealTime(loud(time.Second))
			c.doCommand(bridge.ActivityStart)
			c.sendInRealTime(loud(time.Second))
			l.SendVoice(7, time.Second) // the answer to earlier speech
			l.InterruptTurn()
			c.sendInRealTime(loud(time.Second))
			m := r.dropConnection(l)
			c.doCommand(bridge.ActivityEnd)
			time.Sleep(4 * time.Second)
			if got := m.InputLog(); got != "mark activityStart, mark activityEnd" {
				t.Errorf("came %q", got)
			}
			if d := voiced(m.ReceivedPCM()); d < 2*time.Second {
				t.Errorf("%v of 2 s came", d)
			}
		},
	)
}

// The cancellation of a call does not end speech that the client has marked.
func TestGateDuringManualSpeech(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		config := strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview","voxgate":{"vad":{"enabled":false}},`, 1)
		c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(config)})
		c.doCommand(bridge.ActivityStart)
		c.sendInRealTime(loud(time.Second))
		l.CallTools("a weather")
		c.entries()
		l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
		c.entries()
		c.sendInRealTime(loud(2 * time.Second))
		c.doCommand(bridge.ActivityEnd)
		time.Sleep(time.Second)
		if d := voiced(l.ReceivedPCM()); d < 2900*time.Millisecond {
			t.Errorf("%v of 3 s came", d)
		}
	})
}

// If a caller changes the model and types at once, the new model gets the text.
func TestTypedDuringChangeOfModel(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{}, watchful, distant(200*time.Millisecond))
		c := r.meets(bridge.SessionRequest{})
		c.updateConfig(`{"model":"gemini-3.1-flash-live-preview"}`)
		c.typeText("hello")
		time.Sleep(10 * time.Second)
		select {
		case <-c.over:
			t.Fatalf("the conversation is over: %v", c.err)
		default:
		}
		if n := len(m.saw(emulator.EventTypedText)); n != 1 {
			t.Errorf("typed %d times", n)
		}
	})
}

// An incomplete typed turn does not delay the replacement of the connection.
func TestIncompleteTurnDrains(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.doCommand(bridge.Message{Parts: []byte(`[{"text":"by the way"}]`)})
		l.SendHandle("h")
		begin := r.elapsed()
		c.updateConfig(warm("0.5"))
		m := r.up.NextConn().SendSetupComplete()
		if took := r.elapsed() - begin; took > 4*time.Second {
			t.Errorf("after %v", took)
		}
		if got := m.InputLog(); got != "" {
			t.Errorf("said again, though the handle knows it: %q", got)
		}
	})
}

// A planned replacement of the connection stays planned during a short absence of the caller.
func TestDrainSurvivesParking(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendVoice(7, 5*time.Second)
		begin := r.elapsed()
		l.Send(`{"goAway":{"timeLeft":"20s"}}`)
		time.Sleep(time.Second)
		c.disconnect()
		time.Sleep(time.Second)
		r.resumeByToken(c.resumeToken())
		r.up.NextConn().SendSetupComplete()
		if took := r.elapsed() - begin; took > 16*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// If replayed speech is transcribed again, the transcript has it once.
func TestTranscriptOnce(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.speakFor(2 * time.Second)
		l.SendContent(`"inputTranscription":{"text":"hello"}`)
		m := r.dropConnection(l)
		c.staySilentFor(2 * time.Second)
		m.SendContent(`"inputTranscription":{"text":"hello"}`)
		if got := c.contextEntries(); len(got) != 1 || got[0].Content != "hello" {
			t.Errorf("kept %+v", got)
		}
	})
}

// Speech that the client has marked ends when the caller is lost.
func TestManualSpeechOfALostCaller(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"voxgate":{"vad":{"enabled":false}}}`), Resumable: true},
		func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.doCommand(bridge.ActivityStart)
			c.sendInRealTime(loud(time.Second))
			c.disconnect()
			time.Sleep(time.Second)
			d := r.resumeByToken(c.resumeToken())
			before := len(l.ReceivedPCM())
			d.sendInRealTime(loud(time.Second)) // outside of an activity
			if n := len(l.ReceivedPCM()) - before; n > 0 {
				t.Errorf("%d samples came that are not for the model", n)
			}
		},
	)
}

// If Gemini cannot be reached after a ClearContext, the person is informed as during any gap.
func TestGapAfterClearContext(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.doCommand(bridge.ClearContext{})
		r.up.NextConn() // never accepts
		time.Sleep(3 * time.Second)
		if _, seen := c.heardAndSeen(); len(seen) == 0 {
			t.Error("nobody learned of it")
		}
	})
}

// A resumed session gets an answer that its handle does not cover, even while that answer is still played.
func TestMissedTurnStillPlaying(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typeText("my name is Ada")
		for range 5 {
			l.SendContent(`%s,"outputTranscription":{"text":"word "}`, bridgetest.VoiceField(7, time.Second))
		}
		l.SendContent(`"turnComplete":true`)
		time.Sleep(500 * time.Millisecond)
		m := r.dropConnection(l)
		if got := m.InputLog(); strings.Count(got, "word") < 5 {
			t.Errorf("came %q", got)
		}
	})
}

// A thinking model that continues after turnComplete does not count as idle before it reports IDLE.
func TestSlowModelIsNotIdle(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"model":"gemini-3.8-live-extended-thinking"}`)},
		func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			_ = c
			l.SendContent(`%s`, bridgetest.VoiceField(7, time.Second))
			l.SendContent(`"turnComplete":true,"interactionStatus":"IN_PROGRESS"`)
			l.SendHandle("h")
			begin := r.elapsed()
			l.Send(`{"goAway":{"timeLeft":"50s"}}`)
			time.Sleep(5 * time.Second)
			select {
			case <-r.up.Conns:
				t.Errorf("the link was replaced after %v while the model thinks", r.elapsed()-begin)
			default:
			}
		},
		watchful,
	)
}

// With a configuration without resumption, initial or updated, the gateway does not use handles, not even older ones. A fresh
// session with the transcript replaces a lost one. A lost caller is not waited for.
func TestWithoutResumption(t *testing.T) {
	const config = `{"voxgate":{"enableResumption":false}}`
	for name, begin := range map[string]func(r *harness) (*caller, *bridgetest.Conn){
		"from the beginning": func(r *harness) (*caller, *bridgetest.Conn) {
			c, l := r.connectCaller(bridge.SessionRequest{Resumable: true, Config: []byte(config)})
			if c.resumeToken() != "" {
				r.t.Error("there is a resume token")
			}
			return c, l
		},
		"by an update": func(r *harness) (*caller, *bridgetest.Conn) {
			c, l := r.connectCaller(resumable)
			l.SendHandle("h")
			c.updateConfig(config)
			return c, r.up.NextConn().SendSetupComplete()
		},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t)
				c, l := begin(r)
				c.checkStillWorks(l)
				l.SendContent(`"inputTranscription":{"text":"hello"},"turnComplete":true`)
				time.Sleep(time.Minute)
				l.DropConnection()
				if got := r.up.NextConn().AssertSetup("", "").SendSetupComplete().InputLog(); !strings.Contains(got, "hello") {
					t.Errorf("the fresh session got %q", got)
				}
				c.disconnect()
				if n := len(r.log.find("conversation ended")); n != 1 {
					t.Error("the conversation is parked")
				}
			})
		})
	}
}

// A proactive model stays silent on speech that is not addressed to it. The person is not asked to wait.
func TestProactiveSilence(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.clearLog()
		c.speakFor(2 * time.Second)
		l.SendContent(`"inputTranscription":{"text":"Mum, dinner is ready!"}`)
		go func() {
			for {
				select {
				case n := <-r.up.Conns:
					n.SendSetupComplete()
					time.Sleep(3 * time.Second)
					n.SendContent(`"inputTranscription":{"text":"Mum, dinner is ready!"}`)
				case <-c.over:
					return
				}
			}
		}()
		c.staySilentFor(30 * time.Second)
		sound, seen := c.heardAndSeen()
		t.Logf("tried %s; heard %v of tones and sentences, got %v", c.watchdogAttempts(), sound, seen)
		if sound > 0 {
			t.Errorf("heard %v of tones and sentences, got %v", sound, seen)
		}
		c.doCommand(bridge.Goodbye{})
		<-c.over
	}, watchful)
}

// Text of one turn that comes during the person's next turn does not split the entry of the next turn.
func TestHistoryInOrder(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent(`"inputTranscription":{"text":"one"}`)
		l.SendContent(`%s,"outputTranscription":{"text":"first"}`, bridgetest.VoiceField(7, 5*time.Second))
		l.SendContent(`"turnComplete":true`)
		l.SendContent(`"inputTranscription":{"text":"two"}`)
		l.SendContent(`%s,"outputTranscription":{"text":"second"}`, bridgetest.VoiceField(7, time.Second))
		l.SendContent(`"turnComplete":true`)
		l.SendContent(`"inputTranscription":{"text":"three "}`)
		time.Sleep(7 * time.Second)
		l.SendContent(`"inputTranscription":{"text":"and more"}`)
		c.checkContext("u: one; a: first; u: two; a: second; u: three and more")
	})
}

// The answer to an update during the failing first dial does not replace the first SetupComplete with its token.
func TestUpdateBeforeFirstLink(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c := r.startCaller(resumable)
		l := r.up.NextConn()
		<-c.seated
		c.updateConfig(warm("0.5"))
		l.CloseWith(1011, "The service is currently unavailable.")
		r.up.NextConn().SendSetupComplete()
		time.Sleep(time.Second)
		all := setups(c)
		if len(all) == 0 || all[0].ResumeToken == "" {
			t.Errorf("%d SETUP_COMPLETEs, none with a token", len(all))
		}
	})
}

// Speech during a blocking call is kept until the model listens again, or the client is informed of its loss.
func TestSpeechDuringACall(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{})
		config := strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview",`, 1)
		c := r.meets(bridge.SessionRequest{Config: json.RawMessage(config)})
		c.typeText("/tool weather {}")
		c.staySilentFor(time.Second)
		c.speakFor(time.Second)
		c.sendToolResponse(lastEvent[bridge.ToolCall](c).Calls[0].ID, "weather", `{"x":1}`)
		c.staySilentFor(10 * time.Second)
		if failures, _ := findEvents[bridge.ErrorEvent](c); len(failures) == 0 {
			m.heard(time.Second)
		}
	})
}

// A cough while an answer is overdue does not prolong the wait, which ends when the question expires.
func TestSoundDuringAnOverdueAnswer(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"model":"gemini-2.5-flash-native-audio-latest"}`)},
		func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.speakFor(2 * time.Second)
			l.SendContent(`"inputTranscription":{"text":"hello"}`)
			c.staySilentFor(8 * time.Second) // Nudge was tried, and the message was shown
			if _, seen := c.heardAndSeen(); len(seen) != 1 {
				t.Fatalf("got %v", seen)
			}
			c.sendInRealTime(loud(200 * time.Millisecond))
			c.staySilentFor(time.Second)
			c.clearLog()
			c.staySilentFor(20 * time.Second)
			if sound, seen := c.heardAndSeen(); sound > 0 || len(seen) > 0 {
				t.Errorf("heard %v and got %v", sound, seen)
			}
			if s, _ := findEvents[bridge.StateChange](c); len(s) > 0 {
				t.Errorf("states %v", s)
			}
			c.checkStillWorks(l)
		},
		watchful,
	)
}

// After a call of an unknown function, which is answered at once, the gateway waits for the model as after any call.
func TestWatchdogAfterUndeclaredCall(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.speakFor(time.Second)
		l.CallTools("a rm")
		l.SendHandle("h2")
		time.Sleep(20 * time.Second)
		if c.watchdogAttempts() == "" {
			t.Error("nothing was tried")
		}
		r.up.DiscardDials()
	}, watchful)
}

// If all remedies fail for a silent model, the person is asked to repeat the question.
func TestPleaseSayItAgain(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typeText("hello?")
		r.up.NextConn().AssertSetup("", "h").SendSetupComplete()
		r.up.NextConn().AssertSetup("", "").SendSetupComplete()
		time.Sleep(10 * time.Second)
		if change := lastEvent[bridge.StateChange](c); !strings.Contains(change.Message, "say it again") ||
			c.watchdogAttempts() != "resume fresh none" {
			t.Errorf("got %+v, tried %s", change, c.watchdogAttempts())
		}
		if sound, _ := c.heardAndSeen(); sound < time.Second {
			t.Errorf("heard %v", sound)
		}
	}, watchful)
}
