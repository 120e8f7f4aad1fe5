package access

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// TTLCache keeps values for at least one Period after their last use, and for at most two. It is not safe for
// concurrent use.
type TTLCache[K comparable, V any] struct {
	Period time.Duration

	rotatedAt         time.Time
	current, previous map[K]V
}

// Get returns the value of a key, and marks it as used.
func (r *TTLCache[K, V]) Get(now time.Time, key K) (V, bool) {
	r.rotate(now)
	v, ok := r.current[key]
	if !ok {
		if v, ok = r.previous[key]; ok {
			r.current[key] = v
		}
	}
	return v, ok
}

// Put stores a value.
func (r *TTLCache[K, V]) Put(now time.Time, key K, v V) {
	r.rotate(now)
	r.current[key] = v
}

func (r *TTLCache[K, V]) rotate(now time.Time) {
	switch since := now.Sub(r.rotatedAt); {
	case since < r.Period:
		return
	case since < 2*r.Period:
		r.previous = r.current
	default:
		r.previous = nil
	}
	r.current, r.rotatedAt = map[K]V{}, now
}

// Limits of wrong passwords per address: ten at once, for typing errors, and then ten a minute. At that rate it takes
// almost a year to try five million passwords.
const (
	maxFailures     = 10
	failureInterval = 6 * time.Second
)

// FailedAttempts slows down password guessing. Tokens and keys need no such limit: they have 128 random bits or a
// signature. It counts by IPv4 address, or by the /64 block of an IPv6 address (RFC 6177). It is safe for concurrent
// use.
type FailedAttempts struct {
	mu     sync.Mutex
	recent TTLCache[netip.Prefix, *rate.Limiter]
}

// NewFailedAttempts returns a FailedAttempts that has counted no wrong password.
func NewFailedAttempts() *FailedAttempts {
	// The period is the time until a limiter is full again.
	return &FailedAttempts{recent: TTLCache[netip.Prefix, *rate.Limiter]{Period: maxFailures * failureInterval}}
}

// IsBlocked reports whether an address has tried too many wrong passwords: the next one must not be checked, even if it
// is right.
func (g *FailedAttempts) IsBlocked(now time.Time, from netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.recent.Get(now, addressBlock(from))
	return ok && l.TokensAt(now) < 1
}

// RecordFailure counts a wrong password.
func (g *FailedAttempts) RecordFailure(now time.Time, from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.recent.Get(now, addressBlock(from))
	if !ok {
		l = rate.NewLimiter(rate.Every(failureInterval), maxFailures)
		g.recent.Put(now, addressBlock(from), l)
	}
	l.AllowN(now, 1)
}
