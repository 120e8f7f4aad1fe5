package store

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"
)

// memory is a Store in the memory of one process.
type memory struct {
	mu        sync.Mutex
	values    map[string]entry
	counts    map[string]map[string]usage
	lastSweep time.Time
}

type entry struct {
	value      []byte
	generation uint64
	expiry     time.Time
}

// usage is the number of units of a limit that one member uses.
type usage struct {
	n      int
	order  uint64
	expiry time.Time
}

// sweepInterval is the interval at which expired entries are deleted.
const sweepInterval = time.Minute

// NewMemory returns an empty store that only this process uses.
func NewMemory() Store {
	return &memory{values: map[string]entry{}, counts: map[string]map[string]usage{}, lastSweep: time.Now()}
}

func (m *memory) Get(_ context.Context, name string) (value []byte, generation uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.unexpiredEntry(name)
	return bytes.Clone(e.value), e.generation, nil
}

// unexpiredEntry returns the unexpired entry of a name, or the zero entry. The caller must hold mu.
func (m *memory) unexpiredEntry(name string) entry {
	m.deleteExpiredIfDue()
	if e := m.values[name]; time.Now().Before(e.expiry) {
		return e
	}
	return entry{}
}

// deleteExpiredIfDue deletes expired entries if it has not done so for sweepInterval. The caller must hold mu.
func (m *memory) deleteExpiredIfDue() {
	now := time.Now()
	if now.Sub(m.lastSweep) < sweepInterval {
		return
	}
	m.lastSweep = now
	maps.DeleteFunc(m.values, func(_ string, e entry) bool { return !now.Before(e.expiry) })
	for name := range m.counts {
		m.activeMembers(name)
	}
}

func (m *memory) CompareAndSwap(
	_ context.Context, name string, expected, generation uint64, value []byte, ttl time.Duration,
) (storedGeneration uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.unexpiredEntry(name)
	switch {
	case e.generation != 0 && e.generation != expected:
		return e.generation, nil
	case ttl == 0:
		delete(m.values, name)
		return 0, nil
	case value == nil && e.generation == 0:
		return 0, nil
	case value != nil:
		e.value = bytes.Clone(value)
	}
	m.values[name] = entry{e.value, generation, time.Now().Add(ttl)}
	return generation, nil
}

func (m *memory) SetUsage(
	_ context.Context,
	name, member string,
	order uint64,
	n, limit int,
	ttl time.Duration,
) (total int, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleteExpiredIfDue()
	total, previous := m.splitUsage(name, member)
	if previous.order > order {
		return total + previous.n, true, nil
	}
	if limit >= 0 && total+n > limit {
		return total + previous.n, false, nil
	}
	m.setUsage(name, member, usage{n, order, time.Now().Add(ttl)})
	return total + n, true, nil
}

func (m *memory) Reserve(_ context.Context, r Reservation) (got int, others BudgetUsage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleteExpiredIfDue()
	reserved, spent := "reserved/"+r.Name, "spent/"+r.Name+"/"+r.Period
	others.Reserved, _ = m.splitUsage(reserved, r.Member)
	others.Spent, _ = m.splitUsage(spent, r.Member)
	got = r.AmountWithinLimit(others)
	now := time.Now()
	m.setUsage(reserved, r.Member, usage{r.Usage.Reserved - r.Want + got, r.Order, now.Add(r.TTL)})
	m.setUsage(spent, r.Member, usage{r.Usage.Spent, r.Order, now.Add(r.SpentTTL)})
	return got, others, nil
}

// splitUsage returns the usage of one member (own), and the total usage of all other members with the same name. The
// caller must hold mu.
func (m *memory) splitUsage(name, member string) (total int, own usage) {
	for other, u := range m.activeMembers(name) {
		if other == member {
			own = u
		} else {
			total += u.n
		}
	}
	return total, own
}

// setUsage records the usage of a member, unless a usage with a higher order is known. It also keeps a usage of 0, so
// that an older call that arrives later has no effect. The caller must hold mu.
func (m *memory) setUsage(name, member string, u usage) {
	if m.counts[name] == nil {
		m.counts[name] = map[string]usage{}
	}
	if u.order >= m.counts[name][member].order {
		m.counts[name][member] = u
	}
}

// activeMembers returns the unexpired members of a name. The caller must hold mu.
func (m *memory) activeMembers(name string) map[string]usage {
	members, now := m.counts[name], time.Now()
	maps.DeleteFunc(members, func(_ string, u usage) bool { return !now.Before(u.expiry) })
	if len(members) == 0 {
		delete(m.counts, name)
		return nil
	}
	return members
}

func (m *memory) Members(_ context.Context, name string) (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := map[string]int{}
	for member, u := range m.activeMembers(name) {
		if u.n != 0 {
			list[member] = u.n
		}
	}
	return list, nil
}

func (m *memory) IsDown() bool { return false }

func (m *memory) Close() error { return nil }
