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

	// maxLines bounds the lines of a child's stderr that are logged per second. It is more than the lines of a stack
	// trace, which must be logged completely.
	maxLines = 100
)

// lines is a writer that logs each line written to it. It skips empty lines, and lines beyond maxLines per second. Its
// cost is linear in the input.
type lines struct {
	log    *slog.Logger
	stream string // name of the stream: stderr or stdout

	mu      sync.Mutex // guards the following fields
	partial []byte     // incomplete line
	second  time.Time  // start of the current second
	logged  int        // lines logged in it
	dropped int        // lines not logged
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for more := b; len(more) > 0; {
		part := more[:min(len(more), maxLine-len(l.partial))]
		end := bytes.IndexByte(part, '\n')
		if end < 0 {
			l.partial, more = append(l.partial, part...), more[len(part):]
		} else {
			l.partial, more = append(l.partial, part[:end]...), more[end+1:]
		}
		if end >= 0 || len(l.partial) == maxLine {
			l.logLine()
		}
	}
	return len(b), nil
}

// logLine logs the complete line. The caller must hold mu.
func (l *lines) logLine() {
	line := bytes.TrimSpace(l.partial)
	l.partial = l.partial[:0]
	if len(line) == 0 {
		return
	}
	if now := time.Now(); now.Sub(l.second) >= time.Second {
		l.logDropped()
		l.second, l.logged = now, 0
	}
	if l.logged == maxLines {
		l.dropped++
		return
	}
	l.logged++
	l.log.Info(l.stream, "line", string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
}

// logDropped logs how many lines were dropped.
func (l *lines) logDropped() {
	if l.dropped > 0 {
		l.log.Warn(l.stream+": lines were left out", "lines", l.dropped)
	}
	l.dropped = 0
}

// flushRest logs the incomplete last line when the child has ended.
func (l *lines) flushRest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logLine()
	l.logDropped()
}
