package harness

import (
	"context"
	"time"
)

// Pace calls speak for every frame of n callers, a period apart, until ctx is done or the frames are through, and returns how
// late the calls were. The callers' frames are spread evenly over the period. Deadlines are absolute, so lateness does not add
// up.
func Pace(ctx context.Context, period time.Duration, n, frames int, speak func(caller, frame int)) (late []time.Duration) {
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; i < n*frames; i++ {
		due := start.Add(time.Duration(i) * period / time.Duration(n))
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

// Sleep waits for so long, or until ctx is done: then it returns its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
