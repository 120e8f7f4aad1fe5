package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/store"
	"voxgate/store/redistest"
)

// What gateways write, and how often: bridge/nodes.go. A turn takes some 10 s; its begin, what was understood, its end and the handles
// after it are some five snapshots of 3 KB, with 20 short turns.
const (
	fleetNodes    = 20
	fleetSnapshot = 3 << 10
	fleetWrite    = 2 * time.Second // between two snapshots of a conversation
	fleetRenew    = 5 * time.Second
	fleetCall     = 250 * time.Millisecond
	fleetTTL      = 75 * time.Second
	fleetOnce     = 16 // calls of a node at once
	fleetTries    = 5
)

// simulated is a gateway, as Redis sees it.
type simulated struct {
	store store.Store
	name  string
	f     *simulation

	mu     sync.Mutex
	has    map[int]uint64 // conversations, and their generations
	next   []int          // to be written, in turn
	coming int            // conversations on their way here
	order  uint64
}

// simulation is many gateways with one Redis.
type simulation struct {
	redis    *redistest.Server
	snapshot []byte
	choosing sync.Mutex // held while a gateway is chosen

	mu    sync.Mutex
	took  []time.Duration
	calls atomic.Int64
	fails atomic.Int64
}

// timed times a call.
func (f *simulation) timed(call func() error) error {
	began := time.Now()
	err := call()
	took := time.Since(began)
	f.calls.Add(1)
	if err != nil && !errors.Is(err, context.Canceled) { // that is a gateway's end
		f.fails.Add(1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.took) < 1<<20 {
		f.took = append(f.took, took)
	}
	return err
}

// take returns what calls took since it was asked last.
func (f *simulation) take() (took []time.Duration, calls, fails int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	took, f.took = f.took, nil
	return took, f.calls.Swap(0), f.fails.Swap(0)
}

// join starts a gateway that opens conversations: from first on, so many.
func (f *simulation) join(first, n int) (*simulated, error) {
	s, err := store.OpenRedis(f.redis.URL(), killSecret, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	g := &simulated{store: s, name: rand.Text(), f: f, has: map[int]uint64{}}
	for i := range n {
		g.add(first+i, 1)
	}
	return g, nil
}

func (g *simulated) add(id int, generation uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.has[id] = generation
	g.next = append(g.next, id)
}

func (g *simulated) load() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.has) + g.coming
}

// run does what a gateway does until ctx is done: snapshots of all conversations in turn, renewals, and the calls of the node.
func (g *simulated) run(ctx context.Context) {
	defer g.store.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	every := func(period time.Duration, do func()) {
		wg.Go(func() {
			t := time.NewTicker(period)
			defer t.Stop()
			for {
				select {
				case <-t.C:
					do()
				case <-ctx.Done():
					return
				}
			}
		})
	}
	g.some(ctx, 1, 1, g.f.snapshot) // all, as they begin
	const slice = 50 * time.Millisecond
	every(slice, func() { g.some(ctx, slice, fleetWrite, g.f.snapshot) })
	every(slice, func() { g.some(ctx, slice, fleetRenew, nil) })
	every(fleetCall, func() {
		_ = g.f.timed(func() error { _, err := g.store.Members(ctx, "taken/"+g.name); return err })
	})
	every(fleetRenew, func() {
		g.mu.Lock()
		g.order++
		order, load := g.order, len(g.has)+1
		g.mu.Unlock()
		_ = g.f.timed(func() error {
			_, _, err := g.store.Count(ctx, "nodes/all", g.name, order, load, -1, 3*fleetRenew)
			return err
		})
	})
}

// some writes as many conversations as are due in a slice of a period.
func (g *simulated) some(ctx context.Context, slice, period time.Duration, value []byte) {
	g.mu.Lock()
	due := int(float64(len(g.next))*float64(slice)/float64(period) + mathrand.Float64()) // as many on average
	due = min(due, len(g.next))
	ids := slices.DeleteFunc(slices.Clone(g.next[:due]), func(id int) bool { return g.has[id] == 0 }) // gone from here
	g.next = append(g.next[due:], ids...)
	g.mu.Unlock()
	atOnce(fleetOnce, len(ids), func(i int) {
		g.mu.Lock()
		generation := g.has[ids[i]]
		g.mu.Unlock()
		if generation == 0 {
			return
		}
		_ = g.f.timed(func() error {
			_, err := g.store.Swap(ctx, conversation(ids[i]), generation, generation, value, fleetTTL)
			return err
		})
	})
}

func conversation(id int) string { return fmt.Sprint("session/", id) }

// takes takes a conversation from another gateway. Where the store does not answer in time, the caller comes again a second later.
func (g *simulated) takes(ctx context.Context, id int) (err error) {
	for range fleetTries {
		if err = g.takeOnce(ctx, id); err == nil {
			return nil
		}
		if sleep(ctx, time.Second) != nil {
			break
		}
	}
	return err
}

func (g *simulated) takeOnce(ctx context.Context, id int) error {
	var generation uint64
	err := g.f.timed(func() (err error) {
		_, generation, err = g.store.Get(ctx, conversation(id))
		return err
	})
	if err != nil || generation == 0 {
		return errors.Join(err, fmt.Errorf("conversation %d is not there", id))
	}
	return g.f.timed(func() error {
		now, err := g.store.Swap(ctx, conversation(id), generation, generation+1, g.f.snapshot, fleetTTL)
		if err == nil && now != generation+1 {
			err = fmt.Errorf("conversation %d was taken by another", id)
		}
		if err == nil {
			g.add(id, now)
		}
		return err
	})
}

// measureFleet runs simulated gateways against a real Redis, and prints what that costs.
func measureFleet(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	costs := newTable("conversations on 20 gateways", "calls a second", "Redis: CPU", "memory of a conversation", "a call: p50 / p99; took too long")
	moves := newTable("conversations on 20 gateways", "one dies: all its conversations taken within; the fullest has then", "one joins: it has its share after so many were begun anew; the fullest",
		"one is drained: empty within; the fullest", "nobody had a conversation for: p50 / p99")
	var failed error // with so many, on a machine that the gateways share: the rest is worth something
	for _, n := range o.sessions {
		progress("%d conversations", n)
		if err := fleetRow(ctx, o, n, costs, moves); err != nil {
			failed = fmt.Errorf("%d conversations: %w", n, err)
			break
		}
	}
	return errors.Join(failed,
		costs.write(stdout, began, fmt.Sprintf("Each conversation writes a snapshot of %d bytes every %v and is renewed every %v. Redis and all gateways share this machine.\n", fleetSnapshot, fleetWrite, fleetRenew)),
		moves.write(stdout, began, fmt.Sprintf("The fullest as a share of the mean. Callers of the dead gateway come to any other within a second, others to the one with the fewest; those of the drained one leave at a moment within %v. "+
			"While one joins, conversations last for %v.", fleetPause, fleetLife)))
}

func fleetRow(ctx context.Context, o options, n int, costs, moves *table) error {
	redis, err := redistest.Start()
	if err != nil {
		return err
	}
	defer redis.Stop()
	f := &simulation{redis: redis, snapshot: make([]byte, fleetSnapshot)}
	rand.Read(f.snapshot)
	empty, err := redisMemory(redis)
	if err != nil {
		return err
	}
	all, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	first, kill := context.WithCancel(all)
	defer kill()
	var nodes []*simulated
	for i := range fleetNodes {
		g, err := f.join(i*n/fleetNodes, n/fleetNodes)
		if err != nil {
			return err
		}
		nodes = append(nodes, g)
		until := all
		if i == 0 {
			until = first
		}
		running.Go(func() { g.run(until) })
	}
	if err := sleep(ctx, o.settle+fleetWrite); err != nil {
		return err
	}
	server := &process{cmd: &exec.Cmd{Process: &os.Process{Pid: redis.PID()}}}
	before, err := server.usage()
	if err != nil {
		return err
	}
	f.take()
	if err := sleep(ctx, o.window); err != nil {
		return err
	}
	after, err := server.usage()
	if err != nil {
		return err
	}
	took, calls, fails := f.take()
	full, err := redisMemory(redis)
	if err != nil {
		return err
	}
	wall := after.at.Sub(before.at)
	costs.row(fmt.Sprint(n), fmt.Sprintf("%.0f", float64(calls)/wall.Seconds()), fmt.Sprintf("%.2f cores", (after.cpu-before.cpu).Seconds()/wall.Seconds()),
		fmt.Sprintf("%.1f KB", float64(full-empty)/float64(n)/1024), milliseconds(quantile(took, .5))+" / "+milliseconds(quantile(took, .99))+fmt.Sprintf("; %d of %d", fails, calls))
	kill()
	return f.movesRow(ctx, nodes, func(g *simulated) { running.Go(func() { g.run(all) }) }, n, moves)
}

// redisMemory is what Redis uses, in bytes.
func redisMemory(r *redistest.Server) (n int64, err error) {
	out, err := exec.Command("redis-cli", "-s", strings.TrimPrefix(r.URL(), "unix://"), "info", "memory").Output()
	if err != nil {
		return 0, fmt.Errorf("redis-cli: %w", err)
	}
	_, rest, _ := strings.Cut(string(out), "used_memory:")
	_, err = fmt.Sscan(rest, &n)
	return n, err
}
