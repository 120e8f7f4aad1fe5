package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const ratings = `{"type":"object","required":["booked"],"properties":{"booked":{"type":"boolean"},"mood":{"type":"string"}}}`

// The outcome of a conversation is in the report to the backend and in the call file, and its cost is charged to the key.
func TestTheOutcomeOfAConversation(t *testing.T) {
	t.Parallel()
	told := make(chan string, 2)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "session.end") {
			told <- string(body)
		}
	}))
	defer endpoint.Close()
	writer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		booked := strings.Contains(string(body), "I want a room.") && strings.Contains(string(body), `"booked"`)
		fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{"content":"{\"booked\": %v}"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`+"\n\ndata: [DONE]\n\n", booked)
	}))
	defer writer.Close()
	models := writeTempFile(t, `{"models":[{"model":"writer","openai":{"url":"`+writer.URL+`/v1"}}]}`)
	calls := t.TempDir()
	folder := writeAgents(t, map[string]string{"desk": "---\noutcome: " + ratings + "\n---\nBe brief.", "plain": "Be brief."})
	p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_CALLS", calls, "VOXGATE_AGENTS", folder,
		"VOXGATE_MODELS", models, "VOXGATE_APP_MODEL", "writer", "VOXGATE_SESSION_WEBHOOK", endpoint.URL, "VOXGATE_WEBHOOK_SECRET", "s"))
	for agent, want := range map[string]string{"desk": `"outcome":{"booked":true}`, "plain": ""} {
		c := p.dialWebSocket("/ws", `{"type":"CONNECT_GEMINI","payload":{"agent":"`+agent+`"}}`)
		c.AwaitEvent("SETUP_COMPLETE")
		c.SendText("I want a room.")
		c.AwaitEvent("TURN_COMPLETE")
		c.Send("DISCONNECT_GEMINI", "")
		var body string
		select {
		case body = <-told:
		case <-time.After(patience):
			t.Fatal("no session.end")
		}
		if !strings.Contains(body, want) || strings.Contains(body, "outcome") != (want != "") {
			t.Errorf("%s: %s", agent, body)
		}
		var got callFile
		p.awaitCondition(func() bool {
			for _, name := range listFileNames(t, calls) {
				text, err := os.ReadFile(filepath.Join(calls, name))
				if err == nil && strings.HasSuffix(name, ".json") && strings.Contains(string(text), `"`+agent+`"`) {
					return json.Unmarshal(text, &got) == nil
				}
			}
			return false
		})
		if (got.Outcome != nil) != (want != "") || got.OutcomeError != "" {
			t.Errorf("%s: %+v", agent, got)
		}
	}
}
