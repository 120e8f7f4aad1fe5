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

const (
	goodbyeInSilence = "The person does not answer any more. Say goodbye in one short sentence, in the language that you have spoken so far."
	quietConfig      = `{"voxgate":{"silence":{"after":"8s","say":"Ask.","times":%d}}}`
)

// silent runs f with a conversation in which the person may be silent for 8 s.
func silent(t *testing.T, times int, f func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn)) {
	converse(t, bridge.SessionRequest{Config: fmt.Appendf(nil, quietConfig, times)},
		func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			c.typeText("Hello.")
			f(t, r, c, l)
		})
}

// awaitInstruction waits until the model gets an instruction, and returns how long that took.
func (h *harness) awaitInstruction(l *bridgetest.Conn, instruction string) time.Duration {
	h.t.Helper()
	begun, before := h.elapsed(), l.InputLog()
	for l.InputLog() == before {
		time.Sleep(20 * time.Millisecond)
		if h.elapsed() > begun+time.Minute {
			h.t.Fatalf("the model got no more than %q", before)
		}
	}
	if !strings.HasSuffix(l.InputLog(), ", typed "+instruction) {
		h.t.Errorf("the model got %q, not %q", l.InputLog(), instruction)
	}
	return h.elapsed() - begun
}

// A silent person is asked the configured number of times, each time after the configured silence. Then the model says
// goodbye.
func TestSilentPersonIsAskedAndDismissed(t *testing.T) {
	silent(t, 2, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		for turn, say := range []string{"Ask.", "Ask.", goodbyeInSilence} {
			l.SendAnswer(7, 2*time.Second)
			if took := r.awaitInstruction(l, say); !isAbout(took, 10*time.Second) {
				t.Errorf("%d: asked %v after the answer began", turn, took)
			}
		}
		l.SendAnswer(7, 2*time.Second)
		c.awaitEnd(bridge.ErrSilence)
	})
}

// A silent person is not asked before the first answer, or without the configuration.
func TestSilenceBeforeAnAnswer(t *testing.T) {
	for name, config := range map[string]string{"before an answer": fmt.Sprintf(quietConfig, 2), "not configured": `{}`} {
		converse(t, bridge.SessionRequest{Config: []byte(config)}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			if name == "not configured" {
				c.typeText("Hello.")
				l.SendAnswer(7, time.Second)
			}
			said := l.InputLog()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if l.InputLog() != said {
				t.Errorf("%s: the model got %q", name, l.InputLog())
			}
		})
	}
}

// Speech or typed text resets the number of questions. With 0 times, the questions have no limit.
func TestSilenceIsBroken(t *testing.T) {
	for name, breaks := range map[string]func(c *caller, l *bridgetest.Conn){
		"typed":   func(c *caller, _ *bridgetest.Conn) { c.typeText("Yes.") },
		"spoken":  func(c *caller, _ *bridgetest.Conn) { c.speakAndPause(time.Second, time.Second) },
		"forever": nil,
	} {
		times := 1
		if breaks == nil {
			times = 0
		}
		silent(t, times, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			for range 5 {
				l.SendAnswer(7, 2*time.Second)
				r.awaitInstruction(l, "Ask.")
				if breaks != nil {
					l.SendAnswer(7, time.Second)
					time.Sleep(3 * time.Second)
					breaks(c, l)
				}
			}
			if t.Failed() {
				t.Log(name)
			}
		})
	}
}

// The silence is not measured while the conversation is on hold, a tool runs, or a tool asks the person.
func TestSilenceTimerPauses(t *testing.T) {
	t.Run("on hold", func(t *testing.T) {
		silent(t, 1, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendAnswer(7, time.Second)
			time.Sleep(7 * time.Second)
			c.doCommand(bridge.Pause{On: true})
			time.Sleep(time.Minute)
			synctest.Wait()
			if l.InputLog() != "typed Hello." {
				t.Errorf("on hold the model got %q", l.InputLog())
			}
			c.doCommand(bridge.Pause{})
			if took := r.awaitInstruction(l, "Ask."); !isAbout(took, 8*time.Second) {
				t.Errorf("asked after %v", took)
			}
		})
	})
	for name, behavior := range map[string]tools.Behavior{"a tool": tools.Blocking, "one in the background": tools.NonBlocking} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t)
				c, l := r.connectCaller(bridge.SessionRequest{Config: fmt.Appendf(nil, quietConfig, 1), Tools: []tools.Tool{{
					Declaration: tools.Declaration{Name: "look_up", Behavior: behavior, Timeout: time.Minute},
					Run: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
						select {
						case <-time.After(30 * time.Second):
						case <-ctx.Done():
						}
						return json.RawMessage(`{"ok":true}`), nil
					},
				}}})
				c.typeText("Hello.")
				l.SendAnswer(7, time.Second)
				time.Sleep(2 * time.Second)
				l.CallTools("a look_up")
				time.Sleep(25 * time.Second)
				synctest.Wait()
				if strings.Contains(l.InputLog(), "Ask.") {
					t.Error("the person is asked while the tool runs")
				}
			})
		})
	}
}

// During a slow tool a tone is played every two seconds. A model that does not wait for the tool first says a sentence. There
// is no tone on hold, if it is not wanted, or for a fast tool.
func TestSlowToolIsSignalled(t *testing.T) {
	const say = `{"voxgate":{"waiting":{"say":"Say so."}}}`
	for name, test := range map[string]struct {
		config   string
		behavior tools.Behavior
		takes    time.Duration
		hold     bool
		tones    int
		said     bool
	}{
		"in time":                {`{"voxgate":{"waiting":{}}}`, tools.Blocking, 1900 * time.Millisecond, false, 0, false},
		"a tone":                 {`{"voxgate":{"waiting":{}}}`, tools.Blocking, 7 * time.Second, false, 3, false},
		"beside it, too":         {`{"voxgate":{"waiting":{}}}`, tools.NonBlocking, 7 * time.Second, false, 3, false},
		"the model waits":        {say, tools.Blocking, 7 * time.Second, false, 3, false},
		"the model says it":      {say, tools.NonBlocking, 9 * time.Second, false, 1, true},
		"and it alone":           {`{"voxgate":{"waiting":{"say":"Say so.","sound":false}}}`, tools.NonBlocking, 9 * time.Second, false, 0, true},
		"on hold":                {say, tools.Blocking, 7 * time.Second, true, 0, false},
		"nothing was configured": {`{}`, tools.Blocking, 7 * time.Second, false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t)
				c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(test.config), Tools: []tools.Tool{{
					Declaration: tools.Declaration{Name: "look_up", Behavior: test.behavior, Timeout: time.Minute},
					Run: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
						select {
						case <-time.After(test.takes):
						case <-ctx.Done():
						}
						return json.RawMessage(`{"ok":true}`), nil
					},
				}}})
				c.typeText("Hello.")
				l.SendAnswer(7, time.Second)
				time.Sleep(2 * time.Second)
				before := c.countFrames()
				l.CallTools("a look_up")
				if test.hold {
					c.doCommand(bridge.Pause{On: true})
				}
				if test.said {
					r.awaitInstruction(l, "Say so.")
					l.SendAnswer(8, 4*time.Second)
					before += 200
				}
				time.Sleep(test.takes + time.Second)
				synctest.Wait()
				const tone = 10 // number of frames whose middle sample is not silent
				if tones := float64(c.countFrames()-before) / tone; tones < float64(test.tones)-0.2 || tones > float64(test.tones)+0.2 {
					t.Errorf("%v tones, want %d", tones, test.tones)
				}
				if n := strings.Count(l.InputLog(), "Say so."); n != map[bool]int{true: 1}[test.said] {
					t.Errorf("the model was asked to say it %d times: %s", n, l.InputLog())
				}
			})
		})
	}
}
