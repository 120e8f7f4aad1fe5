package gemini_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
)

func TestDialSendsKeyPathAndSetup(t *testing.T) {
	const path = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
	for _, c := range []struct{ name, scheme, suffix, want string }{
		{"http", "http", "", path},
		{"ws", "ws", "", path},
		{"trailing slash", "http", "/", path},
		{"prefix", "ws", "/proxy/gemini", "/proxy/gemini" + path},
		{"prefix with slash", "http", "/proxy/", "/proxy" + path},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got *http.Request
			var setup []byte
			inner := script(func(_ testing.TB, ws *websocket.Conn) {
				_, setup, _ = ws.ReadMessage()
				_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"setupComplete":{}}`))
				untilGone(t, ws)
			}).handler(t)
			client := tcpClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				inner.ServeHTTP(w, r)
			}))
			client.BaseURL = c.scheme + strings.TrimPrefix(client.BaseURL, "http") + c.suffix
			conn, err := gemini.Dial(t.Context(), client, gemini.Setup{Handle: "h-1"})
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			if got.URL.Path != c.want || got.URL.RawQuery != "" {
				t.Errorf("path %q", got.URL)
			}
			if key := got.Header.Get("X-Goog-Api-Key"); key != testKey {
				t.Errorf("key %q", key)
			}
			if ext := got.Header.Get("Sec-Websocket-Extensions"); ext != "" {
				t.Errorf("asked for %q", ext)
			}
			if want := `"sessionResumption":{"handle":"h-1"}`; !strings.Contains(string(setup), want) {
				t.Errorf("setup %s", setup)
			}
		})
	}
}

// TestSetupMessage checks the setup message, and the message with the history after it.
func TestSetupMessage(t *testing.T) {
	history := []wire.Content{
		{Role: "user", Parts: json.RawMessage(`[{"text":"a"}]`)},
		{Role: "model", Parts: json.RawMessage(`[{"text":"b"}]`)},
	}
	const turns = `"turns":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"b"}]}]`
	object := func(fields string) json.RawMessage {
		return json.RawMessage(`{"model":"models/gemini-9",` + fields + `}`)
	}
	for _, c := range []struct {
		name   string
		vertex bool
		setup  gemini.Setup
		path   string // end of the URL's path
		first  string
		second string
	}{
		{name: "nothing", first: `{"setup":{"model":"models/gemini-3.8-live"}}`},
		{name: "null", setup: gemini.Setup{Object: json.RawMessage(`null`)}, first: `{"setup":{"model":"models/gemini-3.8-live"}}`},
		{
			name: "as it came", setup: gemini.Setup{Object: object(`"a":{"b":"<é>","c":1.50}`)},
			first: `{"setup":{"a":{"b":"<é>","c":1.50},"model":"models/gemini-9"}}`,
		},
		{name: "tuned", setup: gemini.Setup{Object: json.RawMessage(`{"model":"tunedModels/x"}`)}, first: `{"setup":{"model":"tunedModels/x"}}`},
		{
			name: "fresh", setup: gemini.Setup{Resumable: true}, path: "v1beta.GenerativeService.BidiGenerateContent",
			first: `{"setup":{"model":"models/gemini-3.8-live","sessionResumption":{}}}`,
		},
		{
			name: "alpha", setup: gemini.Setup{Alpha: true}, path: "v1alpha.GenerativeService.BidiGenerateContent",
			first: `{"setup":{"model":"models/gemini-3.8-live"}}`,
		},
		{
			name: "resumed", setup: gemini.Setup{Handle: "<h>"},
			first: `{"setup":{"model":"models/gemini-3.8-live","sessionResumption":{"handle":"<h>"}}}`,
		},
		{
			name: "history", setup: gemini.Setup{History: history}, first: `{"setup":{"model":"models/gemini-3.8-live"}}`,
			second: `{"clientContent":{` + turns + `}}`,
		},
		{
			name: "announced history", setup: gemini.Setup{History: history, AnnounceHistory: true},
			first:  `{"setup":{"historyConfig":{"initialHistoryInClientContent":true},"model":"models/gemini-3.8-live"}}`,
			second: `{"clientContent":{` + turns + `,"turnComplete":true}}`,
		},
		{name: "none to announce", setup: gemini.Setup{AnnounceHistory: true}, first: `{"setup":{"model":"models/gemini-3.8-live"}}`},
		{
			name: "Vertex", vertex: true, setup: gemini.Setup{Object: object(`"a":1`), Alpha: true},
			path:  "v1beta1.LlmBidiService/BidiGenerateContent",
			first: `{"setup":{"a":1,"model":"projects/a-project/locations/us/publishers/google/models/gemini-9"}}`,
		},
		{
			name: "resumed on Vertex", vertex: true, setup: gemini.Setup{Object: object(`"a":1`), Handle: "h"},
			first: `{"setup":{"a":1,"model":"projects/a-project/locations/us/publishers/google/models/gemini-9",` +
				`"sessionResumption":{"handle":"h","transparent":true}}}`,
		},
		{
			name: "tuned on Vertex", vertex: true,
			setup: gemini.Setup{Object: json.RawMessage(`{"model":"projects/a-project/locations/us/endpoints/7"}`)},
			first: `{"setup":{"model":"projects/a-project/locations/us/endpoints/7"}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := make(chan string, 2)
			var path string
			inner := script(func(_ testing.TB, ws *websocket.Conn) {
				defer close(got)
				for {
					_, data, err := ws.ReadMessage()
					if err != nil {
						return
					}
					got <- string(data)
					_ = ws.WriteMessage(websocket.BinaryMessage, []byte(`{"setupComplete":{}}`))
				}
			}).handler(t)
			client := tcpClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path = r.URL.Path
				inner.ServeHTTP(w, r)
			}))
			if c.vertex {
				vertexOn(client, time.Hour)
			}
			conn, err := gemini.Dial(t.Context(), client, c.setup)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			if first := <-got; first != c.first {
				t.Errorf("the setup is %s\nwant %s", first, c.first)
			}
			if second := <-got; second != c.second {
				t.Errorf("then comes %s\nwant %s", second, c.second)
			}
			if !strings.HasSuffix(path, c.path) {
				t.Errorf("path %s", path)
			}
		})
	}
	for _, wrong := range []string{`[]`, `{"model":7}`, `{`, ``} {
		client := &api.Client{BaseURL: "http://nowhere.test"}
		if _, err := gemini.Dial(t.Context(), client, gemini.Setup{Object: json.RawMessage(wrong)}); err == nil ||
			!strings.Contains(err.Error(), "the setup is not") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestNoKeyNoHeader(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "from-the-environment")
	client := tcpClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, has := r.Header["X-Goog-Api-Key"]; has {
			t.Errorf("%s carries a key", r.URL.Path)
		}
		http.Error(w, "{}", http.StatusTeapot)
	}))
	client.APIKey = ""
	_, err := gemini.Dial(t.Context(), client, gemini.Setup{})
	wantStatus(t, err, http.StatusTeapot)
	wantStatus(t, client.Check(t.Context(), ""), http.StatusTeapot)
}

func TestBaseURLRefused(t *testing.T) {
	for _, base := range []string{
		"ftp://x", "host:1", "http://", "http://u:hunter2@x", "http://x?key=hunter2", "http://x:hunter2", ":",
		"/path",
	} {
		client := &api.Client{BaseURL: base}
		_, err := gemini.Dial(t.Context(), client, gemini.Setup{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", base, err)
		}
		if err := client.Check(t.Context(), ""); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: check: %v", base, err)
		}
	}
}

func wantStatus(t *testing.T, err error, status int) {
	t.Helper()
	if refused, ok := errors.AsType[*wire.HandshakeError](err); !ok || refused.Status != status {
		t.Errorf("%v, want a HandshakeError with %d", err, status)
	}
}

func TestHandshakeStatus(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusFound} {
		client := tcpClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error": {"code": %d, "message": "no\nluck with %s"}}`, status, testKey)
		}))
		_, err := gemini.Dial(t.Context(), client, gemini.Setup{})
		wantStatus(t, err, status)
		if text := err.Error(); strings.Contains(text, testKey) || !strings.Contains(text, "luck") {
			t.Errorf("%d: %s", status, text)
		}
		err = client.Check(t.Context(), "")
		if err == nil || strings.Contains(err.Error(), testKey) {
			t.Errorf("check: %v", err)
		}
	}
}

func TestCheck(t *testing.T) {
	client := tcpClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Goog-Api-Key") != testKey:
			http.Error(w, `{"error":{"code":403,"message":"no"}}`, http.StatusForbidden)
		case r.URL.Path != "/p/v1beta/models/gemini-3.8-live":
			http.Error(w, `{"error":{"code":404,"message":"no"}}`, http.StatusNotFound)
		default:
			fmt.Fprint(w, `{"name":"models/gemini-3.8-live"}`)
		}
	}))
	client.BaseURL = strings.Replace(client.BaseURL, "http", "ws", 1) + "/p/"
	if err := client.Check(t.Context(), "models/gemini-3.8-live"); err != nil {
		t.Error(err)
	}
	wantStatus(t, client.Check(t.Context(), "gemini-9"), http.StatusNotFound)
}

func TestSetupRefused(t *testing.T) {
	reason := `Unknown name "x" for key ` + testKey + " and once more "
	reason = (strings.Repeat(" ", 115-len(reason)-10) + reason + testKey)[:120] // cut in the key's middle
	client := tcpClient(t, script(func(_ testing.TB, ws *websocket.Conn) {
		_, _, _ = ws.ReadMessage()
		_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1007, reason))
		untilGone(t, ws)
	}).handler(t))
	_, err := gemini.Dial(t.Context(), client, gemini.Setup{})
	closed, ok := errors.AsType[*wire.CloseError](err)
	if !ok || closed.Code != 1007 || !strings.Contains(closed.Reason, "Unknown name") || strings.Contains(closed.Reason, testKey[:8]) {
		t.Errorf("%v", err)
	}
}

// TestDialEnds: in every phase, a dial ends when it is cancelled, and when it takes too long. In a bubble, the ten seconds pass at once.
func TestDialEnds(t *testing.T) {
	never := func(conn net.Conn) { drain(conn); _ = conn.Close() }
	for _, c := range []struct {
		name string
		dial func(t *testing.T) *api.Client
	}{
		{"no connection", func(*testing.T) *api.Client {
			return &api.Client{BaseURL: "ws://x", NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
		}},
		{"no answer to the upgrade", func(*testing.T) *api.Client {
			return &api.Client{BaseURL: "ws://x", NetDial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go never(theirs)
				return ours, nil
			}}
		}},
		{"nobody reads", func(t *testing.T) *api.Client {
			return &api.Client{BaseURL: "ws://x", NetDial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				t.Cleanup(func() { _ = theirs.Close() })
				return ours, nil
			}}
		}},
		{"no setupComplete", func(t *testing.T) *api.Client {
			return pipeClient(t, script(untilGone).handler(t))
		}},
		{"other messages for ever", func(t *testing.T) *api.Client {
			return pipeClient(t, script(func(_ testing.TB, ws *websocket.Conn) {
				go untilGone(t, ws)
				for ws.WriteMessage(websocket.TextMessage, []byte(`{"x":1}`)) == nil {
					time.Sleep(time.Second)
				}
			}).handler(t))
		}},
	} {
		t.Run(c.name+", cancelled", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Second, cancel)
				start := time.Now()
				_, err := gemini.Dial(ctx, c.dial(t), gemini.Setup{})
				if took := time.Since(start); !errors.Is(err, context.Canceled) || took > 3500*time.Millisecond {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
		t.Run(c.name+", in time", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := gemini.Dial(t.Context(), c.dial(t), gemini.Setup{})
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 11*time.Second {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

func TestEarlyMessagesAreKept(t *testing.T) {
	client := tcpClient(t, script(func(_ testing.TB, ws *websocket.Conn) {
		for _, m := range []string{
			`{"a":1}`, `{]`,
			`{"setupComplete":{"sessionId":"s"},"sessionResumptionUpdate":{"newHandle":"h","resumable":true}}`, `{"b":2}`,
		} {
			_ = ws.WriteMessage(websocket.TextMessage, []byte(m))
		}
		untilGone(t, ws)
	}).handler(t))
	conn := dial(t, client)
	for i, ok := range []func(*wire.ServerMessage) bool{
		func(m *wire.ServerMessage) bool { return string(m.Beside) == `{"a":1}` },
		func(m *wire.ServerMessage) bool { return m.Resumption != nil && m.Resumption.Handle == "h" },
		func(m *wire.ServerMessage) bool { return string(m.Beside) == `{"b":2}` },
	} {
		m, err := conn.Recv(t.Context())
		if err != nil || !ok(m) {
			t.Errorf("message %d: %+v, %v", i, m, err)
		}
	}
}
