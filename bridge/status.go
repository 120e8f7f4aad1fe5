package bridge

import "log/slog"

const apologyMessage = "Gemini did not answer. Please say it again."

// callerStatus is the state of the conversation as last reported to the caller. It belongs to the session's loop.
type callerStatus struct {
	subscribers *subscribers
	log         *slog.Logger
	state       State
	isWaiting   bool // the caller was informed of the wait
	hasApology  bool // the caller was informed that the model will not answer
}

// setState sets the state, and reports a change.
func (s *callerStatus) setState(state State) {
	if state != s.state {
		s.log.Debug("state", "from", s.state, "to", state)
		s.state = state
		s.notify()
	}
}

// notify reports the state.
func (s *callerStatus) notify() {
	change := StateChange{State: s.state}
	switch {
	case s.isWaiting:
		change.Message = s.state.waitMessage()
	case s.hasApology:
		change.Message, change.Unanswered = apologyMessage, true
	}
	s.subscribers.notify(change)
}

// showWait reports that the person has to wait. Further calls have no effect until endWait is called.
func (s *callerStatus) showWait() {
	if !s.isWaiting {
		s.isWaiting = true
		s.notify()
	}
}

// endWait ends the reported wait.
func (s *callerStatus) endWait() {
	was := s.isWaiting
	s.isWaiting = false
	if was && s.state.isServing() {
		s.subscribers.notify(StateChange{State: s.state})
	}
}

// setApology reports that there will be no answer. With on false it withdraws that report.
func (s *callerStatus) setApology(on bool) {
	if s.hasApology != on {
		s.hasApology = on
		s.notify()
	}
}
