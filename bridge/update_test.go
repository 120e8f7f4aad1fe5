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

// brief is a config that can be changed in place.
func brief(text string) string { return fmt.Sprintf(`{"systemInstruction":%q}`, text) }

// warm is a config that cannot be changed in place, and can be told from others.
func warm(temperature string) string {
	return fmt.Sprintf(`{"generationConfig":{"temperature":%s}}`, temperature)
}

func (c *caller) update(config string) {
	c.r.t.Helper()
	c.do(bridge.UpdateConfig{Config: []byte(config)})
}

// dialledFor checks what a link was dialled with.
func (l *link) dialledFor(temperature, handle string) *link {
	l.t.Helper()
	if got := l.setup.SessionResumption.Handle; l.setup.GenerationConfig.Temperature.String() != temperature || got != handle {
		l.t.Errorf("dialled for %q with handle %q, want %q with %q", l.setup.GenerationConfig.Temperature, got, temperature, handle)
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
		c, l := r.connect(bridge.Open{Config: []byte(warm("0.1"))})
		l.handle("old")
		l.handle("h")
		c.update(warm("0.2"))
		ended, closed := l.closed()
		if !closed {
			t.Fatal("the old link is open")
		}
		m := r.up.next().dialledFor("0.2", "h")
		if m.born.Before(ended) {
			t.Error("dialled before the old link was closed")
		}
		c.tells("SetupComplete")
		m.accept()
		c.tells("SetupComplete SetupComplete")
		s := last[bridge.SetupComplete](c)
		if !strings.Contains(string(s.EffectiveConfig), "0.2") || s.SessionID != c.session.ID() || s.Resumed || s.Backend != "emulator" {
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
		if e := last[bridge.SetupFailed](c).Err; e.Code != bridge.CodeConfigUpdateFailed || e.Field != "payload.generationConfig.temperature" {
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
	}{
		"bad":           {warm("0.3"), func(l *link) { l.end(1007, "Request contains an invalid argument.") }},
		"unknown model": {`{"model":"gemini-9"}`, func(l *link) { l.end(1008, "Requested entity was not found.") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				c, l := r.connect(bridge.Open{Config: []byte(warm("0.4"))})
				l.handle("h")
				c.update(test.config)
				test.refuse(r.up.next())
				m := r.up.next().dialledFor("0.4", "h").accept()
				c.tells("SetupComplete SetupFailed")
				if e := last[bridge.SetupFailed](c).Err; e.Code != bridge.CodeConfigUpdateFailed {
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
		c.update(warm("0.5"))
		r.up.next().end(1008, "BidiGenerateContent session not found")
		m := r.up.next().dialledFor("0.5", "").accept()
		c.tells("SetupComplete Failure SetupComplete")
		c.warned("may be lost")
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
		c.update(warm("0.6"))
		c.update(`{"generationConfig":{"topP":7}}`)
		c.tells("")
		l.accept()
		c.tells("SetupComplete SetupFailed")
		m := r.up.next().dialledFor("0.6", "").accept()
		c.tells("SetupComplete SetupFailed Failure SetupComplete SetupFailed")
		c.works(m)
	})
}

func TestUpdatesInARow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.handle("h")
		for _, config := range []string{warm("0.6"), `{"model":7}`, warm("0.7"), warm("0.8")} {
			c.update(config)
		}
		r.up.next().dialledFor("0.6", "h").accept()
		r.up.next().dialledFor("0.7", "h").end(1007, "no")
		m := r.up.next().dialledFor("0.8", "h").accept()
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
		for i := range 40 {
			c.update(warm(fmt.Sprintf("0.%d", i+1)))
		}
		l.accept()
		for range 16 {
			r.up.next().accept()
			synctest.Wait()
		}
		r.up.idle()
		done, _ := find[bridge.SetupComplete](c)
		failed, _ := find[bridge.SetupFailed](c)
		if len(done) != 17 || len(failed) != 24 || failed[0].Err.Code != bridge.CodeStreamLimitExceeded {
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
		c.update(warm("0.5"))
		m.accept()
		n := r.up.next().dialledFor("0.5", "h").accept()
		c.tells("SetupComplete SetupComplete")
		c.works(n)
	})
}

// A refused update is nothing to dial for.
func TestRefusedUpdateWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(warm("0.4"))})
		l.handle("h")
		l.cut()
		l = r.up.next().accept()
		synctest.Wait()
		l.cut() // the second time there is a pause
		c.update(`[]`)
		m := r.up.next().dialledFor("0.4", "h").accept()
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
		time.Sleep(time.Second) // or the call and the wait for its end would be over at the same moment
		c.update(strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview",`, 1))
		m := r.up.next().dialledFor("", "")
		if m.setup.Model != "models/gemini-3.1-flash-live-preview" {
			t.Errorf("dialled %q", m.setup.Model)
		}
		m.accept()
		c.tells("SetupComplete ToolCall(a) ToolCallCancellation(a) Failure Log SetupComplete") // once the call was over
		c.warned("fresh session")
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
		c.update(warm("0.5"))
		r.up.set(0, nil)
		r.up.next().dialledFor("0.5", "h").accept()
		c.tells("SetupComplete SetupComplete")
	})
}

// What the model takes in mid-session is changed in place, at once and without another link.
func TestUpdateInPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(brief("long"))})
		l.handle("h")
		l.say(7, 5*time.Second) // in the middle of an answer
		c.update(brief("short"))
		if got := l.said(); got != `update {"systemInstruction":{"parts":[{"text":"short"}]}}` {
			t.Errorf("came %s", got)
		}
		if n := len(told(c)); n != 1 {
			t.Errorf("%d SETUP_COMPLETEs before Gemini could object", n)
		}
		time.Sleep(500 * time.Millisecond)
		if all := told(c); len(all) != 2 || !strings.Contains(string(all[1].EffectiveConfig), "short") {
			t.Errorf("%d SETUP_COMPLETEs: %+v", len(all), all)
		}
		c.update(brief("short")) // no change
		if n := len(told(c)); n != 3 {
			t.Errorf("%d SETUP_COMPLETEs", n)
		}
		r.up.idle()
		// A resumed session may have kept what it was set up with.
		l.cut()
		m := r.up.next().accept()
		if got := m.setup.SystemInstruction.Parts[0].Text; got != "short" {
			t.Errorf("resumed with %q", got)
		}
		if got := m.said(); got != `update {"systemInstruction":{"parts":[{"text":"short"}]}}` {
			t.Errorf("came %s", got)
		}
	})
}

func told(c *caller) []bridge.SetupComplete { found, _ := find[bridge.SetupComplete](c); return found }

// A change in place that Gemini closes the link for leaves the old configuration in force, on the same handle.
func TestUpdateInPlaceRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(brief("good"))})
		l.handle("h")
		c.update(brief("bad"))
		l.end(1007, "Request contains an invalid argument.")
		m := r.up.next().dialledFor("", "h").accept()
		if got := m.setup.SystemInstruction.Parts[0].Text; got != "good" {
			t.Errorf("resumed with %q", got)
		}
		c.tells("SetupComplete SetupFailed")
		if e := last[bridge.SetupFailed](c).Err; e.Code != bridge.CodeConfigUpdateFailed || e.Status != 1007 {
			t.Errorf("%+v", e)
		}
		if got := m.said(); got != "" {
			t.Errorf("came %s", got)
		}
		c.works(m)
	})
}

// What needs another link waits until nobody speaks; the old link serves until then.
func TestUpdateWaitsForAQuietMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.handle("h")
		l.say(7, 5*time.Second)
		c.update(warm("0.5"))
		time.Sleep(3 * time.Second)
		r.up.idle()
		if s, _ := find[bridge.StateChange](c); s[len(s)-1].State != bridge.StateDraining {
			t.Errorf("state %v", s[len(s)-1])
		}
		for range 50 { // the person speaks as well
			c.speak(loud(20 * time.Millisecond))
			time.Sleep(20 * time.Millisecond)
		}
		l.content(`"turnComplete":true`)
		l.handle("h2")
		r.up.idle()
		c.quiet(time.Second)
		l.answer(8, time.Second)
		l.handle("h3")
		if n := len(l.pcm()); n != 2*16000 {
			t.Errorf("%d samples came by the old link", n)
		}
		m := r.up.next().dialledFor("0.5", "h3").accept()
		if n := len(m.pcm()); n != 0 {
			t.Errorf("%d samples were said again", n)
		}
		time.Sleep(2 * time.Second)
		c.works(m)
	})
}

// Whoever never pauses gets the new configuration all the same.
func TestUpdateDoesNotWaitForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.handle("h")
		l.say(7, 90*time.Second)
		begin := r.since()
		c.update(warm("0.5"))
		r.up.next().dialledFor("0.5", "h").accept()
		if took := r.since() - begin; took != 30*time.Second {
			t.Errorf("after %v", took)
		}
	})
}
