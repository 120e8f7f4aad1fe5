package mediatest

import (
	"sync"
	"testing"
	"time"
)

// Lateness measures how late this machine runs timers during a test in real time. On a busy machine, durations say
// nothing.
type Lateness struct {
	mu      sync.Mutex
	start   time.Time
	total   time.Duration // total delay of all ticks
	longest time.Duration // longest delay of a tick
}

// lateTick is the measuring interval: as short as the shortest interval that tests judge.
const lateTick = 5 * time.Millisecond

// MeasureLateness measures until the test ends.
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
			l.add(now.Sub(due))
			due = now.Add(lateTick)
			timer.Reset(lateTick)
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return l
}

func (l *Lateness) add(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += late
	l.longest = max(l.longest, late)
}

// CanJudge reports whether a limit of d can be judged, else logs why not. Each timer must be late by less than d/4. All
// timers together must be late by less than a fifth of the time. On a quiet machine they are late by 5 %, with four
// busy processes per core by 40 to 80 %.
func (l *Lateness) CanJudge(t testing.TB, d time.Duration) bool {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	elapsed := time.Since(l.start)
	if l.longest < d/4 && l.total < elapsed/5 {
		return true
	}
	t.Logf("not judged: of %v this machine was late by %v in all, and by %v at once", elapsed, l.total, l.longest)
	return false
}
