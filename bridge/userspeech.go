package bridge

import (
	"context"
	"slices"
	"time"

	"voxgate/bridge/turns"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
	"voxgate/media"
)

const (
	// minQuestion is the minimum length of speech that needs an answer. Shorter speech counts as a cough.
	minQuestion = 300 * time.Millisecond

	// duckingDB is the attenuation of the model's voice while the person speaks over it. The person notices the change.
	// If it was only a cough, the voice becomes loud again.
	duckingDB = 12 // dB
)

// onSpeechChange handles the start and the end of the person's speech.
func (s *Session) onSpeechChange(ctx context.Context) {
	p := &s.user
	if !p.lossReported && s.uplink.LostSpeechChunks.Load() > 0 {
		p.lossReported = true
		s.reportError(CodeAudioStream, "Some speech was lost: it had to wait for Gemini for more than ten seconds.")
	}
	if !p.gateReported && s.uplink.GatedSpeechChunks.Load() > 0 {
		p.gateReported = true
		s.reportError(CodeAudioStream, "This model does not hear speech while it waits for a tool.")
	}
	turnActions := s.uplink.TakeTurnActions()
	isRetracted := slices.ContainsFunc(turnActions, func(a turns.Action) bool { return a.Kind == turns.Retract })
	speaking, speeches, voiced := s.uplink.SpeechState()
	began, ended := s.uplink.SpeechBounds()
	if speeches != p.speeches { // true even if the speech has ended already, as with a client that sends in bursts
		p.speeches, p.promptCount = speeches, 0
		if !p.isSpeaking {
			p.isSpeaking = true
			s.notify(UserSpeaking{Speaking: true, At: began, Retracted: isRetracted})
		}
		s.output.onSpeechStart()
		if s.keeper.OnSpeechContinued(ctx) {
			s.output.questions.isDoubtful = true
		}
		s.status.setApology(false)
		s.watchMicrophone()
		if o := s.keeper.Config().Options; o.Ducking && o.Turns.By != turns.ByGateway {
			s.voice.Duck(duckingDB)
		}
	}
	if !speaking && p.isSpeaking {
		p.isSpeaking, s.output.wasRetracted = false, false
		s.notify(UserSpeaking{At: ended})
		s.voice.Duck(0)
		s.clock.Clear(alarmMicrophone)
		s.watchMicrophone()
		if voiced >= minQuestion {
			end := s.uplink.LastLoudAt()
			s.output.recordQuestionEnd(end)
			if !s.output.hasRepliedSince(end) { // otherwise the model has detected the end sooner
				s.keeper.ExpectReply(upstream.ForSpeech)
			}
		}
	}
	s.doTurnActions(turnActions)
	if s.keeper.Config().Options.Turns.By == turns.ByGateway && !s.clock.IsSet(alarmTurnTaking) {
		s.clock.Set(alarmTurnTaking, uplink.TickTime)
	}
}

// watchMicrophone checks that the microphone still sends audio. It does so from the start of a speech until the model
// can have detected the end of the speech.
func (s *Session) watchMicrophone() {
	if s.uplink.NeedsAudio() && !s.uplink.EndStoppedSpeech() {
		s.clock.Set(alarmMicrophone, uplink.MicPause/2)
	}
}

// onWaitNotice tells a waiting person that it takes longer. First there is a soft tone and a message on the page, and
// later a spoken sentence.
func (s *Session) onWaitNotice(e upstream.WaitNotice) {
	if s.onHold {
		return
	}
	s.status.showWait()
	switch {
	case e.Unsure:
	case e.Long && !s.hasReassured:
		s.hasReassured = true
		s.output.playCue(media.AppendSamples(nil, oneMoment))
	default:
		s.output.playCue(waitingTone())
	}
}
