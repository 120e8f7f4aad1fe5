package access

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Recent remembers values for at least a period after they were last used, and for two at most: what was not used in a whole period
// is forgotten. The caller locks it.
type Recent[K comparable, V any] struct {
	Period time.Duration

	turned       time.Time
	used, before map[K]V
}

// Get returns the value of a key, as used now.
func (r *Recent[K, V]) Get(now time.Time, key K) (V, bool) {
	r.turn(now)
	v, ok := r.used[key]
	if !ok {
		if v, ok = r.before[key]; ok {
			r.used[key] = v
		}
	}
	return v, ok
}

// Put remembers a value from now on.
func (r *Recent[K, V]) Put(now time.Time, key K, v V) {
	r.turn(now)
	r.used[key] = v
}

func (r *Recent[K, V]) turn(now time.Time) {
	switch since := now.Sub(r.turned); {
	case since < r.Period:
		return
	case since < 2*r.Period:
		r.before = r.used
	default:
		r.before = nil
	}
	r.used, r.turned = map[K]V{}, now
}

// How many wrong passwords an address may try: ten at once, which is somebody who mistypes, and then ten a minute, which takes longer
// than a year for one password in five million.
const (
	guesses    = 10
	guessEvery = 6 * time.Second
)

// Guesses slows down those who guess passwords. Tokens and keys need no such limit: they have 128 random bits or a signature. It counts
// by address, of IPv6 by the /64 (RFC 6177). Its methods may be called by any goroutine.
type Guesses struct {
	mu     sync.Mutex
	recent Recent[netip.Prefix, *rate.Limiter]
}

// NewGuesses returns one without any guess.
func NewGuesses() *Guesses {
	return &Guesses{recent: Recent[netip.Prefix, *rate.Limiter]{Period: guesses * guessEvery}} // until a limiter is full again
}

// Spent reports whether an address has tried too many wrong passwords: the next one must not be looked at, even if it is right.
func (g *Guesses) Spent(now time.Time, from netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.recent.Get(now, household(from))
	return ok && l.TokensAt(now) < 1
}

// Wrong counts a wrong password.
func (g *Guesses) Wrong(now time.Time, from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.recent.Get(now, household(from))
	if !ok {
		l = rate.NewLimiter(rate.Every(guessEvery), guesses)
		g.recent.Put(now, household(from), l)
	}
	l.AllowN(now, 1)
}
