package bridge

import (
	"sync"
	"time"
)

// quotaPause is how long no new conversation is dialled after Google has said that the quota is used up. Quotas are
// counted by the minute, and each try counts.
const quotaPause = 30 * time.Second

// breaker keeps new conversations from Gemini while the quota of the key is used up. After a pause one is let through to
// find out. A host has one key, and so one breaker.
type breaker struct {
	mu    sync.Mutex
	until time.Time // zero: closed
}

// admit lets a new conversation through, or says when to come back. probe is set for one that finds out for all: it must
// open, close or release the breaker.
func (b *breaker) admit() (probe bool, retry time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return false, 0
	}
	if left := time.Until(b.until); left > 0 {
		return false, left
	}
	b.until = time.Now().Add(quotaPause) // the others wait for this one
	return true, 0
}

// open keeps new conversations away for a while.
func (b *breaker) open() { b.set(time.Now().Add(quotaPause)) }

// close lets them through again: Gemini has taken one.
func (b *breaker) close() { b.set(time.Time{}) }

// release lets the next one find out: this one has failed for another reason.
func (b *breaker) release() { b.set(time.Now()) }

func (b *breaker) set(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = until
}
