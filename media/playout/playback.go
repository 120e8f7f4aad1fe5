package playout

import (
	"math"
	"time"

	"voxgate/media"
)

// silentLevel is the level, in dBov, of a playback without sound.
const silentLevel = -96

// MeasureLevel turns on or off the measurement of each frame's level, which Playback returns. The measurement takes
// about a microsecond a frame.
func (p *Pacer) MeasureLevel(on bool) {
	p.mu.Lock()
	p.measuresLevel, p.level = on, silentLevel
	p.mu.Unlock()
}

// Playback reports what the person hears now. isSounding is true from the first frame of an answer to the last, also
// while the voice is suspended. level is the level of the newest frame in dBov, or -96 if unknown. If the output has a
// lead, the client plays that frame later.
func (p *Pacer) Playback() (isSounding bool, level float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, end := time.Since(p.epoch), p.soundEnd
	if o, ok := p.out.(media.DelayedOutput); ok {
		end += o.PlaybackDelay()
	}
	level = silentLevel
	if p.measuresLevel && p.inTalkspurt {
		level = p.level
	}
	return p.out != nil && !p.isHeld && (p.queue.len() > 0 || p.delivered > 0 && now < end), level
}

// measureFrameLevel records the level of the current frame. It is called with mu held.
func (p *Pacer) measureFrameLevel() {
	if p.measuresLevel {
		p.level = 20 * math.Log10(max(media.RMS(p.pcm), 1)/32768)
	}
}
