// Package filewatch detects changed files, so that they can be reloaded, and reloads certificates.
package filewatch

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// checkInterval is the minimum time between two checks of the files. A key that is removed from a file may stay valid for that time.
const checkInterval = time.Second

// Watch detects changes of some files. Its methods may be called from any goroutine.
type Watch struct {
	now func() time.Time

	mu          sync.Mutex
	lastCheck   time.Time
	fingerprint string
}

// NewWatch returns a watch that has recorded the current state of the files. Read the files after this call, so that no
// change is missed. NewWatch logs a warning for each file that is itself a mount point, because the watch cannot detect
// that such a file is replaced on the host.
func NewWatch(log *slog.Logger, now func() time.Time, files []string) *Watch {
	for _, name := range files {
		if isMountPoint(name) {
			log.Warn("file is mounted alone, so a replacement outside is not noticed: mount its folder instead", "file", name)
		}
	}
	return &Watch{now: now, lastCheck: now(), fingerprint: fingerprintOf(files)}
}

// TakeChange reports whether the files have changed since it last returned true, and records their new state. It checks
// at most once a second. If several goroutines call it, only one of them gets true for a change.
func (w *Watch) TakeChange(files func() []string) (hasChanged bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now().Sub(w.lastCheck) < checkInterval {
		return false
	}
	w.lastCheck = w.now()
	before := w.fingerprint
	w.fingerprint = fingerprintOf(files())
	return w.fingerprint != before
}

// fingerprintOf returns a string that changes when one of the files is written or replaced.
func fingerprintOf(files []string) string {
	var b strings.Builder
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			inode, links := inodeAndLinks(info)
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano(), inode, links)
		}
	}
	return b.String()
}

// IsStaleMount reports whether a file that is itself a mount point was replaced or removed on the host. The program
// sees the old content until the file is mounted again.
func IsStaleMount(name string) bool {
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	_, links := inodeAndLinks(info)
	return links == 0
}

// maxFile limits the size of a reloaded file, in bytes. The largest known files, bundles of CA certificates, have 300 kB.
const maxFile = 16 << 20

// CheckReloadable returns an error for a file that must not be read while calls are in progress: reading a named pipe
// would block, and a huge file would fill the memory.
func CheckReloadable(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", name)
	case info.Size() > maxFile:
		return fmt.Errorf("%s: %d bytes are more than %d", name, info.Size(), maxFile)
	}
	return nil
}
