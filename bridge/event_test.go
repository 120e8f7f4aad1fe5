package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// Events are numbered from 1 without gaps, and have their time.
func TestEventsAreNumbered(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.speakFor(time.Second)
		l.SendContent(`"inputTranscription":{"text":"hi"}`)
		l.SendSpokenWords(7, "Hello ", "there.")
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		c.typeText("go on")
		l.SendAnswer(8, 5*time.Second)
		time.Sleep(time.Second)
		c.doCommand(bridge.Interrupt{})
		all := c.events()
		if len(all) < 12 {
			t.Fatalf("%d events", len(all))
		}
		for i, e := range all {
			if e.Number != uint64(i+1) {
				t.Fatalf("event %d has the number %d", i+1, e.Number)
			}
			if i > 0 && e.Time.Before(all[i-1].Time) || e.Time.Before(r.start) {
				t.Errorf("event %d is of %v", i+1, e.Time)
			}
		}
		if at := all[len(all)-1].Time; !at.Equal(time.Now()) {
			t.Errorf("the last is of %v, now is %v", at, time.Now())
		}
	})
}

// spokenTexts returns the text events in a short form.
func (c *caller) spokenTexts() (list []string) {
	for _, e := range c.entries() {
		final := func(yes bool) string { return map[bool]string{true: "."}[yes] }
		at := e.at.Round(50 * time.Millisecond)
		switch e := e.event.(type) {
		case bridge.UserText:
			list = append(list, fmt.Sprintf("%v user %d %q%s", at, e.Turn, e.Text, final(e.Final)))
		case bridge.AssistantText:
			list = append(list, fmt.Sprintf("%v model %d %q%s", at, e.Turn, e.Text, final(e.Final)))
		case bridge.Thought:
			list = append(list, fmt.Sprintf("%v thought %d %q", at, e.Turn, e.Text))
		}
	}
	return list
}

// Text events come in pieces, with the number of their turn. The model's text comes when its voice is played. The final
// event has the whole text.
func TestTextsAreTyped(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent(`"inputTranscription":{"text":"Tell me "}`)
		l.SendContent(`"inputTranscription":{"text":"a story."}`)
		l.SendContent(`"modelTurn":{"parts":[{"text":"A story?","thought":true}]}`)
		l.SendSpokenWords(7, "Once ", "upon ", "a ", "time")
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		l.SendContent(`"inputTranscription":{"text":"More."}`)
		l.SendSpokenWords(8, "There ", "was ", "a ", "king")
		time.Sleep(400 * time.Millisecond)
		l.InterruptTurn()
		time.Sleep(time.Second)
		want := []string{
			`0s user 1 "Tell me "`, `0s user 1 "a story."`, `0s thought 1 "A story?"`, `0s user 1 "Tell me a story.".`,
			`0s model 1 "Once "`, `250ms model 1 "upon "`, `500ms model 1 "a "`, `750ms model 1 "time"`, `1s model 1 "Once upon a time".`,
			`2s user 2 "More."`, `2s user 2 "More.".`, `2s model 2 "There "`, `2.25s model 2 "was "`, `2.4s model 2 "There ".`,
		}
		if got := c.spokenTexts(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	})
}

// Interrupted has the cause of the interruption, and the played part of the answer.
func TestWhoInterrupts(t *testing.T) {
	for by, cut := range map[bridge.Cause]func(r *harness, c *caller, l *bridgetest.Conn){
		bridge.ByVoice: func(_ *harness, c *caller, l *bridgetest.Conn) {
			c.speakWithoutPause(400 * time.Millisecond)
			l.SendContent(`"interrupted":true`)
		},
		bridge.ByText:   func(_ *harness, c *caller, _ *bridgetest.Conn) { c.typeText("stop") },
		bridge.ByClient: func(_ *harness, c *caller, _ *bridgetest.Conn) { c.doCommand(bridge.Interrupt{}) },
		bridge.ByClear: func(r *harness, c *caller, _ *bridgetest.Conn) {
			c.doCommand(bridge.ClearContext{})
			r.up.NextConn().SendSetupComplete()
		},
		bridge.ByConnectionLoss: func(r *harness, _ *caller, l *bridgetest.Conn) {
			l.DropConnection()
			r.up.NextConn().SendSetupComplete()
			time.Sleep(5 * time.Second)
		},
	} {
		t.Run(string(by), func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				l.SendAnswer(6, time.Second) // makes the tested turn the second one
				time.Sleep(2 * time.Second)
				l.SendSpokenWords(7, "Once ", "upon ", "a ", "time", " there ", "was")
				time.Sleep(900 * time.Millisecond)
				cut(r, c, l)
				got, _ := findEvents[bridge.Interrupted](c)
				if len(got) != 1 || got[0].By != by || got[0].Turn != 2 || !strings.HasPrefix(got[0].PlayedText, "Once upon a ") ||
					got[0].Played < 900*time.Millisecond {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// In silence there is no Interrupted, not even when the history is cleared.
func TestNothingIsInterruptedInSilence(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendAnswer(7, time.Second)
		time.Sleep(2 * time.Second)
		c.doCommand(bridge.ClearContext{})
		c.checkStillWorks(r.up.NextConn().SendSetupComplete())
		c.typeText("stop")
		c.doCommand(bridge.Interrupt{})
		c.doCommand(bridge.Pause{On: true})
		c.doCommand(bridge.Pause{})
		if cut, _ := findEvents[bridge.Interrupted](c); len(cut) > 0 {
			t.Errorf("%+v", cut)
		}
	})
}

// The client gets the arguments and the result of a tool that runs in the gateway.
func TestToolStatusHasArgumentsAndResult(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c, l := r.connectCaller(bridge.SessionRequest{Tools: []tools.Tool{{
			Declaration: tools.Declaration{Name: "sum", Title: "Adding"},
			Run: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
				if strings.Contains(string(args), "0") {
					return nil, errNo
				}
				time.Sleep(time.Second)
				return json.RawMessage(`{"is":3}`), nil
			},
		}}})
		l.CallTool("a", "sum", `{"of":[1,2]}`)
		l.CallTool("b", "sum", `{"of":[0]}`)
		time.Sleep(2 * time.Second)
		got, _ := findEvents[bridge.ToolStatus](c)
		var list []string
		for _, s := range got {
			list = append(list, fmt.Sprintf("%s %s %s %s %s %s %v %s", s.ID, s.Name, s.Title, s.Status, s.Args, s.Result, s.Took, s.Message))
		}
		want := []string{
			`a sum Adding running {"of":[1,2]}  0s `, `b sum Adding running {"of":[0]}  0s `,
			`b sum Adding failed {"of":[0]} {"error":"no"} 0s no`, `a sum Adding done {"of":[1,2]} {"is":3} 1s `,
		}
		if strings.Join(list, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n  %s", strings.Join(list, "\n  "))
		}
	})
}

// A session whose model hears but never answers counts as dead at the second question. A fresh session gets the transcript.
func TestModelThatHearsAndNeverAnswers(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, watchful)
		c, l := r.plain() // gemini-3.8-live may choose not to answer
		l.SendHandle("h")
		c.typeText("my name is Ada")
		l.SendAnswer(7, time.Second)
		time.Sleep(2 * time.Second)
		ask := func() string {
			c.clearLog()
			c.speakFor(time.Second)
			l.SendContent(`"inputTranscription":{"text":"And now?"}`)
			for range 30 {
				c.staySilentFor(time.Second)
				select {
				case l = <-r.up.Conns:
					l.SendSetupComplete()
					l.SendHandle("h2")
					c.staySilentFor(2 * time.Second)
					l.SendContent(`"inputTranscription":{"text":"And now?"}`)
				default:
				}
			}
			return c.watchdogAttempts()
		}
		for i, want := range []string{"nudge resume none", "nudge fresh none", "nudge none"} {
			if got := ask(); got != want {
				t.Errorf("question %d: tried %q, want %q", i+1, got, want)
			}
			if i == 1 && (l.Setup.SessionResumption.Handle != "" || !strings.Contains(l.InputLog(), "typed my name is Ada")) {
				t.Errorf("the fresh session got %s", l.InputLog())
			}
		}
		l.SendAnswer(8, time.Second)
		time.Sleep(2 * time.Second)
		c.checkStillWorks(l)
	})
}
