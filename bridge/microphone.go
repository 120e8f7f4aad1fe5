package bridge

import (
	"time"

	"voxgate/bridge/uplink"
)

// Microphone is the [media.Sink] that a caller's audio enters by. It cuts what comes into chunks of 20 ms. One goroutine
// at a time.
type Microphone struct {
	up   *uplink.Uplink
	rate int
	part []int16 // less than a chunk, waits for more
}

// Rate is the sample rate in Hz that the microphone was opened with.
func (m *Microphone) Rate() int { return m.rate }

// WritePCM takes mono audio of any length; it never blocks and does not keep pcm.
func (m *Microphone) WritePCM(pcm []int16) error {
	size := m.rate * int(uplink.Chunk/time.Millisecond) / 1000
	if len(m.part) > 0 {
		n := min(size-len(m.part), len(pcm))
		m.part = append(m.part, pcm[:n]...)
		pcm = pcm[n:]
		if len(m.part) < size {
			return nil
		}
		m.up.Audio(m.part, m.rate)
		m.part = m.part[:0]
	}
	for len(pcm) >= size {
		m.up.Audio(pcm[:size], m.rate)
		pcm = pcm[size:]
	}
	m.part = append(m.part, pcm...)
	return nil
}

// Flush sends what is left of the last chunk: the microphone pauses, and the last syllable must not wait in here.
func (m *Microphone) Flush() {
	if len(m.part) > 0 {
		m.up.Audio(m.part, m.rate)
		m.part = m.part[:0]
	}
}
