package phone

import (
	"math"
	"time"

	"voxgate/media"
)

// toneGroups are the low and the high frequencies of DTMF, in Hz. The tone of a key has one frequency of each group
// (ITU-T Q.23).
var toneGroups = [2][4]float64{{697, 770, 852, 941}, {1209, 1336, 1477, 1633}}

const (
	keyBlock = 20 * time.Millisecond // half of the shortest tone that must be recognized (ITU-T Q.24)
	// minToneShare is the share of a block's energy that a DTMF tone must have. It is low, because speech or noise may
	// be as loud as the tone.
	minToneShare = 0.5
	// minGroupShare is the share that each of the two frequencies of a tone must have. One may be 8 dB louder than the
	// other (ITU-T Q.24).
	minGroupShare = 0.06
)

// SecretFilter is a sink that silences the tones of secret keys. While keys are secret, audio is delayed by 20 to 40 ms.
type SecretFilter struct {
	media.Sink
	pad         *Keypad
	buffer      []int16
	blockHasKey [2]bool // whether the block before buffer, and the first block in buffer, contain a key tone
}

// FilterSecret returns a sink that passes audio to sink without the tones of secret keys.
func (k *Keypad) FilterSecret(sink media.Sink) *SecretFilter {
	return &SecretFilter{Sink: sink, pad: k}
}

// WritePCM implements [media.Sink]. Besides a block with a tone, it also silences the blocks before and after it,
// because a tone can begin and end inside a block.
func (s *SecretFilter) WritePCM(pcm []int16) error {
	if secret := s.pad.secret.Load() != nil; !secret && len(s.buffer) == 0 {
		return s.Sink.WritePCM(pcm)
	} else if !secret {
		if s.blockHasKey[0] || s.blockHasKey[1] {
			clear(s.buffer)
		}
		s.blockHasKey = [2]bool{}
		pcm = append(s.buffer, pcm...)
		s.buffer = pcm[:0]
		return s.Sink.WritePCM(pcm)
	}
	s.buffer = append(s.buffer, pcm...)
	size := media.Samples(keyBlock, s.Rate())
	at := 0
	for ; len(s.buffer)-at >= 2*size; at += size {
		next := hasKeyTone(s.buffer[at+size:at+2*size], s.Rate())
		if s.blockHasKey[0] || s.blockHasKey[1] || next {
			clear(s.buffer[at : at+size])
		}
		s.blockHasKey = [2]bool{s.blockHasKey[1], next}
	}
	var err error
	if at > 0 {
		err = s.Sink.WritePCM(s.buffer[:at])
	}
	s.buffer = s.buffer[:copy(s.buffer, s.buffer[at:])]
	return err
}

// hasKeyTone reports whether a block contains a DTMF tone.
func hasKeyTone(pcm []int16, rate int) bool {
	var share [2]float64
	for group, frequencies := range toneGroups {
		for _, hz := range frequencies {
			for _, off := range [...]float64{0.988, 1, 1.012} { // a frequency that is 1.5 % off still counts as a key (ITU-T Q.24)
				share[group] = max(share[group], ToneShare(pcm, rate, hz*off))
			}
		}
	}
	return share[0]+share[1] >= minToneShare && min(share[0], share[1]) >= minGroupShare
}

// ToneShare returns the share, from 0 to 1, of the energy of pcm that is at the frequency hz (Goertzel algorithm).
func ToneShare(pcm []int16, rate int, hz float64) float64 {
	c := 2 * math.Cos(2*math.Pi*hz/float64(rate))
	var a, b, energy float64
	for _, s := range pcm {
		x := float64(s)
		a, b = x+c*a-b, a
		energy += x * x
	}
	if energy == 0 {
		return 0
	}
	return 2 * (a*a + b*b - c*a*b) / (float64(len(pcm)) * energy)
}
