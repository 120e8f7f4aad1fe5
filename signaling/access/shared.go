package access

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"voxgate/store"
)

const (
	// leaseTime is how long other gateways count what one of them uses after it has died; a live one reports again every leaseEvery.
	leaseTime  = 15 * time.Second
	leaseEvery = 5 * time.Second
	// budgetTime is how long what was spent is known: a day, by any clock.
	budgetTime = 48 * time.Hour
	// atOnce is how many counters are reported at a time.
	atOnce = 16
)

// counter is one number that gateways count together: so much of a resource one share uses.
type counter struct {
	share
	what resource
}

// shared is what a gate and those of other gateways count together: conversations at once, what is reserved and was spent, and tokens
// for one conversation. Each gateway says how much of it is its own. While the store is away each counts alone.
type shared struct {
	store   store.Store
	node    string
	wake    chan struct{} // has a token when something has changed
	stop    chan struct{}
	running sync.WaitGroup

	// Guarded by the gate's mu.
	order   uint64 // of calls of Count
	changed map[counter]bool
}

func newShared(s store.Store, node string) *shared {
	return &shared{
		store:   cmp.Or(s, store.NewMemory()),
		node:    node,
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		changed: map[counter]bool{},
	}
}

// changed notes that this gateway uses more or less of a share. Needs mu.
func (g *Gate) changed(s share, what resource) {
	if h := g.shared; s.kind != "all" {
		h.changed[counter{s, what}] = true
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// pending reports whether a share has changes that the others do not know of yet. Needs the gate's mu.
func (h *shared) pending(s share) bool {
	for what := range resources {
		if h.changed[counter{s, what}] {
			return true
		}
	}
	return false
}

// publish reports to the others what this gateway uses, until the gate is closed.
func (g *Gate) publish() {
	renew := time.NewTicker(leaseEvery)
	defer renew.Stop()
	for {
		all := false
		select {
		case <-g.shared.wake:
		case <-renew.C:
			all = true
		case <-g.shared.stop:
			return
		}
		g.publishAll(g.due(all))
	}
}

// due are the counters to report to the others; with all also those that expire unless they are reported again, and of budgets that
// somebody uses here those that others may have used.
func (g *Gate) due(all bool) (due []counter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, u := range g.shares {
		for what := range resources {
			c := counter{s, what}
			if s.kind != "all" && (g.shared.changed[c] || all && (u.counts[what].own > 0 || what.isSpent() && u.budgeted && u.running())) {
				due = append(due, c)
			}
		}
	}
	clear(g.shared.changed)
	return due
}

func (g *Gate) publishAll(list []counter) {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, c := range list {
		work.Go(func() error { g.count(c, -1); return nil })
	}
	work.Wait()
}

// count reports how much this gateway uses of a share, and learns what all use. ok is false if that would be more than most (below 0: no
// limit); then nothing is changed. While the store is unreachable, all is the last known number. What is spent is reported before less is
// reserved for it: in between others would count neither.
func (g *Gate) count(c counter, most int) (all int, ok bool) {
	g.mu.Lock()
	u := g.usage(c.share)
	report := g.report(c, u)
	before := func() {}
	for unit := range units {
		if t := u.counts[unit.spent()]; c.what == unit.reserved() && t.own != t.reported {
			first := g.report(counter{c.share, unit.spent()}, u)
			before = func() { first(-1) }
		}
	}
	g.mu.Unlock()
	before()
	return report(most)
}

// report is a call of the store, about what is used now. Needs mu until it returns; what it returns must be called without.
func (g *Gate) report(c counter, u *usage) func(most int) (all int, ok bool) {
	g.shared.order++
	order, now, day := g.shared.order, u.counts[c.what], u.day
	u.counts[c.what].asked = order
	name, ttl := resourceNames[c.what]+"/"+c.kind+"/"+c.name, leaseTime
	if c.what.isSpent() {
		if name += "/" + day; now.own > 0 { // where nothing was spent, the lease is long enough
			ttl = budgetTime
		}
	}
	return func(most int) (all int, ok bool) {
		all, ok, err := g.shared.store.SetUsage(context.Background(), name, g.shared.node, order, now.own, most, ttl)
		if err != nil {
			return now.own + now.others, true
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if t := &u.counts[c.what]; ok && t.asked == order && u.day == day { // else all is not of this number
			t.reported, t.others = now.own, all-now.own
		}
		return all, ok
	}
}
