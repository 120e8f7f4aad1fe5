package bridge_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
)

// TestFaults runs conversations of three sentences, with a fault at the second one. The table of faults in docs/figures.md
// has what the person notices, and the delay of the answer.
func TestFaults(t *testing.T) {
	fault := func(on emulator.Moment, f emulator.Fault) emulator.Scenario {
		f.On, f.Nth, f.Connections = on, 2, []int{1}
		if on != emulator.OnSpeechEnd {
			f.After = 600 * time.Millisecond
		}
		return emulator.Scenario{Faults: []emulator.Fault{f}}
	}
	lost := fault(emulator.OnSpeechStart, emulator.Fault{Drop: true})
	forgotten := lost
	forgotten.HandleTTL = time.Nanosecond
	refused := lost
	refused.Faults = append([]emulator.Fault{{On: emulator.OnHandshake, Connections: []int{2}, HTTP: 429}}, lost.Faults...)
	const reconnecting, waiting = "Reconnecting to Gemini…", "Waiting for Gemini's answer…"
	for _, test := range []struct {
		name     string
		scenario emulator.Scenario
		down     time.Duration // time without another connection
		later    time.Duration // delay of the answer, or of the next answer if this one breaks off
		within   time.Duration // tolerance of later, because the pauses between attempts are random; 0 means 60 ms
		breaks   bool          // the answer breaks off
		sound    time.Duration // length of the sounds before the answer: tones of 200 ms and a sentence of 1.56 s
		seen     string
		tried    string
	}{
		{name: "goAway in a pause", scenario: emulator.Scenario{ConnectionAge: 8 * time.Second, GoAwayLead: 3 * time.Second}},
		{name: "goAway while the person speaks", scenario: fault(emulator.OnSpeechStart, emulator.Fault{Send: `{"goAway":{"timeLeft":"20s"}}`})},
		{name: "lost in a pause", scenario: emulator.Scenario{Faults: []emulator.Fault{{
			On: emulator.OnTurnComplete, Nth: 1, After: time.Second,
			Connections: []int{1}, Drop: true,
		}}}},
		{name: "lost while the person speaks", scenario: lost},
		{name: "1011 while the person speaks", scenario: fault(emulator.OnSpeechStart, emulator.Fault{Close: 1011})},
		{name: "1008 while the person speaks", scenario: fault(emulator.OnSpeechStart, emulator.Fault{Close: 1008})},
		{
			name: "1011 right after the question", scenario: fault(emulator.OnSpeechEnd, emulator.Fault{Close: 1011}),
			later: 1250 * time.Millisecond,
		},
		{name: "lost while the model speaks", scenario: fault(emulator.OnAnswer, emulator.Fault{Drop: true}), breaks: true},
		{name: "lost, and Gemini has forgotten the session", scenario: forgotten},
		{
			name: "out of reach for 3 s", scenario: lost, down: 3 * time.Second, later: 3900 * time.Millisecond, within: 1300 * time.Millisecond,
			sound: 400 * time.Millisecond, seen: reconnecting,
		},
		{
			name: "out of reach for 8 s", scenario: lost, down: 8 * time.Second, later: 8900 * time.Millisecond, within: 1500 * time.Millisecond,
			sound: 2160 * time.Millisecond, seen: reconnecting,
		},
		{name: "lost, and 429, for 7 s", scenario: refused, later: 6610 * time.Millisecond, sound: 2160 * time.Millisecond, seen: reconnecting},
		{
			name: "no answer", scenario: fault(emulator.OnSpeechEnd, emulator.Fault{Stall: true}), later: 10250 * time.Millisecond,
			seen: waiting + " " + reconnecting + " " + waiting, tried: "nudge resume",
		},
		{
			name: "Gemini reads no more", scenario: fault(emulator.OnSpeechStart, emulator.Fault{Stall: true, Deaf: true}),
			later: 1900 * time.Millisecond,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			runWithFakeClock(t, func(t *testing.T) {
				const sentence = 1500 * time.Millisecond
				var up time.Time // time from which Gemini can be reached again
				r, _ := emulated(t, test.scenario, watchful, func(o *bridge.Options) {
					direct := o.Client.NetDial
					o.Client.NetDial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						if time.Now().Before(up) {
							return nil, errors.New("no route")
						}
						return direct(ctx, network, addr)
					}
				})
				c := r.meets(bridge.SessionRequest{})
				ask := func(rest time.Duration) (wait, sound time.Duration, messages []string) {
					var notes []string
					c.clearLog()
					end := r.elapsed() + sentence
					c.speakAndPause(sentence, rest)
					for _, e := range c.entries() {
						switch event := e.event.(type) {
						case bridge.Speaking:
							_, messages = c.heardAndSeen()
							return e.at - end, sound, append(messages, notes...)
						case bridge.ErrorEvent:
							notes = append(notes, event.Err.Message)
						case nil:
							sound += 20 * time.Millisecond
						}
					}
					t.Fatalf("no answer: %s", c.summarizeLog())
					return 0, 0, nil
				}
				usual, _, _ := ask(4 * time.Second)
				if test.down > 0 {
					up = time.Now().Add(660*time.Millisecond + test.down)
				}
				wait, sound, messages := ask(20 * time.Second)
				cut, _ := findEvents[bridge.Interrupted](c)
				tried := c.watchdogAttempts()
				next, _, _ := ask(4 * time.Second)
				if test.breaks {
					wait = next
				}
				t.Logf("%v later, %v of tones, got %q, tried %s", wait-usual, sound, messages, tried)
				if (wait-usual-test.later).Abs() > max(60*time.Millisecond, test.within) || (next-usual).Abs() > 60*time.Millisecond {
					t.Errorf("the answer comes %v later, want %v; the next one %v", wait-usual, test.later, next-usual)
				}
				if (sound-test.sound).Abs() > 500*time.Millisecond || strings.Join(messages, " ") != test.seen || tried != test.tried ||
					(len(cut) > 0) != test.breaks {
					t.Errorf("%v of tones, got %q, tried %q, interrupted %v", sound, messages, tried, cut)
				}
			})
		})
	}
}
