// Package reread finds out when files have changed, so that what was read of them is read again.
package reread

import (
	"fmt"
	"log/slog"
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

// NewWatch returns a watch that knows the files as they are. Read them after that, so that a change meanwhile is seen. It logs a warning
// for each file that is mounted alone, as by a container's volume of one file: replacing such a file outside of the mount leaves the old
// one inside.
func NewWatch(log *slog.Logger, now func() time.Time, files []string) *Watch {
	for _, name := range files {
		if isMountPoint(name) {
			log.Warn("the file is mounted alone, so replacing it outside is not noticed here: mount its folder instead", "file", name)
		}
	}
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

// stampOf returns a text that changes when one of the files is written or replaced.
func stampOf(files []string) string {
	var b strings.Builder
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			inode, links := identify(info)
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano(), inode, links)
		}
	}
	return b.String()
}

// IsStale reports whether a file that is mounted alone was replaced or removed outside of its mount: what can be read by this name is not
// what has that name there any more, and never will be until it is mounted again.
func IsStale(name string) bool {
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	_, links := identify(info)
	return links == 0
}
