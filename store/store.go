// Package store holds the state that several gateways share: snapshots of conversations, the usage of each limit, and
// the list of gateways. If a gateway has died, another one resumes its conversations from the snapshots. [NewMemory]
// keeps that state for one process, and [OpenRedis] for all gateways that use the same Redis.
//
// Everything expires unless it is renewed in time, so the state of a dead gateway disappears. The gateway that runs a
// conversation has its authoritative state. Conversations wait for the store only if they must, and each call of the
// store ends within [Timeout].
package store

import (
	"context"
	"errors"
	"time"
)

// Timeout limits each call of the store. A Redis in the same region responds within a millisecond. Conversations wait
// for the store, so a slower one counts as down.
const Timeout = 300 * time.Millisecond

// ErrDown is the error of a call that was not made because the store is down.
var ErrDown = errors.New("the store does not respond")

// Store is shared by several gateways. Its methods are safe for concurrent use, and block for at most [Timeout]. Names
// begin with their purpose, for example "session/x".
type Store interface {
	// Get reads a value and its generation. Generation 0 means that the value does not exist.
	Get(ctx context.Context, name string) (value []byte, generation uint64, err error)

	// CompareAndSwap writes a value and its generation, which expire after ttl. It writes only if the current
	// generation is equal to expected, or if the value does not exist yet. storedGeneration is the generation in the
	// store afterwards. If it differs from generation, another gateway has written.
	//
	// If value is nil, the current value is kept and its ttl renewed; storedGeneration is 0 if the value does not
	// exist. If ttl is 0, the value is deleted, and storedGeneration is 0.
	//
	// A gateway that takes over a conversation writes a higher generation. After that, the former owner cannot write
	// any more.
	CompareAndSwap(ctx context.Context, name string, expected, generation uint64, value []byte, ttl time.Duration) (
		storedGeneration uint64, err error,
	)

	// SetUsage records for ttl that a member uses n units of the limit with this name. This replaces the member's
	// previous usage. If n is 0, the usage is released. total is the usage of all members. If total would exceed limit,
	// nothing changes and ok is false. A negative limit means no limit.
	//
	// If two calls of a member overtake each other, the one with the higher order counts, even if it arrives first.
	SetUsage(ctx context.Context, name, member string, order uint64, n, limit int, ttl time.Duration) (total int, ok bool, err error)

	// Reserve records how much of a budget a member has spent and reserved, and reserves r.Want more. got is the part
	// of r.Want that fits in the limit, and only this part is reserved. others is the total usage of the other members.
	// Of two calls of a member, the one with the higher r.Order counts.
	Reserve(ctx context.Context, r Reservation) (got int, others BudgetUsage, err error)

	// Members returns the members of a name that was passed to SetUsage, with the usage of each. It leaves out members
	// whose usage has expired or is 0.
	Members(ctx context.Context, name string) (map[string]int, error)

	// IsDown reports whether the last calls have failed, so that most calls now fail at once with [ErrDown].
	IsDown() bool

	// Close closes the connections to the store.
	Close() error
}

// BudgetUsage holds the reserved and the spent part of a budget.
type BudgetUsage struct{ Reserved, Spent int }

// Reservation is a request to reserve the amount Want of a budget for one member, in addition to what the member has
// reserved before.
type Reservation struct {
	Name, Period string // name and period of the budget; spending counts only in this period, such as a day
	Member       string
	Order        uint64
	Usage        BudgetUsage // usage of this member; Reserved includes Want
	Want, Limit  int
	TTL          time.Duration // time after which the reservation expires
	SpentTTL     time.Duration
}

// AmountWithinLimit returns the part of Want that fits in the limit. others is the usage of the other members.
func (r Reservation) AmountWithinLimit(others BudgetUsage) int {
	return max(0, min(r.Want, r.Limit-others.Reserved-others.Spent-(r.Usage.Reserved-r.Want)-r.Usage.Spent))
}
