package playout

import (
	"math"
	"time"

	"voxgate/media"
)

// DipSearch is a time for [Pacer.Suspend] in which it finds a quiet moment. It covers a syllable, and is too short for an
// interrupting person to notice.
const DipSearch = 200 * time.Millisecond

// suspension is a stop of the voice that may be taken back. The zero value means that the voice is not suspended.
type suspension struct {
	isOn      bool
	stopAfter int  // samples still to be sent before the voice stops
	fadesIn   bool // the first frame after the suspension fades in
}

// hasStopped reports whether no more sound is sent. Marks then wait together with the sound that follows them.
func (s suspension) hasStopped() bool { return s.isOn && s.stopAfter <= 0 }

// Suspend stops the voice after its quietest frame within the given time (see [DipSearch]). 0 means before the next
// frame. Later sound and its marks are kept. Continue plays them from this place, and Flush drops them.
//
// Sound that an output with a lead has received is played. An output with [media.UnlimitedLead] is not suspended.
func (p *Pacer) Suspend(within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.suspended.isOn || p.lead == media.UnlimitedLead {
		return
	}
	p.suspended = suspension{isOn: true, stopAfter: p.frame * p.framesToDip(within)}
}

// Continue ends a suspension. The voice fades in where it stopped.
func (p *Pacer) Continue() {
	p.mu.Lock()
	defer p.unlock()
	if !p.suspended.isOn {
		return
	}
	p.suspended = suspension{fadesIn: p.suspended.hasStopped()}
	p.resolveMarks(true)
	p.sendQueued()
}

// The following methods are called with mu held.

// framesToDip returns how many more frames are sent: up to the quietest frame within the given time.
func (p *Pacer) framesToDip(within time.Duration) int {
	quietest, level := -1, math.Inf(1)
	frame := make([]int16, p.frame)
	for i := range int(within / media.FrameDuration) {
		if p.queue.peek(frame, i*p.frame) < p.frame {
			break
		}
		if rms := media.RMS(frame); rms < level {
			quietest, level = i, rms
		}
	}
	return quietest + 1
}

// waitingSamples returns how much of the queue may be sent now.
func (p *Pacer) waitingSamples() int {
	switch {
	case p.isHeld:
		return 0
	case p.suspended.isOn:
		return min(p.queue.len(), max(0, p.suspended.stopAfter))
	}
	return p.queue.len()
}

// fadeIn removes the step at the beginning of the current frame.
func (p *Pacer) fadeIn() {
	fade := media.Samples(media.FadeDuration, p.rate)
	for i := range fade {
		p.pcm[i] = int16(int(p.pcm[i]) * i / fade)
	}
}
