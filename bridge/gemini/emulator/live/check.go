package live

// Check refuses a message that does not fit the setup: its model, its settings and where it is served. Seeding tells that
// turns are the model's initial history. Results of calls have a check of their own, CheckResponse. Each refusal names where
// it is known from.
func (s *Setup) Check(m *Message, seeding bool) error {
	switch {
	case s.affective:
		// Removed: ai.google.dev/gemini-api/docs/models/gemini-3.8-live. Others saw it refused when something is sent, not before.
		return invalid("Affective dialog is not supported for this model.")
	case m.RealtimeInput != nil:
		return s.checkRealtime(m.RealtimeInput)
	case m.ClientContent != nil:
		return s.checkTurns(m.ClientContent.Turns, seeding)
	}
	return nil
}

func (s *Setup) checkTurns(turns []Content, seeding bool) error {
	if s.profile.noContent && !seeding { // it takes realtimeInput.text: livekit/agents #5251, adk-python #5076
		return invalid("Request contains an invalid argument.")
	}
	for _, t := range turns {
		switch {
		case t.Role == "user", t.Role == "" && !s.profile.needsRole, t.Role == "model", t.Role == "system" && s.at.Vertex:
		default: // others saw a system turn close with 1007; the words are those of generateContent
			return invalid("Please use a valid role: user, model.")
		}
		if err := t.checkAudio(); err != nil {
			return err
		}
	}
	return nil
}

// checkRealtime refuses signs that do not fit to who detects activities: ai.google.dev/api/live#BidiGenerateContentRealtimeInput
// says of each when it can be sent.
func (s *Setup) checkRealtime(in *RealtimeInput) error {
	switch {
	case s.Manual && in.AudioStreamEnd:
		return invalid("audio_stream_end is only supported with automatic activity detection.")
	case !s.Manual && (in.ActivityStart != nil || in.ActivityEnd != nil):
		return invalid("Explicit activity control is not supported when automatic activity detection is enabled.")
	}
	return nil
}

// CheckResponse refuses a result with fields that this model or Vertex does not take: models/gemini-3.8-live-extended-thinking for
// scheduling; Google's SDK does not send willContinue to Vertex (genai v1.77, live_converters.go).
func (s *Setup) CheckResponse(r FunctionResponse) error {
	switch {
	case r.Scheduling != "" && s.profile.noScheduling:
		return invalid("Function response scheduling is not supported for this model.")
	case r.WillContinue && s.at.Vertex:
		return NewClosing(CloseInvalid, "")
	}
	return nil
}
