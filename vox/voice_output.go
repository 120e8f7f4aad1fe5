package vox

import (
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

const (
	// voiceLead limits how far ahead of real time the voice is sent. Package signaling/client has the same limit.
	voiceLead = 200 * time.Millisecond

	// frameDuration is the length of a frame to the client. Simple players use one buffer per frame, and crackle in
	// between.
	frameDuration = 100 * time.Millisecond

	// sendMargin is the time between the sending of an incomplete frame and the moment at which the client runs out of
	// sound. Within a talkspurt, a frame is already complete 120 ms before this moment.
	sendMargin = 60 * time.Millisecond

	// startDelay is the wait after the first sound of a talkspurt before its frame is sent. In this time, the playout
	// fills the frame if the model has already sent enough sound.
	startDelay = 5 * time.Millisecond
)

// voiceOutput is the [media.Output] of a client. It joins frames of the playout into longer ones.
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
	v.timer = time.AfterFunc(time.Hour, v.flushFrame)
	v.timer.Stop()
	return v
}

// Lead implements media.Output.
func (v *voiceOutput) Lead() time.Duration { return voiceLead }

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
		v.sendFrame()
	}
	return nil
}

// flushFrame sends the incomplete frame.
func (v *voiceOutput) flushFrame() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pcm) > 0 {
		v.sendFrame()
	}
}

// sendFrame sends the incomplete frame. The caller must hold mu.
func (v *voiceOutput) sendFrame() {
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
