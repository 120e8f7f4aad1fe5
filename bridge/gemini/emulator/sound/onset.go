package sound

import (
	"time"

	"voxgate/media"
)

const (
	// onsetLevel (-36 dBov) is above what a codec makes of silence, and 10 dB below the average of speech.
	onsetLevel = 500

	// onsetGap is the silence that must lie before a frame for it to be one.
	onsetGap = 200 * time.Millisecond
)

// OnsetDetector finds the first loud 20 ms after silence. The zero value is at the beginning of a session, which is silent.
type OnsetDetector struct {
	rest  []int16
	quiet time.Duration // so far
	begun bool
}

// Hear takes a piece of audio at rate Hz and reports whether a sound has begun in it.
func (d *OnsetDetector) Hear(pcm []int16, rate int) bool {
	if !d.begun {
		d.begun, d.quiet = true, onsetGap
	}
	d.rest = append(d.rest, pcm...)
	found := false
	n := rate * int(frameTime.Milliseconds()) / 1000
	for ; len(d.rest) >= n; d.rest = d.rest[n:] {
		if media.RMS(d.rest[:n]) < onsetLevel {
			d.quiet += frameTime
			continue
		}
		found = found || d.quiet >= onsetGap
		d.quiet = 0
	}
	return found
}
