package emulator

import (
	"fmt"
	"time"
)

// message acts on one message of the client.
func (s *session) message(data []byte) error {
	m, err := decode(data)
	if err != nil {
		return err
	}
	switch {
	case m.RealtimeInput != nil:
		return s.realtime(m.RealtimeInput)
	case m.ClientContent != nil:
		return s.typed(m.ClientContent.Turns, m.ClientContent.TurnComplete)
	case m.ToolResponse != nil:
		return s.toolResponse(m.ToolResponse.FunctionResponses)
	case m.ContextUpdate != nil:
		if !s.setup.profile.contextUpdate {
			return invalid("Request contains an invalid argument.")
		}
		if m.ContextUpdate.Tools == nil {
			return nil
		}
		functions, err := readTools(m.ContextUpdate.Tools.Tools, s.setup.profile)
		if err == nil {
			s.setup.functions = functions
		}
		return err
	}
	return nil
}

// typed appends turns to the conversation and answers the last one, if an answer is asked for.
func (s *session) typed(turns []content, complete bool) error {
	if s.setup.profile.noContent && !s.seeding {
		return invalid("Request contains an invalid argument.") // mid-session that model takes realtimeInput.text
	}
	text := ""
	for _, t := range turns {
		switch {
		case t.Role == "user" || t.Role == "" && !s.setup.profile.needsRole:
			text = t.text()
			s.remember("user", text)
		case t.Role == "model":
			s.remember("model", t.text())
		default:
			return invalid("Please use a valid role: user, model.")
		}
	}
	if !complete {
		return nil
	}
	if s.seeding {
		s.seeding = false
		return nil
	}
	if err := s.interrupt(); err != nil {
		return err
	}
	return s.command(text)
}

// realtime takes input that has no turns.
func (s *session) realtime(in *realtimeInput) error {
	if s.setup.manual && in.AudioStreamEnd {
		return invalid("audio_stream_end is only supported with automatic activity detection.")
	}
	if !s.setup.manual && (in.ActivityStart != nil || in.ActivityEnd != nil) {
		return invalid("Explicit activity control is not supported when automatic activity detection is enabled.")
	}
	if in.Text != "" {
		s.remember("user", in.Text)
		if err := s.interrupt(); err != nil {
			return err
		}
		return s.command(in.Text)
	}
	if in.ActivityStart != nil {
		s.talking, s.manual = true, nil
		if err := s.began(); err != nil {
			return err
		}
	}
	chunks := in.MediaChunks
	if in.Audio != nil {
		chunks = append(chunks, *in.Audio)
	}
	for _, chunk := range chunks {
		if isImage(chunk.MIMEType) {
			continue
		}
		if err := s.audio(chunk); err != nil {
			return err
		}
	}
	if in.Video != nil && !isImage(in.Video.MIMEType) {
		return invalid("Unsupported MIME type %q of video.", in.Video.MIMEType)
	}
	if in.ActivityEnd != nil && s.talking {
		s.talking = false
		speech := s.manual
		s.manual = nil
		return s.ended(speech, s.rate)
	}
	if in.AudioStreamEnd {
		return s.withVAD(func(_ func(), ended func([]int16)) { s.vad.end(ended) })
	}
	return nil
}

func isImage(mimeType string) bool { return len(mimeType) > 6 && mimeType[:6] == "image/" }

// audio takes a piece of the user's audio.
func (s *session) audio(b blob) error {
	pcm, rate, err := b.pcm()
	if err != nil {
		return err
	}
	s.input += time.Duration(len(pcm)) * time.Second / time.Duration(rate)
	if s.e.persona == Beep {
		return s.beeps(pcm, rate)
	}
	if s.setup.manual {
		if s.talking && len(s.manual) < rate*int(longestSpeech/time.Second) {
			s.rate = rate
			s.manual = append(s.manual, pcm...)
		}
		return nil
	}
	if rate != s.vad.rate {
		offset := s.vad.offset
		s.vad = newVAD(s.setup.vad, rate)
		s.vad.offset = offset
	}
	return s.withVAD(func(began func(), ended func([]int16)) { s.vad.hear(pcm, began, ended) })
}

// withVAD runs the activity detection, and what its findings lead to.
func (s *session) withVAD(run func(began func(), ended func([]int16))) error {
	var err error
	run(func() {
		if err == nil {
			err = s.began()
		}
	}, func(speech []int16) {
		if err == nil {
			err = s.ended(speech, s.vad.rate)
		}
	})
	return err
}

// began is called when the user starts to speak.
func (s *session) began() error {
	if err := s.activity("ACTIVITY_START"); err != nil {
		return err
	}
	if s.setup.noInterruption {
		return nil
	}
	return s.interrupt()
}

// ended is called when the user has spoken.
func (s *session) ended(speech []int16, rate int) error {
	if err := s.activity("ACTIVITY_END"); err != nil {
		return err
	}
	if len(speech) == 0 {
		return s.next()
	}
	heard := fmt.Sprintf("%.1f seconds of speech", float64(len(speech))/float64(rate))
	s.remember("user", "("+heard+")")
	if s.setup.inputTranscript {
		if err := s.content(object{"inputTranscription": object{"text": "(" + heard + ")"}}); err != nil {
			return err
		}
	}
	return s.echo(speech, rate, "You said: "+heard+".")
}

// activity tells what the activity detection has found.
func (s *session) activity(kind string) error {
	return s.send(object{"voiceActivity": object{
		"type": kind, "audioOffset": fmt.Sprintf("%.3fs", s.vad.offset.Seconds()),
	}})
}
