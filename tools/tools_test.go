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

func TestResponse(t *testing.T) {
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
		{`{"a":1`, nil, `{"error":"the tool answered with something that is not JSON"}`},
		{`}`, nil, `{"error":"the tool answered with something that is not JSON"}`},
		{`{"a":1}`, errors.New(`no "b"`), `{"error":"no \"b\""}`},
		{``, errors.New("\xff"), `{"error":"\ufffd"}`},
	} {
		got := tools.Response(json.RawMessage(test.result), test.err)
		if string(got) != test.want {
			t.Errorf("%q, %v became %s, want %s", test.result, test.err, got, test.want)
		}
	}
}

func FuzzResponse(f *testing.F) {
	for _, seed := range []string{"", "{}", "{ }", "[]", `{"a":1}`, "{", "1", `"x"`, "nul"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, result string) {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(tools.Response(json.RawMessage(result), nil), &object); err != nil || len(object) == 0 {
			t.Errorf("%q became %v, %v", result, object, err)
		}
	})
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
		if !ok || !strings.HasPrefix(string(got), test.want) || !json.Valid(got) {
			t.Errorf("%s: %s, %v", name, got, ok)
		}
	}
}

// wait is a tool that ends with its context.
func wait(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestRunTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, ok := tools.Run(t.Context(), wait, tools.Call{}, tools.Timeout)
		if want := `{"error":"the tool did not answer in time (30s)"}`; string(got) != want || !ok {
			t.Errorf("%s, %v", got, ok)
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("after %v", took)
		}
		// A tool that hides why it failed does not hide the reason from the model.
		hides := func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			_, _ = wait(ctx, args)
			return nil, errors.New("something")
		}
		if got, _ := tools.Run(t.Context(), hides, tools.Call{}, time.Second); !strings.Contains(string(got), "in time (1s)") {
			t.Errorf("%s", got)
		}
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
		if ok || got != nil || !errors.Is(cause, tools.ErrCancelled) {
			t.Errorf("%s, %v, the tool saw %v", got, ok, cause)
		}
	})
}
