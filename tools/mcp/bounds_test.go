package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestAnswersAreBounded: a message longer than maxFrame is not read to its end, in a JSON body or in a stream of events. A
// stream of small messages has no limit.
func TestAnswersAreBounded(t *testing.T) {
	event := func(size int) string { return "data: " + strings.Repeat("a", size) + "\n\n" }
	for name, test := range map[string]struct {
		kind, body string
		ok         bool
	}{
		"JSON":                     {"application/json", strings.Repeat("a", maxFrame), true},
		"long JSON":                {"application/json", strings.Repeat("a", maxFrame+1), false},
		"JSON with empty lines":    {"application/json", strings.Repeat("aaaa\n\n", maxFrame/5), false},
		"no type":                  {"", strings.Repeat("a\n\n", maxFrame/2), false},
		"an event":                 {"text/event-stream", event(1000), true},
		"a long event":             {"text/event-stream", event(maxFrame), false},
		"many events":              {"text/event-stream; charset=utf-8", strings.Repeat(event(1000), 5000), true},
		"many events, CRLF":        {"text/event-stream", strings.Repeat(strings.ReplaceAll(event(1000), "\n", "\r\n"), 5000), true},
		"an event of many lines":   {"text/event-stream", strings.Repeat("data: a\n", maxFrame/4), false},
		"a stream without an end":  {"text/event-stream", strings.Repeat(":", 2*maxFrame), false},
		"an event behind a stream": {"text/event-stream", event(1000) + event(2*maxFrame), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			client := newHTTPClient(nil, func(string) context.Context { return nil })
			defer client.CloseIdleConnections()
			answer, err := client.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			n, err := io.Copy(io.Discard, answer.Body)
			if (err == nil) != test.ok || err != nil && !errors.Is(err, errTooLong) {
				t.Errorf("after %d bytes: %v", n, err)
			}
		})
	}
}

// TestAnswerEndsWithItsCall: a server sends single bytes without end, and the body is closed when its call ends.
func TestAnswerEndsWithItsCall(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		for {
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}))
	defer server.Close()
	call, cancel := context.WithCancel(t.Context())
	client := newHTTPClient(nil, func(token string) context.Context {
		if token != "7" {
			t.Errorf("token %q", token)
		}
		return call
	})
	const request = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"7"}}}`
	answer, err := client.Post(server.URL, "application/json", strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	cancel()
	if _, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Error("the answer has ended by itself")
	}
	<-gone
}

// TestLinesOfAChildAreBounded: a line of a child process is rejected if it is longer than maxFrame.
func TestLinesOfAChildAreBounded(t *testing.T) {
	for size, ok := range map[int]bool{1000: true, 2 * maxFrame: false} {
		script := fmt.Sprintf(`printf '{"jsonrpc":"2.0","method":"x","params":{"a":"'; head -c %d /dev/zero | tr '\0' a; echo '"}}'; cat`, size)
		noise := &lines{log: slog.New(slog.DiscardHandler), stream: "stdout"}
		conn, err := (&commandTransport{exec.Command("sh", "-c", script), noise}).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(t.Context())
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", size, err)
		}
		_ = conn.Close()
	}
}
