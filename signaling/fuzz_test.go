package signaling_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
	"voxgate/signaling/sideband"
)

// FuzzHost asks by any name from any page: by a stranger's name nobody is served, and no page of a stranger's.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"localhost", "LOCALHOST.:80", "voice.example.", "evil.example", "voice.example.evil.example", "[::1]:3001", "127.0.0.1.evil.example", "", ".", "a:b:c", "localhost\x00",
		"http://app.example.", "null",
	} {
		f.Add(seed, "https://"+seed)
		f.Add("voice.example", seed)
	}
	served := false
	server := signaling.NewServer(signaling.Options{
		Hosts: []string{"voice.example"}, Origins: []string{"https://app.example"}, Logger: slog.New(slog.DiscardHandler),
	}, signaling.Door{Pattern: "/", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })})
	f.Fuzz(func(t *testing.T, host, origin string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		r.Header["Origin"] = []string{origin}
		served = false
		server.ServeHTTP(httptest.NewRecorder(), r)
		if !served {
			return
		}
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
		if name != "localhost" && name != "voice.example" && net.ParseIP(name) == nil {
			t.Errorf("served as %q", host)
		}
		_, page, _ := strings.Cut(strings.ToLower(origin), "//")
		if page = strings.TrimRight(page, "/"); !strings.HasPrefix(page, "app.example") && !strings.Contains(page, name) {
			t.Errorf("served %q to a page of %q", host, origin)
		}
	})
}

// FuzzSideband sends anything by the backend's connection to a conversation, which goes on, or ends if it is asked to.
func FuzzSideband(f *testing.F) {
	for _, seed := range []string{
		`{"type":"STEER","payload":{"prompt":"Be brief.","voice":"Puck","language":"de-DE","model":"gemini-3.8-live"}}`,
		`{"type":"STEER","payload":{"functions":[{"name":"f","parameters":{"type":"object"}}]}}`, `{"type":"STEER","payload":{"functions":{}}}`, `{"type":"STEER"}`,
		`{"type":"RESPOND","payload":{"instruction":"Say hello."}}`, `{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"x"}]}}`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{}}]}}}`, `{"type":"INTERRUPT"}`, `{"type":"DISCONNECT_GEMINI"}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	g := newGateway(f, func(d *doors, _ *bridge.Options) {
		d.more = func(host *bridge.Host, _ *rtc.API) []signaling.Door {
			return (&sideband.Door{Host: host, Logger: slog.New(slog.DiscardHandler)}).Doors()
		}
	})
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer g.logs.forget()
		caller := connect(t, g, `{}`)
		watcher := dial(t, strings.TrimSuffix(g.url, "/")+"/v1/sessions/"+g.host.Sessions()[0].ID+"/events")
		watcher.raw(websocket.TextMessage, raw)
		watcher.mu.Lock()
		_ = watcher.conn.WriteMessage(websocket.TextMessage, envelope("PING", "")) // unless the message has ended the conversation
		watcher.mu.Unlock()
		watcher.wait(0, "answer", func(m message) bool { return m.Type == "PONG" || m.Type == "GEMINI_DISCONNECTED" })
		checkFaults(t, watcher)
		cut(watcher)
		cut(caller)
		eventually(t, "end of the conversation", func() bool { return len(g.host.Sessions()) == 0 })
	})
}
