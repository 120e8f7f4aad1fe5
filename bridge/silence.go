package bridge

// watchSilence lets the time of the silence run while it is the person's turn: an answer was heard, nothing is due and nothing runs, and
// somebody is there to hear. The loop calls it after everything that has happened.
func (s *Session) watchSilence() {
	o := s.keeper.Config().Options.Silence
	_, expected := s.keeper.Expects()
	busy := s.answer.turn.wanted() || expected || s.voice.Queued() > 0 || !s.calls.Idle()
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
