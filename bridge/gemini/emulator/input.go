package emulator

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"voxgate/bridge/gemini/emulator/live"
)

// handleEvery is the number of client messages between two handles of a session with transparent resumption.
const handleEvery = 10

// handleMessage handles one message of the client.
func (s *session) handleMessage(data []byte) error {
	s.index++
	if err := s.dispatch(data); err != nil || !s.setup.Transparent || s.index%handleEvery > 0 {
		return err
	}
	return s.sendHandleAfterChange()
}

func (s *session) dispatch(data []byte) error {
	m, foreign, err := live.Parse(data)
	switch {
	case err != nil:
		return err
	case foreign != nil:
		s.e.log.Info("a message of another protocol is ignored", "connection", s.number, "fields", foreign)
		return nil
	}
	if err := s.setup.CheckMessage(m, s.seeding); err != nil {
		return err
	}
	switch {
	case m.RealtimeInput != nil:
		return s.handleRealtime(m.RealtimeInput)
	case m.ClientContent != nil:
		return s.appendTurns(m.ClientContent.Turns, m.ClientContent.TurnComplete)
	case m.ToolResponse != nil:
		return s.handleToolResponse(m.ToolResponse.FunctionResponses)
	case m.ContextUpdate != nil:
		return s.updateContext(m.ContextUpdate)
	}
	return nil
}

// updateContext changes the system instruction or the tools from the next answer on.
func (s *session) updateContext(u *live.ContextUpdate) error {
	if err := s.setup.Update(u); err != nil {
		return err
	}
	ev := Event{Kind: EventContextUpdate}
	if u.SystemInstruction != nil {
		ev.Text = s.setup.Instruction
	}
	if u.Tools != nil {
		ev.Tools = append([]string{}, s.setup.FunctionNames()...)
	}
	s.report(ev)
	return nil
}

// appendTurns appends turns to the conversation. If isTurnComplete, it answers the last turn.
func (s *session) appendTurns(turns []live.Content, isTurnComplete bool) error {
	text, added := "", []Turn(nil)
	for _, t := range turns {
		role := cmp.Or(t.Role, "user")
		if role == "user" {
			text = t.Text()
		}
		added = append(added, Turn{role, t.Text()})
	}
	before := s.appended
	for _, t := range added {
		s.addHistory(t.Role, t.Text)
	}
	if !s.seeding && !isTurnComplete {
		s.appended = min(before+len(added), len(s.history))
	}
	if s.seeding || !isTurnComplete {
		s.seeding = s.seeding && !isTurnComplete
		s.report(Event{Kind: EventAppended, History: added})
		return nil
	}
	return s.answerTypedText(text)
}

// answerTypedText answers typed text.
func (s *session) answerTypedText(text string) error {
	s.report(Event{Kind: EventTypedText, Text: text})
	if err := s.reachMoment(OnText); err != nil {
		return err
	}
	var rest *script
	if text == "" && s.setup.InterruptedAnswersContinue && s.turn != nil && !s.turn.isGenerated {
		rest = s.turn.unsentRest()
	}
	if err := s.interrupt(); err != nil {
		return err
	}
	if rest != nil {
		s.callAfter(continueDelay, func() error { return s.queueScript(rest) })
		return nil
	}
	return s.answerTextOrCommand(text)
}

// continueDelay is the delay before a model continues an answer that an empty turn has interrupted. In a recording it
// is 76 ms.
const continueDelay = 80 * time.Millisecond

// handleRealtime handles a realtimeInput message: audio, pictures and text that the client has not divided into turns.
func (s *session) handleRealtime(in *live.RealtimeInput) error {
	if in.Text != "" {
		s.addHistory("user", in.Text)
		return s.answerTypedText(in.Text)
	}
	if in.ActivityStart != nil && s.setup.Manual {
		s.talking, s.manual = true, nil
		if err := s.onSpeechStart(); err != nil {
			return err
		}
	}
	if err := s.handleMedia(in); err != nil {
		return err
	}
	if in.ActivityEnd != nil && s.talking {
		s.talking = false
		speech := s.manual
		s.manual = nil
		return s.onSpeechEnd(speech, s.rate)
	}
	if in.AudioStreamEnd && !s.setup.SilenceRequired {
		return s.runSpeechDetector(func(_ func(), ended func([]int16)) { s.vad.endSpeech(ended) })
	}
	return nil
}

// handleMedia handles audio and pictures.
func (s *session) handleMedia(in *live.RealtimeInput) error {
	chunks := in.MediaChunks
	if in.Audio != nil {
		chunks = append(chunks, *in.Audio)
	}
	for _, chunk := range chunks {
		if chunk.IsImage() {
			continue
		}
		if err := s.handleAudio(chunk); err != nil {
			return err
		}
	}
	if in.Video != nil && !in.Video.IsImage() {
		return live.NewClosing(live.CloseInvalid, fmt.Sprintf("Unsupported MIME type %q of video.", in.Video.MIMEType))
	}
	return nil
}

// hearingLag applies to models that must not receive audio while they wait for the result of a call. Audio within this
// time after the call is ignored, because the client may have sent it before it received the call. Later audio closes
// the session. Google's own tolerance is unknown.
const hearingLag = 500 * time.Millisecond

// handleAudio handles a chunk of the user's audio.
func (s *session) handleAudio(b live.Blob) error {
	pcm, rate, err := b.PCM()
	if err != nil {
		return err
	}
	if s.ignoresAudio() {
		if time.Since(s.lastCall) > hearingLag {
			return live.NewClosing(live.ClosePolicy, live.NotEnabled)
		}
		return nil
	}
	s.input += time.Duration(len(pcm)) * time.Second / time.Duration(rate)
	// Handles are sent only while nobody speaks: in recordings of version 3.1, which have 57 handles in 49 s, hardly
	// any handle comes during speech.
	every := s.setup.HandleInterval
	if every > 0 && s.e.scenario.Handles == "" && s.input-s.handleAt >= every && s.turn == nil && !s.vad.speaking {
		s.handleAt = s.input
		if err := s.sendHandle(); err != nil {
			return err
		}
	}
	if s.setup.Manual {
		if s.talking && s.setup.WholeInput && len(s.manual) < rate*int(longestSpeech/time.Second) {
			s.rate = rate
			s.manual = append(s.manual, pcm...)
		}
		return nil
	}
	if rate != s.vad.rate {
		s.vad = newSpeechDetector(s.setup.Detection, rate, s.vad.offset)
	}
	return s.runSpeechDetector(func(began func(), ended func([]int16)) { s.vad.processAudio(pcm, began, ended) })
}

// runSpeechDetector calls process with two callbacks: for the start and for the end of the user's speech. process
// passes them to the speech detector together with audio.
func (s *session) runSpeechDetector(process func(began func(), ended func([]int16))) error {
	var err error
	process(func() {
		if err == nil {
			err = s.onSpeechStart()
		}
	}, func(speech []int16) {
		if err == nil {
			err = s.onSpeechEnd(speech, s.vad.rate)
		}
	})
	return err
}

// onSpeechStart is called when the user starts to speak.
func (s *session) onSpeechStart() error {
	if err := s.sendVoiceActivity("ACTIVITY_START"); err != nil {
		return err
	}
	if err := s.reachMoment(OnSpeechStart); err != nil {
		return err
	}
	if s.setup.NoInterruption {
		return nil
	}
	return s.interrupt()
}

// onSpeechEnd is called when the user has stopped speaking.
func (s *session) onSpeechEnd(speech []int16, rate int) error {
	words, heard := "", ""
	if len(speech) > 0 && (s.setup.WholeInput || !s.setup.Manual) {
		if words = s.e.takeNextTranscript(); words == "" && !s.isGuide() {
			heard = fmt.Sprintf("%.1f seconds of speech", float64(len(speech))/float64(rate))
		}
	}
	if s.setup.OneTranscript { // these models send the transcript before ACTIVITY_END
		if err := s.sendTranscript(words, heard); err != nil {
			return err
		}
	}
	if err := s.sendVoiceActivity("ACTIVITY_END"); err != nil {
		return err
	}
	if err := s.reachMoment(OnSpeechEnd); err != nil {
		return err
	}
	if !s.setup.WholeInput && s.setup.Manual {
		return s.sendTurnComplete(0) // the turn is empty: without TURN_INCLUDES_ALL_INPUT this model ignores marked speech
	}
	if len(speech) == 0 {
		return s.startNextTurn()
	}
	s.report(Event{Kind: EventUserTurn, PCM: speech, Rate: rate})
	if !s.setup.OneTranscript {
		if err := s.sendTranscript(words, heard); err != nil {
			return err
		}
	}
	if words != "" {
		s.addHistory("user", words)
		return s.answerTextOrCommand(words)
	}
	if s.isGuide() {
		return s.speakComment("speech")
	}
	s.addHistory("user", "("+heard+")")
	return s.echoSpeech(speech, rate, "You said: "+heard+".")
}

// sendTranscript sends the transcript of the user's speech, in one or several messages depending on the model. If words
// is "", fallback is sent.
func (s *session) sendTranscript(words, fallback string) error {
	if !s.setup.InputTranscript || words == "" && fallback == "" {
		return nil
	}
	pieces := []string{words}
	switch {
	case words == "":
		pieces = []string{"(" + fallback + ")"}
	case !s.setup.OneTranscript:
		pieces = strings.SplitAfter(words, " ")
	}
	for _, piece := range pieces {
		if err := s.sendContent(live.Object{"inputTranscription": live.Object{"text": piece}}); err != nil {
			return err
		}
	}
	return nil
}

// sendVoiceActivity sends a voiceActivity message: ACTIVITY_START or ACTIVITY_END.
func (s *session) sendVoiceActivity(kind string) error {
	switch {
	case s.setup.NoActivity:
		return nil
	case s.setup.ActivityInContent:
		offset := fmt.Sprintf("%.9fs", s.vad.offset.Seconds())
		return s.conn.send(live.Object{
			"serverContent": live.Object{}, "voiceActivity": live.Object{"type": kind, "audioOffset": offset},
		})
	}
	return s.conn.send(live.Object{"voiceActivity": live.Object{"type": kind, "audioOffset": formatSeconds(s.vad.offset)}})
}

// formatSeconds formats a duration as proto3 JSON does.
func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }
