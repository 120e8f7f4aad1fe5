package bridge

import (
	"time"

	"voxgate/bridge/gemini/setup"
)

// watchSilence lets the time of the silence run while it is the person's turn: an answer was heard, nothing is due and nothing runs, and
// somebody is there to hear. The loop calls it after everything that has happened.
func (s *Session) watchSilence() {
	o := s.keeper.Config().Options.Silence
	_, expected := s.keeper.ExpectedReply()
	busy := s.answer.turn.wanted() || expected || s.voice.QueuedDuration() > 0 || !s.calls.IsIdle()
	if o.After == 0 || busy || s.person.speaking || s.unheard() || s.leaving != nil || s.answer.number == 1 {
		if s.clock.IsSet(alarmSilence) {
			s.clock.Clear(alarmSilence)
		}
		return
	}
	if !s.clock.IsSet(alarmSilence) {
		s.clock.Set(alarmSilence, o.After)
	}
}

// onSilence has the model ask whether the person is still there, and after so many times say goodbye.
func (s *Session) onSilence() {
	o := s.keeper.Config().Options.Silence
	if o.Times > 0 && s.person.prompted >= o.Times {
		s.endAfterSpeaking(ErrSilence)
		return
	}
	s.person.prompted++
	s.notify(Silent{})
	_ = s.respond(o.Say) // a full queue is tried again after the next silence
}

// slowTool is how long a tool may run before the person hears something, and how long it is quiet between two sounds.
const slowTool = 2 * time.Second

// watchTools lets the time of a tool run while nobody says anything, and somebody is there to hear. The loop calls it after everything that
// has happened.
func (s *Session) watchTools() {
	if s.keeper.Config().Options.Waiting == (setup.Waiting{}) {
		return
	}
	running, set := s.calls.HasRunningCall(), s.clock.IsSet(alarmTool)
	s.person.told = s.person.told && running
	spoken := s.person.speaking || s.answer.turn.state == turnSpeaking
	switch {
	case !running || spoken || s.unheard() || s.leaving != nil:
		if set {
			s.clock.Clear(alarmTool)
		}
	case !set && s.voice.QueuedDuration() == 0:
		s.clock.Set(alarmTool, slowTool)
	}
}

// onSlowTool has the person hear that a tool takes long: once from the model, where it can speak beside the tool, and else by a soft tone.
func (s *Session) onSlowTool() {
	w := s.keeper.Config().Options.Waiting
	switch {
	case w.Say != "" && !s.person.told && !s.calls.IsBlocking():
		s.person.told = true
		_ = s.respond(w.Say) // what has no room is not said
	case w.Sound:
		pcm := tone()
		s.answer.cue(pcm)
		s.clock.Set(alarmTool, lengthOf(pcm)+slowTool)
	}
}
