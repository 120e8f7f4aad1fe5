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
	// budgetTime is the lifetime of spending records. A budget is for a day (UTC), and the clocks of gateways may differ.
	budgetTime = 48 * time.Hour
	// maxReports limits the reports that are sent to the store at the same time.
	maxReports = 16
)

// counter is something that gateways count together: an owner's conversations, or its usage in one unit.
type counter struct {
	budgetOwner
	unit unit // or inSessions
}

// inSessions marks a [counter] of conversations. It takes the place of a unit, because conversations have no budget.
const inSessions = units

// clusterCounts holds the counts that the gateways of a cluster share. Each reports its own part. While the store is
// unavailable, each counts alone.
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

func newShared(s store.Store, node string) *clusterCounts {
	return &clusterCounts{
		store:           cmp.Or(s, store.NewMemory()),
		node:            node,
		wake:            make(chan struct{}, 1),
		stop:            make(chan struct{}),
		changedCounters: map[counter]bool{},
	}
}

// markChanged records that an owner's usage has changed in this unit, or its number of conversations (inSessions). Needs mu.
func (g *Gate) markChanged(s budgetOwner, u unit) {
	if h := g.cluster; s.kind != "all" {
		h.changedCounters[counter{s, u}] = true
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// hasPending reports whether an owner has unreported changes. Needs the gate's mu.
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

// dueCounters returns the counters to report. With all, it adds those whose last report would expire, and the budgets
// in use here.
func (g *Gate) dueCounters(all bool) (due []counter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, u := range g.usages {
		for unit := range inSessions + 1 {
			inUse := u.counts[sessions].local > 0
			if unit != inSessions {
				used := u.counts[unit.reservedResource()].local + u.counts[unit.spentResource()].local
				inUse = used > 0 || u.hasBudget && u.isRunning()
			}
			if c := (counter{s, unit}); s.kind != "all" && (g.cluster.changedCounters[c] || all && inUse) {
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
		work.Go(func() error {
			if c.unit == inSessions {
				g.countSessions(c.budgetOwner, -1)
			} else {
				g.reserveInCluster(budgetLimit{c.budgetOwner, c.unit, 0}, 0)
			}
			return nil
		})
	}
	work.Wait()
}

// countSessions reports an owner's conversations to the store. It returns false if all gateways together would exceed
// the limit. A negative limit means none. Without the store, it returns true.
func (g *Gate) countSessions(s budgetOwner, limit int) bool {
	g.mu.Lock()
	g.cluster.order++
	order, local := g.cluster.order, g.usageOf(s).counts[sessions].local
	g.mu.Unlock()
	name := "sessions/" + s.kind + "/" + s.name
	_, ok, err := g.cluster.store.SetUsage(context.Background(), name, g.cluster.node, order, local, limit, leaseTime)
	return ok || err != nil
}

// reserveInCluster reports this gateway's usage of a budget to the store, with want as a new reservation. It returns
// how much of want fits beside the usage of the other gateways. Without the store, their last known usage counts.
func (g *Gate) reserveInCluster(b budgetLimit, want int) (got int) {
	g.mu.Lock()
	g.cluster.order++
	u, order := g.usageOf(b.budgetOwner), g.cluster.order
	u.lastReports[b.unit] = order
	held, paid := &u.counts[b.unit.reservedResource()], &u.counts[b.unit.spentResource()]
	r := store.Reservation{
		Name: unitNames[b.unit] + "/" + b.kind + "/" + b.name, Period: u.day, Member: g.cluster.node, Order: order,
		Usage: store.BudgetUsage{Reserved: held.local, Spent: paid.local}, Want: want, Limit: b.limit, TTL: leaseTime, SpentTTL: leaseTime,
	}
	if r.Usage.Spent > 0 { // without spending, the record need not outlive leaseTime
		r.SpentTTL = budgetTime
	}
	known := store.BudgetUsage{Reserved: held.remote, Spent: paid.remote}
	g.mu.Unlock()
	got, others, err := g.cluster.store.Reserve(context.Background(), r)
	if err != nil {
		return r.Grant(known)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if u.lastReports[b.unit] == order && u.day == r.Period { // else the answer is outdated: a newer call was made, or a new day has begun
		held.remote, paid.remote = others.Reserved, others.Spent
	}
	return got
}
