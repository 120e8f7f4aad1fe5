package bridge

import (
	"context"
	"slices"
	"sync"
	"time"
)

// audience is the caller that carries a conversation, its watchers, and the events that they may have missed. Any
// goroutine may call its methods.
type audience struct {
	mu       sync.Mutex
	visit    *visit // of the caller that carries the conversation, or is about to
	listener Caller // gets the events; nil: nobody does
	ring     ring
	watchers []*watcher
	keep     bool // the events, for a caller that may come back
}

// visit is one caller's time with the session.
type visit struct {
	caller  Caller
	open    Open
	first   bool // it is the one that opened the session
	cancel  context.CancelCauseFunc
	arrived bool          // the loop has seen it come
	ready   chan struct{} // closed when the caller knows where things stand
	left    chan struct{} // closed when the caller's Serve has returned
	parked  chan struct{} // closed when the conversation goes on without the caller
}

// watcher gets the events of a conversation that another caller carries.
type watcher struct{ notify func(Event) }

// watch is the command that adds a watcher.
type watch struct{ watcher *watcher }

func (watch) command() {}

// notify sends an event to everybody, and keeps it for a caller that comes back.
func (a *audience) notify(b Body) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.ring.add(b, a.keep)
	if a.listener != nil {
		a.listener.Notify(e)
	}
	a.notifyWatchers(e)
}

// warn sends a warning to the client's developer.
func (a *audience) warn(message string) { a.notify(Log{Level: "warn", Message: message}) }

// fail reports something that went wrong while the conversation goes on.
func (a *audience) fail(code Code, message string) {
	a.notify(Failure{&Error{Code: code, Message: message}})
}

// notifyWatchers sends an event to the watchers only. Needs mu.
func (a *audience) notifyWatchers(e Event) {
	if b, ok := e.Body.(SetupComplete); ok {
		b.ResumeToken = "" // is the caller's alone
		e.Body = b
	}
	for _, w := range a.watchers {
		w.notify(e)
	}
}

// tellWatchers sends what the caller need not know: calls of functions that [Steer] has declared, and what the caller has typed.
func (a *audience) tellWatchers(b Body) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyWatchers(Event{Number: a.ring.last, Time: time.Now(), Body: b})
}

// watch adds a watcher, and sends it events of its own first.
func (a *audience) watch(w *watcher, first ...Body) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range first {
		w.notify(Event{Number: a.ring.last, Time: time.Now(), Body: b})
	}
	a.watchers = append(a.watchers, w)
}

func (a *audience) unwatch(w *watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = slices.DeleteFunc(a.watchers, func(other *watcher) bool { return other == w })
}

// admit makes v the current visit, and returns the one before; nil: none.
func (a *audience) admit(v *visit) (before *visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, a.visit = a.visit, v
	return before
}

// begin starts sending events to the first caller.
func (a *audience) begin(v *visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener = v.caller
}

// resume starts sending events to a caller that is back, after done and those that it has missed. attended: the caller
// before it had not left. playing is the turn that is being played; 0: none, or it is among the missed events.
func (a *audience) resume(v *visit, done SetupComplete, attended bool, open func(id string) bool, playing int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ring.forget(attended, open)
	missed := a.ring.missed(v.open.LastEvent, open)
	a.listener = v.caller
	a.listener.Notify(Event{Time: time.Now(), Body: done})
	for _, e := range missed {
		a.listener.Notify(e)
	}
	if playing > 0 {
		a.listener.Notify(a.ring.add(Speaking{playing}, false))
	}
}

// leave ends a visit, and reports whether it was the current one.
func (a *audience) leave(v *visit, open func(id string) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.visit != v {
		return false
	}
	a.visit, a.listener = nil, nil
	a.ring.forget(true, open)
	return true
}

// forget drops the events that nobody needs any more: see [ring.forget].
func (a *audience) forget(attended bool, open func(id string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ring.forget(attended, open)
}

// keepEvents says whether a caller may come back.
func (a *audience) keepEvents(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep = on
}

// newest is the number of the newest event.
func (a *audience) newest() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ring.last
}

// close stops the events, and returns the caller's visit; nil: nobody is there.
func (a *audience) close() *visit {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener = nil
	return a.visit
}
