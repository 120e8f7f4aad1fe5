package live

// Check refuses a message that does not fit the setup: its model, its settings and where it is served. Seeding tells that
// turns are the model's initial history. Results of calls have a check of their own, CheckResponse.
func (s *Setup) Check(m *Message, seeding bool) error {
	switch {
	case s.affective:
		return invalid("Affective dialog is not supported for this model.") // told when something is sent, not before
	case m.RealtimeInput != nil:
		return s.checkRealtime(m.RealtimeInput)
	case m.ClientContent != nil:
		return s.checkTurns(m.ClientContent.Turns, seeding)
	}
	return nil
}

func (s *Setup) checkTurns(turns []Content, seeding bool) error {
	if s.profile.noContent && !seeding {
		return invalid("Request contains an invalid argument.") // mid-session that model takes realtimeInput.text
	}
	for _, t := range turns {
		switch {
		case t.Role == "user", t.Role == "" && !s.profile.needsRole, t.Role == "model", t.Role == "system" && s.at.Vertex:
		default:
			return invalid("Please use a valid role: user, model.")
		}
		if err := t.checkAudio(); err != nil {
			return err
		}
	}
	return nil
}

// checkRealtime refuses signs that do not fit to who detects activities.
func (s *Setup) checkRealtime(in *RealtimeInput) error {
	switch {
	case s.Manual && in.AudioStreamEnd:
		return invalid("audio_stream_end is only supported with automatic activity detection.")
	case !s.Manual && (in.ActivityStart != nil || in.ActivityEnd != nil):
		return invalid("Explicit activity control is not supported when automatic activity detection is enabled.")
	}
	return nil
}

// CheckResponse refuses a result with fields that this model or Vertex does not take.
func (s *Setup) CheckResponse(r FunctionResponse) error {
	switch {
	case r.Scheduling != "" && s.profile.noScheduling:
		return invalid("Function response scheduling is not supported for this model.")
	case r.WillContinue && s.at.Vertex:
		return NewClosing(CloseInvalid, "")
	}
	return nil
}
