package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

func TestInterruptCommand(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("tell me a story")
		came := len(l.Inputs())
		l.SendSpokenWords(7, "Once ", "upon ", "a ", "time ")
		time.Sleep(540 * time.Millisecond)
		heard := c.countFrames()
		c.doCommand(bridge.Interrupt{})
		if n := c.countFrames() - heard; n > 1 {
			t.Errorf("%d frames were heard after it", n)
		}
		cut := lastEvent[bridge.Interrupted](c)
		if cut.Turn != 1 || cut.By != bridge.ByClient || cut.PlayedText != "Once upon " || !isAbout(cut.Played, 540*time.Millisecond) {
			t.Errorf("%+v", cut)
		}
		l.SendSpokenWords(8, "there ", "was ") // the model is not informed
		time.Sleep(time.Second)
		l.SendSpokenWords(8, "a ", "king.")
		l.CompleteTurn()
		time.Sleep(2 * time.Second)
		if n := len(l.Inputs()) - came; n != 0 {
			t.Errorf("the model was sent %s", l.InputLog())
		}
		if got := c.summarizeEvents(); got != "SetupComplete Speaking Interrupted" {
			t.Errorf("%s", c.summarizeLog())
		}
		if got := c.contextEntries(); len(got) != 2 || got[1].Content != "Once upon " || !got[1].Interrupted {
			t.Errorf("kept %+v", got)
		}
		c.checkStillWorks(l)
		if over := lastEvent[bridge.TurnComplete](c); over.Turn != 2 {
			t.Errorf("%+v", over)
		}
	})
}

// Interrupt also stops an answer that has not begun to sound, and a complete answer that still plays. It has no effect in
// silence, or a second time.
func TestInterruptAtEveryMoment(t *testing.T) {
	for name, test := range map[string]struct {
		reach func(l *bridgetest.Conn)
		want  string
	}{
		"silence":  {func(*bridgetest.Conn) {}, ""},
		"thinking": {func(l *bridgetest.Conn) { l.SendContent(`"modelTurn":{"parts":[{"text":"Hm","thought":true}]}`) }, "Interrupted"},
		"all of it is made": {func(l *bridgetest.Conn) {
			l.SendAnswer(7, 3*time.Second)
			time.Sleep(time.Second)
		}, "Speaking Interrupted"},
		"all of it was heard": {func(l *bridgetest.Conn) {
			l.SendAnswer(7, time.Second)
			time.Sleep(2 * time.Second)
		}, "Speaking TurnComplete"},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				c.clearLog()
				c.typeText("go")
				test.reach(l)
				for range 2 {
					c.doCommand(bridge.Interrupt{})
				}
				if got := c.summarizeEvents(); got != test.want {
					t.Errorf("%q, want %q", got, test.want)
				}
				if name == "silence" {
					return // the answer is still to come
				}
				if name == "thinking" { // the rest of the answer is not expected
					time.Sleep(10 * time.Second)
					if got := c.watchdogAttempts(); got != "" {
						t.Errorf("tried %s", got)
					}
					l.SendVoice(8, time.Second)
					l.SendContent(`"turnComplete":true`)
				}
				c.checkStillWorks(l)
			}, watchful)
		})
	}
}

// A client that controls playback itself reports how much of the voice was played.
func TestReportedPlaybackPosition(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typeText("Tell me a story.")
		l.SendSpokenWords(7, "Once ", "upon ", "a ", "time.")
		l.CompleteTurn()
		time.Sleep(5 * time.Second)
		all := c.contextEntries()
		c.doCommand(bridge.PlaybackPosition{Turn: 1, Played: 500 * time.Millisecond})
		c.doCommand(bridge.PlaybackPosition{Turn: 9, Played: time.Second}) // an unknown turn
		if got := c.contextEntries(); len(all) != 2 || len(got) != 2 || all[1].Content != "Once upon a time." || got[1].Content != "Once " ||
			!got[1].Interrupted ||
			got[1].Played != 500*time.Millisecond {
			t.Errorf("first %+v, then %+v", all, got)
		}
		c.checkStillWorks(l)
	})
}

func TestHoldDuringAnAnswer(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.speakFor(time.Second)
		l.SendContent(`"inputTranscription":{"text":"Tell me a story."}`)
		l.SendSpokenWords(7, "Once ", "upon ", "a ", "time ")
		time.Sleep(300 * time.Millisecond)
		c.doCommand(bridge.Pause{On: true})
		if cut := lastEvent[bridge.Interrupted](c); cut.By != bridge.ByClient || cut.PlayedText != "Once " {
			t.Errorf("%+v", cut)
		}
		c.clearLog()
		came := len(l.ReceivedPCM())
		c.speakWithoutPause(2 * time.Second) // to another person
		c.session.SetFrame("image/jpeg", []byte("x"), true)
		l.SendVoice(7, 2*time.Second) // the rest of it, and another answer
		l.SendContent(`"turnComplete":true`)
		l.SendAnswer(8, 2*time.Second)
		c.staySilentFor(30 * time.Second)
		if n := len(l.ReceivedPCM()) - came; n != 0 || len(l.ReceivedPictures()) > 0 {
			t.Errorf("%d samples and %d pictures went up", n, len(l.ReceivedPictures()))
		}
		if sound, messages := c.heardAndSeen(); sound > 0 || len(messages) > 0 || c.summarizeEvents() != "" {
			t.Errorf("heard %v, got %v, %s", sound, messages, c.summarizeLog())
		}
		c.doCommand(bridge.Pause{})
		time.Sleep(5 * time.Second) // nothing of the dropped voice is played after the hold
		c.checkLog("")
		c.checkStillWorks(l)
		c.clearLog()
		c.speakFor(time.Second) // and the model is watched again
		c.staySilentFor(8 * time.Second)
		if got := c.watchdogAttempts(); got != "nudge" {
			t.Errorf("tried %q", got)
		}
	}, watchful)
}

// On hold with Listen, the model gets speech and its tools run. Its voice is not played, and no answer is expected.
func TestHoldWithListening(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.doCommand(bridge.Pause{On: true})
		c.doCommand(bridge.Pause{On: true, Listen: true})
		c.clearLog()
		came := len(l.ReceivedPCM())
		c.speakFor(2 * time.Second)
		if n := len(l.ReceivedPCM()) - came; n < 2*16000 {
			t.Errorf("of 2 s %d samples went up", n)
		}
		l.SendContent(`"inputTranscription":{"text":"I have a brochure for you."}`)
		l.SendAnswer(8, 2*time.Second)
		c.speakFor(time.Second) // this speech gets no answer
		c.staySilentFor(40 * time.Second)
		if sound, _ := c.heardAndSeen(); sound > 0 || c.watchdogAttempts() != "" {
			t.Errorf("heard %v, tried %q", sound, c.watchdogAttempts())
		}
		if texts, _ := findEvents[bridge.AssistantText](c); len(texts) > 0 {
			t.Errorf("the transcript has %v", texts)
		}
		if texts, _ := findEvents[bridge.UserText](c); len(texts) == 0 || texts[0].Text != "I have a brochure for you." {
			t.Errorf("the transcript has %v", texts)
		}
		c.doCommand(bridge.Pause{})
		c.checkStillWorks(l)
	}, watchful)
}

// A caller on hold does not wait for answers, even to questions of that time or after a lost connection.
func TestNobodyWaitsOnHold(t *testing.T) {
	for name, happens := range map[string]func(r *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn{
		"no answer": func(_ *harness, c *caller, l *bridgetest.Conn) *bridgetest.Conn { c.typeText("hello?"); return l },
		"no answer to what was asked before": func(r *harness, c *caller, _ *bridgetest.Conn) *bridgetest.Conn {
			c.doCommand(bridge.Pause{})
			c.typeText("hello?")
			l := r.up.NextConn().SendSetupComplete() // connection that the keeper dials because of a stall
			time.Sleep(2 * time.Second)
			c.clearLog()
			c.doCommand(bridge.Pause{On: true})
			return l
		},
		"the link is lost": func(r *harness, _ *caller, l *bridgetest.Conn) *bridgetest.Conn {
			r.cutNetwork(l)
			time.Sleep(10 * time.Second)
			r.up.SetFailure(0, nil)
			return r.up.NextConn().AssertSetup("", "h").SendSetupComplete()
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				c.clearLog()
				c.doCommand(bridge.Pause{On: true})
				l = happens(r, c, l)
				time.Sleep(40 * time.Second)
				r.up.AssertNoDial()
				if sound, messages := c.heardAndSeen(); sound > 0 || len(messages) > 0 || c.watchdogAttempts() != "" {
					t.Errorf("heard %v, got %v, tried %s", sound, messages, c.watchdogAttempts())
				}
				c.doCommand(bridge.Pause{})
				c.checkStillWorks(l)
			}, watchful)
		})
	}
}

// A hold ends speech that began before it. Otherwise the model would join that speech to the speech after the hold.
func TestPauseInASentence(t *testing.T) {
	for mode, test := range map[string]struct {
		open bridge.SessionRequest
		want string
	}{
		"the model finds speech": {bridge.SessionRequest{}, "mark audioStreamEnd"},
		"the client marks it":    {manual, "mark activityStart, mark activityEnd"},
	} {
		t.Run(mode, func(t *testing.T) {
			converse(t, test.open, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				if mode == "the client marks it" {
					c.doCommand(bridge.ActivityStart)
				}
				c.speakWithoutPause(time.Second)
				c.doCommand(bridge.Pause{On: true})
				if got := l.InputLog(); got != test.want {
					t.Errorf("came %q, want %q", got, test.want)
				}
				if got, _ := findEvents[bridge.UserSpeaking](c); len(got) != 2 || got[1].Speaking {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

func TestEndAfterSpeaking(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(c *caller, l *bridgetest.Conn)
		after   time.Duration
	}{
		"silence": {nil, 0},
		"an answer is made": {
			func(_ *caller, l *bridgetest.Conn) { time.Sleep(time.Second); l.SendContent(`"turnComplete":true`) },
			3 * time.Second,
		},
		"an answer never ends": {func(_ *caller, _ *bridgetest.Conn) {}, 15 * time.Second},
		"it is interrupted":    {func(c *caller, _ *bridgetest.Conn) { time.Sleep(time.Second); c.doCommand(bridge.Interrupt{}) }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				if test.happens != nil {
					l.SendVoice(7, 3*time.Second)
				}
				begin := r.elapsed()
				_ = c.session.Do(bridge.EndAfterSpeaking{})
				if test.happens != nil {
					test.happens(c, l)
				}
				c.awaitEnd(bridge.ErrGoodbye)
				if took := r.elapsed() - begin; !isAbout(took, test.after) {
					t.Errorf("ended after %v, want %v", took, test.after)
				}
				if want := int(test.after / (20 * time.Millisecond)); test.after < 4*time.Second && c.countFrames() < want-1 {
					t.Errorf("%d frames were heard, want %d", c.countFrames(), want)
				}
			})
		})
	}
}

// If a tool ends the conversation, the gateway waits for the model's answer to the tool's result. In that answer, a model
// that has not yet said goodbye does so.
func TestAToolEndsTheConversation(t *testing.T) {
	turnOver := func(l *bridgetest.Conn) { l.SendContent(`"turnComplete":true`) }
	for name, test := range map[string]struct {
		before func(l *bridgetest.Conn) // the call
		then   func(l *bridgetest.Conn)
		after  time.Duration // it has ended
		heard  time.Duration
	}{
		"the goodbye comes with the answer": {nil, func(l *bridgetest.Conn) {
			turnOver(l) // the end of the calling turn: it does not show whether a goodbye follows
			time.Sleep(time.Second)
			l.SendAnswer(7, 2*time.Second)
		}, 3 * time.Second, 2 * time.Second},
		"the goodbye comes in the same turn": {
			nil, func(l *bridgetest.Conn) { l.SendAnswer(7, 2*time.Second) }, 2 * time.Second,
			2 * time.Second,
		},
		"the goodbye came before, and nothing after it": {
			func(l *bridgetest.Conn) { l.SendVoice(7, time.Second) }, turnOver, 2 * time.Second, time.Second,
		},
		"a word came before, and the goodbye after it": {func(l *bridgetest.Conn) { l.SendAnswer(7, time.Second) }, func(l *bridgetest.Conn) {
			time.Sleep(1500 * time.Millisecond)
			l.SendAnswer(8, 2*time.Second)
		}, 3500 * time.Millisecond, 3 * time.Second},
		"there is none": {nil, turnOver, 6 * time.Second, 0},
		"it never ends": {nil, func(l *bridgetest.Conn) { l.SendVoice(7, 20*time.Second) }, 15 * time.Second, 15 * time.Second},
		// a tone of ours
		"the line is lost": {
			nil, func(l *bridgetest.Conn) { time.Sleep(1500 * time.Millisecond); l.DropConnection() }, 6 * time.Second,
			400 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t)
				var c *caller
				c, l := r.connectCaller(bridge.SessionRequest{Tools: []tools.Tool{{
					Declaration: tools.Declaration{Name: "end_call"},
					Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
						return nil, c.session.Do(bridge.EndAfterSpeaking{})
					},
				}}})
				l.SendHandle("h")
				c.typeText("bye")
				if test.before != nil {
					test.before(l)
				}
				begin := r.elapsed()
				l.CallTools("a end_call")
				test.then(l)
				c.awaitEnd(bridge.ErrGoodbye)
				r.up.DiscardDials()
				if took := r.elapsed() - begin; !isAbout(took, test.after) {
					t.Errorf("ended after %v, want %v", took, test.after)
				}
				if got := time.Duration(c.countFrames()) * 20 * time.Millisecond; (got - test.heard).Abs() > 60*time.Millisecond {
					t.Errorf("%v were heard, want %v", got, test.heard)
				}
			})
		})
	}
}

// At the time limit of a conversation with a FarewellPrompt, the model finishes its sentence and then says goodbye.
func TestFarewellAtTheTimeLimit(t *testing.T) {
	const farewell = "Say goodbye."
	for name, test := range map[string]struct {
		before func(l *bridgetest.Conn) // runs 8 s after the beginning; the limit is 10 s
		then   func(l *bridgetest.Conn)
		after  time.Duration // time from the limit to the end of the conversation
		heard  time.Duration
	}{
		"in silence": {
			nil, func(l *bridgetest.Conn) { time.Sleep(time.Second); l.SendAnswer(7, 2*time.Second) }, 3 * time.Second,
			2 * time.Second,
		},
		"in an answer": {
			func(l *bridgetest.Conn) { l.SendAnswer(7, 4*time.Second) }, func(l *bridgetest.Conn) { l.SendAnswer(8, 2*time.Second) },
			4 * time.Second, 6 * time.Second,
		},
		"it is not said": {nil, func(*bridgetest.Conn) {}, 15 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			open := bridge.SessionRequest{FarewellPrompt: farewell, Grant: &bridge.Grant{MaxDuration: 10 * time.Second}}
			converse(t, open, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				time.Sleep(8 * time.Second)
				if test.before != nil {
					test.before(l)
				}
				for l.InputLog() != "typed "+farewell {
					time.Sleep(20 * time.Millisecond)
					if r.elapsed() > 15*time.Second {
						t.Fatalf("the model got %q", l.InputLog())
					}
				}
				test.then(l)
				c.awaitEnd(bridge.ErrTimeLimit)
				if took := r.elapsed() - 10*time.Second; !isAbout(took, test.after) {
					t.Errorf("ended after %v, want %v", took, test.after)
				}
				if got := time.Duration(c.countFrames()) * 20 * time.Millisecond; (got - test.heard).Abs() > 60*time.Millisecond {
					t.Errorf("%v were heard, want %v", got, test.heard)
				}
			})
		})
	}
}

func TestRespondToAPrompt(t *testing.T) {
	for model, goesUp := range map[string]string{
		"gemini-3.8-live":               "typed Greet the caller.",
		"gemini-3.1-flash-live-preview": "text Greet the caller.",
	} {
		t.Run(model, func(t *testing.T) {
			converse(t, bridge.SessionRequest{Config: fmt.Appendf(nil, `{"model":%q}`, model)}, func(t *testing.T, r *harness, c *caller,
				l *bridgetest.Conn,
			) {
				l.SendHandle("h")
				if err := c.session.Do(bridge.Prompt{}); bridge.AsError(err).Code != bridge.CodeBadMessage {
					t.Errorf("without an instruction: %v", err)
				}
				c.doCommand(bridge.Prompt{Instruction: "Greet the caller."})
				if in := l.Inputs(); len(in) != 1 || l.InputLog() != goesUp ||
					in[0].Kind == "typed" && !strings.Contains(in[0].Raw, `"turnComplete":true`) {
					t.Errorf("came %s", l.InputLog())
				}
				time.Sleep(700 * time.Millisecond)
				l.SendSpokenWords(7, "Hello!")
				l.SendContent(`"turnComplete":true`)
				time.Sleep(time.Second)
				if got := lastEvent[bridge.Latency](c); !isAbout(got.Model, 700*time.Millisecond) {
					t.Errorf("%+v", got)
				}
				if got := c.contextEntries(); len(got) != 1 || got[0].Content != "Hello!" {
					t.Errorf("kept %+v", got)
				}
				if texts, _ := findEvents[bridge.UserText](c); len(texts) > 0 {
					t.Errorf("%+v", texts)
				}
				c.doCommand(bridge.Prompt{Instruction: "Say goodbye."}) // the gateway watches for this answer as for any other
				time.Sleep(7 * time.Second)
				if got := c.watchdogAttempts(); got != "resume" {
					t.Errorf("tried %q", got)
				}
				if got := strings.Count(r.up.NextConn().SendSetupComplete().InputLog(), "Say goodbye."); got != 1 {
					t.Errorf("said again %d times", got)
				}
			}, watchful)
		})
	}
}

// A Prompt interrupts an answer that plays. An answer that the model is still thinking about may answer both.
func TestRespondIntoAnAnswer(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendVoice(7, 3*time.Second)
		time.Sleep(time.Second)
		c.doCommand(bridge.Prompt{Instruction: "Be quick."})
		if cut := lastEvent[bridge.Interrupted](c); cut.By != bridge.ByClient {
			t.Errorf("%+v", cut)
		}
		l.InterruptTurn()
		c.checkStillWorks(l)
		c.clearLog()
		l.SendContent(`"modelTurn":{"parts":[{"text":"Hm","thought":true}]}`)
		c.doCommand(bridge.Prompt{Instruction: "Be quick."})
		l.SendAnswer(8, time.Second)
		time.Sleep(2 * time.Second)
		c.checkLog("Speaking 8*50 TurnComplete")
	})
}

// For a model that would answer each part of a turn, the gateway holds the parts until the turn is complete.
func TestPartsOfATurn(t *testing.T) {
	part := func(c *caller, text string, complete bool) {
		parts := []byte(`[]`)
		if text != "" {
			parts = fmt.Appendf(nil, `[{"text":%q}]`, text)
		}
		c.doCommand(bridge.Message{Parts: parts, TurnComplete: complete})
	}
	for model, want := range map[string][2]string{
		"gemini-3.1-flash-live-preview": {"", "text one\ntwo"},
		"gemini-3.8-live":               {"typed one, typed two", "typed one, typed two, typed "},
	} {
		for _, last := range []string{"", "three"} {
			t.Run(model+last, func(t *testing.T) {
				converse(t, bridge.SessionRequest{Config: fmt.Appendf(nil, `{"model":%q}`, model)}, func(t *testing.T, _ *harness, c *caller,
					l *bridgetest.Conn,
				) {
					l.SendHandle("h")
					part(c, "one", false)
					part(c, "two", false)
					time.Sleep(20 * time.Second)
					if got := l.InputLog(); got != want[0] || c.watchdogAttempts() != "" {
						t.Errorf("before the end came %q, tried %s", got, c.watchdogAttempts())
					}
					part(c, last, true)
					want := want[1]
					switch {
					case last == "":
						want = strings.TrimSuffix(want, " ")
					case model == "gemini-3.8-live":
						want += last
					default:
						want += "\n" + last
					}
					if got := l.InputLog(); got != want {
						t.Errorf("came %q, want %q", got, want)
					}
					part(c, "", true) // nothing is left
					if got := l.InputLog(); model != "gemini-3.8-live" && got != want {
						t.Errorf("then came %q", got)
					}
					synctest.Wait()
				}, watchful)
			})
		}
	}
}
