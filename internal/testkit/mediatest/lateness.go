package mediatest

import (
	"sync"
	"testing"
	"time"
)

// Lateness measures how late this machine runs timers during a test in real time. If they are late, measured durations
// show only that the machine is busy.
type Lateness struct {
	mu      sync.Mutex
	start   time.Time
	total   time.Duration // total delay of all ticks
	longest time.Duration // longest delay of a tick
}

// lateTick is the interval between two timers. It is as short as the shortest interval that tests judge.
const lateTick = 5 * time.Millisecond

// MeasureLateness starts a measurement that ends with the test.
func MeasureLateness(t testing.TB) *Lateness {
	l := &Lateness{start: time.Now()}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		timer := time.NewTimer(lateTick)
		defer timer.Stop()
		due := time.Now().Add(lateTick)
		for {
			select {
			case <-stop:
				return
			case <-timer.C:
			}
			now := time.Now()
			l.record(now.Sub(due))
			due = now.Add(lateTick)
			timer.Reset(lateTick)
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return l
}

func (l *Lateness) record(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += delay
	l.longest = max(l.longest, delay)
}

// Longest returns the longest delay of a timer so far.
func (l *Lateness) Longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.longest
}

// CanJudge reports whether the machine was quiet enough to judge a time limit. Otherwise it logs the reason. Each timer
// must have been late by less than limit/4, and the delays of all timers must add up to less than a fifth of the
// elapsed time. They add up to 5 % on a quiet machine, and to 40 to 80 % with four busy processes per core.
func (l *Lateness) CanJudge(t testing.TB, limit time.Duration) bool {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	elapsed := time.Since(l.start)
	if l.longest < limit/4 && l.total < elapsed/5 {
		return true
	}
	t.Logf("not judged: of %v this machine was late by %v in all, and by %v at once", elapsed, l.total, l.longest)
	return false
}
