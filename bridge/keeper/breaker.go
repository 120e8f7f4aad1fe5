package keeper

import (
	"sync"
	"time"
)

// QuotaPause is how long no new conversation is dialled after Google has said that the quota is used up. Quotas are
// counted by the minute, and each try counts.
const QuotaPause = 30 * time.Second

// Breaker keeps new conversations from Gemini while the quota of the key is used up. After a pause it lets one through to
// find out. There is one for each key. The zero Breaker lets everybody through; its methods may be called by any goroutine.
type Breaker struct {
	mu    sync.Mutex
	until time.Time // zero: everybody is let through
	told  bool      // by another gateway: Google has refused none of ours
}

// Refused is how long it keeps conversations away yet because Google has refused one of ours; 0: it does not.
func (b *Breaker) Refused() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told || b.until.IsZero() {
		return 0
	}
	return max(time.Until(b.until), 0)
}

// Learn takes it from another gateway that the quota is used up, for so long yet.
func (b *Breaker) Learn(left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(left); b.until.IsZero() || b.told && until.After(b.until) {
		b.until, b.told = until, true
	}
}

// Admit lets a new conversation through, or says when to come back. probe is set for the one that finds out for all others;
// [Options].Probe passes it on.
func (b *Breaker) Admit() (probe bool, retry time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return false, 0
	}
	if left := time.Until(b.until); left > 0 {
		return false, left
	}
	b.until = time.Now().Add(QuotaPause) // the others wait for this one
	return true, 0
}

// open keeps new conversations away for a while.
func (b *Breaker) open() { b.set(time.Now().Add(QuotaPause)) }

// close lets them through again: Gemini has taken one.
func (b *Breaker) close() { b.set(time.Time{}) }

// release lets the next one find out: this one has failed for another reason.
func (b *Breaker) release() { b.set(time.Now()) }

func (b *Breaker) set(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.told = until, false
}
