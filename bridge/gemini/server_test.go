package gemini_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
)

// pipes is a network of net.Pipe: a listener whose dial never leaves the process, so it works in a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeClient returns a client of a server that runs h on pipes.
func pipeClient(t testing.TB, h http.Handler) *api.Client {
	t.Helper()
	p := newPipes()
	var handlers sync.WaitGroup
	server := &http.Server{Handler: counted(&handlers, h)}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(p) }()
	t.Cleanup(func() { _ = server.Close(); <-served; handlers.Wait() })
	return &api.Client{APIKey: testKey, BaseURL: "http://gemini.test", NetDial: p.dial}
}

// counted lets a test wait for handlers of hijacked connections, which servers forget.
func counted(handlers *sync.WaitGroup, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		h.ServeHTTP(w, r)
	})
}

const testKey = "AIza-do-not-print-this"

// script is a fake server: it upgrades, takes the setup and goes on as the test wants. It is the opposite of lenient
// only where a test is: the emulator's own tests are where strictness is tested.
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
	var handlers sync.WaitGroup
	server := httptest.NewServer(counted(&handlers, h))
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
