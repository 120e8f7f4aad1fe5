package gemini_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/internal/testkit/bridgetest"
)

// pipeClient returns a client of a server that runs h on pipes.
func pipeClient(t *testing.T, h http.Handler) *api.Client {
	t.Helper()
	p := bridgetest.NewPipeNetwork()
	p.ServeUntilEnd(t, h, func() {})
	return &api.Client{APIKey: testKey, BaseURL: "http://gemini.test", NetDial: p.Dial}
}

const testKey = "AIza-do-not-print-this"

// script is a fake server. It is called after the upgrade, and does what the test needs. It validates messages only if
// the test does: the tests of package emulator check strictness.
type script func(t testing.TB, ws *websocket.Conn)

func (s script) handler(t testing.TB) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		s(t, ws)
	})
}

// live is a script that accepts the setup first.
func live(then script) script {
	return func(t testing.TB, ws *websocket.Conn) {
		if _, _, err := ws.ReadMessage(); err != nil {
			return
		}
		if ws.WriteMessage(websocket.BinaryMessage, []byte("{\n  \"setupComplete\": {}\n}\n")) != nil {
			return
		}
		then(t, ws)
	}
}

// untilGone reads until the client has gone.
func untilGone(_ testing.TB, ws *websocket.Conn) {
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			return
		}
	}
}

// tcpClient returns a client of a server that runs h on a TCP port.
func tcpClient(t testing.TB, h http.Handler) *api.Client {
	t.Helper()
	var handlers sync.WaitGroup // of hijacked connections, too, for which the server does not wait
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.Close(); handlers.Wait() })
	return &api.Client{APIKey: testKey, BaseURL: server.URL}
}

func dial(t testing.TB, c *api.Client) *gemini.Conn {
	t.Helper()
	conn, err := gemini.Dial(t.Context(), c, gemini.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
