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
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// declare returns a config that declares functions with these names.
func declare(names ...string) string {
	var list []string
	for _, n := range names {
		list = append(list, fmt.Sprintf(`{"name":%q}`, n))
	}
	return `{"tools":[{"functionDeclarations":[` + strings.Join(list, ",") + `]}]}`
}

func (c *caller) sendToolResponse(id, name, response string) {
	c.r.t.Helper()
	c.doCommand(bridge.ToolResponse{ID: id, Name: name, Response: json.RawMessage(response)})
}

// checkAnswerRejected checks that the session rejects an answer to a call.
func (c *caller) checkAnswerRejected(id, name string) {
	c.r.t.Helper()
	err := c.session.Do(bridge.ToolResponse{ID: id, Name: name, Response: json.RawMessage(`{"x":1}`)})
	if err == nil || bridge.AsError(err).Code != bridge.CodeInvalidState {
		c.r.t.Errorf("the answer to %q was taken: %v", id+name, err)
	}
}

// weather requests a conversation with two functions that the client runs.
var weather = bridge.SessionRequest{Config: json.RawMessage(declare("weather", "time"))}

func TestParallelCalls(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather", "b weather", "c time")
		c.checkLog("SetupComplete ToolCall(a b c)")
		c.sendToolResponse("b", "weather", `{"sun":2}`)
		c.sendToolResponse("", "time", `{"hour":3}`) // old clients give no id
		c.sendToolResponse("a", "", `{"sun":1}`)
		c.checkAnswerRejected("a", "")
		c.checkAnswerRejected("", "time")
		c.checkAnswerRejected("nobody", "weather")
		time.Sleep(time.Minute)
		l.AssertToolResponses(`a weather {"sun":1}`, `b weather {"sun":2}`, `c time {"hour":3}`)
		c.checkLog("SetupComplete ToolCall(a b c)")
	})
}

// Only the backend may answer calls of the functions that it has declared, even if it has declared others since. It may
// also answer calls of the client's functions.
func TestTheClientDoesNotAnswerForTheBackend(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.doCommand(bridge.BackendUpdate{Functions: json.RawMessage(`[{"name":"check_pin"}]`)})
		l.CallTools("a check_pin", "b weather")
		c.entries()
		c.checkAnswerRejected("a", "")
		c.checkAnswerRejected("", "check_pin")
		c.doCommand(bridge.BackendUpdate{Functions: json.RawMessage(`[{"name":"find_hat"}]`)})
		c.checkAnswerRejected("a", "")
		for _, id := range []string{"a", "b"} {
			c.doCommand(bridge.ToolResponse{ID: id, Response: json.RawMessage(`{"x":1}`), Backend: true})
		}
		l.AssertToolResponses(`a check_pin {"x":1}`, `b weather {"x":1}`)
		c.checkLog("SetupComplete ToolCall(b)")
	})
}

func TestSecondAnswerIsRefused(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather")
		c.entries()
		if err := c.session.Do(bridge.ToolResponse{ID: "a", Response: json.RawMessage(`{"x":0}`)}); err != nil {
			t.Fatal(err)
		}
		c.checkAnswerRejected("a", "") // rejected whether or not the first answer has been passed on
		l.AssertToolResponses(`a weather {"x":0}`)
	})
}

func TestAmbiguousAnswer(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather", "b weather")
		c.entries()
		c.checkAnswerRejected("", "weather")
		c.sendToolResponse("a", "", `{"x":1}`)
		c.sendToolResponse("", "weather", `{"x":2}`)
		l.AssertToolResponses(`a weather {"x":1}`, `b weather {"x":2}`)
	})
}

func TestUndeclaredCall(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather", "b rm")
		l.AssertToolResponses(`b rm {"error":"unknown tool \"rm\""}`)
		c.checkLog("SetupComplete ErrorEvent ToolCall(a)")
		c.checkWarning(`"rm"`)
		c.checkAnswerRejected("b", "")
	})
}

// Of several calls with one ID, the client gets only the first. One answer answers it.
func TestDuplicateID(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather", "a time")
		l.CallTools("a weather")
		l.AssertToolResponses()
		c.sendToolResponse("a", "", `{"x":1}`)
		l.AssertToolResponses(`a weather {"x":1}`)
		c.checkLog("SetupComplete ToolCall(a)")
	})
}

func TestModelCancels(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather", "b weather")
		l.Send(`{"toolCallCancellation":{"ids":["a","unknown"]}}`)
		c.checkLog("SetupComplete ToolCall(a b) ToolCallCancellation(a)")
		c.checkAnswerRejected("a", "")
		c.sendToolResponse("b", "", `{"x":1}`)
		l.Send(`{"toolCallCancellation":{"ids":["a","b"]}}`)
		time.Sleep(time.Minute)
		l.AssertToolResponses(`b weather {"x":1}`)
		c.checkLog("SetupComplete ToolCall(a b) ToolCallCancellation(a)")
		l.CallTools("a weather") // the id may be used again
		c.sendToolResponse("a", "", `{"x":2}`)
		l.AssertToolResponses(`a weather {"x":2}`, `b weather {"x":1}`)
	})
}

func TestTooManyCalls(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		var want []string
		var wanted []string
		for i := range 17 {
			wanted = append(wanted, fmt.Sprintf("c%d weather", i))
		}
		l.CallTools(wanted...)
		if got := l.ToolResponses(); len(got) != 1 || !strings.HasPrefix(got[0], `c16 weather {"error":`) {
			t.Fatalf("answers %q", got)
		}
		want = l.ToolResponses()
		for i := range 16 {
			c.sendToolResponse(fmt.Sprintf("c%d", i), "", `{"x":1}`)
			want = append(want, fmt.Sprintf(`c%d weather {"x":1}`, i))
		}
		l.AssertToolResponses(want...)
		l.CallTools("d weather")
		c.sendToolResponse("d", "", `{"x":1}`)
		l.AssertToolResponses(append(want, `d weather {"x":1}`)...)
	})
}

func TestAnswersAreReshaped(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		var want []string
		for i, shape := range [][2]string{
			{``, `{"output":"done"}`},
			{`{}`, `{"output":"done"}`},
			{` { } `, `{"output":"done"}`},
			{`null`, `{"output":null}`},
			{`[1]`, `{"output":[1]}`},
			{`"yes"`, `{"output":"yes"}`},
			{`{"a":1}`, `{"a":1}`},
			{`{"a":`, `{"error":"the tool answered with something that is not JSON"}`},
		} {
			id := fmt.Sprintf("c%d", i)
			l.CallTools(id + " weather")
			c.entries()
			c.sendToolResponse(id, "", shape[0])
			want = append(want, id+" weather "+shape[1])
		}
		l.AssertToolResponses(want...)
	})
}

// The answer to a call reaches the model although the client has filled the queue.
func TestAnswersAreNotCrowdedOut(t *testing.T) {
	converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather")
		l.SendHandle("newer")
		c.entries()
		l.DropConnection()
		for range 150 {
			_ = c.session.Do(bridge.Text{Text: "again"}) // the last 50 are refused
		}
		c.sendToolResponse("a", "", `{"x":1}`)
		second := r.up.NextConn().SendSetupComplete()
		second.AssertToolResponses(`a weather {"x":1}`)
	})
}

// A returning caller gets open calls again in the order of their arrival, whatever their IDs: the newest canvas lies on top.
func TestCallsAreRepeatedInTheirOrder(t *testing.T) {
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("z", "show_canvas_tool", schema(question))
		l.CallTool("y", "show_canvas_tool", schema(question))
		l.SendHandle("h")
		token := c.resumeToken()
		c.disconnect()
		r.resumeByToken(token).checkLog("SetupComplete ToolCall(z) ToolCall(y)")
	})
}

// The error text of a tool may have megabytes. It is truncated for the client.
func TestLongFailuresAreCutForTheClient(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, asking(func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New(strings.Repeat("x", 5<<20))
		}))
		c, l := r.connectCaller(bridge.SessionRequest{})
		l.CallTool("a", "pay", `{}`)
		l.ToolResponses()
		if n := len(lastEvent[bridge.ToolStatus](c).Message); n > 4000 {
			t.Errorf("the client gets %d bytes", n)
		}
	})
}

// An error about arguments may name all values of an enumeration. It is truncated for the client, too.
func TestLongProblemsAreCutForTheClient(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		var list []string
		for i := range 50000 {
			list = append(list, fmt.Sprintf(`"value %d"`, i))
		}
		c, l := r.connectCaller(
			bridge.SessionRequest{
				Config: fmt.Appendf(
					nil,
					`{"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"n":{"type":"STRING","enum":[%s]}}}}]}]}`,
					strings.Join(list, ","),
				),
			},
		)
		l.CallTool("a", "f", `{"n":"x"}`)
		l.ToolResponses()
		if n := len(lastEvent[bridge.ErrorEvent](c).Err.Message); n > 4000 {
			t.Errorf("the client gets %d bytes", n)
		}
	})
}

// The log reports that a tool has crashed.
func TestCrashesAreLogged(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, asking(func(context.Context, json.RawMessage) (json.RawMessage, error) { panic("index out of range") }))
		_, l := r.connectCaller(bridge.SessionRequest{})
		l.CallTool("a", "pay", `{}`)
		l.ToolResponses()
		r.log.mu.Lock()
		text := r.log.b.String()
		r.log.mu.Unlock()
		if !strings.Contains(text, "pay") || !strings.Contains(text, "index out of range") {
			t.Error("the log does not say that the tool has crashed")
		}
	})
}

// A tool that does not return after its cancellation still counts against the limit of running tools.
func TestAbandonedToolsCount(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		release := make(chan struct{})
		running := make(chan struct{}, 10000)
		r := newHarness(t, func(o *bridge.Options) {
			o.Tools = func() []tools.Tool {
				return []tools.Tool{
					{
						Declaration: tools.Declaration{Name: "pay", Timeout: time.Second},
						Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
							running <- struct{}{}
							<-release
							return nil, nil
						},
					},
				}
			}
		})
		_, l := r.connectCaller(bridge.SessionRequest{Config: []byte(`{"model":"gemini-3.8-live"}`)})
		defer close(release)
		for i := range 100 {
			l.CallTool(fmt.Sprint(i), "pay", `{}`)
			time.Sleep(3 * time.Second)
		}
		if n := len(running); n > 20 {
			t.Errorf("%d calls of a tool that never returns are running", n)
		}
	})
}

// If one message has very many calls, each of them is answered.
func TestManyCallsAtOnceAreAllAnswered(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, _ *caller, l *bridgetest.Conn) {
		var calls []string
		for i := range 400 {
			calls = append(calls, fmt.Sprintf("c%d weather", i))
		}
		l.CallTools(calls...)
		time.Sleep(time.Minute)
		if n := len(l.ToolResponses()); n != 400 {
			t.Errorf("400 calls, %d answers", n)
		}
	})
}

// TestCallsByOtherNames: the model knows a function by a name that Google takes, and writes an object of any kind as text. The client gets
// the call as it has declared it.
func TestCallsByOtherNames(t *testing.T) {
	open := bridge.SessionRequest{Config: json.RawMessage(`{"tools":[{"functionDeclarations":[` +
		`{"name":"shop.find/item","parameters":{"type":"object","properties":{"filter":{"type":"object"}},"required":["filter"]}},` +
		`{"name":"plain"}]}]}`)}
	converse(t, open, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		var answers []string
		for i, name := range []string{"shop_find_item", "default_api:shop_find_item", "default_api.shop_find_item", "shop.find/item"} {
			id := fmt.Sprint("id", i)
			l.CallTool(id, name, `{"filter":"{\"n\":`+id[2:]+`}"}`)
			call := lastEvent[bridge.ToolCall](c)
			if len(call.Calls) != 1 || call.Calls[0].Name != "shop.find/item" || string(call.Calls[0].Args) != `{"filter":{"n":`+id[2:]+`}}` {
				t.Errorf("%s: the client gets %+v", name, call.Calls)
			}
			c.sendToolResponse(id, "shop.find/item", `{"x":1}`)
			answers = append(answers, id+` shop_find_item {"x":1}`)
			l.AssertToolResponses(answers...)
		}
		l.CallTool("p", "default_api:plain", `{}`)
		if call := lastEvent[bridge.ToolCall](c); len(call.Calls) != 1 || call.Calls[0].Name != "plain" {
			t.Errorf("the client gets %+v", call.Calls)
		}
		l.CallTool("n", "shop_find_item", `{"filter":"no JSON"}`)
		if answer := strings.Join(l.ToolResponses(), " "); !strings.Contains(answer, "args.filter: got string, want object") {
			t.Errorf("the model gets %s", answer)
		}
	})
}
