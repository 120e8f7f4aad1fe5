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
	"voxgate/bridge/bridgetest"
	"voxgate/bridge/gemini/emulator"
	"voxgate/tools"
)

// pace speaks in real time.
func (c *caller) pace(pcm []int16) {
	for part := range slices.Chunk(pcm, 320) {
		c.speak(part)
		time.Sleep(20 * time.Millisecond)
	}
}

// A pause of 300 ms in a long sentence ends no wait for an answer that would cut the rest of it off.
func TestWatchdogInMidSentence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{}, watchful)
		c := r.meets(bridge.SessionRequest{})
		c.pace(loud(time.Second))
		c.quiet(300 * time.Millisecond)
		c.says(9*time.Second, 5*time.Second)
		m.heard(10 * time.Second)
		if got := c.tried(); got != "" {
			t.Errorf("tried %s", got)
		}
	})
}

// What has no answer yet is said again by the next link, whole; what has one is not.
func TestSaidAgain(t *testing.T) {
	for name, test := range map[string]struct {
		talk func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn // the link that hears it again
		want time.Duration
	}{
		// A tool call does not make the sentence known that is being said when it comes.
		"a call comes in the middle": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.utter(time.Second)
			c.talks(2 * time.Second)
			l.CallTools("a weather")
			l.SendHandle("h2")
			c.talks(2 * time.Second)
			return r.next(l)
		}, 4 * time.Second},
		"a thought is no answer": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.utter(2 * time.Second)
			l.SendContent(`"modelTurn":{"parts":[{"text":"Hm.","thought":true}]}`)
			return r.next(l)
		}, 2 * time.Second},
		// It knew of the question and of the call; the fresh session knows neither.
		"the handle is dead": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.utter(2 * time.Second)
			l.CallTools("a weather")
			l.SendHandle("h2")
			l.DropConnection()
			r.up.NextConn().CloseWith(1008, "BidiGenerateContent session not found")
			return r.up.NextConn().AssertDialledFor("", "").AcceptSetup()
		}, 2 * time.Second},
		"the first of two is answered while both are said again": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.utter(2 * time.Second)
			c.utter(4 * time.Second)
			m := r.next(l)
			c.quiet(2 * time.Second) // 4 s of the replay
			m.SendAnswer(7, time.Second)
			c.quiet(500 * time.Millisecond)
			return r.next(m)
		}, 4 * time.Second},
		"after a long gap": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.utter(2 * time.Second)
			r.cutOff(l)
			time.Sleep(26 * time.Second)
			r.up.SetFailure(0, nil)
			return r.up.NextConn().AcceptSetup()
		}, 2 * time.Second},
		"cleared while it is said again": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			c.utter(6 * time.Second)
			r.next(l)
			c.quiet(time.Second)
			c.do(bridge.ClearContext{})
			return r.up.NextConn().AcceptSetup()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			talk(t, weather, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				m := test.talk(r, c, l)
				c.quiet(6 * time.Second)
				if d := voiced(m.ReceivedPCM()); d < test.want-100*time.Millisecond || test.want == 0 && d > 0 {
					t.Errorf("%v of %v came", d, test.want)
				}
			})
		})
	}
}

// A call that has an answer is answered by that when the next link asks for the same: the arguments have no order. But a tool is
// run again when the person asks again, or when what was done was cleared.
func TestSameCallAgain(t *testing.T) {
	const sorted = `{"n":[{"a":9007199254740993,"b":1}],"to":"Ada"}`
	answer := func(c *caller) { c.respond("a", "", `{"sent":true}`) }
	lost := func(r *rig, l *bridgetest.Conn) *bridgetest.Conn {
		l.DropConnection()
		return r.up.NextConn().AssertDialledFor("", "h").AcceptSetup()
	}
	for name, test := range map[string]struct {
		happens func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn // the link that asks again
		args    string
		runs    int
	}{
		"in another order": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			return lost(r, l)
		}, `{"to":"Ada","n":[{"b":1,"a":9007199254740993}]}`, 1},
		"with another number": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			return lost(r, l)
		}, `{"n":[{"b":1,"a":9007199254740992}],"to":"Ada"}`, 2},
		"asked for again": {func(r *rig, c *caller, l *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			l.SendAnswer(7, time.Second)
			time.Sleep(2 * time.Second)
			m := lost(r, l)
			c.typed("again")
			return m
		}, sorted, 2},
		"answered and cleared": {func(r *rig, c *caller, _ *bridgetest.Conn) *bridgetest.Conn {
			answer(c)
			c.do(bridge.ClearContext{})
			return r.up.NextConn().AcceptSetup()
		}, sorted, 2},
		"answered when it was cleared": {func(r *rig, c *caller, _ *bridgetest.Conn) *bridgetest.Conn {
			c.do(bridge.ClearContext{})
			m := r.up.NextConn()
			_ = c.session.Do(bridge.ToolResponse{ID: "a", Response: json.RawMessage(`{"sent":true}`)})
			return m.AcceptSetup()
		}, sorted, 2},
	} {
		t.Run(name, func(t *testing.T) {
			talk(t, weather, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				synctest.Wait()
				l.CallTool("a", "weather", sorted)
				m := test.happens(r, c, l)
				synctest.Wait()
				m.CallTool("b", "weather", test.args)
				if calls, _ := find[bridge.ToolCall](c); len(calls) != test.runs {
					t.Errorf("the tool ran %d times, want %d", len(calls), test.runs)
				}
			})
		})
	}
}

// A call that was cancelled with its session, whose model learned that the result follows, runs when the next session asks again:
// nothing would follow.
func TestDetachedCallAskedAgain(t *testing.T) {
	const first = ` pay {"status":"not done yet","result":"follows as text; do not call again"}`
	talk(t, canvasOn("gemini-3.1-flash-live-preview"), func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		synctest.Wait()
		l.CallTool("a", "pay", `{}`)
		l.AssertToolResponses("a" + first)
		l.DropConnection()
		m := r.up.NextConn().AssertDialledFor("", "h").AcceptSetup()
		synctest.Wait()
		m.CallTool("b", "pay", `{}`)
		c.sees("SetupComplete ToolStatus ToolCall(ask) ToolStatus ToolCallCancellation(ask) ToolStatus ToolCall(ask)")
		c.respond(last[bridge.ToolCall](c).Calls[0].ID, "", `{"action":"submit"}`)
		m.AssertToolResponses("b" + first)
		if got := m.InputLog(); got != `tool, text {"args":{},"result":{"paid":true},"tool":"pay"}` {
			t.Errorf("Gemini got %s", got)
		}
	}, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		yes, err := tools.Confirm(ctx, "Pay 5 €?")
		return fmt.Appendf(nil, `{"paid":%v}`, yes), err
	}))
}

// A sentence marked by hand is said again with its mark.
func TestMarkSurvivesAnAnswer(t *testing.T) {
	talk(
		t,
		bridge.SessionRequest{Config: []byte(`{"voxgate":{"vad":{"enabled":false,"prefixPaddingMs":600}}}`)},
		func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.pace(loud(time.Second))
			c.do(bridge.ActivityStart)
			c.pace(loud(time.Second))
			l.SendVoice(7, time.Second) // the answer to what was said before
			l.InterruptTurn()
			c.pace(loud(time.Second))
			m := r.next(l)
			c.do(bridge.ActivityEnd)
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

// A call that is taken back does not end speech that is marked by hand.
func TestGateDuringManualSpeech(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		config := strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview","voxgate":{"vad":{"enabled":false}},`, 1)
		c, l := r.connect(bridge.SessionRequest{Config: []byte(config)})
		c.do(bridge.ActivityStart)
		c.pace(loud(time.Second))
		l.CallTools("a weather")
		c.entries()
		l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
		c.entries()
		c.pace(loud(2 * time.Second))
		c.do(bridge.ActivityEnd)
		time.Sleep(time.Second)
		if d := voiced(l.ReceivedPCM()); d < 2900*time.Millisecond {
			t.Errorf("%v of 3 s came", d)
		}
	})
}

// A caller that changes the model and types at once is understood by the new one.
func TestTypedDuringChangeOfModel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{}, watchful, distant(200*time.Millisecond))
		c := r.meets(bridge.SessionRequest{})
		c.update(`{"model":"gemini-3.1-flash-live-preview"}`)
		c.typed("hello")
		time.Sleep(10 * time.Second)
		select {
		case <-c.over:
			t.Fatalf("the conversation is over: %v", c.err)
		default:
		}
		if n := len(m.saw(emulator.Typed)); n != 1 {
			t.Errorf("typed %d times", n)
		}
	})
}

// A typed turn that asks for no answer is not waited for.
func TestIncompleteTurnDrains(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		c.do(bridge.Message{Parts: []byte(`[{"text":"by the way"}]`)})
		l.SendHandle("h")
		begin := r.since()
		c.update(warm("0.5"))
		m := r.up.NextConn().AcceptSetup()
		if took := r.since() - begin; took > 4*time.Second {
			t.Errorf("after %v", took)
		}
		if got := m.InputLog(); got != "" {
			t.Errorf("said again, though the handle knows it: %q", got)
		}
	})
}

// A wish to replace the link survives a short absence of the caller.
func TestDrainSurvivesParking(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendVoice(7, 5*time.Second)
		begin := r.since()
		l.Send(`{"goAway":{"timeLeft":"20s"}}`)
		time.Sleep(time.Second)
		c.leaves()
		time.Sleep(time.Second)
		r.back(c.token())
		r.up.NextConn().AcceptSetup()
		if took := r.since() - begin; took > 16*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// A transcript that comes again with what is said again is kept once.
func TestTranscriptOnce(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.utter(2 * time.Second)
		l.SendContent(`"inputTranscription":{"text":"hello"}`)
		m := r.next(l)
		c.quiet(2 * time.Second)
		m.SendContent(`"inputTranscription":{"text":"hello"}`)
		if got := c.memory(); len(got) != 1 || got[0].Content != "hello" {
			t.Errorf("kept %+v", got)
		}
	})
}

// Speech that is marked by hand ends with its caller.
func TestManualSpeechOfALostCaller(t *testing.T) {
	talk(
		t,
		bridge.SessionRequest{Config: []byte(`{"voxgate":{"vad":{"enabled":false}}}`), Resumable: true},
		func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.do(bridge.ActivityStart)
			c.pace(loud(time.Second))
			c.leaves()
			time.Sleep(time.Second)
			d := r.back(c.token())
			before := len(l.ReceivedPCM())
			d.pace(loud(time.Second)) // outside of an activity
			if n := len(l.ReceivedPCM()) - before; n > 0 {
				t.Errorf("%d samples came that are not for the model", n)
			}
		},
	)
}

// CLEAR_CONTEXT over a network that is gone: the person hears of it as of any gap.
func TestClearGap(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.do(bridge.ClearContext{})
		r.up.NextConn() // never accepts
		time.Sleep(3 * time.Second)
		if _, seen := c.waiting(); len(seen) == 0 {
			t.Error("nobody learned of it")
		}
	})
}

// The model learns of what it said itself, although it is still being played.
func TestMissedTurnStillPlaying(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typed("my name is Ada")
		for range 5 {
			l.SendContent(`%s,"outputTranscription":{"text":"word "}`, bridgetest.VoiceField(7, time.Second))
		}
		l.SendContent(`"turnComplete":true`)
		time.Sleep(500 * time.Millisecond)
		m := r.next(l)
		if got := m.InputLog(); strings.Count(got, "word") < 5 {
			t.Errorf("came %q", got)
		}
	})
}

// A thinking model that goes on after turnComplete is not at rest before IDLE.
func TestSlowModelIsNotIdle(t *testing.T) {
	talk(
		t,
		bridge.SessionRequest{Config: []byte(`{"model":"gemini-3.8-live-extended-thinking"}`)},
		func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
			_ = c
			l.SendContent(`%s`, bridgetest.VoiceField(7, time.Second))
			l.SendContent(`"turnComplete":true,"interactionStatus":"IN_PROGRESS"`)
			l.SendHandle("h")
			begin := r.since()
			l.Send(`{"goAway":{"timeLeft":"50s"}}`)
			time.Sleep(5 * time.Second)
			select {
			case <-r.up.Conns:
				t.Errorf("the link was replaced after %v while the model thinks", r.since()-begin)
			default:
			}
		},
		watchful,
	)
}

// A configuration without resumption, from the beginning or by an update, uses no handle, an old one least of all: a lost session
// begins anew with what was said, and its caller is not waited for.
func TestWithoutResumption(t *testing.T) {
	const config = `{"voxgate":{"enableResumption":false}}`
	for name, begin := range map[string]func(r *rig) (*caller, *bridgetest.Conn){
		"from the beginning": func(r *rig) (*caller, *bridgetest.Conn) {
			c, l := r.connect(bridge.SessionRequest{Resumable: true, Config: []byte(config)})
			if c.token() != "" {
				r.t.Error("there is a resume token")
			}
			return c, l
		},
		"by an update": func(r *rig) (*caller, *bridgetest.Conn) {
			c, l := r.connect(resumable)
			l.SendHandle("h")
			c.update(config)
			return c, r.up.NextConn().AcceptSetup()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				c, l := begin(r)
				c.works(l)
				l.SendContent(`"inputTranscription":{"text":"hello"},"turnComplete":true`)
				time.Sleep(time.Minute)
				l.DropConnection()
				if got := r.up.NextConn().AssertDialledFor("", "").AcceptSetup().InputLog(); !strings.Contains(got, "hello") {
					t.Errorf("the fresh session got %q", got)
				}
				c.leaves()
				if n := len(r.log.find("conversation ended")); n != 1 {
					t.Error("the conversation is parked")
				}
			})
		})
	}
}

// A model that hears that it is not spoken to says nothing: nobody is asked to wait for it.
func TestProactiveSilence(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.forget()
		c.utter(2 * time.Second)
		l.SendContent(`"inputTranscription":{"text":"Mum, dinner is ready!"}`)
		go func() {
			for {
				select {
				case n := <-r.up.Conns:
					n.AcceptSetup()
					time.Sleep(3 * time.Second)
					n.SendContent(`"inputTranscription":{"text":"Mum, dinner is ready!"}`)
				case <-c.over:
					return
				}
			}
		}()
		c.quiet(30 * time.Second)
		sound, seen := c.waiting()
		t.Logf("tried %s; heard %v of tones and sentences, got %v", c.tried(), sound, seen)
		if sound > 0 {
			t.Errorf("heard %v of tones and sentences, got %v", sound, seen)
		}
		c.do(bridge.Goodbye{})
		<-c.over
	}, watchful)
}

// What the model says of one turn while the person is in the next does not tear the next entry apart.
func TestHistoryInOrder(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, _ *rig, c *caller, l *bridgetest.Conn) {
		l.SendContent(`"inputTranscription":{"text":"one"}`)
		l.SendContent(`%s,"outputTranscription":{"text":"first"}`, bridgetest.VoiceField(7, 5*time.Second))
		l.SendContent(`"turnComplete":true`)
		l.SendContent(`"inputTranscription":{"text":"two"}`)
		l.SendContent(`%s,"outputTranscription":{"text":"second"}`, bridgetest.VoiceField(7, time.Second))
		l.SendContent(`"turnComplete":true`)
		l.SendContent(`"inputTranscription":{"text":"three "}`)
		time.Sleep(7 * time.Second)
		l.SendContent(`"inputTranscription":{"text":"and more"}`)
		c.remembers("u: one; a: first; u: two; a: second; u: three and more")
	})
}

// An update that comes while the first dial fails does not take the place of the first SETUP_COMPLETE and its token.
func TestUpdateBeforeFirstLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(resumable)
		l := r.up.NextConn()
		<-c.seated
		c.update(warm("0.5"))
		l.CloseWith(1011, "The service is currently unavailable.")
		r.up.NextConn().AcceptSetup()
		time.Sleep(time.Second)
		all := setups(c)
		if len(all) == 0 || all[0].ResumeToken == "" {
			t.Errorf("%d SETUP_COMPLETEs, none with a token", len(all))
		}
	})
}

// What is said while the model waits for a tool is kept until it listens again, or the person learns of it.
func TestSpeechDuringACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{})
		config := strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview",`, 1)
		c := r.meets(bridge.SessionRequest{Config: json.RawMessage(config)})
		c.typed("/tool weather {}")
		c.quiet(time.Second)
		c.utter(time.Second)
		c.respond(last[bridge.ToolCall](c).Calls[0].ID, "weather", `{"x":1}`)
		c.quiet(10 * time.Second)
		if failures, _ := find[bridge.ErrorEvent](c); len(failures) == 0 {
			m.heard(time.Second)
		}
	})
}

// A person who clears the throat while an answer is overdue is not made to wait for ever: the wait ends with the question.
func TestSoundDuringAnOverdueAnswer(t *testing.T) {
	talk(
		t,
		bridge.SessionRequest{Config: []byte(`{"model":"gemini-2.5-flash-native-audio-latest"}`)},
		func(t *testing.T, _ *rig, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.utter(2 * time.Second)
			l.SendContent(`"inputTranscription":{"text":"hello"}`)
			c.quiet(8 * time.Second) // the nudge has been, and the word on the page
			if _, seen := c.waiting(); len(seen) != 1 {
				t.Fatalf("got %v", seen)
			}
			c.pace(loud(200 * time.Millisecond))
			c.quiet(time.Second)
			c.forget()
			c.quiet(20 * time.Second)
			if sound, seen := c.waiting(); sound > 0 || len(seen) > 0 {
				t.Errorf("heard %v and got %v", sound, seen)
			}
			if s, _ := find[bridge.StateChange](c); len(s) > 0 {
				t.Errorf("states %v", s)
			}
			c.works(l)
		},
		watchful,
	)
}

// A call that is answered at once, because nobody knows the function, is waited for as any other.
func TestWatchdogAfterUndeclaredCall(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.utter(time.Second)
		l.CallTools("a rm")
		l.SendHandle("h2")
		time.Sleep(20 * time.Second)
		if c.tried() == "" {
			t.Error("nothing was tried")
		}
		r.up.DiscardDials()
	}, watchful)
}

// A model that is silent whatever is tried: the person is asked to say it again.
func TestPleaseSayItAgain(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typed("hello?")
		r.up.NextConn().AssertDialledFor("", "h").AcceptSetup()
		r.up.NextConn().AssertDialledFor("", "").AcceptSetup()
		time.Sleep(10 * time.Second)
		if change := last[bridge.StateChange](c); !strings.Contains(change.Message, "say it again") || c.tried() != "resume fresh none" {
			t.Errorf("got %+v, tried %s", change, c.tried())
		}
		if sound, _ := c.waiting(); sound < time.Second {
			t.Errorf("heard %v", sound)
		}
	}, watchful)
}
