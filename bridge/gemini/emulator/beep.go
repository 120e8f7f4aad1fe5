package emulator

import (
	"time"

	"voxgate/media"
)

const (
	// beepLevel (-36 dBov) is above what a codec makes of silence, and 10 dB below the average of speech.
	beepLevel = 500

	// beepGap is the silence that must lie before a frame for it to be answered.
	beepGap = 200 * time.Millisecond

	beepHz     = 1000
	beepLength = 150 * time.Millisecond
)

// beeper finds the first loud frame after silence.
type beeper struct {
	rest  []int16
	quiet time.Duration // so far
	begun bool
}

// onset takes a piece of audio and reports whether a sound has begun in it.
func (b *beeper) onset(pcm []int16, rate int) bool {
	if !b.begun {
		b.begun, b.quiet = true, beepGap // a session begins in silence
	}
	b.rest = append(b.rest, pcm...)
	found := false
	n := rate * int(frameTime.Milliseconds()) / 1000
	for ; len(b.rest) >= n; b.rest = b.rest[n:] {
		if media.RMS(b.rest[:n]) < beepLevel {
			b.quiet += frameTime
			continue
		}
		found = found || b.quiet >= beepGap
		b.quiet = 0
	}
	return found
}

// beeps answers a sound: the tone is the very next message, and the turn's end follows when it was played.
func (s *session) beeps(pcm []int16, rate int) error {
	if !s.beep.onset(pcm, rate) {
		return nil
	}
	s.turn = nil
	return s.say(&script{audio: beepLength, steps: []step{{
		content: object{"modelTurn": object{"parts": []object{audioPart(tone(beepHz, beepLength))}}},
	}}})
}
