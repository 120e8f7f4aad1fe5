package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
	"voxgate/tools/mcp"
)

// connect starts a server, which is closed at the end of the test.
func connect(t *testing.T, o mcp.Options) *mcp.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	server, err := mcp.Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// ourselves returns the options of a server that is this test program as a child process; kind selects its behavior.
func ourselves(kind string) mcp.Options {
	return mcp.Options{Name: "test", Command: []string{os.Args[0]}, Env: map[string]string{
		"TEST_MCP_SERVER": kind, "GORACE": "atexit_sleep_ms=0", // otherwise the race detector delays the end of a process by a second
	}}
}

// everyWay runs a test against the server over each transport, in the newest protocol and in the one before. The runs are
// parallel, because a child process may take seconds to end.
func everyWay(t *testing.T, test func(t *testing.T, o mcp.Options)) {
	everyNewWay(t, test)
	everyLegacyWay(t, test)
}

func everyNewWay(t *testing.T, test func(t *testing.T, o mcp.Options)) {
	t.Run("stdio", func(t *testing.T) { t.Parallel(); test(t, ourselves("newest")) })
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		test(t, mcp.Options{Name: "test", URL: overHTTP(t, nil, func(*http.Request) {})})
	})
}

func everyLegacyWay(t *testing.T, test func(t *testing.T, o mcp.Options)) {
	t.Run("stdio, legacy", func(t *testing.T) { t.Parallel(); test(t, ourselves("legacy")) })
	t.Run("http, legacy", func(t *testing.T) {
		t.Parallel()
		test(t, mcp.Options{Name: "test", URL: overHTTP(t, []string{legacy}, func(*http.Request) {})})
	})
}

func run(t *testing.T, ctx context.Context, s *mcp.Server, name, args string) (string, error) {
	t.Helper()
	all := s.Tools()
	i := slices.IndexFunc(all, func(tool tools.Tool) bool { return tool.Name == name })
	if i < 0 {
		t.Errorf("there is no tool %s", name)
		return "", nil
	}
	result, err := all[i].Run(ctx, json.RawMessage(args))
	return string(result), err
}

func names(s *mcp.Server) string {
	var all []string
	for _, tool := range s.Tools() {
		all = append(all, tool.Name)
	}
	return strings.Join(all, " ")
}

func TestTools(t *testing.T) {
	everyWay(t, func(t *testing.T, o mcp.Options) {
		o.Prefix, o.Timeout, o.Behavior, o.Scheduling = "x_", time.Minute, tools.NonBlocking, tools.Silent
		s := connect(t, o)
		const want = "x_ask x_asked x_cancelled x_crash x_echo x_fail x_grow x_hang x_late x_nothing x_parts x_process x_progress " +
			"x_refuse x_release x_structured x_text"
		if got := names(s); got != want {
			t.Errorf("tools %s, want %s", got, want)
		}
		got := s.Tools()[4].Declaration
		if string(got.Parameters) != `{"properties":{"n":{"type":"integer"}},"type":"object"}` {
			t.Errorf("parameters %s", got.Parameters)
		}
		got.Parameters = nil
		declared := tools.Declaration{
			Name: "x_echo", Title: "echo…", Description: "does echo", Timeout: time.Minute, Behavior: tools.NonBlocking, Scheduling: tools.Silent,
		}
		if gotJSON, wantJSON := encode(t, got), encode(t, declared); gotJSON != wantJSON {
			t.Errorf("%s, want %s", gotJSON, wantJSON)
		}
	})
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOnlyListedTools(t *testing.T) {
	o := ourselves("newest")
	o.Only = []string{"text", "echo"}
	if got := names(connect(t, o)); got != "echo text" {
		t.Errorf("tools %s", got)
	}
	o.Only = []string{"text", "missing"}
	if _, err := mcp.Connect(t.Context(), o); err == nil || err.Error() != `MCP server "test": it has no tool "missing"` {
		t.Errorf("%v", err)
	}
}

func TestResults(t *testing.T) {
	everyWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		env := &tools.Env{SessionInfo: tools.SessionInfo{Session: "s1", Protocol: "web", Caller: "ada", Grant: json.RawMessage(`{"n":1}`)}}
		const session = `{"caller":"ada","door":"web","grant":{"n":1},"id":"s1"}`
		for _, test := range []struct{ name, args, want, err string }{
			{"echo", `{"n":9007199254740993}`, `{"args":{"n":9007199254740993},"session":` + session + `}`, ""},
			{"echo", ``, `{"args":{},"session":` + session + `}`, ""},
			{"structured", `{}`, `{"n":2}`, ""},
			{"text", `{"n":1}`, `{"n":1}`, ""},
			{"nothing", `{}`, ``, ""},
			{
				"parts", `{}`, `{"output":"{}\n[an image (image/png) was left out]\n[a sound (audio/wav) was left out]\n` +
					`[a link to \"a\" (text/plain) was left out]\ninline\n[a file (application/zip) was left out]"}`, "",
			},
			{"fail", `{}`, ``, "sold out"},
			{"refuse", `{}`, ``, `the MCP server "test" refused the call: not today`},
		} {
			got, err := run(t, tools.WithEnv(t.Context(), env), s, test.name, test.args)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("%s: %s, %v; want %s %s", test.name, got, err, test.want, test.err)
			}
		}
	})
}

func TestProgress(t *testing.T) {
	everyWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		seen := make(chan string, 9)
		ctx := tools.WithEnv(t.Context(), &tools.Env{SendPartial: func(partial json.RawMessage) { seen <- string(partial) }})
		done := make(chan error)
		go func() {
			_, err := run(t, ctx, s, "progress", `{}`)
			done <- err
		}()
		if got := <-seen; got != `{"progress":1,"total":3,"message":"one"}` {
			t.Errorf("got %s", got)
		}
		if _, err := run(t, t.Context(), s, "release", `{}`); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestCancel(t *testing.T) {
	everyWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		ctx, cancel := context.WithCancelCause(tools.WithEnv(t.Context(), &tools.Env{}))
		ctx = tools.WithEnv(ctx, &tools.Env{SendPartial: func(json.RawMessage) { cancel(tools.ErrCancelled) }})
		if _, err := run(t, ctx, s, "hang", `{}`); !errors.Is(err, tools.ErrCancelled) {
			t.Errorf("%v", err)
		}
		if _, err := run(t, t.Context(), s, "cancelled", `{}`); err != nil { // returns when the server has noticed the cancellation
			t.Error(err)
		}
	})
}

func TestCloseEndsCalls(t *testing.T) {
	everyWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		runs := make(chan struct{})
		ctx := tools.WithEnv(t.Context(), &tools.Env{SendPartial: func(json.RawMessage) { close(runs) }})
		done := make(chan error)
		go func() {
			_, err := run(t, ctx, s, "hang", `{}`)
			done <- err
		}()
		<-runs
		s.Close()
		if err := <-done; err == nil || err.Error() != `the MCP server "test" ended during the call` {
			t.Errorf("%v", err)
		}
		if _, err := run(t, t.Context(), s, "text", `{}`); err == nil || err.Error() != `the MCP server "test" is closed` {
			t.Errorf("after the end: %v", err)
		}
	})
}

// logged is a log whose lines tests can wait for.
type logged struct {
	mu    sync.Mutex
	text  string
	lines chan string
}

func newLogged() (*logged, *slog.Logger) {
	l := &logged{lines: make(chan string, 100)}
	return l, slog.New(slog.NewTextHandler(l, nil))
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(b)
	l.lines <- string(b)
	return len(b), nil
}

func (l *logged) wait(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case line := <-l.lines:
			if strings.Contains(line, text) {
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("the log does not say %s", text)
		}
	}
}

func TestListChanged(t *testing.T) {
	everyWay(t, func(t *testing.T, o mcp.Options) {
		var l *logged
		l, o.Logger = newLogged()
		s := connect(t, o)
		if _, err := run(t, t.Context(), s, "grow", `{}`); err != nil {
			t.Fatal(err)
		}
		l.wait(t, "MCP tools changed")
		if !strings.Contains(names(s), "new") {
			t.Errorf("tools %s", names(s))
		}
	})
}

// TestRestart: after a crash the server is restarted at the next call. After repeated crashes, restarts are delayed.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"newest", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			o := ourselves(kind)
			var l *logged
			l, o.Logger = newLogged()
			s := connect(t, o)
			l.wait(t, "the server "+kind+" starts")
			crash := func() {
				if _, err := run(t, t.Context(), s, "crash", `{}`); err == nil || err.Error() != `the MCP server "test" ended during the call` {
					t.Errorf("%v", err)
				}
				l.wait(t, "exit status 7")
			}
			// The server restarts at once after the first crash, and then after pauses of 1 s, 2 s and so on. A slow machine may
			// miss the first pause.
			for i := range 5 {
				crash()
				got, err := run(t, t.Context(), s, "text", `{"n":1}`)
				if i > 0 && err != nil {
					if !strings.HasPrefix(err.Error(), `the MCP server "test" is down (exit status 7); next retry in `) {
						t.Errorf("%v", err)
					}
					return
				}
				if got != `{"n":1}` || err != nil {
					t.Fatalf("%s, %v", got, err)
				}
			}
			t.Error("the server is started again without a pause")
		})
	}
}

// TestForgottenSession: if a server over HTTP has lost its sessions, the call that detects it fails, and the next one
// uses a new session.
func TestForgottenSession(t *testing.T) {
	var servers []*sdk.Server
	var current http.Handler
	restart := func() {
		server := newServer([]string{legacy}, nil)
		servers = append(servers, server)
		current = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { current.ServeHTTP(w, r) }))
	t.Cleanup(func() {
		for _, server := range servers {
			endSessions(server)
		}
		web.CloseClientConnections()
		web.Close()
	})
	restart()
	s := connect(t, mcp.Options{Name: "test", URL: web.URL})
	restart()
	if got, err := run(t, t.Context(), s, "text", `{"n":1}`); got != `{"n":1}` || err != nil {
		t.Errorf("the first call after the restart: %s, %v", got, err)
	}
}

// TestNoiseOnStdout: text that a server prints between its messages is logged, and does no harm.
func TestNoiseOnStdout(t *testing.T) {
	t.Parallel()
	l := &logged{lines: make(chan string, 10_000)}
	o := ourselves("noisy")
	o.Logger = slog.New(slog.NewTextHandler(l, nil))
	s := connect(t, o)
	for n := range 3 {
		args := fmt.Sprintf(`{"n":%d}`, n)
		if got, err := run(t, t.Context(), s, "text", args); got != args || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, want := range []string{"Server 1.0 started on stdio", "DeprecationWarning", "listening on", `{\"level\":\"info\"`, "msg=stdout"} {
		if !strings.Contains(l.text, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

func TestHeaders(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	url := overHTTP(t, nil, func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.Header.Get("Authorization"))
	})
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, url, http.StatusTemporaryRedirect)
	}))
	defer redirects.Close()
	headers := map[string]string{"Authorization": "Bearer x"}
	connect(t, mcp.Options{Name: "test", URL: url, Headers: headers})
	mu.Lock()
	if len(keys) == 0 || slices.ContainsFunc(keys, func(key string) bool { return key != "Bearer x" }) {
		t.Errorf("the server got %q", keys)
	}
	keys = nil
	mu.Unlock()
	_, err := mcp.Connect(t.Context(), mcp.Options{Name: "test", URL: redirects.URL + "/?key=hidden", Headers: headers})
	if err == nil || !strings.Contains(err.Error(), "it redirects to another host") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 0 {
		t.Errorf("the other host got %q", keys)
	}
}

func TestConnectFails(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	for want, o := range map[string]mcp.Options{
		"needs either a command or a url":                       {},
		"url: must be http":                                     {URL: "hidden://x"},
		`connect: dial tcp`:                                     {URL: closed.URL + "/?key=hidden"},
		`exec: "no-such-program": executable file not found in`: {Command: []string{"no-such-program"}},
		"exit status 3":                                         ourselves("broken"),
	} {
		o.Name = "shop"
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
		_, err := mcp.Connect(t.Context(), o)
		if err == nil || !strings.HasPrefix(err.Error(), `MCP server "shop": `) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestProcessEnvironment checks the environment of the child process, and that no process remains.
func TestProcessEnvironment(t *testing.T) {
	t.Parallel() // in parallel, because a child may take seconds to end
	for _, kind := range []string{"newest", "stubborn", "abrupt"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := ourselves(kind)
			// A child of the stubborn child process holds this FIFO open for writing.
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			o.Env["TEST_MCP_FIFO"] = fifo
			s := connect(t, o)
			got, err := run(t, t.Context(), s, "process", `{}`)
			var process struct {
				PID int
				Env []string
			}
			if err != nil || json.Unmarshal([]byte(got), &process) != nil {
				t.Fatalf("%s, %v", got, err)
			}
			slices.Sort(process.Env)
			want := []string{
				"GORACE=atexit_sleep_ms=0", "HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH"),
				"TEST_MCP_FIFO=" + fifo, "TEST_MCP_SERVER=" + kind,
			}
			if !slices.Equal(process.Env, want) {
				t.Errorf("environment %s", process.Env)
			}
			var held *os.File
			if kind == "stubborn" {
				if held, err = os.Open(fifo); err != nil {
					t.Fatal(err)
				}
				defer held.Close()
			}
			s.Close()
			if err := syscall.Kill(process.PID, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the process is still there: %v", err)
			}
			if held != nil {
				if _, err := io.ReadAll(held); err != nil { // returns when no process holds the FIFO open
					t.Error(err)
				}
			}
		})
	}
}

// TestUnreachable: while an HTTP server is unreachable its calls fail, and later calls succeed again.
func TestUnreachable(t *testing.T) {
	server := newServer(nil, nil)
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true})
	var away atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	s := connect(t, mcp.Options{Name: "test", URL: web.URL + "/?key=hidden"})
	away.Store(true)
	_, err := run(t, t.Context(), s, "text", `{}`)
	if err == nil || err.Error() != `the MCP server "test" cannot be reached: EOF` {
		t.Errorf("%v", err)
	}
	away.Store(false)
	if got, err := run(t, t.Context(), s, "text", `{"n":1}`); got != `{"n":1}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// TestOpenBeforeTheServer: a server that is down when the gateway starts has no tools at first. It has them once it is up.
func TestOpenBeforeTheServer(t *testing.T) {
	t.Parallel()
	server := newServer(nil, nil)
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true})
	var there atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !there.Load() {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	l, logger := newLogged()
	s, err := mcp.ConnectWithRetry(t.Context(), mcp.Options{Name: "test", URL: web.URL, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := names(s); got != "" {
		t.Errorf("before the server is there: %s", got)
	}
	l.wait(t, "MCP server does not start")
	there.Store(true)
	l.wait(t, "MCP server restarted")
	if got, err := run(t, t.Context(), s, "text", `{"n":1}`); got != `{"n":1}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := mcp.ConnectWithRetry(t.Context(), mcp.Options{Name: "test"}); err == nil {
		t.Error("a server without command and URL is opened")
	}
	never, err := mcp.ConnectWithRetry(t.Context(), mcp.Options{Name: "never", Command: []string{"/no/such/program"}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	never.Close() // while it waits for its next try
}

// TestTheURLStaysSecret: the URL of a server, which may contain a token, is in no error and no log line. The test breaks the
// stream of events and stops the server. The SDK's error, after 13 to 26 s, contains the URL.
func TestTheURLStaysSecret(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	quit := make(chan struct{})
	server := newServer([]string{legacy}, quit)
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	var away atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		close(quit)
		endSessions(server)
		web.CloseClientConnections()
		web.Close()
	})
	l, logger := newLogged()
	s := connect(t, mcp.Options{Name: "test", URL: web.URL + "/?key=hidden", Logger: logger})
	runs, done := make(chan struct{}), make(chan error, 1)
	go func() {
		ctx := tools.WithEnv(t.Context(), &tools.Env{SendPartial: func(json.RawMessage) { close(runs) }})
		_, err := run(t, ctx, s, "hang", `{}`)
		done <- err
	}()
	<-runs
	away.Store(true)
	web.CloseClientConnections()
	during := <-done
	l.wait(t, "restarting at the next call")
	_, again := run(t, t.Context(), s, "text", `{}`)
	_, later := run(t, t.Context(), s, "text", `{}`)
	for _, err := range []error{during, again, later} {
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("the model gets %v", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(l.text, "hidden") {
		t.Errorf("the log has\n%s", l.text)
	}
}
