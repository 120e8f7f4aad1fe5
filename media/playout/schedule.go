package playout

import (
	"time"

	"voxgate/crash"
	"voxgate/media"
)

// This file decides what a pacer sends, and when. Everything but onTick runs with Pacer.mu held; now is the time since its epoch.

// onTick does the work of the tick that was due at the given time. It returns false when the pacer has gone idle.
func (p *Pacer) tick(at time.Time) bool {
	defer crash.Contain(p.Logger, "playout", p.Crashed) // other pacers continue
	crash.Check("playout")
	for goesOn, again := false, true; ; {
		if goesOn, again = p.tickUpToMark(at); !again {
			return goesOn
		}
	}
}

// tickUpToMark does the work of one tick, but stops at a mark and calls it: sound behind a mark must not be sent before the mark is
// called. again reports whether the same tick has more to do.
func (p *Pacer) tickUpToMark(at time.Time) (goesOn, again bool) {
	p.mu.Lock()
	defer p.unlock()
	p.ticked = p.step(at.Sub(p.epoch))
	return p.ticked, p.ticked && p.lead > 0 && len(p.fired) > 0
}

// sendQueued starts sending new sound: at once if the pacer was idle, else on the ticker.
func (p *Pacer) kick() {
	if p.out == nil || p.hold || p.queue.len() == 0 {
		return
	}
	now := time.Since(p.epoch)
	p.kicked = now
	switch {
	case p.lead > 0:
		p.stepAhead(now)
	case !p.talking && p.queue.len() >= p.frame && now >= p.next:
		p.speak(now)
	}
	if !p.ticked {
		p.ticked = true
		p.shard.add(p)
	}
}

// advance does the work of one tick and reports whether there is more to come.
func (p *Pacer) step(now time.Duration) bool {
	waiting := p.queue.len()
	if p.hold {
		waiting = 0
	}
	switch {
	case p.out == nil:
		return false
	case p.lead > 0:
		if waiting > 0 {
			p.stepAhead(now)
		}
		return waiting > 0 && p.queue.len() > 0
	case p.next-now > media.FrameDuration:
		return true // the sound already sent lasts beyond this tick
	case p.flushed:
		p.flushed = false
		p.write(now, &p.stats.Frames)
		return true
	case waiting >= p.frame:
		p.speak(now)
		return true
	case waiting > 0 && (p.voiced() || now >= p.kicked+media.FrameDuration):
		p.pad(now)
		return true
	case p.talking:
		p.silence(now)
	}
	return p.talking || waiting > 0
}

// sendAhead sends what an output with a lead may have by now, up to the next mark that has to be called first. The ticker continues
// from there.
func (p *Pacer) stepAhead(now time.Duration) {
	if p.lead == media.UnlimitedLead {
		frame, most := p.pcm, p.queue.len()
		filler, fills := p.out.(media.BackpressureOutput)
		if fills {
			most = media.Samples(maxAtOnce, p.rate)
		}
		for p.queue.len() > 0 && len(p.fired) == 0 && !(fills && filler.Full()) {
			p.pcm = make([]int16, min(p.untilMark(), most))
			p.speak(now)
		}
		p.pcm = frame
		return
	}
	for p.queue.len() > 0 && p.next-now < p.lead && len(p.fired) == 0 {
		switch {
		case p.queue.len() >= p.frame:
			p.speak(now)
		case now >= p.kicked+media.FrameDuration && p.next-now < p.lead/2:
			p.pad(now) // half of the lead has passed: what is still to come will be late
		default:
			return
		}
	}
}

// samplesUntilMark returns how many samples wait before the next mark, or in all without a mark.
func (p *Pacer) untilMark() int {
	n := p.queue.len()
	if len(p.marks) > 0 {
		if before := int(p.marks[0].at-p.end) + n; before > 0 {
			return min(n, before)
		}
	}
	return n
}

// isVoiced reports whether the talkspurt has not reached its trail of silence.
func (p *Pacer) voiced() bool { return p.talking && p.trail == 0 }

// startsTalkspurt reports whether a frame sent now opens a talkspurt. After skipped ticks it does: without the marker and a
// timestamp that follows the clock, the receiver would play everything later from here on.
func (p *Pacer) starts(now time.Duration) bool { return !p.talking || p.next < now }

// sendFrame sends one frame of sound.
func (p *Pacer) speak(now time.Duration) {
	p.queue.pop(p.pcm)
	p.adjust(p.pcm)
	if p.dry && !p.starts(now) {
		p.stats.Underruns++
		fade := media.Samples(media.FadeDuration, p.rate)
		for i := range fade {
			p.pcm[i] = int16(int(p.pcm[i]) * i / fade)
		}
	}
	p.dry = false
	p.trail = 0
	p.write(now, &p.stats.Frames)
	p.hand(len(p.pcm))
	p.settle(true)
}

// countSound records that the frame just sent holds n samples of sound.
func (p *Pacer) hand(n int) {
	p.sound = p.next - media.Duration(len(p.pcm)-n, p.rate)
	p.given += media.Duration(n, p.rate)
}

// sendPadded sends the rest of the queue, less than a frame, padded with silence.
func (p *Pacer) pad(now time.Duration) {
	n := p.queue.pop(p.pcm)
	p.adjust(p.pcm[:n])
	p.fadeOut(n)
	p.trail = 0
	p.write(now, &p.stats.Frames)
	p.hand(n)
	p.dry = true
	p.settle(true)
}

// sendSilence sends a frame of the trail.
func (p *Pacer) silence(now time.Duration) {
	if p.trail == 0 {
		p.trail = trailFrames
		p.dry = true
	}
	p.fadeOut(0)
	p.write(now, &p.stats.SilenceFrames)
	p.trail--
	p.talking = p.trail > 0
}

// fadeOut ends the current frame after its first n samples, without a step.
func (p *Pacer) fadeOut(n int) {
	fade := media.Samples(media.FadeDuration, p.rate)
	end := max(n, fade)
	level := p.last
	if n > 0 {
		level = p.pcm[n-1]
	}
	for i := n; i < end; i++ {
		p.pcm[i] = level
	}
	for i, s := range p.pcm[end-fade : end] {
		p.pcm[end-fade+i] = int16(int(s) * (fade - 1 - i) / fade)
	}
	clear(p.pcm[end:])
}

// applyGain moves the volume to the one set by Duck, within the frame.
func (p *Pacer) adjust(pcm []int16) {
	if p.gain == 1 && p.duck == 1 || len(pcm) == 0 {
		return
	}
	from, step := p.gain, (p.duck-p.gain)/float64(len(pcm))
	for i, s := range pcm {
		pcm[i] = int16(float64(s) * (from + step*float64(i+1)))
	}
	p.gain = p.duck
}

// writeFrame passes the current frame to the output.
func (p *Pacer) write(now time.Duration, counter *uint64) {
	f := media.Frame{PCM: p.pcm, PTS: p.next, Generation: p.generation}
	if p.starts(now) {
		f.Start, f.PTS = true, max(now, p.next)
	}
	*counter++
	if err := p.out.WriteFrame(f); err != nil {
		p.stats.WriteErrors++
	} else if p.tap != nil {
		p.tap.Model(f.PCM, p.epoch.Add(f.PTS))
	}
	p.talking = true
	p.next = f.PTS + media.Duration(len(p.pcm), p.rate)
	p.last = p.pcm[len(p.pcm)-1]
}
