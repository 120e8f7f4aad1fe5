package emulator_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/bridgetest"
)

// witness collects the events of an emulator.
type witness struct {
	mu     sync.Mutex
	events []emulator.Event
}

func (w *witness) observe(ev emulator.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, ev)
}

// of returns the events of a kind.
func (w *witness) of(what emulator.EventKind) []emulator.Event {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []emulator.Event
	for _, ev := range w.events {
		if ev.Kind == what {
			list = append(list, ev)
		}
	}
	return list
}

// newScene starts an emulator with a scenario and a witness.
func newScene(t *testing.T, sc emulator.Scenario) (*api.Client, *witness) {
	t.Helper()
	w := new(witness)
	return newPeer(t, emulator.Options{Espeak: emulator.NoVoice, Scenario: sc, Observe: w.observe}), w
}

// with is a scenario of faults.
func with(faults ...emulator.Fault) emulator.Scenario { return emulator.Scenario{Faults: faults} }

const toolSetup = `{"tools":[{"functionDeclarations":[{"name":"f"}]}]}`

// moments brings a session to each moment.
var moments = map[emulator.Moment]func(p *peer){
	emulator.OnReady:        func(*peer) {},
	emulator.OnSpeechStart:  func(p *peer) { p.audio(tone(16000, 440, time.Second)) },
	emulator.OnSpeechEnd:    func(p *peer) { p.speak(tone(16000, 440, time.Second)) },
	emulator.OnText:         func(p *peer) { p.text("hello") },
	emulator.OnAnswer:       func(p *peer) { p.text("hello") },
	emulator.OnTurnComplete: func(p *peer) { p.text("hello") },
	emulator.OnToolCall:     func(p *peer) { p.text("/tool f") },
	emulator.OnToolResponse: func(p *peer) { p.text("/tool f"); p.respond("nobody's", `{"a":1}`, "") },
}

// TestFaultsAtEveryMoment ends a session in each way at each moment.
func TestFaultsAtEveryMoment(t *testing.T) {
	ends := map[string]struct {
		do     emulator.Fault
		code   int
		reason string
	}{
		"no frame":    {emulator.Fault{Drop: true}, 1006, ""},
		"1006":        {emulator.Fault{Close: 1006}, 1006, ""},
		"aborted":     {emulator.Fault{Close: 1008}, 1008, "The operation was aborted"},
		"unavailable": {emulator.Fault{Close: 1011, Reason: "The service is currently unavailable."}, 1011, "The service is"},
	}
	for moment, reach := range moments {
		for name, end := range ends {
			t.Run(fmt.Sprintf("%s/%s", moment, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fault := end.do
					fault.On = moment
					client, w := newScene(t, with(fault))
					p := join(t, client, toolSetup)
					p.t = deafTB{t} // what is sent after the end fails
					reach(p)
					p.t = t
					p.closes(end.code, end.reason)
					closed := w.of(emulator.EventClosed)
					if len(closed) != 1 || closed[0].Code != end.code || len(w.of(emulator.EventFault)) != 1 {
						t.Errorf("closed %+v", closed)
					}
				})
			})
		}
	}
}

// deafTB ignores fatal errors.
type deafTB struct{ testing.TB }

func (deafTB) Fatal(...any) {}

func TestFaultsBeforeTheSession(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault emulator.Fault
		want  string
		after time.Duration
	}{
		{"401", emulator.Fault{On: emulator.OnHandshake, HTTP: 401}, "HTTP 401 Unauthorized", 0},
		{"403", emulator.Fault{On: emulator.OnHandshake, HTTP: 403}, "HTTP 403", 0},
		{"429", emulator.Fault{On: emulator.OnHandshake, HTTP: 429}, "RESOURCE_EXHAUSTED", 0},
		{"503 late", emulator.Fault{On: emulator.OnHandshake, HTTP: 503, After: 2 * time.Second}, "HTTP 503", 2 * time.Second},
		{"dropped", emulator.Fault{On: emulator.OnHandshake, Drop: true}, "EOF", 0},
		{"no upgrade", emulator.Fault{On: emulator.OnHandshake, Stall: true}, "deadline exceeded", 10 * time.Second},
		{"no setupComplete", emulator.Fault{On: emulator.OnSetup, Stall: true}, "deadline exceeded", 10 * time.Second},
		{"deaf", emulator.Fault{On: emulator.OnSetup, Stall: true, Deaf: true}, "deadline exceeded", 10 * time.Second},
		{"close", emulator.Fault{On: emulator.OnSetup, Close: 1011}, "1011: Internal error", 0},
		{"drop", emulator.Fault{On: emulator.OnSetup, Drop: true}, "1006", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.fault.Times = 1
				client, _ := newScene(t, with(c.fault))
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := gemini.Dial(ctx, client, gemini.Setup{})
				// A server that has just become deaf may not read the client's close frame. Then the client waits for half a second.
				took := time.Since(start)
				late := c.fault.Deaf && took == c.after+500*time.Millisecond
				if err == nil || !strings.Contains(err.Error(), c.want) || took != c.after && !late {
					t.Errorf("%v after %v, want %q after %v", err, took, c.want, c.after)
				}
				join(t, client, `{}`) // the fault occurs only once
			})
		})
	}
}

func TestTypedFaults(t *testing.T) {
	for text, want := range map[string]struct {
		code   int
		reason string
		after  time.Duration
	}{
		"/drop":                    {1006, "", 300 * time.Millisecond},
		"/close 1011 out of seeds": {1011, "out of seeds", 300 * time.Millisecond},
		"/close 1007":              {1007, "Request contains an invalid argument.", 300 * time.Millisecond},
		"/goaway 7s":               {1008, "The operation was aborted", 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, _ := newScene(t, emulator.Scenario{})
			p := join(t, client, `{}`)
			start := time.Now()
			p.text(text)
			goAway := time.Duration(0)
			for m := range p.in {
				if m.GoAway != nil {
					goAway = *m.GoAway
				}
			}
			if took := time.Since(start); took != want.after || want.after > time.Second && goAway.Round(time.Second) != want.after {
				t.Errorf("%s: after %v, goAway %v", text, took, goAway)
			}
			p.closes(want.code, want.reason)
		})
	}
	synctest.Test(t, func(t *testing.T) { // the same by a scenario
		client, _ := newScene(t, with(emulator.Fault{On: emulator.OnReady, GoAway: 7 * time.Second}))
		p := join(t, client, `{}`)
		start := time.Now()
		m := p.until(func(m *message) bool { return m.GoAway != nil })
		p.closes(1008, "The operation was aborted")
		if took := time.Since(start); took != 7*time.Second || m.GoAway.Round(time.Second) != took {
			t.Errorf("after %v, goAway %v", took, m.GoAway)
		}
	})
	parrot(t, `{}`, func(t *testing.T, p *peer) {
		p.text("/close 42")
		if s := p.turn(); s.text != "There is no such code." {
			t.Errorf("says %q", s.text)
		}
	})
}

// TestCloseEndsSessions leaves no goroutine behind, wherever a session is: TestMain looks.
func TestCloseEndsSessions(t *testing.T) {
	for _, fault := range []emulator.Fault{
		{On: emulator.OnHandshake, Stall: true},
		{On: emulator.OnHandshake, After: time.Hour, HTTP: 401},
		{On: emulator.OnSetup, Stall: true, Deaf: true},
		{On: emulator.OnReady, Stall: true},
		{On: emulator.OnReady, After: time.Hour, Drop: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, e := bridgetest.NewPipeNetwork(), emulator.New(emulator.Options{Scenario: with(fault)})
			p.ServeUntilEnd(t, e, e.Close)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				client := &api.Client{BaseURL: "http://gemini.test", NetDial: p.Dial}
				if conn, err := gemini.Dial(ctx, client, gemini.Setup{}); err == nil {
					_ = conn.Close()
				}
			}()
			synctest.Wait()
			start := time.Now()
			e.Close()
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("Close took %v", took)
			}
		})
	}
}
