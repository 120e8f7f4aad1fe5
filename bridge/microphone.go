package bridge

import (
	"time"

	"voxgate/bridge/uplink"
	"voxgate/media"
)

// quietLevel is the level (-50 dBov) below which a chunk has no speech. Two such chunks are sent in one message, as
// Google's best practices allow. This saves a tenth of a call's CPU time, but the end of speech may be detected 20 ms
// later.
const quietLevel = 100

// Microphone is the [media.Sink] for a caller's audio. It cuts the audio into chunks of 20 to 40 ms. It is not safe for
// concurrent use.
type Microphone struct {
	up      *uplink.Uplink
	tap     *recording
	rate    int
	pending []int16 // samples not sent yet: less than a chunk, or less than two quiet chunks
}

// Rate returns the sample rate in Hz that the microphone was opened with.
func (m *Microphone) Rate() int { return m.rate }

// WritePCM accepts mono audio of any length. It never blocks and does not keep pcm.
func (m *Microphone) WritePCM(pcm []int16) error {
	m.tap.writePerson(pcm, m.rate)
	size := m.rate * int(uplink.Chunk/time.Millisecond) / 1000
	if n := len(m.pending) + len(pcm); n < size || n < 2*size && media.RMS(pcm) < quietLevel {
		m.pending = append(m.pending, pcm...)
		return nil
	}
	most := 2*size - 1
	if len(m.pending) > 0 {
		m.pending = append(m.pending, pcm...)
		pcm, most = m.pending, 2*size
	}
	for ; len(pcm) > most; pcm = pcm[size:] {
		m.up.QueueAudio(pcm[:size], m.rate)
	}
	// The rest, which is less than a chunk, is sent together with the last whole chunk. Keeping it would delay all
	// later audio.
	m.up.QueueAudio(pcm, m.rate)
	m.pending = m.pending[:0]
	return nil
}

// Flush sends the audio that waits for a full chunk. It is called when the microphone pauses, so that the last syllable
// is sent.
func (m *Microphone) Flush() {
	if len(m.pending) > 0 {
		m.up.QueueAudio(m.pending, m.rate)
		m.pending = m.pending[:0]
	}
}
