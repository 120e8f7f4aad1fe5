package emulator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/wire"
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
			seen := time.Time{}
			for m := range p.in {
				if m.GoAway != nil {
					seen = m.at
					if left := *m.GoAway; left > lead || left < lead-time.Second {
						t.Errorf("goAway says %v", left)
					}
				}
			}
			if lived := time.Since(start); lived != age {
				t.Errorf("lived %v", lived)
			}
			if (lead > 0) == seen.IsZero() || lead > 0 && seen.Sub(start) != age-lead {
				t.Errorf("got after %v", seen.Sub(start))
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

// TestOldHandle: an old handle restores the session as it was when the handle was sent.
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
		opened := w.of(emulator.EventOpened)
		if len(opened) != 3 || opened[0].Resumed || !opened[1].Resumed {
			t.Fatalf("%+v", opened)
		}
		if got := fmt.Sprint(opened[1].History); got != "[{user one} {model You said: one}]" || len(opened[2].History) != 0 {
			t.Errorf("%v, %v", got, opened[2].History)
		}
	})
}

// TestHandlesShareOneHistory checks that the handles of a long conversation do not each keep a copy of its turns.
func TestHandlesShareOneHistory(t *testing.T) { // not parallel: it measures the heap
	const turns, most = 200, 1 << 20 // a copy for each handle takes 4 MB
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		history := slices.Repeat([]wire.Content{{Role: "user", Parts: json.RawMessage(`[{"text":"Hi"}]`)}}, 1000)
		p.send(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: history, TurnComplete: true}})
		p.turn()
		before := heapInUse()
		for range turns {
			p.text("Hi")
			p.turn()
		}
		if kept := heapInUse() - before; kept > most {
			t.Errorf("the handles of %d turns keep %d KB", turns, kept>>10)
		}
	})
}

// heapInUse returns the bytes of the heap that are still in use after a collection.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // frees what has a finalizer
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

const oldModel = `{"model":"gemini-2.5-flash-native-audio-preview-12-2025","tools":[{"functionDeclarations":[{"name":"f"}]}]}`

// resumptions returns the kinds of the messages that arrive within a minute, in order: handle, none (a withheld handle), call or complete.
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

func TestHandlePolicy(t *testing.T) {
	const young = `{"tools":[{"functionDeclarations":[{"name":"f","behavior":"BLOCKING"}]}]}`
	for _, c := range []struct{ name, config, handles, start, turn, call string }{
		{"2.5", oldModel, "", "", "none complete handle", "none call"},
		{"3.8", young, "", "handle", "complete handle", "call"},
		{"3.8, prompt", young, emulator.HandlesPrompt, "handle", "complete handle", "call handle"},
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
