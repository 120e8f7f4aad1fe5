// Package store holds the state that several gateways share: the snapshots to resume conversations whose gateway has died, how much
// of each limit is in use, and which gateways exist. [NewMemory] keeps that state for one process, and [OpenRedis] for all gateways
// that use the same Redis.
//
// Everything expires unless it is renewed in time, so the state of a dead gateway disappears. The gateway that runs a conversation
// has its authoritative state. Calls wait for the store only if they must, and each store call ends within [Timeout].
package store

import (
	"context"
	"errors"
	"time"
)

// Timeout bounds each call. A Redis in the same region responds within a millisecond. Callers wait, so a slower store
// counts as down.
const Timeout = 300 * time.Millisecond

// ErrDown is the error of a call that was not made because the store is down.
var ErrDown = errors.New("the store does not respond")

// Store is shared by gateways. Its methods are safe for concurrent use, and block for at most [Timeout]. A name begins
// with its purpose: "session/x".
type Store interface {
	// Get reads a value and its generation. Generation 0 means that the value does not exist.
	Get(ctx context.Context, name string) (value []byte, generation uint64, err error)

	// CompareAndSwap writes a value and its generation, which expire after ttl. It writes only if the current generation
	// equals the parameter was, or no value exists. The result now is the generation in the store afterwards. It differs
	// from the parameter generation if another gateway has written.
	//
	// A nil value keeps the current value and renews its ttl; without a current value, now is 0. A ttl of 0 deletes the
	// value, and now is 0.
	//
	// A gateway that takes over a conversation writes a higher generation. The former owner then cannot write any more.
	CompareAndSwap(ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration) (now uint64, err error)

	// SetUsage records for ttl that a member uses n units of the limit with this name. It replaces the member's previous
	// usage; an n of 0 releases it. total is the usage of all members. If it would exceed limit, nothing changes and ok is
	// false. A negative limit means no limit.
	//
	// Of two calls of a member, the call with the higher order counts, even if it arrives first.
	SetUsage(ctx context.Context, name, member string, order uint64, n, limit int, ttl time.Duration) (total int, ok bool, err error)

	// Reserve records the spending and the reservations of a member of a budget, with r.Want as a new reservation. got is
	// the part of r.Want that fits in the limit; only this part is reserved. others is the total usage of the other
	// members. Of two calls of a member, the call with the higher r.Order counts.
	Reserve(ctx context.Context, r Reservation) (got int, others BudgetUsage, err error)

	// Members returns the unexpired members of a name given to SetUsage, with the usage of each. Members with a usage of 0
	// are left out.
	Members(ctx context.Context, name string) (map[string]int, error)

	// IsDown reports whether the last calls have failed, so that most calls now fail at once with [ErrDown].
	IsDown() bool

	// Close closes the connections to the store.
	Close() error
}

// BudgetUsage holds the reserved and the spent part of a budget.
type BudgetUsage struct{ Reserved, Spent int }

// Reservation is a request to reserve the amount Want of a budget for one member, in addition to its earlier reservations.
type Reservation struct {
	Name, Period string // name and period of the budget; spending counts only in this period, such as a day
	Member       string
	Order        uint64
	Usage        BudgetUsage // usage of this member; Reserved includes Want
	Want, Limit  int
	TTL          time.Duration // time after which the reservation expires
	SpentTTL     time.Duration
}

// Grant returns the part of Want that fits in the limit, given the usage of the other members.
func (r Reservation) Grant(others BudgetUsage) int {
	return max(0, min(r.Want, r.Limit-others.Reserved-others.Spent-(r.Usage.Reserved-r.Want)-r.Usage.Spent))
}
