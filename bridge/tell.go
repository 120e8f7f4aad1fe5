package bridge

import (
	"slices"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/keeper"
)

// notify tells the caller, and one that comes back later.
func (s *Session) notify(b Body) {
	a := &s.audience
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.ring.add(b, a.keep)
	if a.listener != nil {
		a.listener.Notify(e)
	}
	a.tellWatchers(e)
}

// warn tells the client's developer.
func (s *Session) warn(message string) { s.notify(Log{Level: "warn", Message: message}) }

// fail tells the client of something that went wrong while the conversation goes on.
func (s *Session) fail(code Code, message string) {
	s.notify(Failure{&Error{Code: code, Message: message}})
}

// updateState tells the caller when the conversation stands somewhere else.
func (s *Session) updateState() {
	state := s.stateNow()
	if state == s.state {
		return
	}
	s.log.Debug("state", "from", s.state, "to", state)
	s.state = state
	s.notifyState()
}

func (s *Session) notifyState() {
	change := StateChange{State: s.state}
	switch {
	case s.waiting.told:
		change.Message = s.state.waitMessage()
	case s.waiting.apology:
		change.Message, change.Unanswered = apologyMessage, true
	}
	s.notify(change)
}

// updateThinking tells the caller whether an answer is due. Of one whose voice is queued that is told when it is heard.
func (s *Session) updateThinking() {
	if s.playout.Queued() == 0 {
		s.tellThinking(s.due())
	}
}

func (s *Session) tellThinking(on bool) {
	if s.answer.thinking.Swap(on) != on {
		s.notify(Thinking{on})
	}
}

// due tells whether the person waits for an answer.
func (s *Session) due() bool {
	if s.nobodyHears() || s.person.speaking {
		return false
	}
	return s.answer.state == turnThinking || s.answer.working || s.calls.Calling() || s.keeper.Due()
}

func (s *Session) setupComplete() SetupComplete {
	config := s.keeper.Config()
	done := SetupComplete{
		SessionID: s.id, Started: s.started, Model: config.Model, Backend: s.host.options.Backend,
		EffectiveConfig: config.Effective(), Recording: s.recording.file.Load() != nil, Tools: []Tool{},
	}
	for _, f := range config.Functions {
		where := setup.InClient
		if f.Where == setup.InGateway {
			where = f.Where
		}
		done.Tools = append(done.Tools, Tool{Name: f.Name, Title: f.Title, Behavior: f.Behavior, Scheduling: f.Scheduling, Where: string(where)})
	}
	return done
}

const apologyMessage = "Gemini did not answer. Please say it again."

// whenHeard has f called when all that was queued by now was heard, if it is.
func (s *Session) whenHeard(f func()) {
	s.playout.Mark(func(heard bool) {
		if heard {
			f()
		}
	})
}

// toBeHeard notes what is in the playout and will grow no more.
func (s *Session) toBeHeard(f finishedTurn) {
	if s.answer.finished = append(s.answer.finished, f); len(s.answer.finished) > maxFinished {
		s.answer.finished = slices.Delete(s.answer.finished, 0, 1)
	}
}

// maxFinished is how many turns may wait to be heard, for all that is known: they come at most as fast as they are spoken.
const maxFinished = 8

func (s *Session) signalPlayed() {
	select {
	case s.played <- struct{}{}:
	default: // the loop will look anyway
	}
}

// finalText tells all that was heard of a turn.
func (s *Session) finalText(number int) {
	if text := s.transcript.told(number).Content; text != "" {
		s.notify(AssistantText{Turn: number, Text: text, Final: true})
	}
}

// stateNow is the state that follows from what is known.
func (s *Session) stateNow() State {
	if s.parked {
		return StateParked
	}
	switch s.keeper.Phase() {
	case keeper.Dialing:
		return StateDialing
	case keeper.SettingUp:
		return StateSetup
	case keeper.Resuming:
		return StateResuming
	case keeper.Reseeding:
		return StateReseeding
	}
	switch {
	case s.keeper.Replacing():
		return StateDraining
	case s.calls.Calling():
		return StateTool
	}
	return StateLive
}
