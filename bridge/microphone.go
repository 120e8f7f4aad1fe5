package bridge

import (
	"time"

	"voxgate/bridge/uplink"
	"voxgate/media"
)

// quiet is the level (-50 dBov) below which nobody speaks. Two quiet chunks go in one message, as Google's best
// practices allow, which saves a tenth of the CPU of a call. The start of speech is not delayed; its end may be known
// 20 ms later.
const quiet = 100

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

// WritePCM takes mono audio of any length; it never blocks and does not keep pcm. What is left after whole chunks goes
// with the last of them: kept here, it would delay all that follows.
func (m *Microphone) WritePCM(pcm []int16) error {
	m.tap.person(pcm, m.rate)
	size := m.rate * int(uplink.Chunk/time.Millisecond) / 1000
	if n := len(m.part) + len(pcm); n < size || n < 2*size && media.RMS(pcm) < quiet {
		m.part = append(m.part, pcm...)
		return nil
	}
	most := 2*size - 1
	if len(m.part) > 0 {
		m.part = append(m.part, pcm...)
		pcm, most = m.part, 2*size
	}
	for ; len(pcm) > most; pcm = pcm[size:] {
		m.up.QueueAudio(pcm[:size], m.rate)
	}
	m.up.QueueAudio(pcm, m.rate)
	m.part = m.part[:0]
	return nil
}

// Flush sends what is left of the last chunk: the microphone pauses, and the last syllable must not wait in here.
func (m *Microphone) Flush() {
	if len(m.part) > 0 {
		m.up.QueueAudio(m.part, m.rate)
		m.part = m.part[:0]
	}
}
