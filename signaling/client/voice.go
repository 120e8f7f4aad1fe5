package client

import (
	"time"

	"voxgate/media"
	"voxgate/signaling/client/protocol"
)

// destination is the output for the model's voice.
type destination int

const (
	voiceNowhere destination = iota
	voiceToSocket
	voiceHeld // held until a peer has connected
	voiceToPeer
)

// routeVoice selects the destination of the voice.
func (c *webClient) routeVoice() {
	to, by := voiceToSocket, (*peer)(nil)
	switch p := c.peer; {
	case p != nil && p.isConnected && p.VoiceOutput() != nil:
		to, by = voiceToPeer, p
	case c.audioBySocket:
	case p != nil && p.VoiceOutput() != nil || c.nextPeer != nil && c.nextPeer.VoiceOutput() != nil:
		to = voiceHeld
	}
	if to == c.voiceTo && by == c.voice {
		return
	}
	c.voiceTo, c.voice = to, by
	switch to {
	case voiceToPeer:
		c.session.AttachOutput(by.VoiceOutput())
	case voiceToSocket:
		c.session.AttachOutput(&chunkOutput{out: c.router})
	}
	c.session.HoldVoice(to == voiceHeld)
}

// chunkLead limits how far AUDIO_CHUNK messages may be ahead of real time. The lead covers network jitter. It is short,
// so that the voice stops soon after an interruption even if the client does not clear its buffer.
const chunkLead = 200 * time.Millisecond

// chunkOutput is the [media.Output] of clients without an audio track. The playout clock calls it from one goroutine at
// a time.
type chunkOutput struct {
	out *router
	buf []byte
}

func (o *chunkOutput) MaxLead() time.Duration { return chunkLead }

func (o *chunkOutput) WriteFrame(f media.Frame) error {
	o.buf = media.AppendBytes(o.buf[:0], f.PCM)
	o.out.sendMessage(routeEvents, protocol.AudioChunkMessage(f.Generation, o.buf))
	return nil
}
