// Package reread finds out when files have changed, so that what was read of them is read again.
package reread

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// every is how often files are looked at: what was taken away counts for as long.
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

// Changed reports whether the files are others than when it was last true. It looks once a second at most, and of several callers one alone
// gets true.
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
