package vox

import (
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

const (
	// voiceLead limits how far ahead of real time the voice is sent. It is the same limit as in package
	// signaling/client.
	voiceLead = 200 * time.Millisecond

	// frameDuration is the length of a frame to the client. Frames are long, because simple players use one buffer per
	// frame, and crackle between two buffers.
	frameDuration = 100 * time.Millisecond

	// sendMargin says when an incomplete frame is sent: this long before the client runs out of sound. Within a
	// talkspurt, frames are complete earlier, 120 ms before that moment.
	sendMargin = 60 * time.Millisecond

	// startDelay is the delay of the first frame of a talkspurt after its first sound. If the model has already sent
	// enough sound, the playout fills the frame in this time.
	startDelay = 5 * time.Millisecond
)

// voiceOutput is the [media.Output] of a client. It joins short frames of the playout to longer frames for the client.
type voiceOutput struct {
	send          func(pcm []byte, generation uint32) // must not block
	minGeneration atomic.Uint32                       // first generation that may still be played

	mu         sync.Mutex
	pcm        []byte // incomplete frame
	generation uint32 // generation of the sound in pcm
	playoutEnd time.Time
	timer      *time.Timer
}

func newVoiceOutput(send func([]byte, uint32)) *voiceOutput {
	v := &voiceOutput{send: send}
	v.timer = time.AfterFunc(time.Hour, v.flushPartial)
	v.timer.Stop()
	return v
}

// MaxLead implements media.Output.
func (v *voiceOutput) MaxLead() time.Duration { return voiceLead }

// WriteFrame implements media.Output.
func (v *voiceOutput) WriteFrame(f media.Frame) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.Generation != v.generation {
		v.pcm, v.generation, v.playoutEnd = nil, f.Generation, time.Time{}
	}
	if now := time.Now(); v.playoutEnd.Before(now) {
		v.playoutEnd = now // the client has played everything
	}
	if len(v.pcm) == 0 {
		v.pcm = make([]byte, 0, 2*media.Samples(frameDuration, bridge.VoiceRate)) // a new buffer: the previous one may still be queued
		v.timer.Reset(max(startDelay, time.Until(v.playoutEnd)-sendMargin))
	}
	v.pcm = media.AppendBytes(v.pcm, f.PCM)
	if len(v.pcm) >= 2*media.Samples(frameDuration, bridge.VoiceRate) {
		v.sendFrameLocked()
	}
	return nil
}

// flushPartial sends the incomplete frame.
func (v *voiceOutput) flushPartial() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pcm) > 0 {
		v.sendFrameLocked()
	}
}

// sendFrameLocked sends the incomplete frame. The caller must hold mu.
func (v *voiceOutput) sendFrameLocked() {
	v.timer.Stop()
	v.playoutEnd = v.playoutEnd.Add(media.Duration(len(v.pcm)/2, bridge.VoiceRate))
	v.send(v.pcm, v.generation)
	v.pcm = nil
}

// discardBefore discards sound of earlier generations.
func (v *voiceOutput) discardBefore(generation uint32) {
	v.minGeneration.Store(generation)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.generation < generation {
		v.timer.Stop()
		v.pcm, v.playoutEnd = nil, time.Time{}
	}
}
