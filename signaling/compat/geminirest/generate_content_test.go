package geminirest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/signaling/compat/geminirest"
)

// generate sends a request to a model of this backend by GenerateContent, as the gateway itself does. It returns the pieces
// of the answer.
func generate(t *testing.T, backend http.HandlerFunc, model, request string) (pieces []string, err error) {
	t.Helper()
	up := httptest.NewServer(backend)
	defer up.Close()
	client, log := &api.Client{BaseURL: up.URL + "/prefix", APIKey: "google's secret"}, slog.New(slog.DiscardHandler)
	host := bridge.NewHost(bridge.Options{Client: client, Logger: log})
	server := geminirest.New(host, client, nil, log)
	defer func() {
		server.Close()
		if err := host.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	_, err = server.GenerateContent(t.Context(), bridge.Unlimited, model, json.RawMessage(request), func(piece json.RawMessage) error {
		pieces = append(pieces, string(piece))
		return nil
	})
	return pieces, err
}

// The gateway's own requests are sent unchanged, with fields that the SDK does not know, and the signed parts of the answer
// are returned.
func TestGenerateContent(t *testing.T) {
	const request = `{"contents":[{"parts":[{"text":"Hi","thoughtSignature":"c2ln"}],"role":"user"}],` +
		`"generationConfig":{"maxOutputTokens":7,"unknownField":12345678901234567890}}`
	pieces, err := generate(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if got := strings.TrimSpace(string(body)); got != request || r.Header.Get("X-Goog-Api-Key") != "google's secret" ||
			r.URL.Path != "/prefix/v1beta/models/m:streamGenerateContent" || r.URL.RawQuery != "alt=sse" {
			t.Errorf("%s got %s with %v", r.URL, got, r.Header)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"candidates":[{"content":{"parts":[{"text":"Hello","thoughtSignature":"c2lnbmVk"}]}}]}`+"\r\n\r\n"+
			`data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"n":7}}}]},"finishReason":"STOP"}],`+
			`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5}}`+"\r\n\r\n")
	}, "m", request)
	if err != nil || len(pieces) != 2 {
		t.Fatalf("%v: %q", err, pieces)
	}
	for i, want := range [][]string{
		{`"text":"Hello"`, `"thoughtSignature":"c2lnbmVk"`, `"finishReason":null`},
		{`"args":{"n":7}`, `"name":"f"`, `"finishReason":"STOP"`, `"totalTokenCount":5`},
	} {
		for _, w := range want {
			if !strings.Contains(pieces[i], w) {
				t.Errorf("no %s in %s", w, pieces[i])
			}
		}
	}
}

// The error for a rejection of the backend has the code for its status, its reason without the API key, and the time to retry.
func TestGenerateContentFails(t *testing.T) {
	refuse := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	stream := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for name, c := range map[string]struct {
		model   string
		backend http.HandlerFunc
		want    bridge.Error
	}{
		"quota": {
			"m", refuse(429, `{"error":{"code":429,"message":"Enough.","status":"RESOURCE_EXHAUSTED","details":[
			{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}`),
			bridge.Error{Code: bridge.CodeBusy, Status: 429, Retry: 7 * time.Second, Message: "The model does not answer: Enough."},
		},
		"key": {
			"m", refuse(403, `{"error":{"code":403,"message":"Not with google's secret.","status":"PERMISSION_DENIED"}}`),
			bridge.Error{Code: bridge.CodeAuthenticationFailed, Status: 403, Message: "The model does not answer: Not with [redacted]."},
		},
		"request": {
			"m", refuse(400, `{"error":{"code":400,"message":"No.","status":"INVALID_ARGUMENT"}}`),
			bridge.Error{Code: bridge.CodeRefused, Status: 400, Message: "The model does not answer: No."},
		},
		"not JSON": {
			"m", refuse(503, `<html>busy</html>`),
			bridge.Error{Code: bridge.CodeConnectionFailed, Status: 503, Message: "The model does not answer: <html>busy</html>"},
		},
		"redirect": {"m", refuse(302, ``), bridge.Error{Code: bridge.CodeRefused, Status: 302, Message: "The model does not answer: "}},
		"within": {
			"m", stream(`data: {"error":{"code":429,"message":"Enough.","status":"RESOURCE_EXHAUSTED"}}` + "\n\n"),
			bridge.Error{Code: bridge.CodeBusy, Status: 429, Message: "The model does not answer: Enough."},
		},
		"broken": {
			"m", stream(`data: {"candidates":[{"con`),
			bridge.Error{Code: bridge.CodeConnectionFailed, Message: "The model cannot be reached, or its answer broke off."},
		},
		"path": {"../x", stream(""), bridge.Error{Code: bridge.CodeRefused, Status: 400, Message: "The model does not answer: " +
			"The model's name would be another path: it has a slash or a colon, or is made of dots."}},
	} {
		_, err := generate(t, c.backend, c.model, hello)
		got, ok := errors.AsType[*bridge.Error](err)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Code != c.want.Code || got.Status != c.want.Status || got.Retry != c.want.Retry || got.Message != c.want.Message ||
			strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
