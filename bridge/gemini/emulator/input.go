package emulator

import (
	"fmt"
	"time"
)

// message acts on one message of the client.
func (s *session) message(data []byte) error {
	s.consumed++
	m, foreign, err := decode(data)
	switch {
	case err != nil:
		return err
	case foreign != nil:
		s.e.log.Info("a message of another protocol is ignored", "connection", s.number, "fields", foreign)
		return nil
	case s.setup.affective:
		return invalid("Affective dialog is not supported for this model.") // told when something is sent, not before
	case m.RealtimeInput != nil:
		return s.realtime(m.RealtimeInput)
	case m.ClientContent != nil:
		return s.typed(m.ClientContent.Turns, m.ClientContent.TurnComplete)
	case m.ToolResponse != nil:
		return s.toolResponse(m.ToolResponse.FunctionResponses)
	case m.ContextUpdate != nil:
		return s.update(m.ContextUpdate)
	}
	return nil
}

// update changes the system instruction or the tools from the next answer on.
func (s *session) update(u *contextUpdate) error {
	if err := s.moment(OnContextUpdate); err != nil {
		return err
	}
	if !s.setup.profile.contextUpdate {
		return newClosing(closeInvalid, "")
	}
	ev := Event{What: Updated}
	if u.SystemInstruction != nil {
		ev.Text = u.SystemInstruction.text()
		s.setup.instruction = ev.Text
	}
	if u.Tools != nil {
		functions, err := readTools(u.Tools.Tools, s.setup.profile, "context_update.tools.tools")
		if err != nil {
			return err
		}
		s.setup.functions = functions
		ev.Tools = append([]string{}, sortedKeys(functions)...)
	}
	s.tell(ev)
	return nil
}

// typed appends turns to the conversation and answers the last one, if an answer is asked for.
func (s *session) typed(turns []content, complete bool) error {
	if s.setup.profile.noContent && !s.seeding {
		return invalid("Request contains an invalid argument.") // mid-session that model takes realtimeInput.text
	}
	text, added := "", []Turn(nil)
	for _, t := range turns {
		switch {
		case t.Role == "user" || t.Role == "" && !s.setup.profile.needsRole:
			text = t.text()
			added = append(added, Turn{"user", text})
		case t.Role == "model", t.Role == "system" && s.endpoint.vertex:
			added = append(added, Turn{t.Role, t.text()})
		default:
			return invalid("Please use a valid role: user, model.")
		}
		if err := t.checkAudio(); err != nil {
			return err
		}
	}
	for _, t := range added {
		s.remember(t.Role, t.Text)
	}
	if s.seeding || !complete {
		s.seeding = s.seeding && !complete
		s.tell(Event{What: Appended, History: added})
		return nil
	}
	return s.ask(text)
}

// ask answers typed text.
func (s *session) ask(text string) error {
	s.tell(Event{What: Typed, Text: text})
	if err := s.moment(OnText); err != nil {
		return err
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
		return s.ask(in.Text)
	}
	if in.ActivityStart != nil {
		s.talking, s.manual = true, nil
		if err := s.began(); err != nil {
			return err
		}
	}
	if err := s.media(in); err != nil {
		return err
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

// media takes audio and pictures.
func (s *session) media(in *realtimeInput) error {
	chunks := in.MediaChunks
	if in.Audio != nil {
		chunks = append(chunks, *in.Audio)
	}
	for _, chunk := range chunks {
		if isImage(chunk.MIMEType) {
			s.sees()
		} else if err := s.audio(chunk); err != nil {
			return err
		}
	}
	if in.Video != nil {
		if !isImage(in.Video.MIMEType) {
			return invalid("Unsupported MIME type %q of video.", in.Video.MIMEType)
		}
		s.sees()
	}
	return nil
}

func isImage(mimeType string) bool { return len(mimeType) > 6 && mimeType[:6] == "image/" }

// hearingLag is how long audio may still come after a call during which the model hears nothing: what was on its way is
// nobody's fault. It is dropped. Google's own tolerance is not known; that there is one follows from clients that survive
// by muting the microphone when the call arrives.
const hearingLag = 500 * time.Millisecond

// audio takes a piece of the user's audio.
func (s *session) audio(b blob) error {
	pcm, rate, err := b.pcm()
	if err != nil {
		return err
	}
	if s.waits() {
		if time.Since(s.asked) > hearingLag {
			return &closing{closePolicy, notEnabled}
		}
		return nil
	}
	before := s.input
	s.input += time.Duration(len(pcm)) * time.Second / time.Duration(rate)
	if before == 0 {
		s.seen[OnAudio] = 1
	}
	if err := s.passage(OnAudio, before, s.input); err != nil {
		return err
	}
	if s.e.persona == Beep {
		return s.beeps(pcm, rate)
	}
	if s.setup.manual {
		if s.talking && s.setup.wholeInput && len(s.manual) < rate*int(longestSpeech/time.Second) {
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
	if err := s.activity("ACTIVITY_START", "VAD_SIGNAL_TYPE_SOS"); err != nil {
		return err
	}
	if err := s.moment(OnSpeechStart); err != nil {
		return err
	}
	if s.setup.noInterruption {
		return nil
	}
	return s.interrupt()
}

// ended is called when the user has spoken.
func (s *session) ended(speech []int16, rate int) error {
	if err := s.activity("ACTIVITY_END", "VAD_SIGNAL_TYPE_EOS"); err != nil {
		return err
	}
	if err := s.moment(OnSpeechEnd); err != nil {
		return err
	}
	if !s.setup.wholeInput && s.setup.manual {
		return s.turnComplete(0) // of an empty turn
	}
	if len(speech) == 0 {
		return s.next()
	}
	s.tell(Event{What: Heard, PCM: speech, Rate: rate})
	heard := fmt.Sprintf("%.1f seconds of speech", float64(len(speech))/float64(rate))
	s.remember("user", "("+heard+")")
	if s.setup.inputTranscript {
		if err := s.content(object{"inputTranscription": object{"text": "(" + heard + ")"}}); err != nil {
			return err
		}
	}
	return s.echo(speech, rate, "You said: "+heard+".")
}

// activity tells what the activity detection has found, on Vertex by a signal as well if that was asked for.
func (s *session) activity(kind, signal string) error {
	if s.setup.vadSignals {
		if err := s.send(object{"voiceActivityDetectionSignal": object{"vadSignalType": signal}}); err != nil {
			return err
		}
	}
	return s.send(object{"voiceActivity": object{"type": kind, "audioOffset": seconds(s.vad.offset)}})
}
