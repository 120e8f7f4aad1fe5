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
	// leaseTime limits how long a gateway's report counts at the others. After it, the usage of a gateway that has died
	// no longer counts. A running gateway reports again every leaseEvery.
	leaseTime  = 15 * time.Second
	leaseEvery = 5 * time.Second
	// budgetTime is the lifetime of spending records in the store. It exceeds a day (UTC), the period of a budget,
	// because the clocks of gateways may differ.
	budgetTime = 48 * time.Hour
	// maxReports limits how many reports are sent to the store concurrently.
	maxReports = 16
)

// counter names a count that all gateways share: an owner's conversations, or its usage in one unit.
type counter struct {
	budgetOwner
	unit unit // or inSessions
}

// inSessions is the unit of a [counter] that counts conversations instead of tokens or money.
const inSessions = units

// clusterCounts shares the counts among the gateways of a cluster. Each gateway reports its own usage to the store.
// While the store is unavailable, each gateway counts alone.
type clusterCounts struct {
	store   store.Store
	node    string
	wake    chan struct{} // receives a value when something has changed
	stop    chan struct{}
	running sync.WaitGroup

	// Guarded by the gate's mu.
	order           uint64 // number of calls to the store so far
	changedCounters map[counter]bool
}

func newClusterCounts(s store.Store, node string) *clusterCounts {
	return &clusterCounts{
		store:           cmp.Or(s, store.NewMemory()),
		node:            node,
		wake:            make(chan struct{}, 1),
		stop:            make(chan struct{}),
		changedCounters: map[counter]bool{},
	}
}

// markChanged records that an owner's usage in unit u has changed, or the number of its conversations if u is
// inSessions. The caller must hold mu.
func (g *Gate) markChanged(s budgetOwner, u unit) {
	if h := g.cluster; s.kind != "all" {
		h.changedCounters[counter{s, u}] = true
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// hasPending reports whether an owner has unreported changes. The caller must hold the gate's mu.
func (c *clusterCounts) hasPending(s budgetOwner) bool {
	for u := range inSessions + 1 {
		if c.changedCounters[counter{s, u}] {
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
		includeUnchanged := false
		select {
		case <-g.cluster.wake:
		case <-renew.C:
			includeUnchanged = true
		case <-g.cluster.stop:
			return
		}
		g.publishCounters(g.takeDueCounters(includeUnchanged))
	}
}

// takeDueCounters returns the changed counters, and marks them as reported. If includeUnchanged is true, it also
// returns all other counters in use at this gateway, because their last report would expire.
func (g *Gate) takeDueCounters(includeUnchanged bool) (due []counter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, u := range g.usages {
		for unit := range inSessions + 1 {
			inUse := u.counts[sessions].local > 0
			if unit != inSessions {
				used := u.counts[unit.reservedResource()].local + u.counts[unit.spentResource()].local
				inUse = used > 0 || u.hasBudget && u.isRunning()
			}
			if c := (counter{s, unit}); s.kind != "all" && (g.cluster.changedCounters[c] || includeUnchanged && inUse) {
				due = append(due, c)
			}
		}
	}
	clear(g.cluster.changedCounters)
	return due
}

// publishCounters reports the counters to the store, and blocks until all are reported.
func (g *Gate) publishCounters(list []counter) {
	var work errgroup.Group
	work.SetLimit(maxReports)
	for _, c := range list {
		work.Go(func() error {
			if c.unit == inSessions {
				g.reportSessions(c.budgetOwner, -1)
			} else {
				g.reserveInCluster(budgetLimit{c.budgetOwner, c.unit, 0}, 0)
			}
			return nil
		})
	}
	work.Wait()
}

// reportSessions reports the number of an owner's conversations to the store. isWithinLimit is false if all gateways
// together would exceed limit. A negative limit means no limit. If the store is unavailable, isWithinLimit is true.
func (g *Gate) reportSessions(s budgetOwner, limit int) (isWithinLimit bool) {
	g.mu.Lock()
	g.cluster.order++
	order, local := g.cluster.order, g.usageOf(s).counts[sessions].local
	g.mu.Unlock()
	name := "sessions/" + s.kind + "/" + s.name
	_, ok, err := g.cluster.store.SetUsage(context.Background(), name, g.cluster.node, order, local, limit, leaseTime)
	return ok || err != nil
}

// reserveInCluster reports this gateway's usage of a budget to the store, and reserves up to the requested amount. It
// returns the amount reserved: as much as the usage of all gateways leaves. If the store is unavailable, it assumes the
// last known usage of the other gateways.
func (g *Gate) reserveInCluster(b budgetLimit, requested int) (reserved int) {
	g.mu.Lock()
	g.cluster.order++
	u, order := g.usageOf(b.budgetOwner), g.cluster.order
	u.lastReports[b.unit] = order
	held, paid := &u.counts[b.unit.reservedResource()], &u.counts[b.unit.spentResource()]
	r := store.Reservation{
		Name: unitNames[b.unit] + "/" + b.kind + "/" + b.name, Period: u.day, Member: g.cluster.node, Order: order,
		Usage: store.BudgetUsage{Reserved: held.local, Spent: paid.local}, Want: requested, Limit: b.limit, TTL: leaseTime, SpentTTL: leaseTime,
	}
	if r.Usage.Spent > 0 { // without spending, the record need not outlive leaseTime
		r.SpentTTL = budgetTime
	}
	known := store.BudgetUsage{Reserved: held.remote, Spent: paid.remote}
	g.mu.Unlock()
	reserved, others, err := g.cluster.store.Reserve(context.Background(), r)
	if err != nil {
		return r.AmountWithinLimit(known)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if u.lastReports[b.unit] == order && u.day == r.Period { // else the answer is outdated: a newer call was made, or a new day has begun
		held.remote, paid.remote = others.Reserved, others.Spent
	}
	return reserved
}
