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

// person is what the person does.
type person struct {
	speaking bool
	speeches int  // so far
	lossTold bool // the client knows that some speech was lost
	gateTold bool // or that it was not heard because of a tool
	textTurn int  // of which UserText was told, and not all of it; 0: none
}

// onSpeech acts on the begin and the end of the person's speech.
func (s *Session) onSpeech(ctx context.Context) {
	p := &s.person
	if !p.lossTold && s.up.Lost.Load() > 0 {
		p.lossTold = true
		s.fail(CodeAudioStream, "Some of what was said is lost: it had to wait for Gemini for more than ten seconds.")
	}
	if !p.gateTold && s.up.Muffled.Load() > 0 {
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

// finalUserText tells all that the person has said in a turn.
func (s *Session) finalUserText() {
	if turn := s.person.textTurn; turn > 0 {
		s.person.textTurn = 0
		s.notify(UserText{Turn: turn, Text: s.transcript.Asked(turn), Final: true})
	}
}

// Microphone is the [media.Sink] that a caller's audio enters by. It cuts what comes into chunks of 20 to 40 ms. One
// goroutine at a time.
type Microphone struct {
	up   *uplink.Uplink
	tap  *recording
	rate int
	part []int16 // less than a chunk, waits for more
}

// Rate is the sample rate in Hz that the microphone was opened with.
func (m *Microphone) Rate() int { return m.rate }

// WritePCM takes mono audio of any length; it never blocks and does not keep pcm. What is over after whole chunks goes with
// the last of them: kept here, it would delay all that follows by as much.
func (m *Microphone) WritePCM(pcm []int16) error {
	m.tap.person(pcm, m.rate)
	size := m.rate * int(uplink.Chunk/time.Millisecond) / 1000
	if len(m.part)+len(pcm) < size {
		m.part = append(m.part, pcm...)
		return nil
	}
	if len(m.part) > 0 {
		m.part = append(m.part, pcm...)
		pcm = m.part
	}
	for ; len(pcm) >= 2*size; pcm = pcm[size:] {
		m.up.Audio(pcm[:size], m.rate)
	}
	m.up.Audio(pcm, m.rate)
	m.part = m.part[:0]
	return nil
}

// Flush sends what is left of the last chunk: the microphone pauses, and the last syllable must not wait in here.
func (m *Microphone) Flush() {
	if len(m.part) > 0 {
		m.up.Audio(m.part, m.rate)
		m.part = m.part[:0]
	}
}

// SetFrame gives the model a picture to look at. The newest wins, and not more than one a second is sent. changed is false
// if it shows what the one before did: then it is sent only while the person speaks.
func (s *Session) SetFrame(mimeType string, data []byte, changed bool) {
	s.up.Picture(wire.Blob{MIMEType: mimeType, Data: data}, changed)
}

// ClearFrame forgets the picture that SetFrame gave: what it showed is no longer to be seen.
func (s *Session) ClearFrame() { s.up.Blind() }
