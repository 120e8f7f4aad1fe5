package playout

import (
	"time"

	"voxgate/internal/crash"
	"voxgate/media"
)

// This file decides what a pacer sends, and when. Callers of all functions except onTick must hold Pacer.mu. now is the
// time since the pacer's epoch.

// onTick does the work of the tick that was due at the given time. It returns false when the pacer has gone idle.
func (p *Pacer) onTick(at time.Time) (needsTicks bool) {
	defer crash.Recover(p.Logger, "playout", p.OnCrash) // a panic stops only this pacer
	crash.RunTestHook("playout")
	for goesOn, again := false, true; ; {
		if goesOn, again = p.tickUpToMark(at); !again {
			return goesOn
		}
	}
}

// tickUpToMark does the work of one tick up to the next mark, and then calls that mark's callback. Sound that follows
// the mark may only be sent after the callback. needsTicks reports whether the pacer needs further ticks, and hasMore
// whether work of this tick remains.
func (p *Pacer) tickUpToMark(at time.Time) (needsTicks, hasMore bool) {
	p.mu.Lock()
	defer p.unlockAndCallMarks()
	p.isTicking = p.advanceTick(at.Sub(p.epoch))
	return p.isTicking, p.isTicking && p.lead > 0 && len(p.readyMarks) > 0
}

// sendQueued starts sending new sound, at once if the pacer was idle, and otherwise on the ticker.
func (p *Pacer) sendQueued() {
	if p.out == nil || p.sendableSamples() == 0 {
		return
	}
	now := time.Since(p.epoch)
	p.lastQueued = now
	switch {
	case p.lead > 0:
		p.sendWithinLead(now)
	case !p.inTalkspurt && p.sendableSamples() >= p.frame && now >= p.nextPTS:
		p.sendFrame(now)
	}
	if !p.isTicking {
		p.isTicking = true
		p.shard.addPacer(p)
	}
}

// advanceTick does the work of one tick and reports whether the pacer needs further ticks.
func (p *Pacer) advanceTick(now time.Duration) (hasMore bool) {
	waiting := p.sendableSamples()
	switch {
	case p.out == nil:
		return false
	case p.lead > 0:
		if waiting > 0 {
			p.sendWithinLead(now)
		}
		return p.sendableSamples() > 0
	case p.nextPTS-now > media.FrameDuration:
		return true // the sound already sent lasts beyond this tick
	case p.fadePending:
		p.fadePending = false
		p.writeFrame(now, &p.stats.Frames)
		return true
	case waiting >= p.frame:
		p.sendFrame(now)
		return true
	case waiting > 0 && (p.isBeforeTrail() || now >= p.lastQueued+media.FrameDuration):
		p.sendPadded(now)
		return true
	case p.inTalkspurt:
		p.sendSilence(now)
	}
	return p.inTalkspurt || waiting > 0
}

// sendWithinLead sends the queued sound that an output with a lead may receive by now. It stops at a mark whose
// callback must be called before the sound behind it is sent.
func (p *Pacer) sendWithinLead(now time.Duration) {
	if p.lead == media.UnlimitedLead {
		frame, most := p.pcm, p.queue.len()
		filler, fills := p.out.(media.BackpressureOutput)
		if fills {
			most = media.Samples(maxAtOnce, p.rate)
		}
		for p.queue.len() > 0 && len(p.readyMarks) == 0 && !(fills && filler.Full()) {
			p.pcm = make([]int16, min(p.samplesUntilMark(), most))
			p.sendFrame(now)
		}
		p.pcm = frame
		return
	}
	for p.sendableSamples() > 0 && p.nextPTS-now < p.lead && len(p.readyMarks) == 0 {
		switch {
		case p.sendableSamples() >= p.frame:
			p.sendFrame(now)
		case now >= p.lastQueued+media.FrameDuration && p.nextPTS-now < p.lead/2:
			p.sendPadded(now) // less than half of the lead is left, so do not wait for more sound
		default:
			return
		}
	}
}

// samplesUntilMark returns how many samples are queued before the next mark, or all queued samples if there are no marks.
func (p *Pacer) samplesUntilMark() int {
	n := p.queue.len()
	if len(p.marks) > 0 {
		if before := int(p.marks[0].position-p.queuedTotal) + n; before > 0 {
			return min(n, before)
		}
	}
	return n
}

// isBeforeTrail reports whether the pacer is in the voiced part of a talkspurt, before the silent frames at its end.
func (p *Pacer) isBeforeTrail() bool { return p.inTalkspurt && p.trailLeft == 0 }

// startsTalkspurt reports whether a frame sent now opens a talkspurt. The first frame after skipped ticks must open
// one, because otherwise the receiver would delay all later sound.
func (p *Pacer) startsTalkspurt(now time.Duration) bool { return !p.inTalkspurt || p.nextPTS < now }

// sendFrame sends one frame of sound.
func (p *Pacer) sendFrame(now time.Duration) {
	p.queue.pop(p.pcm)
	p.applyGain(p.pcm)
	switch {
	case p.suspended.fadesIn:
		p.suspended.fadesIn = false
		p.fadeInFrame()
	case p.ranDry && !p.startsTalkspurt(now):
		p.stats.Underruns++
		p.fadeInFrame()
	}
	p.ranDry = false
	if p.suspended.isOn {
		p.suspended.stopAfter -= len(p.pcm)
	}
	p.trailLeft = 0
	p.writeFrame(now, &p.stats.Frames)
	p.recordSentSound(len(p.pcm))
	p.resolveMarks(true)
}

// recordSentSound records that the frame just sent holds n samples of sound.
func (p *Pacer) recordSentSound(n int) {
	p.soundEnd = p.nextPTS - media.Duration(len(p.pcm)-n, p.rate)
	p.delivered += media.Duration(n, p.rate)
}

// sendPadded sends the rest of the queue, which is shorter than a frame, padded with silence.
func (p *Pacer) sendPadded(now time.Duration) {
	n := p.queue.pop(p.pcm)
	p.applyGain(p.pcm[:n])
	p.fadeOutAfter(n)
	p.trailLeft = 0
	p.writeFrame(now, &p.stats.Frames)
	p.recordSentSound(n)
	p.ranDry = true
	p.resolveMarks(true)
}

// sendSilence sends one of the silent frames after a talkspurt.
func (p *Pacer) sendSilence(now time.Duration) {
	if p.trailLeft == 0 {
		p.trailLeft = trailFrames
		p.ranDry = true
	}
	p.fadeOutAfter(0)
	p.writeFrame(now, &p.stats.SilenceFrames)
	p.trailLeft--
	p.inTalkspurt = p.trailLeft > 0
}

// fadeOutAfter fades the current frame out after its first n samples and silences the rest.
func (p *Pacer) fadeOutAfter(n int) {
	fade := media.Samples(media.FadeDuration, p.rate)
	end := max(n, fade)
	level := p.lastSample
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

// applyGain moves the volume of pcm, gradually, from that of the previous frame to the volume that Duck has set.
func (p *Pacer) applyGain(pcm []int16) {
	if p.gain == 1 && p.targetGain == 1 || len(pcm) == 0 {
		return
	}
	from, step := p.gain, (p.targetGain-p.gain)/float64(len(pcm))
	for i, s := range pcm {
		pcm[i] = int16(float64(s) * (from + step*float64(i+1)))
	}
	p.gain = p.targetGain
}

// writeFrame passes the current frame to the output.
func (p *Pacer) writeFrame(now time.Duration, counter *uint64) {
	f := media.Frame{PCM: p.pcm, PTS: p.nextPTS, Generation: p.generation}
	if p.startsTalkspurt(now) {
		f.Start, f.PTS = true, max(now, p.nextPTS)
	}
	*counter++
	p.measureFrameLevel()
	if err := p.out.WriteFrame(f); err != nil {
		p.stats.WriteErrors++
	} else if p.tap != nil {
		p.tap.WriteModel(f.PCM, p.epoch.Add(f.PTS))
	}
	p.inTalkspurt = true
	p.nextPTS = f.PTS + media.Duration(len(p.pcm), p.rate)
	p.lastSample = p.pcm[len(p.pcm)-1]
}
