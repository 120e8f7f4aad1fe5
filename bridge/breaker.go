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

// admit lets a new conversation through, or says when to come back.
func (b *breaker) admit() (retry time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := time.Until(b.until); left > 0 && !b.until.IsZero() {
		return left, false
	}
	if !b.until.IsZero() {
		b.until = time.Now().Add(quotaPause) // this one finds out, the next ones wait for it
	}
	return 0, true
}

// open keeps new conversations away for a while.
func (b *breaker) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Now().Add(quotaPause)
}

// close lets them through again: Gemini has taken one.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
}
