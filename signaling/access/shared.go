package access

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/store"
)

const (
	// leaseTime is how long other gateways count what one of them uses after it has died; it says so again every leaseEvery.
	leaseTime  = 15 * time.Second
	leaseEvery = 5 * time.Second
	// budgetTime is how long what was spent is known: a day, by any clock.
	budgetTime = 48 * time.Hour
	// atOnce is how many shares are told at a time.
	atOnce = 16
)

// shared is what a gate and those of other gateways count together: conversations at once, what was spent, and tokens for one
// conversation. Each gateway says how much of it is its own. While the store is away each counts alone.
type shared struct {
	store   store.Store
	node    string
	wake    chan struct{} // has a token when something has changed
	stop    chan struct{}
	running sync.WaitGroup

	// Guarded by the gate's mu.
	order   uint64 // of calls of Count
	changed map[share]bool
}

func newShared(s store.Store, node string) *shared {
	return &shared{store: cmp.Or(s, store.NewMemory()), node: node, wake: make(chan struct{}, 1), stop: make(chan struct{}), changed: map[share]bool{}}
}

// changed notes that this gateway uses more or less of a share. Needs mu.
func (g *Gate) changed(s share) {
	if h := g.shared; s.kind != "all" {
		h.changed[s] = true
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// tell tells the others what this gateway uses, until the gate is closed.
func (g *Gate) tell() {
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
		g.tellAll(g.due(all))
	}
}

// due are the shares of which the others are to be told.
func (g *Gate) due(all bool) (due []share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, u := range g.shares {
		if s.kind != "all" && (g.shared.changed[s] || all && (u.sessions > 0 || u.spent > 0)) {
			due = append(due, s)
		}
	}
	clear(g.shared.changed)
	return due
}

func (g *Gate) tellAll(list []share) {
	work := make(chan share)
	var wg sync.WaitGroup
	for range min(atOnce, len(list)) {
		wg.Go(func() {
			for s := range work {
				g.count(s, -1)
				g.countSpent(s)
			}
		})
	}
	for _, s := range list {
		work <- s
	}
	close(work)
	wg.Wait()
}

// count tells how many conversations of a share there are here, and whether that is more than all may have.
func (g *Gate) count(s share, most int) (ok bool) {
	n, order := g.used(s, func(u *usage) int { return u.sessions })
	_, ok, err := g.shared.store.Count(context.Background(), "sessions/"+s.kind+"/"+s.name, g.shared.node, order, n, most, leaseTime)
	return ok || err != nil
}

// countSpent tells what was spent here, and learns what others have spent.
func (g *Gate) countSpent(s share) {
	var name string
	n, order := g.used(s, func(u *usage) int {
		name = "spent/" + s.kind + "/" + s.name + "/" + u.day
		return u.spent
	})
	ttl := leaseTime // that is long enough for nothing, which is what most addresses and tokens spend
	if n > 0 {
		ttl = budgetTime
	}
	if total, _, err := g.shared.store.Count(context.Background(), name, g.shared.node, order, n, -1, ttl); err == nil {
		g.mu.Lock()
		g.usage(s).others = total - n
		g.mu.Unlock()
	}
}

// used is how much is used of a share, and the order of the call that tells it.
func (g *Gate) used(s share, of func(*usage) int) (n int, order uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shared.order++
	return of(g.usage(s)), g.shared.order
}

// beginAmong asks whether the others leave room for a conversation that has begun here. It blocks for as long as the store may take.
func (a *account) beginAmong() error {
	g := a.visitor.gate
	claims := a.claims()
	room := make([]bool, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		if room[i] = true; c.most < 0 || c.kind == "all" { // what a machine carries is its own
			continue
		}
		wg.Go(func() { room[i] = g.count(c.share, c.most) })
	}
	for _, c := range claims {
		if _, limited := a.left(c.share, &usage{}); limited {
			wg.Go(func() { g.countSpent(c.share) })
		}
	}
	wg.Wait()
	for i, c := range claims {
		if !room[i] {
			return &refusal{rule: "sessions of " + c.kind, code: bridge.CodeBusy, message: c.what, retry: comeBack}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range claims {
		if left, limited := a.left(c.share, g.usage(c.share)); limited && left <= 0 {
			return a.spentUp(c.share, g.options.Now())
		}
	}
	return nil
}

// useUp uses a token that is for one conversation, and tells whether nobody has before: here or, where gateways share, anywhere.
func (a *account) useUp() bool {
	g := a.visitor.gate
	mine := rand.Uint64N(1<<53-1) + 1 // a generation that nobody else writes
	ttl := max(a.pass.expires.Add(leeway).Sub(g.options.Now()), time.Second)
	for _, s := range []store.Store{g.tokens, g.shared.store} { // the other may be away
		if now, err := s.Swap(context.Background(), "token/"+a.pass.issuer+"/"+a.pass.id, 0, mine, []byte{1}, ttl); err == nil && now != mine {
			return false
		}
	}
	return true
}
