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
	// leaseTime limits how long other gateways count the usage of a gateway that has died. A live one reports again
	// every leaseEvery.
	leaseTime  = 15 * time.Second
	leaseEvery = 5 * time.Second
	// budgetTime is the lifetime of spending records: a day in any time zone.
	budgetTime = 48 * time.Hour
	// maxReports limits the concurrent reports.
	maxReports = 16
)

// counter is one number that gateways count together: the usage of a resource by one owner.
type counter struct {
	budgetOwner
	what resource
}

// clusterCounts holds the counts that a gate shares with the gates of other gateways: concurrent conversations,
// reservations and spending, and single-use tokens. Each gateway reports its own part. While the store is unavailable,
// each counts alone.
type clusterCounts struct {
	store   store.Store
	node    string
	wake    chan struct{} // has a token when something has changed
	stop    chan struct{}
	running sync.WaitGroup

	// Guarded by the gate's mu.
	order           uint64 // number of calls of SetUsage
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

// markChanged records a changed usage of an owner. Needs mu.
func (g *Gate) markChanged(s budgetOwner, what resource) {
	if h := g.cluster; s.kind != "all" {
		h.changedCounters[counter{s, what}] = true
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// hasPending reports whether an owner has unreported changes. Needs the gate's mu.
func (h *clusterCounts) hasPending(s budgetOwner) bool {
	for what := range resources {
		if h.changedCounters[counter{s, what}] {
			return true
		}
	}
	return false
}

// runPublisher reports the usage of this gateway until the gate is closed.
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

// dueCounters returns the counters to report: those that have changed. With all it adds those whose report would
// expire, and the spending from budgets in use here, to learn what others have spent.
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
	work.SetLimit(maxReports)
	for _, c := range list {
		work.Go(func() error { g.countInCluster(c, -1); return nil })
	}
	work.Wait()
}

// countInCluster reports the usage of this gateway, and returns that of all. ok is false if that would exceed most
// (below 0: no limit); then nothing is changed. While the store is unreachable, all is the last known number. Spending
// is reported before its reservation is reduced: in between others would count neither.
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

// prepareReport returns a call of the store with the current usage. Needs mu; the returned function must be called
// without.
func (g *Gate) prepareReport(c counter, u *ownerUsage) func(most int) (all int, ok bool) {
	g.cluster.order++
	order, now, day := g.cluster.order, u.counts[c.what], u.day
	u.counts[c.what].lastCount = order
	name, ttl := resourceNames[c.what]+"/"+c.kind+"/"+c.name, leaseTime
	if c.what.isSpent() {
		if name += "/" + day; now.local > 0 { // without spending, the lease is long enough
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
		if t := &u.counts[c.what]; ok && t.lastCount == order && u.day == day { // else all is outdated: a newer call was made, or a day has begun
			t.reported, t.remote = now.local, all-now.local
		}
		return all, ok
	}
}
