package bridge

import (
	_ "embed"
	"encoding/binary"
	"math"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

// What a person who waits hears and sees, by how long the wait is. Shorter gaps than the first are not noticed in a
// conversation; people ask "hello?" after some five seconds of silence.
const (
	gapWord     = time.Second      // a soft tone, a word in the page
	gapSentence = 5 * time.Second  // a spoken sentence, once
	gapEnd      = 30 * time.Second // the truth
	toneEvery   = 2 * time.Second
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

// gap is a time in which the model cannot answer. Owned by the loop.
type gap struct {
	since   time.Time // zero: none
	spoken  bool
	told    bool // the caller was told
	soft    bool // without sounds: perhaps nobody waits
	longest time.Duration
}

// message is what a person is told who waits in a state, if it is time to tell.
func (g *gap) message(state State) string {
	switch {
	case !g.told:
		return ""
	case state == StateResuming || state == StateReseeding:
		return "Reconnecting to Gemini…"
	}
	return "Waiting for Gemini's answer…"
}

// wait begins a gap.
func (s *Session) wait() {
	if s.gap.since.IsZero() {
		s.gap.since = time.Now()
		s.clock.set(alarmGap, gapWord)
	}
}

// waited ends the gap.
func (s *Session) waited() {
	if s.gap.since.IsZero() {
		return
	}
	took := time.Since(s.gap.since)
	s.log.Info("gap closed", "took", took.Round(time.Millisecond))
	told := s.gap.told
	s.gap = gap{longest: max(s.gap.longest, took)}
	s.clock.clear(alarmGap)
	if told && s.linked() {
		s.notify(StateChange{State: s.state})
	}
}

// onGap makes the wait bearable.
func (s *Session) onGap() {
	if s.state == StateParked {
		return
	}
	waiting := time.Since(s.gap.since)
	down := !s.linked()
	if waiting >= gapEnd && down {
		s.giveUp(s.link.last)
		return
	}
	if !s.gap.told {
		s.gap.told = true
		s.notify(StateChange{State: s.state, Message: s.gap.message(s.state)})
	}
	next := toneEvery
	switch {
	case s.gap.soft:
	case waiting >= gapSentence && !s.gap.spoken:
		s.gap.spoken = true
		s.sound(voice(oneMoment))
	default:
		s.sound(tone())
	}
	if waiting < gapSentence {
		next = min(next, gapSentence-waiting)
	}
	if waiting < gapEnd {
		next = min(next, gapEnd-waiting)
	}
	s.clock.set(alarmGap, next)
}

// sound plays what is not the model's, unless its voice is still to be heard.
func (s *Session) sound(pcm []int16) {
	if s.config.TextOnly || s.playout.Queued() > 0 {
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
	s.toBeHeard(spoken{0, time.Duration(len(pcm)) * time.Second / wire.OutputRate})
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

// voice reads 16-bit little-endian samples.
func voice(raw []byte) []int16 {
	pcm := make([]int16, len(raw)/2)
	for i := range pcm {
		pcm[i] = int16(binary.LittleEndian.Uint16(raw[2*i:]))
	}
	return pcm
}
