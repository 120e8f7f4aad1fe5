package webhook_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/tools"
)

// FuzzAnswer: a webhook sends arbitrary answers. The tool's result is JSON, or an error.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []string{
		`{"ok":true}`, "{\"progress\":1}\n{\"ok\":true}\n", `{"voxgate":{"confirm":"Order?"}}`,
		`{"voxgate":{"ask":{"elements":[{"type":"button"}]}}}`,
		`{"voxgate":{}}`, `{"voxgate":null}`, `{"error":"no"}`, "[", "", "null",
	} {
		f.Add(200, false, []byte(answer))
		f.Add(503, true, []byte(answer))
	}
	type reply struct {
		status int
		lines  bool
		body   []byte
	}
	var next atomic.Pointer[reply]
	tool := endpoint(f, func(w http.ResponseWriter, _ *http.Request) {
		r := next.Load()
		kind := "application/json"
		if r.lines {
			kind = "application/x-ndjson"
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(r.status)
		_, _ = w.Write(r.body)
	}, nil)
	f.Fuzz(func(t *testing.T, status int, lines bool, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		next.Store(&reply{status, lines, body})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		result, err := tool.Run(tools.WithEnv(ctx, &tools.Env{Call: "1", SessionInfo: tools.SessionInfo{Session: "s"}}), nil)
		if err == nil && len(result) > 0 && !json.Valid(result) {
			t.Errorf("the model gets %q", result)
		}
	})
}
