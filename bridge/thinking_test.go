package bridge_test

import (
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// thinkingEvents returns the caller's events about answers that are due, have begun or were interrupted.
func (c *caller) thinkingEvents() string {
	var words []string
	for _, e := range c.entries() {
		switch e := e.event.(type) {
		case bridge.Thinking:
			words = append(words, map[bool]string{true: "thinks", false: "no more"}[e.Thinking])
		case bridge.Speaking:
			words = append(words, "speaks")
		case bridge.Interrupted:
			words = append(words, "cut")
		}
	}
	return strings.Join(words, ", ")
}

// Thinking is true from the end of a question to the first sound of its answer.
func TestThinkingIsSignalled(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*harness, *caller, *bridgetest.Conn)
		want    string
	}{
		"typed": {func(_ *harness, c *caller, l *bridgetest.Conn) {
			c.typeText("Hello")
			l.SendAnswer(7, time.Second)
		}, "thinks, no more, speaks"},
		"said": {func(_ *harness, c *caller, l *bridgetest.Conn) {
			c.speakWithoutPause(time.Second)
			c.sendInRealTime(make([]int16, 16000))
			l.SendAnswer(7, time.Second)
		}, "thinks, no more, speaks"},
		"nothing to say": {func(_ *harness, c *caller, l *bridgetest.Conn) {
			c.typeText("Hello")
			l.SendContent(`"turnComplete":true`)
		}, "thinks, no more"},
		"the person speaks on": {func(_ *harness, c *caller, _ *bridgetest.Conn) {
			c.speakWithoutPause(time.Second)
			c.sendInRealTime(make([]int16, 16000))
			c.speakWithoutPause(time.Second)
		}, "thinks, no more, thinks"},
		"a noise": {func(_ *harness, c *caller, _ *bridgetest.Conn) {
			c.speakWithoutPause(time.Second)
			c.sendInRealTime(make([]int16, 16*10_000))
		}, "thinks, no more"},
		"a tool runs": {func(_ *harness, c *caller, l *bridgetest.Conn) {
			c.typeText("Hello")
			l.CallTools("a weather")
			time.Sleep(time.Second)
			c.sendToolResponse("a", "weather", `{"sun":1}`)
			time.Sleep(time.Second)
			l.SendAnswer(7, time.Second)
		}, "thinks, no more, speaks"},
		"a thought": {func(_ *harness, c *caller, l *bridgetest.Conn) {
			c.typeText("Hello")
			l.SendContent(`"modelTurn":{"parts":[{"text":"Hm.","thought":true}]}`)
			time.Sleep(time.Second)
			l.SendAnswer(7, time.Second)
		}, "thinks, no more, speaks"},
		"cut off by a question": {func(_ *harness, c *caller, l *bridgetest.Conn) {
			l.SendVoice(7, 3*time.Second)
			time.Sleep(time.Second)
			c.typeText("Hello")
			l.InterruptTurn()
			l.SendAnswer(8, time.Second)
		}, "speaks, cut, thinks, no more, speaks"},
		"not heard": {func(_ *harness, c *caller, l *bridgetest.Conn) {
			c.typeText("Hello")
			c.session.HoldVoice(true)
			l.SendVoice(7, 3*time.Second)
			time.Sleep(time.Second)
			c.doCommand(bridge.Interrupt{})
		}, "thinks, cut, no more"},
		"on hold": {func(_ *harness, c *caller, _ *bridgetest.Conn) {
			c.typeText("Hello")
			c.doCommand(bridge.Pause{On: true})
		}, "thinks, no more"},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				test.happens(r, c, l)
				time.Sleep(2 * time.Second)
				if got := c.thinkingEvents(); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			}, watchful)
		})
	}
}

// Until a silent model answers or is given up, the caller is always informed of the wait: by Thinking, or by a message.
func TestSilentModelIsOneWait(t *testing.T) {
	for name, asks := range map[string]func(*caller){
		"typed": func(c *caller) { c.typeText("Hello") },
		"said":  func(c *caller) { c.speakWithoutPause(time.Second); c.sendInRealTime(make([]int16, 16000)) },
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, weather, func(t *testing.T, _ *harness, c *caller, _ *bridgetest.Conn) {
				asks(c)
				time.Sleep(8 * time.Second) // the first remedy was tried, and the person was informed
				thinking, told := false, false
				for _, e := range c.entries() {
					switch e := e.event.(type) {
					case bridge.Thinking:
						if thinking = e.Thinking; !thinking && !told {
							t.Error("no answer is due, and nothing says that somebody waits")
						}
					case bridge.StateChange:
						told = e.Message != ""
					}
				}
				if !thinking && !told {
					t.Error("at the end nothing says that somebody waits")
				}
			}, watchful)
		})
	}
}

// A returning caller does not have the events of the previous caller.
func TestThinkingAfterReturn(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typeText("Hello")
		c.disconnect()
		time.Sleep(time.Second)
		if got := r.resumeByToken(c.resumeToken()).thinkingEvents(); got != "thinks" {
			t.Errorf("got %q", got)
		}
	})
}
