package main

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"
)

const (
	// fleetPause is how long conversations take until nobody speaks, and they can be moved: a turn.
	fleetPause = 10 * time.Second
	// fleetLife is how long a conversation lasts while a gateway joins: shorter than most, so that it need not be waited for.
	fleetLife = time.Minute
)

// least is the gateway that a load balancer chooses by least connections. It counts as one that comes there until arrived is called.
func (f *simulation) least(among []*simulated) (g *simulated, arrived func()) {
	f.choosing.Lock()
	defer f.choosing.Unlock()
	g = among[0]
	for _, other := range among[1:] {
		if other.load() < g.load() {
			g = other
		}
	}
	g.move(1)
	return g, func() { g.move(-1) }
}

// move counts conversations that are on their way.
func (g *simulated) move(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.coming += n
}

// ids are the conversations of a gateway.
func (g *simulated) ids() (ids []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.has {
		ids = append(ids, id)
	}
	return ids
}

// remove forgets a conversation, and returns its generation; 0: it was not there.
func (g *simulated) remove(id int) (generation uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	generation = g.has[id]
	delete(g.has, id)
	return generation
}

// fullest is how much the fullest gateway has, as a share of the mean.
func fullest(nodes []*simulated) float64 {
	most, all := 0, 0
	for _, g := range nodes {
		most, all = max(most, g.load()), all+g.load()
	}
	return float64(most) * float64(len(nodes)) / float64(all)
}

// dies has the callers of a gateway that is dead come to the others within a second, to any of them, and returns when all are there.
func (f *simulation) dies(ctx context.Context, dead *simulated, others []*simulated) (within time.Duration, err error) {
	began, ids := time.Now(), dead.ids()
	errs := make([]error, len(ids))
	var taking sync.WaitGroup
	for i, id := range ids {
		taking.Go(func() {
			if errs[i] = sleep(ctx, mathrand.N(time.Second)); errs[i] == nil {
				errs[i] = others[mathrand.IntN(len(others))].takes(ctx, id)
			}
		})
	}
	taking.Wait()
	return time.Since(began), errors.Join(errs...)
}

// drains moves the conversations of a gateway, each at its own pause, to the ones with the fewest. gaps are how long nobody had one.
func (f *simulation) drains(ctx context.Context, from *simulated, others []*simulated) (gaps []time.Duration, within time.Duration, err error) {
	began, ids := time.Now(), from.ids()
	gaps, errs := make([]time.Duration, len(ids)), make([]error, len(ids))
	var moving sync.WaitGroup
	for i, id := range ids {
		moving.Go(func() {
			if errs[i] = sleep(ctx, mathrand.N(fleetPause)); errs[i] != nil {
				return
			}
			released := time.Now()
			generation := from.remove(id)
			_ = f.timed(func() error { // else it is taken without having been released
				_, err := from.store.Swap(ctx, conversation(id), generation, generation, f.snapshot, fleetTTL)
				return err
			})
			to, arrived := f.least(others)
			defer arrived()
			errs[i] = to.takes(ctx, id)
			gaps[i] = time.Since(released)
		})
	}
	moving.Wait()
	return gaps, time.Since(began), errors.Join(errs...)
}

// joins has conversations end and others begin, from next on, where the fewest are, until the newest gateway has its share. It
// returns how many that took.
func (f *simulation) joins(ctx context.Context, nodes []*simulated, next, all int) (anew int, err error) {
	newest := nodes[len(nodes)-1]
	for newest.load() < all/len(nodes) {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return anew, err
		}
		due := max(1, int(time.Duration(all)*50*time.Millisecond/fleetLife))
		atOnce(fleetOnce, due, func(i int) { f.anew(ctx, nodes, next+anew+i) })
		anew += due
	}
	return anew, nil
}

// anew ends any conversation, and begins another one. What cannot be written is written later, or ends by itself.
func (f *simulation) anew(ctx context.Context, nodes []*simulated, id int) {
	from, old, generation := choose(nodes)
	_ = f.timed(func() error {
		_, err := from.store.Swap(ctx, conversation(old), generation, generation, nil, 0)
		return err
	})
	to, arrived := f.least(nodes)
	defer arrived()
	to.add(id, 1)
	_ = f.timed(func() error {
		_, err := to.store.Swap(ctx, conversation(id), 1, 1, f.snapshot, fleetTTL)
		return err
	})
}

// choose removes one of all conversations from its gateway.
func choose(nodes []*simulated) (from *simulated, id int, generation uint64) {
	for generation == 0 { // it may be on its way
		all := 0
		for _, g := range nodes {
			all += g.load()
		}
		at := mathrand.IntN(all)
		for _, from = range nodes {
			if at -= from.load(); at < 0 {
				break
			}
		}
		id, generation = from.removeAny()
	}
	return from, id, generation
}

// removeAny forgets a conversation; generation 0: there is none.
func (g *simulated) removeAny() (id int, generation uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, generation = range g.has { // in no order
		delete(g.has, id)
		break
	}
	return id, generation
}

// movesRow does all that to a fleet that runs: its first gateway is dead, another one joins, and the second is drained.
func (f *simulation) movesRow(ctx context.Context, nodes []*simulated, run func(*simulated), n int, t *table) error {
	died, err := f.dies(ctx, nodes[0], nodes[1:])
	if err != nil {
		return fmt.Errorf("one dies: %w", err)
	}
	uneven := fullest(nodes[1:])
	newcomer, err := f.join(0, 0)
	if err != nil {
		return err
	}
	run(newcomer)
	nodes = append(nodes[1:], newcomer)
	began := time.Now()
	anew, err := f.joins(ctx, nodes, n, n)
	if err != nil {
		return fmt.Errorf("one joins: %w", err)
	}
	joined, even := time.Since(began), fullest(nodes)
	gaps, drained, err := f.drains(ctx, nodes[0], nodes[1:])
	if err != nil {
		return fmt.Errorf("one is drained: %w", err)
	}
	t.row(fmt.Sprint(n), seconds(died)+"; "+percent(uneven), percent(float64(anew)/float64(n))+" in "+seconds(joined)+"; "+percent(even),
		seconds(drained)+"; "+percent(fullest(nodes[1:])), milliseconds(quantile(gaps, .5))+" / "+milliseconds(quantile(gaps, .99)))
	return nil
}
