package bridge

import "log/slog"

const apologyMessage = "Gemini did not answer. Please say it again."

// callerStatus holds the state of the conversation that the caller was told last. It belongs to the session's loop.
type callerStatus struct {
	subscribers *subscribers
	log         *slog.Logger
	state       State
	isWaiting   bool // the caller was informed of the wait
	hasApology  bool // the caller was informed that the model will not answer
}

// setState sets the state. If it has changed, it is reported to the caller.
func (s *callerStatus) setState(state State) {
	if state != s.state {
		s.log.Debug("state", "from", s.state, "to", state)
		s.state = state
		s.notify()
	}
}

// notify reports the state to the caller.
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

// showWait tells the caller that the person has to wait. Further calls have no effect until endWait is called.
func (s *callerStatus) showWait() {
	if !s.isWaiting {
		s.isWaiting = true
		s.notify()
	}
}

// endWait tells the caller that the wait is over.
func (s *callerStatus) endWait() {
	was := s.isWaiting
	s.isWaiting = false
	if was && s.state.isServing() {
		s.subscribers.notify(StateChange{State: s.state})
	}
}

// setApology tells the caller that there will be no answer. If on is false, it withdraws that.
func (s *callerStatus) setApology(on bool) {
	if s.hasApology != on {
		s.hasApology = on
		s.notify()
	}
}
