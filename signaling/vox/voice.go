package vox

import (
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

const (
	// lead is how far the voice may be ahead of real time: the same as for the web client.
	lead = 200 * time.Millisecond

	// joined is the length of a frame to the client. Simple players use a buffer per frame and crackle between two.
	joined = 100 * time.Millisecond

	// margin is the time before the client runs out of sound at which a partial frame is sent. In the middle of a talkspurt, a frame is
	// complete 120 ms before that.
	margin = 60 * time.Millisecond

	// together is the wait for the first frames of a talkspurt. What the model has sent arrives at once, up to the lead.
	together = 5 * time.Millisecond
)

// voice is the [media.Output] of a client. It joins frames of the playout into longer ones.
type voice struct {
	send func(pcm []byte, generation uint32) // must not block
	void atomic.Uint32                       // first generation that may still be played

	mu         sync.Mutex
	pcm        []byte // incomplete frame
	generation uint32 // of pcm
	until      time.Time
	timer      *time.Timer
}

func newVoice(send func([]byte, uint32)) *voice {
	v := &voice{send: send}
	v.timer = time.AfterFunc(time.Hour, v.flush)
	v.timer.Stop()
	return v
}

// Lead implements media.Output.
func (v *voice) Lead() time.Duration { return lead }

// WriteFrame implements media.Output.
func (v *voice) WriteFrame(f media.Frame) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.Generation != v.generation {
		v.pcm, v.generation, v.until = nil, f.Generation, time.Time{}
	}
	if now := time.Now(); v.until.Before(now) {
		v.until = now // the client has played everything
	}
	if len(v.pcm) == 0 {
		v.pcm = make([]byte, 0, 2*media.Samples(joined, bridge.VoiceRate)) // a new buffer: the previous one may still be queued
		v.timer.Reset(max(together, time.Until(v.until)-margin))
	}
	v.pcm = media.AppendBytes(v.pcm, f.PCM)
	if len(v.pcm) >= 2*media.Samples(joined, bridge.VoiceRate) {
		v.hand()
	}
	return nil
}

// flush sends the incomplete frame.
func (v *voice) flush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pcm) > 0 {
		v.hand()
	}
}

// hand sends the incomplete frame. The caller must hold mu.
func (v *voice) hand() {
	v.timer.Stop()
	v.until = v.until.Add(media.Duration(len(v.pcm)/2, bridge.VoiceRate))
	v.send(v.pcm, v.generation)
	v.pcm = nil
}

// cut discards sound of earlier generations.
func (v *voice) cut(generation uint32) {
	v.void.Store(generation)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.generation < generation {
		v.timer.Stop()
		v.pcm, v.until = nil, time.Time{}
	}
}
