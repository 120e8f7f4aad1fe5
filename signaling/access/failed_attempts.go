package access

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// TTLCache drops each value between one and two Periods after its last use. It is not safe for concurrent use.
type TTLCache[K comparable, V any] struct {
	Period time.Duration

	rotatedAt         time.Time
	current, previous map[K]V
}

// Get returns the value of a key, and marks it as used.
func (t *TTLCache[K, V]) Get(now time.Time, key K) (v V, ok bool) {
	t.rotate(now)
	v, ok = t.current[key]
	if !ok {
		if v, ok = t.previous[key]; ok {
			t.current[key] = v
		}
	}
	return v, ok
}

// Put stores a value.
func (t *TTLCache[K, V]) Put(now time.Time, key K, v V) {
	t.rotate(now)
	t.current[key] = v
}

// rotate drops the values that were not used for a whole Period.
func (t *TTLCache[K, V]) rotate(now time.Time) {
	switch since := now.Sub(t.rotatedAt); {
	case since < t.Period:
		return
	case since < 2*t.Period:
		t.previous = t.current
	default:
		t.previous = nil
	}
	t.current, t.rotatedAt = map[K]V{}, now
}

// Limits of wrong passwords per address: ten at once, for typing errors, and then ten a minute. At this rate, trying
// five million passwords takes almost a year.
const (
	maxFailures     = 10
	failureInterval = 6 * time.Second
)

// FailedAttempts slows down password guessing, by IPv4 address or IPv6 /64 block (RFC 6177). It is safe for concurrent
// use. It is not needed for tokens and keys, which cannot be guessed: they have 128 random bits or a signature.
type FailedAttempts struct {
	mu     sync.Mutex
	recent TTLCache[netip.Prefix, *rate.Limiter]
}

// NewFailedAttempts returns a FailedAttempts that has counted no wrong password.
func NewFailedAttempts() *FailedAttempts {
	// After this period without use, a limiter is full again, so dropping it loses nothing.
	return &FailedAttempts{recent: TTLCache[netip.Prefix, *rate.Limiter]{Period: maxFailures * failureInterval}}
}

// IsBlocked reports whether an address has tried too many wrong passwords. If so, the next password must be rejected
// without a check, even if it is right.
func (f *FailedAttempts) IsBlocked(now time.Time, from netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.recent.Get(now, addressBlock(from))
	return ok && l.TokensAt(now) < 1
}

// RecordFailure counts a wrong password.
func (f *FailedAttempts) RecordFailure(now time.Time, from netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.recent.Get(now, addressBlock(from))
	if !ok {
		l = rate.NewLimiter(rate.Every(failureInterval), maxFailures)
		f.recent.Put(now, addressBlock(from), l)
	}
	l.AllowN(now, 1)
}
