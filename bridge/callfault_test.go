package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// deaf returns an option with a tool that ignores its context until release is closed.
func deaf(release <-chan struct{}) func(*bridge.Options) {
	return asking(func(context.Context, json.RawMessage) (json.RawMessage, error) {
		<-release
		return nil, nil
	})
}

// If the model creates a form and appends a note in one message, both are drawn in that order, although only the form
// waits for the person.
func TestCanvasCallsOfOneMessageKeepTheirOrder(t *testing.T) {
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.Send(
			`{"toolCall":{"functionCalls":[{"id":"a","name":"create_canvas_tool","args":%s},{"id":"b","name":"append_to_canvas_tool","args":%s}]}}`,
			schema(question),
			schema(note),
		)
		c.checkLog("SetupComplete ToolCall(a b)")
	})
}

// An input field may have the name "error" or "continued". Its value reaches the model all the same.
func TestInputsCalledErrorAreNotDropped(t *testing.T) {
	for _, id := range []string{"error", "continued"} {
		converse(t, canvasOn("gemini-3.1-flash-live-preview"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.CallTool(
				"a",
				"show_canvas_tool",
				schema(fmt.Sprintf(`{"elements":[{"type":"input","id":%q},{"type":"button","label":"OK","action":"submit"}]}`, id)),
			)
			answer := fmt.Sprintf(`{%q:"It says 0x80070005","action":"submit"}`, id)
			c.sendToolResponse("a", "", answer)
			if got := l.InputLog(); got != "tool, text "+answer {
				t.Errorf("Gemini got %q", got)
			}
		})
	}
}

// After an answer with the scheduling SILENT, the model says nothing. This does not count as a stall.
func TestSilentAnswersAreNoStall(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, func(o *bridge.Options) { o.Stall = 7 * time.Second })
		c, l := r.connectCaller(
			bridge.SessionRequest{
				Config: []byte(`{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"f","scheduling":"SILENT"}]}]}`),
			},
		)
		l.SendHandle("h")
		l.CallTool("a", "f", `{}`)
		l.SendContent(`"turnComplete":true`) // the model has nothing more to say
		synctest.Wait()
		c.sendToolResponse("a", "", `{"x":1}`)
		dials := r.up.DialCount()
		time.Sleep(6 * time.Second)
		r.up.SetFailure(503, nil)
		time.Sleep(time.Minute)
		if n := r.up.DialCount() - dials; n > 0 {
			t.Errorf("%d dials because of a model that was asked to be silent", n)
		}
		logs, _ := findEvents[bridge.Log](c)
		for _, l := range logs {
			if l.Details["stall"] != nil {
				t.Errorf("the client gets: %s (%v)", l.Message, l.Details["stall"])
			}
		}
		c.doCommand(bridge.Goodbye{})
		c.awaitEnd(bridge.ErrGoodbye)
	})
}

// If a call is cancelled just before its tool asks the person, the question is not shown.
func TestNobodyIsAskedForACancelledCall(t *testing.T) {
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "pay", `{}`)
		l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
		synctest.Wait()
		c.checkLog("SetupComplete ToolStatus ToolStatus")
	}, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		<-ctx.Done()
		_, err := tools.Confirm(ctx, "Pay 5 €?")
		return nil, err
	}))
}

// A tool may ask with a context that outlives its call. Once the call is answered, the question is not shown.
func TestNobodyIsAskedAfterTheAnswer(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		done := make(chan struct{})
		r := newHarness(t, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			go func() {
				defer close(done)
				time.Sleep(time.Second)
				_, _ = tools.Confirm(context.WithoutCancel(ctx), "Pay 5 €?")
			}()
			return nil, nil
		}))
		c, l := r.connectCaller(canvasOn("gemini-3.8-live"))
		l.CallTool("a", "pay", `{}`)
		time.Sleep(2 * time.Second)
		c.checkLog("SetupComplete ToolStatus ToolStatus")
		time.Sleep(10 * time.Minute)
		<-done
	})
}

// The model may choose any ID for a call, also "ask-1-a". The answer to a tool's question is not mistaken for the answer to
// that call.
func TestIDsThatLookLikeQuestions(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			yes, err := tools.Confirm(ctx, "Pay 5 €?")
			return fmt.Appendf(nil, `{"paid":%v}`, yes), err
		}))
		c, l := r.connectCaller(
			bridge.SessionRequest{
				Origin: bridge.Origin{HasScreen: true},
				Config: []byte(`{"voxgate":{"canvas":true},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`),
			},
		)
		l.CallTool("a", "pay", `{}`)
		asked := lastEvent[bridge.ToolCall](c).Calls[0].ID
		l.CallTool("ask-1-a", "f", `{}`)
		c.sendToolResponse(asked, "show_canvas_tool", `{"action":"submit"}`) // the person has pressed Yes
		l.AssertToolResponses(`a pay {"paid":true}`)
		_ = c.session.Do(bridge.ToolResponse{ID: "ask-1-a", Response: json.RawMessage(`{"x":1}`)})
	})
}

// A tool that began while there was no caller is reported once.
func TestRunningIsToldOnce(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newHarness(t, deaf(release))
		c, l := r.connectCaller(bridge.SessionRequest{Resumable: true})
		defer close(release)
		l.SendHandle("h")
		token := c.resumeToken()
		c.disconnect()
		l.CallTool("a", "pay", `{}`)
		d := r.resumeByToken(token)
		d.checkLog("SetupComplete ToolStatus")
	})
}

// Calls of undeclared functions count against the rate limit, and the client is not informed of each.
func TestUndeclaredCallsAreRateLimited(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		for i := range 200 {
			l.CallTool(fmt.Sprint(i), "nothing", `{}`)
		}
		failures, _ := findEvents[bridge.ErrorEvent](c)
		if len(failures) > 100 {
			t.Errorf("the client got %d errors in no time about calls of nonsense", len(failures))
		}
		limited := 0
		for _, got := range l.ToolResponses() {
			if strings.Contains(got, "too many calls in a short time") {
				limited++
			}
		}
		if limited == 0 {
			t.Error("none of 200 calls met the rate limit")
		}
	})
}

// A caller that returns while a tool asks gets the question once. The test runs a hundred times, because this is a race.
func TestQuestionsAreRepeatedOnce(t *testing.T) {
	twice := 0
	for range 100 {
		runWithFakeClock(t, func(t *testing.T) {
			let := make(chan struct{})
			r := newHarness(t, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
				<-let
				_, err := tools.Confirm(ctx, "Really?")
				return nil, err
			}))
			c, l := r.connectCaller(canvasOn("gemini-3.8-live"))
			l.SendHandle("h")
			l.CallTool("a", "pay", `{}`)
			token := c.resumeToken()
			c.disconnect()
			go close(let)
			d := r.resumeByToken(token)
			synctest.Wait()
			calls, _ := findEvents[bridge.ToolCall](d)
			if len(calls) > 1 {
				twice++
			}
			if len(calls) > 0 {
				_ = d.session.Do(bridge.ToolResponse{ID: calls[0].Calls[0].ID, Response: json.RawMessage(`{"action":"submit"}`)})
			}
		})
	}
	if twice > 0 {
		t.Errorf("in %d of 100 the caller that came back was asked twice", twice)
	}
}
