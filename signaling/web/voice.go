package web

import (
	"time"

	"voxgate/media"
	"voxgate/signaling/protocol"
)

// destination is the output for the model's voice.
type destination int

const (
	nowhere destination = iota
	toSocket
	held // until a peer has connected
	toPeer
)

// steer selects the destination of the voice.
func (c *webClient) steer() {
	to, by := toSocket, (*peer)(nil)
	switch p := c.peer; {
	case p != nil && p.connected && p.Voice() != nil:
		to, by = toPeer, p
	case c.byRequest:
	case p != nil && p.Voice() != nil || c.next != nil && c.next.Voice() != nil:
		to = held
	}
	if to == c.voiceTo && by == c.voice {
		return
	}
	c.voiceTo, c.voice = to, by
	switch to {
	case toPeer:
		c.session.AttachOutput(by.Voice())
	case toSocket:
		c.session.AttachOutput(&chunkOutput{out: c.out})
	}
	c.session.HoldVoice(to == held)
}

// chunkLead limits how far AUDIO_CHUNK may be ahead of real time: enough for network jitter, but short enough that an
// interruption is audible at once even if a client does not clear its queue.
const chunkLead = 200 * time.Millisecond

// chunkOutput is the [media.Output] of clients without an audio track. It is not safe for concurrent use; the playout
// clock has one caller at a time.
type chunkOutput struct {
	out *routes
	buf []byte
}

func (o *chunkOutput) Lead() time.Duration { return chunkLead }

func (o *chunkOutput) WriteFrame(f media.Frame) error {
	o.buf = media.AppendBytes(o.buf[:0], f.PCM)
	o.out.send(events, protocol.AudioChunk(f.Generation, o.buf))
	return nil
}
