package mediatest

import (
	"sync"
	"testing"
	"time"
)

// Lateness measures how late this machine runs what is due, beside a test that judges real time: on a busy machine a figure says nothing
// about the code.
type Lateness struct {
	mu    sync.Mutex
	begun time.Time
	all   time.Duration // by which ticks came late, in sum
	most  time.Duration // by which one did
}

// lateTick is how often lateness is measured: as often as the shortest thing that tests judge.
const lateTick = 5 * time.Millisecond

// MeasureLateness measures until the test ends.
func MeasureLateness(t testing.TB) *Lateness {
	l := &Lateness{begun: time.Now()}
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
	l.all += late
	l.most = max(l.most, late)
}

// Judges reports whether a bound of d can be judged: the machine ran nothing a quarter of it late, and a fifth of the time at most was
// lost. On a quiet machine 5 % is, with four busy processes a core 40 to 80 %. Where it cannot, the test's log says so.
func (l *Lateness) Judges(t testing.TB, d time.Duration) bool {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Since(l.begun)
	if l.most < d/4 && l.all < took/5 {
		return true
	}
	t.Logf("not judged: of %v this machine was late by %v in all, and by %v at once", took, l.all, l.most)
	return false
}
