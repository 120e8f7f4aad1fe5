package vox

import (
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

const (
	// lead is how far ahead of real time the voice may be: as at the door of the page.
	lead = 200 * time.Millisecond

	// joined is how long a frame to the client is: simple players have a buffer for each, and crackle where one ends.
	joined = 100 * time.Millisecond

	// margin is how long before the client runs out of sound what there is goes out, though it is less than a whole frame. In the middle
	// of a talkspurt a frame is whole 120 ms before its time.
	margin = 60 * time.Millisecond

	// together is how long the first frames of a talkspurt are waited for: what the model has sent is handed over at once, up to the lead.
	together = 5 * time.Millisecond
)

// voice is the [media.Output] of a client: it joins the frames of the playout.
type voice struct {
	send func(pcm []byte, generation uint32) // must not block
	void atomic.Uint32                       // frames of generations before this one are not to be heard

	mu         sync.Mutex
	pcm        []byte // that waits to be a whole frame
	generation uint32 // of it
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
		v.until = now // the client has nothing to play
	}
	if len(v.pcm) == 0 {
		v.pcm = make([]byte, 0, 2*media.Samples(joined, bridge.VoiceRate)) // the one before waits to be sent
		v.timer.Reset(max(together, time.Until(v.until)-margin))
	}
	v.pcm = media.AppendBytes(v.pcm, f.PCM)
	if len(v.pcm) >= 2*media.Samples(joined, bridge.VoiceRate) {
		v.hand()
	}
	return nil
}

// flush sends what waits.
func (v *voice) flush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pcm) > 0 {
		v.hand()
	}
}

// hand sends what waits. Needs mu.
func (v *voice) hand() {
	v.timer.Stop()
	v.until = v.until.Add(media.Duration(len(v.pcm)/2, bridge.VoiceRate))
	v.send(v.pcm, v.generation)
	v.pcm = nil
}

// cut forgets what is older than a generation.
func (v *voice) cut(generation uint32) {
	v.void.Store(generation)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.generation < generation {
		v.timer.Stop()
		v.pcm, v.until = nil, time.Time{}
	}
}
