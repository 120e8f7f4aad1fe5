package mcp

import (
	"bytes"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxLine bounds a line of a child's stderr in the log, in bytes.
	maxLine = 4096

	// maxLines bounds the lines of a child's stderr in the log, in a second: more than a stack trace has, which must be whole.
	maxLines = 100
)

// lines logs what is written to it, line by line, without the empty ones and those above maxLines a second. What it does is linear in
// what is written.
type lines struct {
	log  *slog.Logger
	from string // the stream that they come from: stderr, or stdout

	mu     sync.Mutex // guards what follows
	rest   []byte     // of a line that is not whole yet
	second time.Time  // in which lines are counted
	logged int        // in it
	left   int        // out of the log
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
	if now := time.Now(); now.Sub(w.second) >= time.Second {
		w.over()
		w.second, w.logged = now, 0
	}
	if w.logged == maxLines {
		w.left++
		return
	}
	w.logged++
	w.log.Info(w.from, "line", string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
}

// over says what was left out.
func (w *lines) over() {
	if w.left > 0 {
		w.log.Warn(w.from+": lines were left out", "lines", w.left)
	}
	w.left = 0
}

// flush logs what is left when the child has ended.
func (w *lines) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line()
	w.over()
}
