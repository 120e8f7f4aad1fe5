package bridge

import (
	"context"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/uplink"
)

const (
	// leastQuestion is how much speech wants an answer. Less is a cough.
	leastQuestion = 300 * time.Millisecond

	// ducking is how much quieter the voice gets while the person speaks over it: enough to show that one is heard, and
	// little enough to go on if it was a cough.
	ducking = 12 // dB
)

// onSpeech acts on the begin and the end of the person's speech.
func (s *Session) onSpeech(ctx context.Context) {
	p := &s.person
	if !p.lossTold && s.up.Lost.Load() > 0 {
		p.lossTold = true
		s.fail(CodeAudioStream, "Some of what was said is lost: it had to wait for Gemini for more than ten seconds.")
	}
	if !p.gateTold && s.up.GatedSpeech.Load() > 0 {
		p.gateTold = true
		s.fail(CodeAudioStream, "What is said while this model waits for a tool is not heard by it.")
	}
	speaking, speeches, voiced := s.up.Speech()
	if speeches != p.speeches { // a client that sends in bursts may have ended it already
		p.speeches = speeches
		if !p.speaking {
			p.speaking = true
			s.notify(UserSpeaking{true})
		}
		s.answer.spokenOver = s.answer.state != turnIdle
		if s.keeper.SpeaksOn(ctx) {
			s.asked.open = true
		}
		s.apologise(false)
		s.watchMicrophone()
		if s.keeper.Config().Options.Ducking {
			s.playout.Duck(ducking)
		}
	}
	if !speaking && p.speaking {
		p.speaking = false
		s.notify(UserSpeaking{false})
		s.playout.Duck(0)
		s.clock.Clear(alarmMicrophone)
		if voiced >= leastQuestion {
			s.ask(s.up.LastLoud())
			s.keeper.Expect(keeper.ForSpeech)
		}
	}
}

// watchMicrophone looks whether the microphone still sends while the person speaks.
func (s *Session) watchMicrophone() {
	if s.person.speaking && !s.up.Stopped() {
		s.clock.Set(alarmMicrophone, uplink.MicPause/2)
	}
}

// SetFrame gives the model a picture to look at. The newest wins, and not more than one a second is sent. changed is false
// if it shows what the one before did: then it is sent only while the person speaks.
func (s *Session) SetFrame(mimeType string, data []byte, changed bool) {
	s.up.Picture(wire.Blob{MIMEType: mimeType, Data: data}, changed)
}

// ClearFrame forgets the picture that SetFrame gave: what it showed is no longer to be seen.
func (s *Session) ClearFrame() { s.up.Blind() }
