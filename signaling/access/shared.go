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
	budgetOwner
	what resource
}

// clusterCounts is what a gate and those of other gateways count together: conversations at once, what is reserved and
// was spent, and tokens for one conversation. Each gateway says how much of it is its own. While the store is away each
// counts alone.
type clusterCounts struct {
	store   store.Store
	node    string
	wake    chan struct{} // has a token when something has changed
	stop    chan struct{}
	running sync.WaitGroup

	// Guarded by the gate's mu.
	order           uint64 // of calls of Count
	changedCounters map[counter]bool
}

func newShared(s store.Store, node string) *clusterCounts {
	return &clusterCounts{
		store:           cmp.Or(s, store.NewMemory()),
		node:            node,
		wake:            make(chan struct{}, 1),
		stop:            make(chan struct{}),
		changedCounters: map[counter]bool{},
	}
}

// markChanged notes that this gateway uses more or less of a share. Needs mu.
func (g *Gate) markChanged(s budgetOwner, what resource) {
	if h := g.cluster; s.kind != "all" {
		h.changedCounters[counter{s, what}] = true
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// hasPending reports whether a share has changes that the others do not know of yet. Needs the gate's mu.
func (h *clusterCounts) hasPending(s budgetOwner) bool {
	for what := range resources {
		if h.changedCounters[counter{s, what}] {
			return true
		}
	}
	return false
}

// runPublisher reports to the others what this gateway uses, until the gate is closed.
func (g *Gate) runPublisher() {
	renew := time.NewTicker(leaseEvery)
	defer renew.Stop()
	for {
		all := false
		select {
		case <-g.cluster.wake:
		case <-renew.C:
			all = true
		case <-g.cluster.stop:
			return
		}
		g.publishCounters(g.dueCounters(all))
	}
}

// dueCounters are the counters to report to the others; with all also those that expire unless they are reported again, and of budgets that
// somebody uses here those that others may have used.
func (g *Gate) dueCounters(all bool) (due []counter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, u := range g.usages {
		for what := range resources {
			c := counter{s, what}
			if s.kind != "all" && (g.cluster.changedCounters[c] || all && (u.counts[what].local > 0 || what.isSpent() && u.hasBudget &&
				u.isRunning())) {
				due = append(due, c)
			}
		}
	}
	clear(g.cluster.changedCounters)
	return due
}

func (g *Gate) publishCounters(list []counter) {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, c := range list {
		work.Go(func() error { g.countInCluster(c, -1); return nil })
	}
	work.Wait()
}

// countInCluster reports how much this gateway uses of a share, and learns what all use. ok is false if that would be
// more than most (below 0: no limit); then nothing is changed. While the store is unreachable, all is the last known
// number. What is spent is reported before less is reserved for it: in between others would count neither.
func (g *Gate) countInCluster(c counter, most int) (all int, ok bool) {
	g.mu.Lock()
	u := g.usageOf(c.budgetOwner)
	report := g.prepareReport(c, u)
	before := func() {}
	for unit := range units {
		if t := u.counts[unit.spentResource()]; c.what == unit.reservedResource() && t.local != t.reported {
			first := g.prepareReport(counter{c.budgetOwner, unit.spentResource()}, u)
			before = func() { first(-1) }
		}
	}
	g.mu.Unlock()
	before()
	return report(most)
}

// prepareReport is a call of the store, about what is used now. Needs mu until it returns; what it returns must be called without.
func (g *Gate) prepareReport(c counter, u *ownerUsage) func(most int) (all int, ok bool) {
	g.cluster.order++
	order, now, day := g.cluster.order, u.counts[c.what], u.day
	u.counts[c.what].lastCount = order
	name, ttl := resourceNames[c.what]+"/"+c.kind+"/"+c.name, leaseTime
	if c.what.isSpent() {
		if name += "/" + day; now.local > 0 { // where nothing was spent, the lease is long enough
			ttl = budgetTime
		}
	}
	return func(most int) (all int, ok bool) {
		all, ok, err := g.cluster.store.SetUsage(context.Background(), name, g.cluster.node, order, now.local, most, ttl)
		if err != nil {
			return now.local + now.remote, true
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if t := &u.counts[c.what]; ok && t.lastCount == order && u.day == day { // else all is not of this number
			t.reported, t.remote = now.local, all-now.local
		}
		return all, ok
	}
}
