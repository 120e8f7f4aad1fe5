package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/tools/mcp"
)

// FuzzMessages: a server sends arbitrary answers to tools/list and to a tool call. The model always gets JSON.
func FuzzMessages(f *testing.F) {
	const list = `{"tools":[{"name":"f","description":"x","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}]}`
	for _, result := range []string{
		`{"content":[{"type":"text","text":"hello"}]}`, `{"structuredContent":{"a":1},"content":[]}`,
		`{"isError":true,"content":[{"type":"image","data":"AA==","mimeType":"image/png"}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"x:y","text":"z"}}]}`, `{"content":[{"type":"resource_link"}]}`, `{}`, `null`, `[`,
	} {
		f.Add([]byte(list), []byte(result))
	}
	f.Add([]byte(`{"tools":[{"name":"","inputSchema":1},{"name":"f","inputSchema":{"$ref":"#"}}],"nextCursor":"x"}`), []byte(`{}`))
	f.Add([]byte(`{"tools":null}`), []byte(`{}`))
	var answers atomic.Pointer[[2][]byte]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var q struct {
			ID     json.RawMessage
			Method string
		}
		if r.Method != http.MethodPost || json.Unmarshal(body, &q) != nil || q.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		result := []byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		switch q.Method {
		case "tools/list":
			result = answers.Load()[0]
		case "tools/call":
			result = answers.Load()[1]
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
	}))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, list, result []byte) {
		answers.Store(&[2][]byte{list, result})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s, err := mcp.Connect(ctx, mcp.Options{Name: "test", URL: server.URL, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return
		}
		defer s.Close()
		for _, tool := range s.Tools() {
			if seen, err := tool.Run(ctx, json.RawMessage(`{}`)); err == nil && len(seen) > 0 && !json.Valid(seen) {
				t.Errorf("the model gets %q", seen)
			}
		}
	})
}
