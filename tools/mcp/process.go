package mcp

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// grace is how long a child process has to end by itself when its input ends, and again when it is told to. The protocol asks
// for "a reasonable time"; a gateway that restarts should not wait for longer than its callers do.
const grace = 2 * time.Second

const (
	// maxLine bounds a line of a child's stderr in the log, in bytes.
	maxLine = 4096

	// maxLines bounds the lines of a child's stderr in the log, in a second: more than a stack trace has, which must be whole.
	maxLines = 100

	// pipeBuf is what a pipe takes at once or not at all, in bytes: PIPE_BUF of Linux.
	pipeBuf = 4096
)

// process is a child process with its descendants, as far as the system can hold them together.
type process struct {
	cmd    *exec.Cmd
	stdin  *input
	stdout io.ReadCloser
	stderr *lines
}

func start(o Options) (*process, error) {
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range o.Env {
		cmd.Env = append(cmd.Env, name+"="+value) // the last of a name counts
	}
	p := &process{cmd: cmd, stderr: &lines{log: o.Logger}}
	cmd.Stderr = p.stderr
	cmd.WaitDelay = grace // a descendant may hold stderr open
	ownGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = &input{pipe: stdin}
	if p.stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, cmd.Start()
}

// stop ends the process and its descendants, waits for it, and returns how it ended.
func (p *process) stop() error {
	_ = p.stdin.Close()
	ended := make(chan error, 1)
	go func() {
		err := p.cmd.Wait()
		p.stderr.flush()
		ended <- err
	}()
	defer kill(p.cmd) // what it has left behind
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
	}
	terminate(p.cmd)
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
	}
	kill(p.cmd)
	return <-ended
}

// input is the pipe to a child's stdin, and knows whether the child takes what is written.
type input struct {
	pipe  io.WriteCloser
	moved atomic.Pointer[time.Time] // when the write that goes on has moved last; nil: there is none
}

// Write returns when the child, or the system's buffer, has taken all of b, or the pipe is closed. It is not called twice at a time.
func (in *input) Write(b []byte) (n int, err error) {
	defer in.moved.Store(nil)
	for n < len(b) && err == nil {
		now := time.Now()
		in.moved.Store(&now)
		var taken int
		taken, err = in.pipe.Write(b[n:min(len(b), n+pipeBuf)])
		n += taken
	}
	return n, err
}

func (in *input) Close() error { return in.pipe.Close() }

// stalled is how long the child has taken nothing of a write that goes on.
func (in *input) stalled() time.Duration {
	if moved := in.moved.Load(); moved != nil {
		return time.Since(*moved)
	}
	return 0
}

// lines logs what is written to it, line by line, without the empty ones and those above maxLines a second. What it does is linear in
// what is written.
type lines struct {
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	rest   []byte     // of a line that is not whole yet
	logged int        // in this second
	left   int        // out of the log in this second
	second *time.Timer
}

func (w *lines) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for more := b; len(more) > 0; {
		part := more[:min(len(more), maxLine-len(w.rest))]
		end := bytes.IndexByte(part, '\n')
		if end < 0 {
			w.rest, more = append(w.rest, part...), more[len(part):]
		} else {
			w.rest, more = append(w.rest, part[:end]...), more[end+1:]
		}
		if end >= 0 || len(w.rest) == maxLine {
			w.line()
		}
	}
	return len(b), nil
}

// line logs the line that is whole. It is called locked.
func (w *lines) line() {
	line := bytes.TrimSpace(w.rest)
	w.rest = w.rest[:0]
	if len(line) == 0 {
		return
	}
	if w.second == nil {
		w.second = time.AfterFunc(time.Second, w.over)
	}
	if w.logged == maxLines {
		w.left++
		return
	}
	w.logged++
	w.log.Info("stderr", "line", string(line))
}

// over ends a second, and says what was left out in it.
func (w *lines) over() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left > 0 {
		w.log.Warn("stderr: lines were left out", "lines", w.left)
	}
	w.logged, w.left, w.second = 0, 0, nil
}

// flush logs what is left when the child has ended.
func (w *lines) flush() {
	w.mu.Lock()
	w.line()
	pending := w.second != nil && w.second.Stop()
	w.mu.Unlock()
	if pending {
		w.over()
	}
}
