package bridge

import (
	_ "embed"
	"encoding/binary"
	"math"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/media"
)

// oneMoment is "One moment, please.", 16-bit little-endian mono at the rate of the model's voice. It was made by
// espeak-ng, since the model cannot speak when it is needed.
//
//go:embed one-moment.pcm
var oneMoment []byte

// sayAgain is "Gemini did not answer. Please say it again.", made likewise.
//
//go:embed say-again.pcm
var sayAgain []byte

// onWaiting makes a wait bearable: a soft tone and a word on the page, and after a while a spoken sentence.
func (s *Session) onWaiting(e keeper.Waiting) {
	if s.paused {
		return
	}
	w := &s.waiting
	if !w.told {
		w.told = true
		s.notifyState()
	}
	switch {
	case e.Unsure:
	case e.Long && !w.spoken:
		w.spoken = true
		s.sound(samples(oneMoment))
	default:
		s.sound(tone())
	}
}

// onWaitOver ends a wait.
func (s *Session) onWaitOver() {
	told := s.waiting.told
	s.waiting.told, s.waiting.spoken = false, false
	if told && s.state.served() {
		s.notify(StateChange{State: s.state})
	}
}

// apologise tells the person that there will be no answer, until something else is said.
func (s *Session) apologise(now bool) {
	if s.waiting.apology != now {
		s.waiting.apology = now
		s.notifyState()
	}
}

// sound plays what is not the model's, unless its voice is still to be heard.
func (s *Session) sound(pcm []int16) {
	if s.open.Quiet || s.keeper.Config().TextOnly || s.playout.Queued() > 0 {
		return
	}
	const frame = wire.OutputRate * int(media.FrameDuration/time.Millisecond) / 1000
	if part := len(pcm) % frame; part > 0 { // or the answer would begin in its last frame
		pcm = append(pcm, make([]int16, frame-part)...)
	}
	if err := s.playout.WritePCM(pcm); err != nil {
		s.log.Warn("waiting sound dropped", "err", err)
		return
	}
	s.toBeHeard(finishedTurn{0, time.Duration(len(pcm)) * time.Second / wire.OutputRate})
}

// tone is a soft tone of a quarter second, faded in and out: 30 dB below the loudest that there is.
func tone() []int16 {
	pcm := make([]int16, wire.OutputRate/4)
	for i := range pcm {
		fade := math.Sin(math.Pi * float64(i) / float64(len(pcm)))
		pcm[i] = int16(1000 * fade * math.Sin(2*math.Pi*440*float64(i)/wire.OutputRate))
	}
	return pcm
}

// samples reads 16-bit little-endian samples.
func samples(raw []byte) []int16 {
	pcm := make([]int16, len(raw)/2)
	for i := range pcm {
		pcm[i] = int16(binary.LittleEndian.Uint16(raw[2*i:]))
	}
	return pcm
}
