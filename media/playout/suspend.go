package playout

import (
	"math"
	"time"

	"voxgate/media"
)

// DipSearch is a search time for [Pacer.Suspend]. It covers a syllable, so it contains a quiet moment. It is too short
// for an interrupting person to notice.
const DipSearch = 200 * time.Millisecond

// suspension is a stop of the voice that Resume can undo. The zero value means that the voice is not suspended.
type suspension struct {
	isOn      bool
	stopAfter int  // samples still to be sent before the voice stops
	fadesIn   bool // the first frame after the suspension fades in
}

// hasStopped reports whether the suspended voice has stopped. Then marks wait together with the sound behind them.
func (s suspension) hasStopped() bool { return s.isOn && s.stopAfter <= 0 }

// Suspend stops the voice after its quietest frame within the given time (see [DipSearch]). If within is 0, the voice
// stops before the next frame. Later sound and its marks are kept: [Pacer.Resume] continues from this place, and Flush
// drops them.
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

// Resume ends a suspension. The voice fades in where it stopped.
func (p *Pacer) Resume() {
	p.mu.Lock()
	defer p.unlockAndCallMarks()
	if !p.suspended.isOn {
		return
	}
	p.suspended = suspension{fadesIn: p.suspended.hasStopped()}
	p.resolveMarks(true)
	p.sendQueued()
}

// The following methods are called with mu held.

// framesToDip returns the number of frames to send before the voice stops: up to and including the quietest frame
// within the given time.
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

// sendableSamples returns how much of the queue may be sent now.
func (p *Pacer) sendableSamples() int {
	switch {
	case p.isHeld:
		return 0
	case p.suspended.isOn:
		return min(p.queue.len(), max(0, p.suspended.stopAfter))
	}
	return p.queue.len()
}

// fadeInFrame fades in the beginning of the current frame, which avoids a click.
func (p *Pacer) fadeInFrame() {
	fade := media.Samples(media.FadeDuration, p.rate)
	for i := range fade {
		p.pcm[i] = int16(int(p.pcm[i]) * i / fade)
	}
}
