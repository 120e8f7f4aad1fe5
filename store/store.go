// Package store is the state that several gateways share: what it takes to go on with a conversation whose gateway has died, how much of a
// limit all of them use, and which of them exist. [NewMemory] keeps it for one process, [OpenRedis] for all that use the same Redis.
//
// Everything in it ends by itself unless it is written again in time, so what a dead gateway has left behind goes away. The gateway that
// runs a conversation has its authoritative state. Only what has to waits for the store, and each call ends within [Timeout].
package store

import (
	"context"
	"errors"
	"time"
)

// Timeout bounds each call. A Redis in the same region answers within a millisecond; one that takes longer than this is taken for
// dead, and somebody waits.
const Timeout = 300 * time.Millisecond

// ErrDown is the error of a call while the store is taken for dead: it was not asked.
var ErrDown = errors.New("the store does not answer")

// Store is shared by gateways. Its methods may be called by any goroutine and block for [Timeout] at most. A name begins with
// what it is for and a slash: "session/x".
type Store interface {
	// Get reads a value and its generation. Generation 0: there is none.
	Get(ctx context.Context, name string) (value []byte, generation uint64, err error)

	// Swap writes a value of a generation for ttl, if the one that there is has the generation was, or there is none. now is the
	// generation that there is afterwards: it differs from generation if somebody else has written. A nil value leaves the value
	// that there is, and writes nothing where there is none: now is 0 then. With ttl 0 it deletes; now is 0 then, too.
	//
	// A gateway that takes something over from another writes a higher generation, once; the other learns of it when it writes again. This
	// fences off one of two gateways that both believe they own it.
	Swap(ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration) (now uint64, err error)

	// Count says that a member uses n of what has this name, for ttl; total is what all use. If they would use more than most it
	// changes nothing and ok is false; most below 0: no limit. With n 0 the member uses nothing any more. Of two calls
	// of a member the one with the higher order counts, whichever comes last.
	Count(ctx context.Context, name, member string, order uint64, n, most int, ttl time.Duration) (total int, ok bool, err error)

	// Members is who uses how much of what has this name.
	Members(ctx context.Context, name string) (map[string]int, error)

	// Down reports whether the store is taken for dead.
	Down() bool

	// Close releases it.
	Close() error
}
