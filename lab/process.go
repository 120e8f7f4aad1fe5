package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute
	stopTimeout  = 10 * time.Second // time from SIGTERM until the process is killed
	keptLines    = 20               // lines of the log that are kept
)

// buildGateway builds the gateway of the source tree. The caller must call remove.
func (o *options) buildGateway(ctx context.Context) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "voxgate-bench")
	if err != nil {
		return nil, err
	}
	o.gateway = filepath.Join(dir, "gateway")
	out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=auto", "-o", o.gateway,
		"voxgate/gateway").CombinedOutput()
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return func() { os.RemoveAll(dir) }, nil
}

// process is a server that runs as a child process.
type process struct {
	url  string // base URL: http, without a trailing slash
	cmd  *exec.Cmd
	end  context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	lines []string // the newest lines of its log
}

// startProcess starts a program and waits until it has logged its URL. The program inherits the environment without the
// variables of a gateway. env ("NAME=value") is added.
func startProcess(ctx context.Context, env []string, binary string, args ...string) (*process, error) {
	ctx, end := context.WithCancel(ctx)
	p := &process{cmd: exec.CommandContext(ctx, binary, args...), end: end, done: make(chan struct{})}
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "VOXGATE_") || strings.HasPrefix(v, "GEMINI_") || strings.HasPrefix(v, "GOOGLE_")
	}), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a process group, so that its children are measured and ended, too
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTimeout
	log, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		end()
		return nil, err
	}
	urls := make(chan string, 1)
	go p.readLog(log, urls)
	select {
	case p.url = <-urls:
		return p, nil
	case <-p.done:
		err = errors.New("the server ended before it was ready")
	case <-time.After(startTimeout):
		err = fmt.Errorf("the server was not ready within %v", startTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.stop()
	return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, p.newestLog())
}

// readLog reads the log to its end, keeps the newest lines, and sends the first URL to urls.
func (p *process) readLog(log io.Reader, urls chan<- string) {
	defer close(p.done)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if url := parseLoggedURL(lines.Text()); url != "" && len(urls) == 0 {
			urls <- url
		}
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		p.lines = p.lines[max(0, len(p.lines)-keptLines):]
		p.mu.Unlock()
	}
	io.Copy(io.Discard, log) // after a line that is too long, read on, so that the child does not block
	p.cmd.Wait()             // an error is in its log
}

// parseLoggedURL returns the value of url= in a line of slog's text format, or "".
func parseLoggedURL(line string) string {
	_, rest, _ := strings.Cut(line, " url=")
	url, _, _ := strings.Cut(rest, " ")
	return strings.TrimSuffix(strings.Trim(url, `"`), "/")
}

// newestLog returns the newest lines, which may explain a failure.
func (p *process) newestLog() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// stop ends the process, waits for it, and kills its remaining children.
func (p *process) stop() {
	p.end()
	<-p.done
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

// startEmulator starts the emulator of the Live API as a child process.
func (o options) startEmulator(ctx context.Context) (*process, error) {
	return startProcess(ctx, nil, o.gateway, "emulate", "-addr", "127.0.0.1:0")
}

// usage is the CPU time used up to a moment.
type usage struct {
	at        time.Time
	cpu       time.Duration // user and system time of the process and its children
	all, idle time.Duration // elapsed and idle time of all cores together
}

// loadUntil returns the number of cores that the process has used between two moments. It also returns the share of the
// machine that was idle.
func (u usage) loadUntil(later usage) (cores, idle float64) {
	if all := later.all - u.all; all > 0 {
		idle = float64(later.idle-u.idle) / float64(all)
	}
	return float64(later.cpu-u.cpu) / float64(later.at.Sub(u.at)), idle
}

// sumTicks returns the sum of times in /proc, whose unit is 10 ms: USER_HZ is 100 on every machine that Go runs on.
func sumTicks(fields []string) (sum time.Duration) {
	for _, field := range fields {
		n, _ := strconv.Atoi(field) // always a number: proc(5)
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum
}

// readProcessGroup returns the processes of the child's process group, each with its fields of /proc/PID/stat from the third on: proc(5).
func (p *process) readProcessGroup() map[string][]string {
	group := map[string][]string{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		raw, _ := os.ReadFile(path) // the process may have ended meanwhile
		// Field 2 may contain blanks and ends with a bracket. The process group is field 5.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) > 12 && fields[2] == strconv.Itoa(p.cmd.Process.Pid) {
			group[filepath.Dir(path)] = fields
		}
	}
	return group
}

// readUsage reads /proc/PID/stat and /proc/stat: proc(5).
func (p *process) readUsage() (usage, error) {
	u := usage{at: time.Now()}
	for _, fields := range p.readProcessGroup() {
		u.cpu += sumTicks(fields[11:13]) // utime and stime are 14 and 15
	}
	all, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	// "cpu", user, nice, system, idle, iowait, irq, softirq, steal.
	machine := strings.Fields(string(all))[1:9]
	u.all, u.idle = sumTicks(machine), sumTicks(machine[3:5])
	return u, nil
}

// residentMemory returns the resident memory in bytes. Memory that several processes share is counted once, because it
// is Pss of /proc/PID/smaps_rollup.
func (p *process) residentMemory() (sum int64, err error) {
	for dir := range p.readProcessGroup() {
		raw, _ := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
		_, rest, found := strings.Cut(string(raw), "\nPss:")
		if !found {
			continue // the process has ended meanwhile
		}
		var kilobytes int64
		if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
			return 0, err
		}
		sum += kilobytes << 10
	}
	return sum, nil
}
