package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 10 * time.Second
	keptLines    = 20 // of a child's log, to say why it failed
)

// child is a process of this binary that serves something at url.
type child struct {
	url string
	cmd *exec.Cmd

	mu     sync.Mutex
	tail   []string  // the last lines it has logged
	struck time.Time // when it has logged its first fault
	read   chan struct{}
}

// startChild starts this binary with args and waits until it has logged its url.
func startChild(ctx context.Context, env []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, args...), read: make(chan struct{})}
	c.cmd.Env = append(inherited(os.Environ()), env...)
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = stopTimeout
	dieWithParent(c.cmd)
	log, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	urls := make(chan string, 1)
	go c.follow(log, urls)
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case c.url = <-urls:
		return c, nil
	case <-c.read:
		err = errors.New("has ended")
	case <-timeout.C:
		err = fmt.Errorf("not ready within %v", startTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.stop()
	return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, c.log())
}

// inherited is our environment without what would change how the gateway is set up, or send it to Google.
func inherited(environ []string) []string {
	var kept []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "VOXGATE_") && !strings.HasPrefix(v, "GEMINI_") && !strings.HasPrefix(v, "GOOGLE_") {
			kept = append(kept, v)
		}
	}
	return kept
}

// follow reads the log to its end and keeps the last lines. The url goes to urls.
func (c *child) follow(log io.Reader, urls chan<- string) {
	defer close(c.read)
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		line := lines.Text()
		if url := loggedURL(line); url != "" {
			select {
			case urls <- url:
			default:
			}
		}
		c.mu.Lock()
		if c.struck.IsZero() && strings.Contains(line, " msg=fault ") {
			c.struck = time.Now()
		}
		c.tail = append(c.tail, line)
		c.tail = c.tail[max(0, len(c.tail)-keptLines):]
		c.mu.Unlock()
	}
	io.Copy(io.Discard, log) // after a line too long to scan: the child must not block
}

// loggedURL returns the value of url= in a line of slog's text form.
func loggedURL(line string) string {
	_, rest, ok := strings.Cut(line, " url=")
	if !ok {
		return ""
	}
	url, _, _ := strings.Cut(rest, " ")
	return strings.TrimSuffix(strings.Trim(url, `"`), "/")
}

func (c *child) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.tail, "\n")
}

// faulted is when an emulator's first fault has struck.
func (c *child) faulted() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.struck
}

// stop ends the process and waits for it; one that does not end is killed.
func (c *child) stop() {
	c.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTimeout, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	<-c.read     // Wait closes the pipe that follow reads
	c.cmd.Wait() // what it ended with is in its log
}

// service is a server to be measured and whatever it needs.
type service struct {
	*child
	behind *child // what the server itself talks to; may be nil
	call   func(ctx context.Context, s *service, o peerOptions) (*peer, error)
}

func (s *service) stop() {
	s.child.stop()
	if s.behind != nil {
		s.behind.stop()
	}
}

// startGateway starts a gateway with an emulator behind it. The emulator hums instead of speaking: it finds no espeak-ng,
// which would take CPU time from the gateway and is not the same everywhere.
func startGateway(ctx context.Context, persona string) (*service, error) {
	model, err := startModel(ctx, "-persona", persona)
	if err != nil {
		return nil, err
	}
	return startBefore(ctx, model, model.url)
}

func startModel(ctx context.Context, args ...string) (*child, error) {
	return startChild(ctx, []string{"PATH="}, append([]string{"emulate", "-addr", "127.0.0.1:0"}, args...)...)
}

// startBefore starts a gateway that reaches the model at url. If that fails the model is stopped.
func startBefore(ctx context.Context, model *child, url string) (*service, error) {
	gateway, err := startChild(ctx, []string{"VOXGATE_ADDR=127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL=" + url}, "serve")
	if err != nil {
		model.stop()
		return nil, err
	}
	return &service{child: gateway, behind: model, call: callGateway}, nil
}

// startEcho starts the echo server.
func startEcho(ctx context.Context) (*service, error) {
	echo, err := startChild(ctx, nil, "bench", echoCommand)
	if err != nil {
		return nil, err
	}
	return &service{child: echo, call: callEcho}, nil
}
