package bench

import (
	"context"
	"math"
	"slices"
	"time"

	"voxgate/media"
)

const frame = media.FrameDuration

// pace calls speak for every 20 ms of n callers until ctx is done or the frames are through, and returns how late the calls
// were. The callers' packets are spread evenly over the 20 ms. Deadlines are absolute, so lateness does not add up.
func pace(ctx context.Context, n, frames int, speak func(caller, frame int)) (late []time.Duration) {
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; i < n*frames; i++ {
		due := start.Add(time.Duration(i) * frame / time.Duration(n))
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return late
			}
		} else if ctx.Err() != nil {
			return late
		}
		late = append(late, time.Since(due))
		speak(i%n, i/n)
	}
	return late
}

// quantile returns the value below or at which a share q of the values lies (nearest rank). It sorts values.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
}

// loud tells whether a frame holds more than a codec makes of silence, by the emulator's own measure: -36 dBov.
func loud(pcm []int16) bool { return media.RMS(pcm) >= 500 }
