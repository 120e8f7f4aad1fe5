package tools

import (
	"context"
	"sync"
	"time"
)

// clock measures the remaining time of a call. When the time is over, it cancels the context of the call. It pauses
// while the user is asked.
type clock struct {
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	timer     *time.Timer
	started   time.Time
	remaining time.Duration
	pauses    int
}

type clockKey struct{}

// withPausableTimeout returns a context that ends after the timeout. The time for which pauseClock pauses the clock
// does not count.
func withPausableTimeout(parent context.Context, timeout time.Duration) (ctx context.Context, timer *clock) {
	ctx, cancel := context.WithCancelCause(parent)
	c := &clock{cancel: cancel, started: time.Now(), remaining: timeout}
	c.timer = time.AfterFunc(timeout, func() { cancel(ErrTimeout) })
	return context.WithValue(ctx, clockKey{}, c), c
}

func (c *clock) stopAndCancel() {
	c.timer.Stop()
	c.cancel(nil)
}

// pauseClock pauses the clock of the call that ctx belongs to, until resume is called.
func pauseClock(ctx context.Context) (resume func()) {
	c, ok := ctx.Value(clockKey{}).(*clock)
	if !ok {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pauses++; c.pauses == 1 && c.timer.Stop() {
		c.remaining -= time.Since(c.started)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pauses--; c.pauses == 0 {
			c.started = time.Now()
			c.timer.Reset(c.remaining)
		}
	})
}
