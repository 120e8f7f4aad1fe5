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

// Calls are repeated to a caller that is back in the order in which they came, whatever their ids: the newest canvas lies on top.
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

// What a tool says of its failure, which may be megabytes, is cut for the client.
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

// So is what is wrong with arguments, which may name all values of an enumeration.
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

// The operator finds in the log that a tool has crashed.
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

// A tool that does not return counts among those that may run.
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

// Each call of a message with very many is answered.
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
