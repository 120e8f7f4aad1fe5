package media

import "time"

// This file decides what a playout hands over, and when. Everything but tick runs with its mu held, and now is the time
// since its epoch.

// tick serves the tick that was due at the given time. It returns false when the playout has gone idle.
func (p *Playout) tick(at time.Time) bool {
	p.mu.Lock()
	defer p.unlock()
	p.ticked = p.step(at.Sub(p.epoch))
	return p.ticked
}

// kick sees to it that new sound gets out: at once if the playout was idle, else by the ticker.
func (p *Playout) kick() {
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

// step does the work of one tick and tells whether there is more to come.
func (p *Playout) step(now time.Duration) bool {
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
	case p.next-now > FrameDuration:
		return true // what was handed over lasts beyond this tick
	case p.flushed:
		p.flushed = false
		p.write(now, &p.stats.Frames)
		return true
	case waiting >= p.frame:
		p.speak(now)
		return true
	case waiting > 0 && (p.voiced() || now >= p.kicked+FrameDuration):
		p.pad(now)
		return true
	case p.talking:
		p.silence(now)
	}
	return p.talking || waiting > 0
}

// stepAhead hands over what an output with lead may have by now.
func (p *Playout) stepAhead(now time.Duration) {
	for p.queue.len() > 0 && p.next-now < p.lead {
		switch {
		case p.queue.len() >= p.frame:
			p.speak(now)
		case now >= p.kicked+FrameDuration && p.next-now < p.lead/2:
			p.pad(now) // half of the lead has passed: what is still to come will be late
		default:
			return
		}
	}
}

// voiced tells whether the talkspurt is still before its trail.
func (p *Playout) voiced() bool { return p.talking && p.trail == 0 }

// starts tells whether a frame handed over now opens a talkspurt. If ticks were skipped it does: without the marker, and a
// timestamp that has followed the clock, the far end would play everything later from here on.
func (p *Playout) starts(now time.Duration) bool { return !p.talking || p.next < now }

// speak hands over one frame of sound.
func (p *Playout) speak(now time.Duration) {
	p.queue.pop(p.pcm)
	if p.dry && !p.starts(now) {
		p.stats.Underruns++
		fade := samplesIn(fadeTime, p.rate)
		for i := range fade {
			p.pcm[i] = int16(int(p.pcm[i]) * i / fade)
		}
	}
	p.dry = false
	p.trail = 0
	p.write(now, &p.stats.Frames)
	p.settle(true)
}

// pad hands over what is left, less than a frame.
func (p *Playout) pad(now time.Duration) {
	p.fadeOut(p.queue.pop(p.pcm))
	p.trail = 0
	p.write(now, &p.stats.Frames)
	p.dry = true
	p.settle(true)
}

// silence hands over a frame of the trail.
func (p *Playout) silence(now time.Duration) {
	if p.trail == 0 {
		p.trail = trailFrames
		p.dry = true
	}
	p.fadeOut(0)
	p.write(now, &p.stats.SilenceFrames)
	p.trail--
	p.talking = p.trail > 0
}

// fadeOut ends the frame in hand after its first n samples, without a step.
func (p *Playout) fadeOut(n int) {
	fade := samplesIn(fadeTime, p.rate)
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

// write hands the frame in hand to the output.
func (p *Playout) write(now time.Duration, counter *uint64) {
	f := Frame{PCM: p.pcm, PTS: p.next}
	if p.starts(now) {
		f.Start, f.PTS = true, max(now, p.next)
	}
	*counter++
	if err := p.out.WriteFrame(f); err != nil {
		p.stats.WriteErrors++
	}
	p.talking = true
	p.next = f.PTS + FrameDuration
	p.last = p.pcm[len(p.pcm)-1]
}
