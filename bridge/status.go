package bridge

import "log/slog"

const apologyMessage = "Gemini did not answer. Please say it again."

// status is where the conversation stands, as the caller knows it. The loop owns it.
type status struct {
	audience *audience
	log      *slog.Logger
	state    State
	waiting  bool // the caller knows that the person waits
	apology  bool // the caller knows that there will be no answer
}

// set notes where the conversation stands, and reports a change.
func (s *status) set(state State) {
	if state != s.state {
		s.log.Debug("state", "from", s.state, "to", state)
		s.state = state
		s.notify()
	}
}

// notify reports where the conversation stands.
func (s *status) notify() {
	change := StateChange{State: s.state}
	switch {
	case s.waiting:
		change.Message = s.state.waitMessage()
	case s.apology:
		change.Message, change.Unanswered = apologyMessage, true
	}
	s.audience.notify(change)
}

// wait reports, once, that the person waits.
func (s *status) wait() {
	if !s.waiting {
		s.waiting = true
		s.notify()
	}
}

// waitOver ends that.
func (s *status) waitOver() {
	was := s.waiting
	s.waiting = false
	if was && s.state.served() {
		s.audience.notify(StateChange{State: s.state})
	}
}

// apologise reports that there will be no answer; off, that something else was said.
func (s *status) apologise(on bool) {
	if s.apology != on {
		s.apology = on
		s.notify()
	}
}
