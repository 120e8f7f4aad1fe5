package bridge

import (
	"context"
	"slices"
	"sync"
	"time"
)

// subscribers are the caller of a conversation, its watchers, and the events for a replay. Their methods are safe for
// concurrent use.
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
	hasArrived bool          // the loop has handled the caller's arrival
	ready      chan struct{} // closed when the caller has received the state
	served     chan struct{} // closed when the caller's Serve has returned
	parked     chan struct{} // closed when the conversation goes on without the caller
}

// watcher gets the events of a conversation without being its caller.
type watcher struct{ notify func(Event) }

// notify sends an event to the caller and all watchers, and stores it for a caller that comes back.
func (s *subscribers) notify(b EventBody) { s.answer(nil, b) }

// answer sends an event that answers a command. replyTo is the command's ReplyTo; a replayed event no longer has it.
func (s *subscribers) answer(replyTo any, b EventBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.replay.addEvent(b, s.keepMissed)
	e.ReplyTo = replyTo
	if s.receiver != nil {
		s.receiver.Notify(e)
	}
	s.notifyWatchers(e)
}

// warnDeveloper sends a warning to the client's developer.
func (s *subscribers) warnDeveloper(message string) { s.notify(Log{Level: "warn", Message: message}) }

// reportError reports an error while the conversation goes on.
func (s *subscribers) reportError(code Code, message string) {
	s.notify(ErrorEvent{&Error{Code: code, Message: message}})
}

// notifyWatchers sends an event to the watchers only. The caller of notifyWatchers must hold mu.
func (s *subscribers) notifyWatchers(e Event) {
	if b, ok := e.Body.(SetupComplete); ok {
		b.ResumeToken = "" // only for the caller
		e.Body = b
	}
	for _, w := range s.watchers {
		w.notify(e)
	}
}

// notifyWatchersOnly sends events that the caller does not need, such as text that the caller has typed.
func (s *subscribers) notifyWatchersOnly(b EventBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notifyWatchers(Event{Number: s.replay.last, Time: time.Now(), Body: b})
}

// addWatcher adds a watcher, and sends it these events first.
func (s *subscribers) addWatcher(w *watcher, first ...EventBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range first {
		w.notify(Event{Number: s.replay.last, Time: time.Now(), Body: b})
	}
	s.watchers = append(s.watchers, w)
}

func (s *subscribers) removeWatcher(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = slices.DeleteFunc(s.watchers, func(other *watcher) bool { return other == w })
}

// setCurrent makes v the current caller, and returns the previous one, or nil.
func (s *subscribers) setCurrent(v *callerConn) (before *callerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.current = s.current, v
	return before
}

// startEvents starts sending events to the first caller.
func (s *subscribers) startEvents(v *callerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiver = v.caller
}

// resumeEvents starts sending events to a returning caller: first setup, then the missed events. attended means that
// the previous caller had not left. playing is the turn whose [Speaking] is still to be sent, or 0.
func (s *subscribers) resumeEvents(v *callerConn, setup SetupComplete, attended bool, open func(id string) bool, playing int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replay.pruneEvents(attended, open)
	missed := s.replay.missedEvents(v.request.LastEvent, open)
	s.receiver = v.caller
	s.receiver.Notify(Event{Time: time.Now(), Body: setup})
	for _, e := range missed {
		s.receiver.Notify(e)
	}
	if playing > 0 {
		s.receiver.Notify(s.replay.addEvent(Speaking{playing}, false))
	}
}

// removeCaller removes v and returns true, if v is the current caller. Otherwise it does nothing.
func (s *subscribers) removeCaller(v *callerConn, open func(id string) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != v {
		return false
	}
	s.current, s.receiver = nil, nil
	s.replay.pruneEvents(true, open)
	return true
}

// pruneEvents drops events that are no longer needed: see [replayBuffer.pruneEvents].
func (s *subscribers) pruneEvents(attended bool, open func(id string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replay.pruneEvents(attended, open)
}

// setKeepEvents sets whether events are kept for a caller that comes back.
func (s *subscribers) setKeepEvents(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepMissed = on
}

// lastEventNumber returns the number of the newest event.
func (s *subscribers) lastEventNumber() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replay.last
}

// close stops the sending of events, and returns the current caller, or nil.
func (s *subscribers) close() *callerConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiver = nil
	return s.current
}
