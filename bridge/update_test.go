package bridge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
)

// brief is a config that can be told from others.
func brief(text string) string { return fmt.Sprintf(`{"systemInstruction":%q}`, text) }

func (c *caller) update(config string) {
	c.r.t.Helper()
	c.do(bridge.UpdateConfig{Config: []byte(config)})
}

func (l *link) instruction() string {
	if parts := l.setup.SystemInstruction.Parts; len(parts) > 0 {
		return parts[0].Text
	}
	return ""
}

// dialledFor checks what a link was dialled with.
func (l *link) dialledFor(instruction, handle string) *link {
	l.t.Helper()
	if got := l.setup.SessionResumption.Handle; l.instruction() != instruction || got != handle {
		l.t.Errorf("dialled for %q with handle %q, want %q with %q", l.instruction(), got, instruction, handle)
	}
	return l
}

// works checks that the conversation goes on over l.
func (c *caller) works(l *link) {
	c.r.t.Helper()
	c.forget()
	said := len(l.pcm())
	c.speak(count(0, 1600))
	if got := len(l.pcm()) - said; got != 1600 {
		c.r.t.Errorf("%d samples came", got)
	}
	l.answer(7, time.Second)
	time.Sleep(2 * time.Second)
	c.tells("Speaking 7*50 TurnComplete")
}

func TestUpdate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(brief("long"))})
		l.handle("old")
		l.handle("h")
		c.update(brief("short"))
		ended, closed := l.closed()
		if !closed {
			t.Fatal("the old link is open")
		}
		m := r.up.next().dialledFor("short", "h")
		if m.born.Before(ended) {
			t.Error("dialled before the old link was closed")
		}
		c.tells("SetupComplete")
		m.accept()
		c.tells("SetupComplete SetupComplete")
		s := last[bridge.SetupComplete](c)
		if !strings.Contains(string(s.EffectiveConfig), "short") || s.SessionID != c.session.ID() || s.Resumed || s.Backend != "emulator" {
			t.Errorf("told %+v", s)
		}
		c.works(m)
	})
}

func TestUpdateRefusedHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		c.update(`{"generationConfig":{"temperature":9}}`)
		c.tells("SetupComplete SetupFailed")
		if e := last[bridge.SetupFailed](c).Err; e.Code != bridge.CodeBadConfig || e.Field != "payload.generationConfig.temperature" {
			t.Errorf("%+v", e)
		}
		r.up.idle()
		c.works(l)
	})
}

func TestUpdateRefusedByGemini(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		refuse func(*link)
		code   bridge.Code
	}{
		"bad":           {brief("bad"), func(l *link) { l.end(1007, "Request contains an invalid argument.") }, bridge.CodeRefused},
		"lost":          {brief("bad"), func(l *link) { l.cut() }, bridge.CodeUnreachable},
		"quota":         {brief("bad"), func(l *link) { l.end(1011, "RESOURCE_EXHAUSTED") }, bridge.CodeBusy},
		"unknown model": {`{"model":"gemini-9"}`, func(l *link) { l.end(1008, "Requested entity was not found.") }, bridge.CodeUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				c, l := r.connect(bridge.Open{Config: []byte(brief("good"))})
				l.handle("h")
				c.update(test.config)
				test.refuse(r.up.next())
				m := r.up.next().dialledFor("good", "h").accept()
				c.tells("SetupComplete SetupFailed")
				if e := last[bridge.SetupFailed](c).Err; e.Code != test.code {
					t.Errorf("%+v", e)
				}
				c.works(m)
			})
		})
	}
}

func TestUpdateWithStaleHandle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.handle("h")
		c.update(brief("new"))
		r.up.next().end(1008, "BidiGenerateContent session not found")
		m := r.up.next().dialledFor("new", "").accept()
		c.tells("SetupComplete Log SetupComplete")
		c.warned("memory")
		c.works(m)
	})
}

// What comes while the first link is dialled is answered after it, in order, also what is refused.
func TestUpdateWhileDialling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(bridge.Open{})
		l := r.up.next()
		<-c.seated
		c.update(`[]`)
		c.update(brief("one"))
		c.update(`{"generationConfig":{"topP":7}}`)
		c.tells("")
		l.accept()
		c.tells("SetupComplete SetupFailed")
		m := r.up.next().dialledFor("one", "").accept()
		c.tells("SetupComplete SetupFailed Log SetupComplete SetupFailed")
		c.works(m)
	})
}

func TestUpdatesInARow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.handle("h")
		for _, config := range []string{brief("one"), `{"model":7}`, brief("two"), brief("three")} {
			c.update(config)
		}
		r.up.next().dialledFor("one", "h").accept()
		r.up.next().dialledFor("two", "h").end(1007, "no")
		m := r.up.next().dialledFor("three", "h").accept()
		c.tells("SetupComplete SetupComplete SetupFailed SetupFailed SetupComplete")
		c.works(m)
		r.up.idle()
	})
}

func TestUpdatesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(bridge.Open{})
		l := r.up.next()
		<-c.seated
		for range 40 {
			c.update(brief("again"))
		}
		l.accept()
		for range 16 {
			r.up.next().accept()
			synctest.Wait()
		}
		r.up.idle()
		done, _ := find[bridge.SetupComplete](c)
		failed, _ := find[bridge.SetupFailed](c)
		if len(done) != 17 || len(failed) != 24 || failed[0].Err.Code != bridge.CodeBusy {
			t.Errorf("%d done, %d refused", len(done), len(failed))
		}
	})
}

func TestUpdateWhileRedialling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.handle("h")
		l.cut()
		m := r.up.next().dialledFor("", "h")
		c.update(brief("new"))
		m.accept()
		n := r.up.next().dialledFor("new", "h").accept()
		c.tells("SetupComplete SetupComplete")
		c.works(n)
	})
}

// A refused update is nothing to dial for.
func TestRefusedUpdateWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(brief("good"))})
		l.handle("h")
		l.cut()
		l = r.up.next().accept()
		synctest.Wait()
		l.cut() // the second time there is a pause
		c.update(`[]`)
		m := r.up.next().dialledFor("good", "h").accept()
		c.tells("SetupComplete SetupFailed")
		c.works(m)
	})
}

// Another model knows nothing of the conversation, and of its calls.
func TestUpdateOfTheModel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(declare("weather"))})
		l.calls("a weather")
		l.handle("h")
		c.update(strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview",`, 1))
		m := r.up.next().dialledFor("", "")
		if m.setup.Model != "models/gemini-3.1-flash-live-preview" {
			t.Errorf("dialled %q", m.setup.Model)
		}
		m.accept()
		c.tells("SetupComplete ToolCall(a) ToolCallCancellation(a) Log SetupComplete")
		c.warned("begins anew")
		c.late("a", "")
		m.cut()
		n := r.up.next().dialledFor("", "").accept() // the old handle is forgotten
		time.Sleep(time.Minute)
		n.answered()
	})
}

func TestUpdateWithoutNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.handle("h")
		r.up.set(0, errors.New("no route"))
		c.update(brief("new"))
		r.up.set(0, nil)
		r.up.next().dialledFor("", "h").accept()
		c.tells("SetupComplete SetupFailed")
	})
}
