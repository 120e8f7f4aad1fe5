package bridge

import (
	"context"
	"time"

	"voxgate/bridge/keeper"
	"voxgate/bridge/uplink"
	"voxgate/media"
)

const (
	// leastQuestion is the least speech that wants an answer. Less is a cough.
	leastQuestion = 300 * time.Millisecond

	// ducking is how much quieter the voice gets while the person speaks over it: enough to show that the person is heard,
	// and little enough to go on after a cough.
	ducking = 12 // dB
)

// onSpeech acts on the begin and the end of the person's speech.
func (s *Session) onSpeech(ctx context.Context) {
	p := &s.person
	if !p.lossKnown && s.up.LostSpeechChunks.Load() > 0 {
		p.lossKnown = true
		s.fail(CodeAudioStream, "Some of what was said is lost: it had to wait for Gemini for more than ten seconds.")
	}
	if !p.gateKnown && s.up.GatedSpeechChunks.Load() > 0 {
		p.gateKnown = true
		s.fail(CodeAudioStream, "What is said while this model waits for a tool is not heard by it.")
	}
	speaking, speeches, voiced := s.up.SpeechState()
	began, ended := s.up.SpeechBounds()
	if speeches != p.speeches { // a client that sends in bursts may have ended it already
		p.speeches, p.prompted = speeches, 0
		if !p.speaking {
			p.speaking = true
			s.notify(UserSpeaking{true, began})
		}
		s.answer.onSpeech()
		if s.keeper.OnSpeechContinued(ctx) {
			s.answer.questions.doubtful = true
		}
		s.status.apologise(false)
		s.watchMicrophone()
		if s.keeper.Config().Options.Ducking {
			s.voice.Duck(ducking)
		}
	}
	if !speaking && p.speaking {
		p.speaking = false
		s.notify(UserSpeaking{false, ended})
		s.voice.Duck(0)
		s.clock.Clear(alarmMicrophone)
		s.watchMicrophone()
		if voiced >= leastQuestion {
			end := s.up.LastLoudAt()
			s.answer.ask(end)
			if !s.answer.repliedSince(end) { // the model has found the end sooner
				s.keeper.ExpectReply(keeper.ForSpeech)
			}
		}
	}
}

// watchMicrophone checks that the microphone still sends while the person speaks, and until the model can know that they have ended.
func (s *Session) watchMicrophone() {
	if s.up.NeedsAudio() && !s.up.EndStoppedSpeech() {
		s.clock.Set(alarmMicrophone, uplink.MicPause/2)
	}
}

// onWaiting makes a wait bearable: a soft tone and a word on the page, and after a while a spoken sentence.
func (s *Session) onWaiting(e keeper.WaitNotice) {
	if s.paused {
		return
	}
	s.status.wait()
	switch {
	case e.Unsure:
	case e.Long && !s.reassured:
		s.reassured = true
		s.answer.cue(media.AppendSamples(nil, oneMoment))
	default:
		s.answer.cue(tone())
	}
}
