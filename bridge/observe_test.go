package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// watched records observations.
type watched struct {
	mu   sync.Mutex
	r    *harness
	all  []bridge.Observation
	seen []string
}

func (w *watched) observe(id string, o bridge.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	word := strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", o), "bridge."), "upstream.")
	switch o := o.(type) {
	case bridge.TurnEnd:
		word += fmt.Sprintf(" %d %s", o.Number, o.InterruptedBy)
	case bridge.CallEnd:
		word += fmt.Sprintf(" %s %s in %d", o.Name, o.Outcome, o.Turn)
	case bridge.DialOutcome:
		word += fmt.Sprintf(" %s %s", o.Kind, o.Cause)
	case bridge.ConnectionEnd:
		word += fmt.Sprintf(" %s %s", o.Kind, o.Cause)
	case bridge.SessionEnded:
		if o.ID != id {
			word = "of another conversation"
		}
	}
	w.all, w.seen = append(w.all, o), append(w.seen, strings.TrimSpace(word))
}

// sees checks the observations since its last call.
func (w *watched) sees(want ...string) {
	w.r.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.seen, want) {
		w.r.t.Errorf("observed\n  %s\nwant\n  %s", strings.Join(w.seen, "\n  "), strings.Join(want, "\n  "))
	}
	w.seen = nil
}

// newest returns the last observation of type O.
func newest[O bridge.Observation](w *watched) (found O) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.all {
		if o, ok := o.(O); ok {
			found = o
		}
	}
	return found
}

func newWatched(t *testing.T, change ...func(*bridge.Options)) *watched {
	w := &watched{}
	w.r = newHarness(t, append(change, func(o *bridge.Options) { o.Observe = w.observe })...)
	return w
}

// A whole conversation, as the observer for metrics and traces gets it.
func TestObserverSeesAConversation(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		w := newWatched(t, asking(func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{}`), nil }))
		c, l := w.r.connectCaller(bridge.SessionRequest{Origin: bridge.Origin{Protocol: "sip", Key: "shop"}})
		l.SendHandle("h")
		w.sees("SessionStarted", "DialOutcome first")

		asked := time.Now()
		c.typeText("pay")
		time.Sleep(300 * time.Millisecond)
		l.CallTool("a", "pay", `{}`)
		time.Sleep(200 * time.Millisecond)
		l.SendAnswer(7, time.Second)
		time.Sleep(3 * time.Second)
		w.sees("CallEnd pay done in 1", "TurnEnd 1")
		if e := newest[bridge.TurnEnd](w); !e.StartedAt.Equal(asked) || !isAbout(e.Latency.Model, 500*time.Millisecond) {
			t.Errorf("%+v, asked at %v", e, asked)
		}

		l.SendVoice(8, 5*time.Second)
		time.Sleep(time.Second)
		c.speakWithoutPause(400 * time.Millisecond)
		l.SendContent(`"interrupted":true`)
		l.SendContent(`"turnComplete":true`)
		w.sees("BargeIn", "TurnEnd 2 voice")
		// The person's voice began 400 ms ago. The fade-out of the answer is sent within one frame.
		if e := newest[bridge.BargeIn](w); e.Latency < 400*time.Millisecond || e.Latency > 440*time.Millisecond {
			t.Errorf("%+v", e)
		}
		c.staySilentFor(time.Second)

		l.SendVoice(9, time.Second)
		l.DropConnection()
		l = w.r.up.NextConn().SendSetupComplete()
		time.Sleep(3 * time.Second)
		w.sees("ConnectionEnd first lost", "DialOutcome resume", "TurnEnd 3 link")

		l.SendAnswer(10, 5*time.Second)
		time.Sleep(time.Second)
		c.doCommand(bridge.Interrupt{})
		l.SendAnswer(11, 5*time.Second)
		time.Sleep(time.Second)
		w.sees("TurnEnd 4 client")

		c.doCommand(bridge.Goodbye{})
		c.awaitEnd(bridge.ErrGoodbye)
		w.sees("ConnectionEnd resume", "TurnEnd 5 end", "SessionEnded")
		e := newest[bridge.SessionEnded](w)
		if e.Protocol != "sip" || e.Key != "shop" || e.Reason != bridge.ErrGoodbye || e.Turns != 5 ||
			e.Counts.Connections.Dials != 2 || e.Counts.Connections.Resumed != 1 || e.Counts.Voice.Frames == 0 || e.Counts.Up.Sent == 0 {
			t.Errorf("%+v", e)
		}
	})
}

// The answer during which a conversation ends is reported as a turn. A failed dial is reported, too.
func TestObserveAnEarlyEnd(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		w := newWatched(t)
		w.r.up.SetFailure(429, nil)
		w.r.startCaller(bridge.SessionRequest{}).awaitFailure(bridge.CodeBusy)
		w.sees("SessionStarted", "DialOutcome first quota", "SessionEnded")
	})
	runWithFakeClock(t, func(t *testing.T) {
		w := newWatched(t)
		c, l := w.r.plain()
		l.SendVoice(7, time.Second)
		time.Sleep(100 * time.Millisecond)
		c.leave(nil)
		c.awaitEnd(nil)
		w.sees("SessionStarted", "DialOutcome first", "ConnectionEnd first", "TurnEnd 1 end", "SessionEnded")
	})
}

// TestSpeakerInTheList: the list of conversations says which side speaks, and that nobody does on hold.
func TestSpeakerInTheList(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		check := func(when, want string) {
			t.Helper()
			if got := r.host.Sessions()[0].Speaker; got != want {
				t.Errorf("%s: %q speaks, want %q", when, got, want)
			}
		}
		check("at first", "")
		c.speakWithoutPause(time.Second)
		check("while the person speaks", "user")
		c.staySilentFor(time.Second)
		check("after the question", "")
		l.SendAnswer(1, 2*time.Second)
		time.Sleep(time.Second)
		check("while the answer is played", "assistant")
		c.speakWithoutPause(500 * time.Millisecond)
		check("while both speak", "user")
		c.staySilentFor(3 * time.Second)
		check("after the answer", "")
		c.speakWithoutPause(time.Second)
		c.doCommand(bridge.Pause{On: true})
		check("on hold", "")
	})
}
