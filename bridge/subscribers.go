package bridge

import (
	"context"
	"slices"
	"sync"
	"time"
)

// subscribers are the current caller of a conversation, its watchers, and the events that the caller may have missed.
// Their methods are safe for concurrent use.
type subscribers struct {
	mu         sync.Mutex
	current    *callerConn // current caller, or one that is about to take over
	receiver   Caller      // gets the events; nil means that no caller gets them
	replay     replayBuffer
	watchers   []*watcher
	keepMissed bool // keep events for a caller that may come back
}

// callerConn connects one caller with the session, from its arrival until it leaves.
type callerConn struct {
	caller     Caller
	request    SessionRequest
	isFirst    bool // the caller that opened the session
	cancel     context.CancelCauseFunc
	hasArrived bool          // the loop has seen it arrive
	ready      chan struct{} // closed when the caller has received the state
	served     chan struct{} // closed when the caller's Serve has returned
	parked     chan struct{} // closed when the conversation goes on without the caller
}

// watcher gets the events of a conversation without being its caller.
type watcher struct{ notify func(Event) }

// notify sends an event to the caller and all watchers, and stores it for a caller that comes back.
func (a *subscribers) notify(b EventBody) { a.answer(nil, b) }

// answer sends an event that answers a command. replyTo is the command's ReplyTo; a replayed event no longer has it.
func (a *subscribers) answer(replyTo any, b EventBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.replay.addEvent(b, a.keepMissed)
	e.ReplyTo = replyTo
	if a.receiver != nil {
		a.receiver.Notify(e)
	}
	a.notifyWatchers(e)
}

// warnDeveloper sends a warning to the client's developer.
func (a *subscribers) warnDeveloper(message string) { a.notify(Log{Level: "warn", Message: message}) }

// reportError reports an error while the conversation goes on.
func (a *subscribers) reportError(code Code, message string) {
	a.notify(ErrorEvent{&Error{Code: code, Message: message}})
}

// notifyWatchers sends an event to the watchers only. The caller of notifyWatchers must hold mu.
func (a *subscribers) notifyWatchers(e Event) {
	if b, ok := e.Body.(SetupComplete); ok {
		b.ResumeToken = "" // only for the caller
		e.Body = b
	}
	for _, w := range a.watchers {
		w.notify(e)
	}
}

// notifyWatchersOnly sends events that the caller does not need: calls of functions declared by [BackendUpdate], and
// text that the caller has typed.
func (a *subscribers) notifyWatchersOnly(b EventBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyWatchers(Event{Number: a.replay.last, Time: time.Now(), Body: b})
}

// addWatcher adds a watcher, and sends it these events first.
func (a *subscribers) addWatcher(w *watcher, first ...EventBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range first {
		w.notify(Event{Number: a.replay.last, Time: time.Now(), Body: b})
	}
	a.watchers = append(a.watchers, w)
}

func (a *subscribers) removeWatcher(w *watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = slices.DeleteFunc(a.watchers, func(other *watcher) bool { return other == w })
}

// setCurrent makes v the current caller, and returns the previous one, or nil.
func (a *subscribers) setCurrent(v *callerConn) (before *callerConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, a.current = a.current, v
	return before
}

// startEvents starts sending events to the first caller.
func (a *subscribers) startEvents(v *callerConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.receiver = v.caller
}

// resumeEvents starts sending events to a returning caller: first done, then the missed ones. attended means that the
// previous caller had not left. playing is the number of the turn being played. It is 0 if there is none, or if its
// [Speaking] event is among the missed events.
func (a *subscribers) resumeEvents(v *callerConn, done SetupComplete, attended bool, open func(id string) bool, playing int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replay.pruneEvents(attended, open)
	missed := a.replay.missedEvents(v.request.LastEvent, open)
	a.receiver = v.caller
	a.receiver.Notify(Event{Time: time.Now(), Body: done})
	for _, e := range missed {
		a.receiver.Notify(e)
	}
	if playing > 0 {
		a.receiver.Notify(a.replay.addEvent(Speaking{playing}, false))
	}
}

// removeCaller removes a caller, and reports whether it was the current one.
func (a *subscribers) removeCaller(v *callerConn, open func(id string) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != v {
		return false
	}
	a.current, a.receiver = nil, nil
	a.replay.pruneEvents(true, open)
	return true
}

// pruneEvents drops events that are no longer needed: see [replayBuffer.pruneEvents].
func (a *subscribers) pruneEvents(attended bool, open func(id string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replay.pruneEvents(attended, open)
}

// setKeepEvents sets whether a caller may come back.
func (a *subscribers) setKeepEvents(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keepMissed = on
}

// lastEventNumber returns the number of the newest event.
func (a *subscribers) lastEventNumber() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.replay.last
}

// close stops the sending of events, and returns the current caller, or nil.
func (a *subscribers) close() *callerConn {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.receiver = nil
	return a.current
}
