package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"voxgate/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRespond(t *testing.T) {
	for _, test := range []struct {
		result string
		err    error
		want   string
	}{
		{``, nil, `{"output":"done"}`},
		{" \n", nil, `{"output":"done"}`},
		{`{}`, nil, `{"output":"done"}`},
		{"{ \t\n}", nil, `{"output":"done"}`},
		{`null`, nil, `{"output":null}`},
		{`7`, nil, `{"output":7}`},
		{`9007199254740993`, nil, `{"output":9007199254740993}`},
		{`"<b>"`, nil, `{"output":"\u003cb\u003e"}`},
		{`[{}]`, nil, `{"output":[{}]}`},
		{` {"a": {}} `, nil, `{"a": {}}`},
		{"{\"a\":\"gr\xfc\xdfe\"}", nil, "{\"a\":\"gr\uFFFDe\"}"}, // Latin-1 is invalid in JSON, but Go accepts it
		{"\"gr\xfc\xdfe\"", nil, "{\"output\":\"gr\uFFFDe\"}"},
		{`{"a":1`, nil, `{"error":"the tool answered with something that is not JSON"}`},
		{`}`, nil, `{"error":"the tool answered with something that is not JSON"}`},
		{`{"a":1}`, errors.New(`no "b"`), `{"error":"no \"b\""}`},
		{``, errors.New("\xff"), `{"error":"\ufffd"}`},
		{`"` + strings.Repeat("x", tools.MaxResult) + `"`, nil, `{"error":"the tool answered with 65538 bytes; 65536 are taken at most"}`},
		{``, errors.New(strings.Repeat("x", 3000)), `{"error":"` + strings.Repeat("x", 2000) + `…"}`},
	} {
		got := tools.BuildOutcome(json.RawMessage(test.result), test.err)
		if failed := strings.HasPrefix(test.want, `{"error"`); string(got.Response) != test.want || (got.Err != nil) != failed {
			t.Errorf("%q, %v became %s, %v, want %s", test.result, test.err, got.Response, got.Err, test.want)
		}
	}
}

func TestRun(t *testing.T) {
	var call tools.Call
	if err := json.Unmarshal([]byte(`{"id":"a","name":"weather","args":{"city":"Bern"}}`), &call); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		f    tools.Func
		want string
	}{
		"echo":  {func(_ context.Context, args json.RawMessage) (json.RawMessage, error) { return args, nil }, `{"city":"Bern"}`},
		"fails": {func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("no") }, `{"error":"no"}`},
		"panics": {
			func(context.Context, json.RawMessage) (json.RawMessage, error) { panic("ouch") },
			`{"error":"the tool crashed: ouch"}`,
		},
		"crashes": {
			func(_ context.Context, args json.RawMessage) (json.RawMessage, error) { return args[1000:], nil },
			`{"error":"the tool crashed: `,
		},
		"nothing": {func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }, `{"output":"done"}`},
	} {
		got, ok := tools.Run(t.Context(), test.f, call, time.Minute)
		if !ok || !strings.HasPrefix(string(got.Response), test.want) || !json.Valid(got.Response) {
			t.Errorf("%s: %s, %v", name, got.Response, ok)
		}
	}
}

// wait is a tool that blocks until its context is done.
func wait(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestRunTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, ok := tools.Run(t.Context(), wait, tools.Call{}, tools.Timeout)
		if want := `{"error":"the tool did not answer in time (30s)"}`; string(got.Response) != want || !errors.Is(got.Err, tools.ErrTimeout) ||
			!ok {
			t.Errorf("%s, %v", got.Response, ok)
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("after %v", took)
		}
		// A tool may return another error at its timeout: the model still gets the reason.
		hides := func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			_, _ = wait(ctx, args)
			return nil, errors.New("something")
		}
		if got, _ := tools.Run(t.Context(), hides, tools.Call{}, time.Second); !strings.Contains(string(got.Response), "in time (1s)") {
			t.Errorf("%s", got.Response)
		}
	})
}

// TestRunAbandonsHungTool: a tool that ignores its timeout is abandoned, and the model gets an answer.
func TestRunAbandonsHungTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		start := time.Now()
		got, ok := tools.Run(t.Context(), func(context.Context, json.RawMessage) (json.RawMessage, error) {
			<-let
			return nil, nil
		}, tools.Call{}, 10*time.Second)
		if took := time.Since(start); !ok || !errors.Is(got.Err, tools.ErrTimeout) || took != 11*time.Second {
			t.Errorf("%v, %v after %v", got.Err, ok, took)
		}
		close(let)
	})
}

func TestRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(tools.ErrCancelled) })
		var cause error
		got, ok := tools.Run(ctx, func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			r, err := wait(ctx, args)
			cause = err
			return r, err
		}, tools.Call{}, time.Minute)
		if ok || !errors.Is(got.Err, tools.ErrCancelled) || !errors.Is(cause, tools.ErrCancelled) {
			t.Errorf("%v, %v, the tool saw %v", got, ok, cause)
		}
	})
}

// TestAskPausesTimeout: the time that a user takes to answer does not count for the tool's timeout.
func TestAskPausesTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := &tools.Env{AskPerson: func(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error) {
			if !strings.Contains(string(canvas), `"Send to \u0026lt;Ada\u0026gt;?"`) {
				t.Errorf("asked %s", canvas)
			}
			select {
			case <-time.After(time.Minute):
				return json.RawMessage(`{"action":"submit"}`), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}}
		start := time.Now()
		got, _ := tools.Run(tools.WithEnv(t.Context(), env), func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			if yes, err := tools.Confirm(ctx, "Send to <Ada>?"); err != nil || !yes {
				return nil, err
			}
			return wait(ctx, nil) // uses the rest of the timeout
		}, tools.Call{}, 10*time.Second)
		if took := time.Since(start); !errors.Is(got.Err, tools.ErrTimeout) || took != 70*time.Second {
			t.Errorf("%v after %v", got.Err, took)
		}
	})
}
