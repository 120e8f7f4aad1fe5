package testkit

import (
	"strings"
	"sync"
	"time"
)

// WatchedState guards a state whose changes tests wait for. Code that only reads the state must lock it. The zero value
// is ready for use.
type WatchedState struct {
	sync.Mutex
	changed chan struct{} // closed by the next change; nil if no test waits
}

// Update calls change, which may change the state, and wakes the tests that wait.
func (w *WatchedState) Update(change func()) {
	w.Lock()
	defer w.Unlock()
	change()
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// Await blocks until condition returns true, or returns ok=false after [Patience]. The state does not change while
// condition runs.
func (w *WatchedState) Await(condition func() bool) (ok bool) {
	deadline := time.After(Patience)
	for {
		w.Lock()
		if condition() {
			w.Unlock()
			return true
		}
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.Unlock()
		select {
		case <-changed:
		case <-deadline:
			return false
		}
	}
}

// LogBook collects log messages. The zero value is ready for use.
type LogBook struct {
	state WatchedState
	b     strings.Builder
}

func (l *LogBook) Write(p []byte) (int, error) {
	l.state.Update(func() { l.b.Write(p) })
	return len(p), nil
}

func (l *LogBook) String() string {
	l.state.Lock()
	defer l.state.Unlock()
	return l.b.String()
}

// ClearLog discards the log so far.
func (l *LogBook) ClearLog() { l.state.Update(l.b.Reset) }

// AwaitCount waits until the log contains text at least times times, or returns ok=false after [Patience].
func (l *LogBook) AwaitCount(text string, times int) (ok bool) {
	return l.state.Await(func() bool { return strings.Count(l.b.String(), text) >= times })
}
