// Package harness is what the measurements stand on: servers as child processes, what they cost, the clock by which callers
// talk, and the figures that come out.
package harness

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
	keptLines    = 20 // of a child's log
)

// Process is a server that runs as a child process.
type Process struct {
	URL string // where it serves: http, without a slash at the end

	cmd *exec.Cmd

	mu     sync.Mutex
	tail   []string  // the last lines it has logged
	struck time.Time // when it has logged its first fault
	read   chan struct{}
}

// Start starts a program with args and waits until it has logged its URL. The binary is a file; "" is the program that runs.
// Its environment is ours, without what would set up a gateway, and env ("NAME=value").
func Start(ctx context.Context, binary string, env []string, args ...string) (*Process, error) {
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	p := &Process{cmd: exec.CommandContext(ctx, binary, args...), read: make(chan struct{})}
	p.cmd.Env = append(inherited(os.Environ()), env...)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTimeout
	dieWithParent(p.cmd)
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	urls := make(chan string, 1)
	go p.follow(log, urls)
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case p.URL = <-urls:
		return p, nil
	case <-p.read:
		err = errors.New("has ended")
	case <-timeout.C:
		err = fmt.Errorf("not ready within %v", startTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.Stop()
	return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, p.Log())
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
func (p *Process) follow(log io.Reader, urls chan<- string) {
	defer close(p.read)
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		line := lines.Text()
		if url := loggedURL(line); url != "" {
			select {
			case urls <- url:
			default:
			}
		}
		p.mu.Lock()
		if p.struck.IsZero() && strings.Contains(line, " msg=fault ") {
			p.struck = time.Now()
		}
		p.tail = append(p.tail, line)
		p.tail = p.tail[max(0, len(p.tail)-keptLines):]
		p.mu.Unlock()
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

// Log returns the last lines it has logged, to say why it failed.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.tail, "\n")
}

// Faulted is when an emulator's first fault has struck.
func (p *Process) Faulted() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck
}

// CPUTime returns the CPU time that it has used, its own and the kernel's on its behalf.
func (p *Process) CPUTime() (time.Duration, error) { return cpuTime(p.cmd.Process.Pid) }

// ResidentBytes returns how much of its memory is resident.
func (p *Process) ResidentBytes() (int64, error) { return residentBytes(p.cmd.Process.Pid) }

// Stop ends the process and waits for it; one that does not end is killed.
func (p *Process) Stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTimeout, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.read     // Wait closes the pipe that follow reads
	p.cmd.Wait() // what it ended with is in its log
}

// StartEmulator starts an emulator of Gemini with flags of `gateway emulate`. It hums instead of speaking: it finds no
// espeak-ng, which would take CPU time from the gateway and is not the same everywhere.
func StartEmulator(ctx context.Context, flags ...string) (*Process, error) {
	return Start(ctx, "", []string{"PATH="}, append([]string{"emulate", "-addr", "127.0.0.1:0"}, flags...)...)
}

// StartGateway starts a gateway that reaches Gemini at model, a URL. The binary and the args are those of [Start]; the args
// are `serve`, or whatever else reads its settings.
func StartGateway(ctx context.Context, binary, model string, args ...string) (*Process, error) {
	return Start(ctx, binary, []string{"VOXGATE_ADDR=127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL=" + model}, args...)
}
