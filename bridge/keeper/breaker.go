package keeper

import (
	"sync"
	"time"
)

// QuotaPause is how long no new conversation is dialled after Google has said that the quota is used up. Quotas are
// counted by the minute, and each try counts.
const QuotaPause = 30 * time.Second

// Breaker is a circuit breaker: it keeps new conversations from Gemini while the quota of the key is used up, and after
// a pause lets one through as a probe. There is one for each key. The zero Breaker lets everybody through. Any
// goroutine may call its methods.
type Breaker struct {
	mu     sync.Mutex
	until  time.Time // zero: everybody is let through
	others bool      // another gateway reported it: Google has refused none of ours
}

// Refused is for how long it still keeps conversations away because Google has refused one of ours; 0: it does not.
func (b *Breaker) Refused() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.others || b.until.IsZero() {
		return 0
	}
	return max(time.Until(b.until), 0)
}

// Learn notes another gateway's report that the quota is used up for so long.
func (b *Breaker) Learn(left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(left); b.until.IsZero() || b.others && until.After(b.until) {
		b.until, b.others = until, true
	}
}

// Admit lets a new conversation through, or says when to come back. probe is set for the one that tries for all others;
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

// Release makes the next one the probe: this one was not dialled, or has failed for another reason.
func (b *Breaker) Release() { b.set(time.Now()) }

func (b *Breaker) set(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.others = until, false
}
