package store

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Expired values and counts are removed from memory, no matter which method is called next.
func TestMemoryExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		for _, ask := range []func(*memory){
			func(m *memory) { m.SetUsage(ctx, "sessions/new", "a", 1, 1, -1, time.Hour) },
			func(m *memory) { m.Get(ctx, "session/new") },
		} {
			m := NewMemory().(*memory)
			for i := range 1000 {
				m.SetUsage(ctx, fmt.Sprint("sessions/", i), "a", 1, 1, -1, time.Second)
				m.CompareAndSwap(ctx, fmt.Sprint("session/", i), 0, 1, []byte("v"), time.Second)
			}
			time.Sleep(2 * sweepInterval)
			ask(m)
			if len(m.counts) > 1 || len(m.values) > 0 {
				t.Errorf("%d counts and %d values are left", len(m.counts), len(m.values))
			}
		}
	})
}
