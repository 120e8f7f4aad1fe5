package phone

import (
	"math"
	"time"

	"voxgate/media"
)

// The two groups of frequencies of which a key sounds one each (ITU-T Q.23), in Hz.
var groups = [2][4]float64{{697, 770, 852, 941}, {1209, 1336, 1477, 1633}}

const (
	keyBlock = 20 * time.Millisecond // half of the shortest tone that counts (ITU-T Q.24)
	// keyShare is how much of a block's energy is a key's tone: half of it may be speech or noise.
	keyShare = 0.5
	// keyTwist is the least share of either frequency. One may be 8 dB louder than the other (ITU-T Q.24).
	keyTwist = 0.06
)

// Muted is a microphone that does not hear the sound of keys while they are a secret. Meanwhile it is 20 to 40 ms late.
type Muted struct {
	media.Sink
	pad  *Keypad
	held []int16
	keys [2]bool // whether the block before what is held has a key's tone, and the first of what is held
}

// Mute returns a sink without the sound of the secret keys of a keypad.
func (p *Keypad) Mute(sink media.Sink) *Muted { return &Muted{Sink: sink, pad: p} }

// WritePCM implements [media.Sink]. A tone begins and ends anywhere in a block, so its neighbours are silent, too.
func (m *Muted) WritePCM(pcm []int16) error {
	if secret := m.pad.secret.Load() != nil; !secret && len(m.held) == 0 {
		return m.Sink.WritePCM(pcm)
	} else if !secret {
		if m.keys[0] || m.keys[1] {
			clear(m.held)
		}
		m.keys = [2]bool{}
		pcm = append(m.held, pcm...)
		m.held = pcm[:0]
		return m.Sink.WritePCM(pcm)
	}
	m.held = append(m.held, pcm...)
	size := media.Samples(keyBlock, m.Rate())
	at := 0
	for ; len(m.held)-at >= 2*size; at += size {
		next := hasKey(m.held[at+size:at+2*size], m.Rate())
		if m.keys[0] || m.keys[1] || next {
			clear(m.held[at : at+size])
		}
		m.keys = [2]bool{m.keys[1], next}
	}
	var err error
	if at > 0 {
		err = m.Sink.WritePCM(m.held[:at])
	}
	m.held = m.held[:copy(m.held, m.held[at:])]
	return err
}

// hasKey reports whether a block has a key's tone.
func hasKey(pcm []int16, rate int) bool {
	var share [2]float64
	for group, frequencies := range groups {
		for _, hz := range frequencies {
			for _, off := range [...]float64{0.988, 1, 1.012} { // 1.5 % off is still a key (ITU-T Q.24)
				share[group] = max(share[group], ToneShare(pcm, rate, hz*off))
			}
		}
	}
	return share[0]+share[1] >= keyShare && min(share[0], share[1]) >= keyTwist
}

// ToneShare is the share of a frequency in the energy of pcm, from 0 to 1 (Goertzel).
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
