package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/tools"
)

// Was wrong: repeatCalls sorts by the id, which is the model's and random, and not by when the calls came. Of two canvases that wait
// the older one may be repeated last and then lies on the screen of a reloaded page, while the board has the newer one.
func TestCallsAreRepeatedInTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, c, l := withCanvas(t, "gemini-3.8-live", bridge.Open{Resumable: true})
		l.Call("z", "show_canvas_tool", schema(question))
		l.Call("y", "show_canvas_tool", schema(question))
		l.Handle("h")
		token := c.token()
		c.leaves()
		r.back(token).tells("SetupComplete ToolCall(z) ToolCall(y)")
	})
}

// Was wrong: what a tool says of its failure is cut for the model (maxFailure, 2000 bytes) but goes to the client in full: TOOL_STATUS of
// an MCP tool's isError text, which is as long as the server likes. 4 MB of it and the outbox takes the client for too slow and
// drops it. It is also the tool's result by another name ("args and results are not told").
func TestLongFailuresAreCutForTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, asking(func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New(strings.Repeat("x", 5<<20))
		}))
		c, l := r.connect(bridge.Open{})
		l.Call("a", "pay", `{}`)
		l.Responses()
		if n := len(last[bridge.ToolStatus](c).Message); n > 4000 {
			t.Errorf("the client is told %d bytes", n)
		}
	})
}

// Was wrong: the same with arguments that do not fit: the sentence has all values of an enumeration.
func TestLongProblemsAreCutForTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var list []string
		for i := range 50000 {
			list = append(list, fmt.Sprintf(`"value %d"`, i))
		}
		c, l := r.connect(bridge.Open{Config: fmt.Appendf(nil, `{"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"n":{"type":"STRING","enum":[%s]}}}}]}]}`, strings.Join(list, ","))})
		l.Call("a", "f", `{"n":"x"}`)
		l.Responses()
		if n := len(last[bridge.Failure](c).Err.Message); n > 4000 {
			t.Errorf("the client is told %d bytes", n)
		}
	})
}

// Was wrong: a tool that crashes, or fails, leaves no line in the log: the operator whose Go tool panics learns nothing of it (onResult
// logs timeouts only), while the model and the client are told the text of the panic.
func TestCrashesAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, asking(func(context.Context, json.RawMessage) (json.RawMessage, error) { panic("index out of range") }))
		_, l := r.connect(bridge.Open{})
		l.Call("a", "pay", `{}`)
		l.Responses()
		r.log.mu.Lock()
		text := r.log.b.String()
		r.log.mu.Unlock()
		if !strings.Contains(text, "pay") || !strings.Contains(text, "index out of range") {
			t.Error("the log does not say that the tool has crashed")
		}
	})
}

// Was wrong: a tool that does not return is left to itself, and no longer counts among the 16 that may run: a model that calls it again
// and again (once a second is allowed) starts goroutines, and what they hold, without a bound.
func TestAbandonedToolsCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		running := make(chan struct{}, 10000)
		r := newRig(t, func(o *bridge.Options) {
			o.Tools = func() []tools.Tool {
				return []tools.Tool{{Declaration: tools.Declaration{Name: "pay", Timeout: time.Second}, Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
					running <- struct{}{}
					<-release
					return nil, nil
				}}}
			}
		})
		_, l := r.connect(bridge.Open{Config: []byte(`{"model":"gemini-3.8-live"}`)})
		defer close(release)
		for i := range 100 {
			l.Call(fmt.Sprint(i), "pay", `{}`)
			time.Sleep(3 * time.Second)
		}
		if n := len(running); n > 20 {
			t.Errorf("%d calls of a tool that never returns are running", n)
		}
	})
}

// Was wrong: what is answered at once (refused, rate-limited) waits for the link's writer in a queue of 200; what is more is dropped with a
// line in the log (send: "answer dropped: too many wait") and stays unanswered, though it is among Session.answers. A message with
// some hundred calls is nonsense of the model's, but "each is answered once, whatever happens" does not hold for it.
func TestManyCallsAtOnceAreAllAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, _, l := weather(t)
		var calls []string
		for i := range 400 {
			calls = append(calls, fmt.Sprintf("c%d weather", i))
		}
		l.Calls(calls...)
		time.Sleep(time.Minute)
		if n := len(l.Responses()); n != 400 {
			t.Errorf("400 calls, %d answers", n)
		}
	})
}
