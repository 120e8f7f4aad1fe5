package emulator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/wire"
	"voxgate/media/mediatest"
)

// handle waits for the next handle.
func (p *peer) handle() string {
	p.t.Helper()
	return p.until(func(m *message) bool { return m.Resumption != nil && m.Resumption.Resumable }).Resumption.Handle
}

// refused checks that a dial fails with a close.
func refused(t *testing.T, client *api.Client, handle string, code int, reason string) {
	t.Helper()
	conn, err := gemini.Dial(t.Context(), client, gemini.Setup{Handle: handle})
	if err == nil {
		_ = conn.Close()
		t.Errorf("accepted, want %d %s", code, reason)
		return
	}
	if closed, ok := errors.AsType[*wire.CloseError](err); !ok || closed.Code != code || !strings.Contains(closed.Reason, reason) {
		t.Errorf("%v, want %d %s", err, code, reason)
	}
}

func TestConnectionAge(t *testing.T) {
	const age = 10 * time.Minute
	for _, lead := range []time.Duration{time.Minute, 0} {
		synctest.Test(t, func(t *testing.T) {
			client, _ := newScene(t, emulator.Scenario{ConnectionAge: age, GoAwayLead: lead})
			start := time.Now()
			p := join(t, client, `{}`)
			told := time.Time{}
			for m := range p.in {
				if m.GoAway != nil {
					told = m.at
					if left := *m.GoAway; left > lead || left < lead-time.Second {
						t.Errorf("goAway says %v", left)
					}
				}
			}
			if lived := time.Since(start); lived != age {
				t.Errorf("lived %v", lived)
			}
			if (lead > 0) == told.IsZero() || lead > 0 && told.Sub(start) != age-lead {
				t.Errorf("told after %v", told.Sub(start))
			}
			p.closes(1008, "The operation was aborted")
		})
	}
}

func TestHandleTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Hour
		client, _ := newScene(t, emulator.Scenario{})
		p := join(t, client, `{}`)
		handle := p.handle()
		time.Sleep(5 * time.Hour) // it ages from the end of the last connection on
		_ = p.conn.Close()
		time.Sleep(ttl - time.Second)
		q := resume(t, client, `{}`, handle)
		_ = q.conn.Close()
		time.Sleep(ttl + time.Second)
		refused(t, client, handle, 1008, "BidiGenerateContent session not found")
	})
}

func TestResumeWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := newScene(t, emulator.Scenario{})
		p := join(t, client, `{}`)
		handle := p.handle()
		refused(t, client, handle, 1011, "Internal error")
		p.text("hello")
		p.turn() // the old connection lives
		_ = p.conn.Close()
		resume(t, client, `{}`, handle)
	})
}

// TestResumeAfterEachEnd resumes at once, however the last connection ended.
func TestResumeAfterEachEnd(t *testing.T) {
	for _, code := range []int{1000, 1006, 1008, 1011} {
		synctest.Test(t, func(t *testing.T) {
			client, _ := newScene(t, emulator.Scenario{})
			p := join(t, client, `{}`)
			p.text("my name is Ada")
			p.turn()
			handle := p.handle()
			p.text(fmt.Sprintf("/close %d", code))
			for range p.in {
				continue
			}
			q := resume(t, client, `{}`, handle)
			q.text("/history")
			if s := q.turn(); !strings.Contains(s.text, "my name is Ada") || strings.Contains(s.text, "/close") {
				t.Errorf("says %q", s.text)
			}
		})
	}
}

// TestOldHandle stands for the session as it was when the handle was given.
func TestOldHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, w := newScene(t, emulator.Scenario{})
		p := join(t, client, `{}`)
		empty := p.handle()
		p.text("one")
		p.turn()
		one := p.handle()
		p.text("two")
		p.turn()
		_ = p.conn.Close()
		_ = resume(t, client, `{}`, one).conn.Close()
		_ = resume(t, client, `{}`, empty).conn.Close()
		opened := w.of(emulator.Opened)
		if len(opened) != 3 || opened[0].Resumed || !opened[1].Resumed {
			t.Fatalf("%+v", opened)
		}
		if got := fmt.Sprint(opened[1].History); got != "[{user one} {model You said: one}]" || len(opened[2].History) != 0 {
			t.Errorf("%v, %v", got, opened[2].History)
		}
	})
}

const oldModel = `{"model":"gemini-2.5-flash-native-audio-preview-12-2025","tools":[{"functionDeclarations":[{"name":"f"}]}]}`

// resumptions returns what the updates of a turn and of what led to it say, up to a quiet second.
func (p *peer) resumptions() string {
	p.t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	var said []string
	for len(p.in) > 0 {
		m := <-p.in
		switch {
		case m.Resumption != nil && m.Resumption.Resumable && m.Resumption.Handle != "":
			said = append(said, "handle")
		case m.Resumption != nil && !m.Resumption.Resumable && m.Resumption.Handle == "":
			said = append(said, "none")
		case m.ToolCalls != nil:
			said = append(said, "call")
		case m.Content != nil && m.Content.TurnComplete:
			said = append(said, "complete")
		}
	}
	return strings.Join(said, " ")
}

func TestWhenHandlesAreGiven(t *testing.T) {
	const young = `{"tools":[{"functionDeclarations":[{"name":"f","behavior":"BLOCKING"}]}]}`
	for _, c := range []struct{ name, config, handles, start, turn, call string }{
		{"2.5", oldModel, "", "", "none complete handle", "none call"},
		{"3.8", young, "", "handle", "complete handle", "call handle"},
		{"3.8, unasked", `{"voxgate":{"enableResumption":false}}`, "", "handle", "complete", "complete"},
		{"3.8, withheld", young, "withheld", "", "none complete handle", "none call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, _ := newScene(t, emulator.Scenario{Handles: c.handles})
				p := join(t, client, c.config)
				if got := p.resumptions(); got != c.start {
					t.Errorf("at first: %s", got)
				}
				p.text("hello")
				if got := p.resumptions(); got != c.turn {
					t.Errorf("in a turn: %s", got)
				}
				p.text("/tool f")
				if got := p.resumptions(); got != c.call {
					t.Errorf("with a call: %s", got)
				}
			})
		})
	}
}

// TestCallsAcrossConnections answers a call on another connection than it came on.
func TestCallsAcrossConnections(t *testing.T) {
	const config = `{"tools":[{"functionDeclarations":[{"name":"wait","behavior":"BLOCKING"},{"name":"go"}]}]}`
	for _, c := range []struct {
		name, function string
		old            bool
		want           bool // the answer is taken
	}{
		{"blocking", "wait", false, true},
		{"non-blocking", "go", false, true},
		{"the handle is older", "wait", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, w := newScene(t, emulator.Scenario{})
				p := join(t, client, config)
				before := p.handle()
				call := p.call("/tool " + c.function)
				handle := p.handle()
				if c.old {
					handle = before
				}
				_ = p.conn.Close()
				q := resume(t, client, config, handle)
				q.respond(call.ID, `{"output":"sunny"}`, "")
				if !c.want {
					q.text("hello")
				}
				said := q.turn().text
				if s := w.of(emulator.Answered); len(s) != 1 || s[0].Ignored == c.want || s[0].ID != call.ID || s[0].Text != `{"output":"sunny"}` {
					t.Errorf("%+v", s)
				}
				if strings.Contains(said, "sunny") != c.want {
					t.Errorf("says %q", said)
				}
			})
		})
	}
}

// TestSpeechAcrossConnections cuts a word in two.
func TestSpeechAcrossConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, w := newScene(t, emulator.Scenario{})
		p := join(t, client, `{}`)
		handle := p.handle()
		p.audio(tone(16000, 440, time.Second))
		synctest.Wait()
		_ = p.conn.Close()
		q := resume(t, client, `{}`, handle)
		q.audio(tone(16000, 880, time.Second))
		q.audio(make([]int16, 16000))
		q.turn()
		lost := w.of(emulator.Closed)[0]
		if mediatest.ToneLevel(lost.PCM, lost.Rate, 440) < 0.5 {
			t.Error("the closed connection does not tell what it heard")
		}
		heard := w.of(emulator.Heard)
		if len(heard) != 1 || heard[0].Connection != 2 {
			t.Fatalf("%d turns", len(heard))
		}
		if mediatest.ToneLevel(heard[0].PCM, heard[0].Rate, 440) > 0.1 || mediatest.ToneLevel(heard[0].PCM, heard[0].Rate, 880) < 0.5 {
			t.Errorf("%d samples are not the second half alone", len(heard[0].PCM))
		}
	})
}

// TestObserve is what a test of the bridge can learn of a conversation.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, w := newScene(t, emulator.Scenario{})
		p := join(t, client, `{"systemInstruction":{"parts":[{"text":"Be brief."}]},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`)
		speech := tone(16000, 440, time.Second)
		p.speak(speech)
		p.turn()
		p.send(content("the sky is green", false))
		p.send(content("hello", true))
		p.turn()
		p.send(wire.ClientMessage{ContextUpdate: &wire.ContextUpdate{
			SystemInstruction: []byte(`{"parts":[{"text":"Be long."}]}`), Tools: []byte(`{"tools":[{"functionDeclarations":[{"name":"g"}]}]}`),
		}})
		call := p.call("/tool g {}")
		p.respond(call.ID, `{"output":1}`, "")
		p.turn()
		p.turn()
		_ = p.conn.Close()
		opened := w.of(emulator.Opened)[0]
		if opened.Text != "Be brief." || fmt.Sprint(opened.Tools) != "[f]" || opened.Connection != 1 || opened.Resumed {
			t.Errorf("%+v", opened)
		}
		heard := w.of(emulator.Heard)
		if len(heard) != 1 || duration(len(heard[0].PCM), heard[0].Rate) < time.Second || duration(len(heard[0].PCM), heard[0].Rate) > 1500*time.Millisecond {
			t.Errorf("heard %d turns", len(heard))
		}
		if s := w.of(emulator.Appended); len(s) != 1 || fmt.Sprint(s[0].History) != "[{user the sky is green}]" {
			t.Errorf("%+v", s)
		}
		if s := w.of(emulator.Typed); len(s) != 2 || s[0].Text != "hello" {
			t.Errorf("%+v", s)
		}
		if s := w.of(emulator.Updated); len(s) != 1 || s[0].Text != "Be long." || fmt.Sprint(s[0].Tools) != "[g]" {
			t.Errorf("%+v", s)
		}
		if s := w.of(emulator.Called); len(s) != 1 || s[0].Name != "g" || s[0].ID != call.ID {
			t.Errorf("%+v", s)
		}
		if s := w.of(emulator.Answered); len(s) != 1 || s[0].Ignored || s[0].Text != `{"output":1}` {
			t.Errorf("%+v", s)
		}
		if s := w.of(emulator.Said); len(s) != 3 || !strings.HasPrefix(s[0].Text, "You said: ") {
			t.Errorf("%+v", s)
		}
		if s := w.of(emulator.Closed); len(s) != 1 || s[0].Code != 1000 || s[0].PCM != nil {
			t.Errorf("%+v", s)
		}
	})
}
