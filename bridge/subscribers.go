package bridge

import (
	"context"
	"slices"
	"sync"
	"time"
)

// subscribers holds the receivers of a conversation's events: its caller and its watchers. It also keeps events for a
// replay. Its methods are safe for concurrent use.
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

// watcher gets the events of a conversation, but is not its caller.
type watcher struct{ notify func(Event) }

// notify sends an event to the caller and all watchers, and stores it for a caller that may return.
func (s *subscribers) notify(b EventBody) { s.notifyReply(nil, b) }

// notifyReply sends an event that answers a command. replyTo is the command's ReplyTo. If the event is replayed later,
// it has no ReplyTo.
func (s *subscribers) notifyReply(replyTo any, b EventBody) {
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

// reportError reports an error that does not end the conversation.
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

// notifyWatchersOnly sends an event to the watchers, but not to the caller, because the caller does not need it. An
// example is text that the caller has typed.
func (s *subscribers) notifyWatchersOnly(b EventBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notifyWatchers(Event{Number: s.replay.last, Time: time.Now(), Body: b})
}

// addWatcher adds a watcher. The events in first are the first that the watcher gets.
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
func (s *subscribers) setCurrent(v *callerConn) (previous *callerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous, s.current = s.current, v
	return previous
}

// startEvents starts sending events to the first caller.
func (s *subscribers) startEvents(v *callerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiver = v.caller
}

// resumeEvents starts sending events to a returning caller: first setup, then the events that it has missed. hadCaller
// means that the previous caller is still connected. playingTurn is the turn whose [Speaking] is still to be sent, or
// 0.
func (s *subscribers) resumeEvents(v *callerConn, setup SetupComplete, hadCaller bool, isCallOpen func(id string) bool, playingTurn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replay.pruneEvents(hadCaller, isCallOpen)
	missed := s.replay.missedEvents(v.request.LastEvent, isCallOpen)
	s.receiver = v.caller
	s.receiver.Notify(Event{Time: time.Now(), Body: setup})
	for _, e := range missed {
		s.receiver.Notify(e)
	}
	if playingTurn > 0 {
		s.receiver.Notify(s.replay.addEvent(Speaking{playingTurn}, false))
	}
}

// removeCaller removes v if v is the current caller. wasCurrent reports whether it was.
func (s *subscribers) removeCaller(v *callerConn, isCallOpen func(id string) bool) (wasCurrent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != v {
		return false
	}
	s.current, s.receiver = nil, nil
	s.replay.pruneEvents(true, isCallOpen)
	return true
}

// pruneEvents drops events that are no longer needed: see [replayBuffer.pruneEvents].
func (s *subscribers) pruneEvents(hasCaller bool, isCallOpen func(id string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replay.pruneEvents(hasCaller, isCallOpen)
}

// setKeepEvents sets whether events are kept for a caller that may return.
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
func (s *subscribers) close() (current *callerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiver = nil
	return s.current
}
