package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/internal/testkit"
)

// TestDrain: a stopping gateway accepts no new callers, and lets running conversations finish.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_DRAIN", "1m"))
	c := p.openConversation(`{}`)
	c.AwaitEvent("SETUP_COMPLETE")
	p.stop()
	c.AwaitEventWith("LOG_MESSAGE", `"stopsInMs":60000`)
	if got := p.askOnce(`{}`); !strings.Contains(got, "about to stop") || !strings.Contains(got, `"code":"busy"`) {
		t.Errorf("a newcomer got %.1000s", got)
	}
	c.SendText("hello")
	c.AwaitEvent("TURN_COMPLETE")
	c.Send("DISCONNECT_GEMINI", "")
	p.stopGateway() // waits for the end of the gateway, and fails the test if it does not end
}

// TestDrainOfParkedConversations: a conversation whose client is gone delays the stop by 5 s at most.
func TestDrainOfParkedConversations(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_DRAIN", "1h", "VOXGATE_PARK", "1h"))
	gone, late := p.openConversation(`{},"resumable":true`), p.openConversation(`{},"resumable":true`)
	gone.AwaitEvent("SETUP_COMPLETE")
	late.AwaitEvent("SETUP_COMPLETE")
	gone.Conn.Close()
	p.awaitLog(`(conversation parked)`)
	p.stop()
	late.AwaitEventWith("LOG_MESSAGE", "stopsInMs")
	late.Conn.Close() // the gateway waits for this client for 5 s, not for an hour
	p.awaitLog(`conversation parked.* (for=5s)`)
	p.stopGateway()
}

// TestStopSignals sends one or two signals to a process, during its start or during a call. The second signal ends the drain,
// however soon it comes. Each process exits in time with status 0, and sends the caller the close message.
func TestStopSignals(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const hour = "VOXGATE_DRAIN=1h"
	asked := make(chan struct{}, 100)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // without this, the server does not notice that the client has left
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	tools := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(tools, []byte(`{"mcp":[{"name":"m","url":"`+silent.URL+`"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env     []string
		call    bool
		pause   string // text in the log for which the second signal waits; may be empty
		signals []syscall.Signal
	}{
		"one, no drain":                  {[]string{"VOXGATE_DRAIN=0"}, true, "", []syscall.Signal{syscall.SIGTERM}},
		"two at once":                    {[]string{hour}, true, "", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}},
		"two at once, the other way":     {[]string{hour}, true, "", []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}},
		"two of a kind, in the drain":    {[]string{hour}, true, "until=1h", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}},
		"two interrupts, in the drain":   {[]string{hour}, true, "until=1h", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}},
		"no call":                        {[]string{hour}, false, "", []syscall.Signal{syscall.SIGTERM}},
		"start with a silent MCP server": {[]string{hour, "VOXGATE_TOOLS=" + tools}, false, "", []syscall.Signal{syscall.SIGTERM}},
		"start, two signals": {
			[]string{hour, "VOXGATE_TOOLS=" + tools}, false, "", []syscall.Signal{syscall.SIGINT, syscall.SIGTERM},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for len(asked) > 0 { // drop requests of the previous process
				<-asked
			}
			cmd, p := runProcess(t, c.env...)
			stopped := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			defer stopped.Stop()
			var caller *testkit.Client
			switch {
			case c.call:
				p.url = strings.TrimSuffix(p.awaitLog(`url=(\S+)`), "/")
				caller = p.openConversation(`{}`)
				caller.AwaitEvent("SETUP_COMPLETE")
			case strings.HasPrefix(name, "start"):
				<-asked
			default:
				p.awaitLog(`url=(\S+)`)
			}
			for i, signal := range c.signals {
				if i > 0 && c.pause != "" {
					p.awaitLog(c.pause)
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
			if caller != nil {
				caller.AwaitEventWith("GEMINI_DISCONNECTED", "shutting down")
				if code := caller.AwaitCloseCode(); code != websocket.CloseGoingAway {
					t.Errorf("closed with %d", code)
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v\n%s", err, p.logged())
			}
		})
	}
}

// TestDrainOfRESTAndTypedTalk: REST calls and typed talk may finish like conversations, no new ones start, and those
// left at the end get the reason.
func TestDrainOfRESTAndTypedTalk(t *testing.T) {
	const piece = `data: {"candidates":[{"content":{"parts":[{"text":"one"}]}}]}` + "\n\n"
	finish := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, _ := io.ReadAll(r.Body)
		io.WriteString(w, piece)
		w.(http.Flusher).Flush()
		switch {
		case bytes.Contains(request, []byte(`"hang"`)):
			<-r.Context().Done()
		case bytes.Contains(request, []byte(`"slow"`)):
			<-finish
			io.WriteString(w, strings.Replace(piece, "one", "two", 1))
		}
	}))
	defer backend.Close()
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_DRAIN", "1m", "GOOGLE_GEMINI_BASE_URL", backend.URL))
	ask := func(text string) *http.Response {
		t.Helper()
		resp, err := http.Post(p.url+"/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse", "application/json",
			strings.NewReader(`{"contents":[{"parts":[{"text":"`+text+`"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	answer := func(resp *http.Response) string {
		t.Helper()
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	slow, hangs := ask("slow"), ask("hang")
	c := p.dialWebSocket("/api/vox/live", `{"type":"start","model":"gemini-3.8-flash"}`)
	c.AwaitEvent("ready")

	p.stop()
	p.awaitLog("(no new conversations)")
	refused := ask("quick")
	for deadline := time.Now().Add(patience); refused.StatusCode == http.StatusOK && time.Now().Before(deadline); {
		answer(refused) // the drain has not begun
		refused = ask("quick")
	}
	if text := answer(refused); refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") != "5" ||
		!strings.Contains(text, `"status":"UNAVAILABLE"`) {
		t.Errorf("a new call: %s %v %s", refused.Status, refused.Header, text)
	}
	c.SendTextFrame(`{"type":"text","text":"quick"}`)
	c.AwaitEventWith("transcript", "one")
	close(finish)
	if text := answer(slow); !strings.Contains(text, "two") || !strings.Contains(text, `"finishReason":"STOP"`) ||
		strings.Contains(text, "error") {
		t.Errorf("the call that was under way: %s", text)
	}

	p.force()
	if text := answer(hangs); !strings.Contains(text, "one") || !strings.Contains(text, `"code":503`) ||
		!strings.Contains(text, "shutting down") {
		t.Errorf("the call that was left: %s", text)
	}
	c.AwaitEventWith("session_end", "shutting down")
	if code := c.AwaitCloseCode(); code != websocket.CloseGoingAway {
		t.Errorf("closed with %d", code)
	}
	p.stopGateway()
}

// TestWhatDoesNotEndIsLeftBehind: a component that does not end is logged, and the components after it are still closed.
func TestWhatDoesNotEndIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		hang, began := make(chan struct{}), time.Now()
		var ended []string
		e := &shutdown{log: newLogger(&log, logFormat{})}
		e.onClose("port", closeFunc(func() { ended = append(ended, "port") }))
		e.onClose("doors", closeFunc(func() { <-hang }))
		e.onClose("calls", func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("call 7 does not end")
		})
		err := e.closeAll()
		if err == nil || !strings.Contains(err.Error(), "doors") || !strings.Contains(err.Error(), "call 7 does not end") {
			t.Errorf("ended with %v", err)
		}
		for _, name := range []string{`component=doors`, `component=calls`, "call 7"} {
			if !strings.Contains(log.String(), name) {
				t.Errorf("%s is not in the log:\n%s", name, log.String())
			}
		}
		if took := time.Since(began); took > shutdownTimeout+2*lastMoment || len(ended) != 1 {
			t.Errorf("it took %v and ended %v", took, ended)
		}
		close(hang)
	})
}

// TestProcess tests nothing: startProcess runs it, in a process of its own, as a gateway.
func TestProcess(*testing.T) {
	if os.Getenv("VOXGATE_TEST_PROCESS") != "" {
		if most, err := strconv.ParseUint(os.Getenv("VOXGATE_TEST_FILE_SIZE"), 10, 64); err == nil { // like a disk that is almost full
			signal.Ignore(syscall.SIGXFSZ)
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
				panic(err)
			}
		}
		os.Args = []string{"gateway", "serve"}
		main()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
}

// startProcess runs a gateway in a process of its own, and waits for its address. The caller must end the process.
func startProcess(t *testing.T, env ...string) (*exec.Cmd, *program) {
	t.Helper()
	cmd, p := runProcess(t, env...)
	p.url = strings.TrimSuffix(p.awaitLog(`url=(\S+)`), "/")
	return cmd, p
}

// runProcess runs a gateway in a process of its own, and does not wait for its start.
func runProcess(t *testing.T, env ...string) (*exec.Cmd, *program) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcess$")
	cmd.Env = append(append(os.Environ(), "VOXGATE_TEST_PROCESS=1", "VOXGATE_ADDR=127.0.0.1:0"), env...)
	p := &program{t: t, stop: func() {}, done: make(chan error, 1), more: make(chan struct{}, 1)}
	cmd.Stderr = p
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

// TestKilledProcess: a gateway that is killed during a call leaves a valid recording up to that point, and can be started
// again.
func TestKilledProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	recordings := t.TempDir()
	run := func() (*exec.Cmd, *program) {
		return startProcess(t, "VOXGATE_RECORDINGS="+recordings, "VOXGATE_RECORD_ALL=1")
	}
	cmd, p := run()
	c := p.openConversation(`{}`)
	c.AwaitEvent("SETUP_COMPLETE")
	c.SendText("one two three four five six seven eight nine ten")
	c.AwaitEvent("TURN_COMPLETE")
	c.SendText("one two three four five six seven eight nine ten")
	c.AwaitEvent("ASSISTANT_SPEAKING")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	files, err := filepath.Glob(filepath.Join(recordings, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	pages := bytes.Count(b, []byte("OggS"))
	if !bytes.HasPrefix(b, []byte("OggS")) || pages < 3 {
		t.Errorf("the recording has %d pages in %d bytes", pages, len(b))
	}
	out, err := exec.Command("opusinfo", files[0]).CombinedOutput() // fails, because the recording has no end
	whole := bytes.Count(out, []byte("WARNING")) == 1 && bytes.Contains(out, []byte("EOS not set")) &&
		regexp.MustCompile(`Playback length: 0m:0[1-9]`).Match(out)
	if !whole {
		t.Errorf("opusinfo: %v\n%s", err, out)
	}
	cmd, p = run()
	if got := p.askOnce(`{}`); !strings.Contains(got, "TURN_COMPLETE") {
		t.Errorf("then: %.1000s", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stopped := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stopped.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, p.logged())
	}
}

// TestSIGHUP sends SIGHUP, which asks many servers to reload, during a call and during the drain: the call continues.
func TestSIGHUP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	cmd, p := startProcess(t)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	c := p.openConversation(`{}`)
	c.AwaitEvent("SETUP_COMPLETE")
	send := func(signal syscall.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	for _, drains := range []bool{false, true} {
		if drains {
			send(syscall.SIGTERM)
			c.AwaitEventWith("LOG_MESSAGE", "stopsInMs")
		}
		send(syscall.SIGHUP)
		c.SendText("hello")
		c.AwaitEvent("TURN_COMPLETE")
	}
	c.Send("DISCONNECT_GEMINI", "")
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, p.logged())
	}
}

// A disk that fills up in the middle of a call ends the recording at once, not the call: the client learns of it, the log
// says why, and a metric rises.
func TestADiskThatFillsUp(t *testing.T) {
	t.Parallel()
	recordings := t.TempDir()
	cmd, p := startProcess(
		t,
		"VOXGATE_RECORDINGS="+recordings,
		"VOXGATE_RECORD_ALL=1",
		"VOXGATE_PRIVATE_ADDR=127.0.0.1:0",
		"VOXGATE_TEST_FILE_SIZE=8192",
	)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	private := p.awaitLog(`msg=private at=(\S+)`)
	c := p.openConversation(`{}`)
	defer c.Conn.Close()
	c.AwaitEventWith("SETUP_COMPLETE", `"recording":true`)
	awaitMetric(t, private, "voxgate_recordings_failed_total 0")
	c.SendText("one two three four five six seven eight nine ten")
	c.AwaitEventWith("LOG_MESSAGE", `"recording":false`)
	awaitMetric(t, private, "voxgate_recordings_failed_total 1")
	p.awaitLog(`level=ERROR msg=recording .*file too large`)
	c.AwaitEvent("TURN_COMPLETE")
	c.Send("UPDATE_CONFIG", `{"generationConfig":{"temperature":0.5}}`)
	c.AwaitEventWith("SETUP_COMPLETE", `"recording":false`) // sent after a reconnection, which starts no second file
	if files, err := os.ReadDir(recordings); len(files) != 1 || err != nil {
		t.Errorf("%d files, %v", len(files), err)
	}
}
