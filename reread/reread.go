// Package reread finds out when files have changed, so that what was read of them is read again.
package reread

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// every is how often files are looked at: a removed key works that much longer.
const every = time.Second

// Watch is what is known of some files. Its methods may be called by any goroutine.
type Watch struct {
	now func() time.Time

	mu     sync.Mutex
	looked time.Time
	stamp  string
}

// NewWatch returns a watch that knows the files as they are. Read them after that: a change meanwhile is then seen as one.
func NewWatch(now func() time.Time, files []string) *Watch {
	return &Watch{now: now, looked: now(), stamp: stampOf(files)}
}

// Changed reports whether the files have changed since it last returned true. It looks once a second at most, and of several callers only
// one gets true.
func (w *Watch) Changed(files func() []string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now().Sub(w.looked) < every {
		return false
	}
	w.looked = w.now()
	before := w.stamp
	w.stamp = stampOf(files())
	return w.stamp != before
}

// stampOf is what changes when one of the files is replaced.
func stampOf(files []string) string {
	var b strings.Builder
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
