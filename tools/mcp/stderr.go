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

	// maxLines bounds the logged lines of a child's stderr per second: a stack trace, which must stay complete, has fewer.
	maxLines = 100
)

// lines is a writer that logs each line written to it, except for empty lines and those above maxLines a second. Its cost is linear in
// the input.
type lines struct {
	log    *slog.Logger
	stream string // name of the stream: stderr or stdout

	mu      sync.Mutex // guards the following fields
	partial []byte     // incomplete line
	second  time.Time  // start of the current second
	logged  int        // lines logged in it
	dropped int        // lines not logged
}

func (w *lines) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for more := b; len(more) > 0; {
		part := more[:min(len(more), maxLine-len(w.partial))]
		end := bytes.IndexByte(part, '\n')
		if end < 0 {
			w.partial, more = append(w.partial, part...), more[len(part):]
		} else {
			w.partial, more = append(w.partial, part[:end]...), more[end+1:]
		}
		if end >= 0 || len(w.partial) == maxLine {
			w.logLine()
		}
	}
	return len(b), nil
}

// logLine logs the complete line. The caller must hold mu.
func (w *lines) logLine() {
	line := bytes.TrimSpace(w.partial)
	w.partial = w.partial[:0]
	if len(line) == 0 {
		return
	}
	if now := time.Now(); now.Sub(w.second) >= time.Second {
		w.logDropped()
		w.second, w.logged = now, 0
	}
	if w.logged == maxLines {
		w.dropped++
		return
	}
	w.logged++
	w.log.Info(w.stream, "line", string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
}

// logDropped logs how many lines were dropped.
func (w *lines) logDropped() {
	if w.dropped > 0 {
		w.log.Warn(w.stream+": lines were left out", "lines", w.dropped)
	}
	w.dropped = 0
}

// flush logs the rest when the child has ended.
func (w *lines) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logLine()
	w.logDropped()
}
