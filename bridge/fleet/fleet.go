// Package fleet lets several gateways know each other's conversations through a shared store. The gateway that runs a
// conversation has its authoritative state: it writes a snapshot whenever something relevant has happened, and notices
// when another gateway has taken the conversation over. Only the goroutine of the [Fleet] and the callers of Take wait
// for the store.
//
// A nil [Fleet] and a nil [Record] belong to a gateway that is alone: their methods do nothing.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"voxgate/store"
)

const (
	// leaseEvery is how often a gateway renews its entries in the store, and leaseTime how long they last. A gateway that
	// has lost a conversation to another one finds out at the next renewal at the latest.
	leaseEvery = 5 * time.Second
	leaseTime  = 15 * time.Second

	// noticeEvery is how often a gateway looks for notices that others have taken over conversations of its own. Until it
	// has seen the notice, its connection is open and Gemini refuses the taker.
	noticeEvery = 250 * time.Millisecond

	// quotaEvery is how often gateways exchange whether the quota of their key is used up: each attempt counts against the
	// quota, too.
	quotaEvery = time.Second

	// writers is how many snapshots are written at once: with a store that takes 200 ms a gateway renews 400 conversations
	// in time.
	writers = 16

	// releaseTime is how long Take waits for a gateway that is about to release a conversation. It looks every
	// releaseEvery.
	releaseTime  = time.Second
	releaseEvery = 10 * time.Millisecond

	// takeTries is how often Take tries again when others take the same conversation at the same time.
	takeTries = 3
)

// The names in the store. Members of present are the gateways, each with one more than the conversations that it has;
// those of leaving take no more conversations and still have some. Gateways of several versions share a store, so the
// names stay.
const (
	present = "nodes/all"
	leaving = "nodes/leaving"
	quota   = "quota/models" // of the one key that all gateways have: members are a model, a line break and a gateway
)

// snapshotOf is where the store has the snapshot of a conversation.
func snapshotOf(id string) string { return "session/" + id }

// noticesFor is where other gateways leave notices that they have taken over conversations of a gateway.
func noticesFor(node string) string { return "taken/" + node }

// ErrAway says that the store did not answer.
var ErrAway = errors.New("the store does not answer")

// Head is the part of a snapshot that the fleet reads. A [Snapshot] embeds it.
type Head struct {
	Node     string // the gateway that has the conversation
	Moving   bool   `json:",omitempty"` // its client was asked to go to another gateway
	Released bool   `json:",omitempty"` // it has ended there, and so has its connection to the model
}

// Header implements [Snapshot].
func (h *Head) Header() *Head { return h }

// Snapshot is what another gateway needs to go on with a conversation. It is stored as JSON, and must not change once
// it was given away.
type Snapshot interface{ Header() *Head }

// Quota is for which models the quota of the gateways' key is used up, as keeper.Breakers has it.
type Quota interface {
	RefusedModels() map[string]time.Duration
	LearnRefusal(model string, left time.Duration)
}

// Options make a [Fleet]. All fields are needed.
type Options struct {
	Store  store.Store
	Node   string        // this gateway: a name that no other has or had, then a space and its URL, if it has one
	Keep   time.Duration // how long the store keeps a snapshot that nobody renews; the time of a lease is added
	Quota  Quota
	Logger *slog.Logger
}

// Fleet is this gateway among the others. Its methods may be called by any goroutine; those with a context wait for the
// store.
type Fleet struct {
	Options
	wake    chan struct{} // has a token when there is something to write
	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	records map[*Record]struct{}
	ended   map[string]*ended // by id
	order   uint64            // of calls of Count
	going   bool              // takes no more conversations
	stopped bool              // has no more conversations
	others  int               // gateways that take conversations
}

// Record is what the store has of a conversation that runs here.
type Record struct {
	fleet      *Fleet
	id         string
	generation uint64
	lost       func() // ends the conversation here

	// Guarded by mu of the fleet.
	next    Snapshot // is to be written; nil: nothing is
	last    Snapshot // was written; nil: nothing was
	written bool     // the store has something of it, or may have
	over    bool     // the conversation has ended here, and goes on elsewhere
	taken   bool     // by another gateway
}

// ended is a conversation that has ended here and goes on nowhere, though the store may still have it. It is kept until
// the store has forgotten it, so that nobody resumes it.
type ended struct {
	generation uint64
	until      time.Time // then the store has forgotten it by itself
	tried      bool      // to delete it; again with the renewal
}

// New returns the fleet of a gateway, which is nil without a store. Close releases it.
func New(o Options) *Fleet {
	if o.Store == nil {
		return nil
	}
	f := &Fleet{
		Options: o, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		records: map[*Record]struct{}{}, ended: map[string]*ended{},
	}
	f.running.Go(f.run)
	return f
}

// Close writes what is left, and waits until that is done.
func (f *Fleet) Close() {
	if f != nil {
		close(f.stop)
		f.running.Wait()
	}
}

func (f *Fleet) run() {
	ctx := context.Background() // each call of the store has a limit of its own
	renew, notices, quota := time.NewTicker(leaseEvery), time.NewTicker(noticeEvery), time.NewTicker(quotaEvery)
	defer renew.Stop()
	defer notices.Stop()
	defer quota.Stop()
	f.announce(ctx)
	for {
		select {
		case <-f.wake:
			f.write(ctx, false)
		case <-renew.C:
			f.announce(ctx)
			f.write(ctx, true)
		case <-notices.C:
			f.readNotices(ctx)
		case <-quota.C:
			f.shareQuota(ctx)
		case <-f.stop:
			f.Withdraw() // if nobody has
			f.mu.Lock()
			f.stopped = true
			f.mu.Unlock()
			f.announce(ctx)
			f.write(ctx, true)
			return
		}
	}
}

// Record begins to publish a conversation under a generation: 1, or what Take has returned. lost is called when another
// gateway has taken it over, and ends it here; any goroutine may call it, more than once.
func (f *Fleet) Record(id string, generation uint64, lost func()) *Record {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &Record{fleet: f, id: id, generation: generation, lost: lost}
	r.written = generation > 1 // the store has what was taken
	f.records[r] = struct{}{}
	return r
}

// Save queues a snapshot to be written, in place of one that still waits. It does not block.
func (r *Record) Save(next Snapshot) {
	if r == nil {
		return
	}
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.next = next
	r.fleet.signal()
}

// End makes the store forget the conversation, which has ended, or keep the last snapshot if there is one: another
// gateway goes on. It does not block, and is called once.
func (r *Record) End(last Snapshot) {
	if r == nil {
		return
	}
	f := r.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.taken || last == nil && !r.written:
		delete(f.records, r)
		return
	case last == nil:
		delete(f.records, r)
		f.ended[r.id] = &ended{generation: r.generation, until: time.Now().Add(f.Keep + leaseTime + leaseEvery)}
	default:
		r.over, r.next = true, last
	}
	f.signal()
}

// Superseded reports whether another gateway has taken over the conversation, given the generation in the store. If so,
// it ends the conversation here.
func (r *Record) Superseded(generation uint64) bool {
	f := r.fleet
	f.mu.Lock()
	_, known := f.records[r]
	r.taken = r.taken || generation > r.generation
	gone := !known || r.taken
	f.mu.Unlock()
	if gone {
		r.lost()
	}
	return gone
}

// Take takes over a conversation from the gateway that has it, or had it: it reads the snapshot by parse, and writes it
// back as ours with the next generation. Before that, wanted decides whether to take the conversation; it may block.
// Generation 0: there is none, or it is not wanted. The error is [ErrAway] or that of ctx.
func (f *Fleet) Take(
	ctx context.Context, id string, parse func(value []byte) (Snapshot, error), wanted func(generation uint64) bool,
) (generation uint64, err error) {
	if f == nil {
		return 0, nil
	}
	for range takeTries {
		found, generation, err := f.find(ctx, id, parse)
		if err != nil || found == nil || !wanted(generation) || f.hasEnded(id) {
			return 0, err
		}
		head := found.Header()
		was := *head
		*head = Head{Node: f.Node}
		now, err := f.swap(ctx, id, generation, generation+1, found, f.Keep+leaseTime)
		if err != nil {
			f.Logger.Warn("the store was asked for a conversation", "call", id, "err", err)
			return 0, ErrAway
		}
		if now != generation+1 { // another gateway was quicker
			continue
		}
		if !was.Released {
			// If this fails, the other gateway finds out when it renews.
			_, _, _ = f.Store.Count(ctx, noticesFor(was.Node), id, now, int(now), -1, leaseTime)
		}
		f.Logger.Info("taken from another gateway", "call", id, "released", was.Released, "generation", now)
		return now, nil
	}
	return 0, ErrAway
}

// find reads the snapshot of a conversation; nil: there is none. It waits for a gateway that is about to release it.
func (f *Fleet) find(ctx context.Context, id string, parse func([]byte) (Snapshot, error)) (Snapshot, uint64, error) {
	for began := time.Now(); ; {
		value, generation, err := f.Store.Get(ctx, snapshotOf(id))
		if err != nil {
			f.Logger.Warn("the store was asked for a conversation", "call", id, "err", err)
			return nil, 0, ErrAway
		}
		if generation == 0 {
			return nil, 0, nil
		}
		found, err := parse(value)
		if err != nil {
			f.Logger.Error("snapshot", "call", id, "err", err)
			return nil, 0, nil
		}
		if head := found.Header(); !head.Moving || head.Released || time.Since(began) > releaseTime {
			return found, generation, nil
		}
		select {
		case <-time.After(releaseEvery):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// hasEnded reports whether a conversation has ended here, though the store may still have it.
func (f *Fleet) hasEnded(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended[id] != nil
}

func (f *Fleet) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// write writes the snapshots that wait and deletes those of conversations that have ended. With all it renews the
// others, and tries again to delete. It returns when that is done.
func (f *Fleet) write(ctx context.Context, all bool) {
	f.mu.Lock()
	var due []func()
	for r := range f.records {
		if r.next != nil || r.over || all && r.last != nil {
			due = append(due, func() { f.writeOne(ctx, r) })
		}
	}
	for id, e := range f.ended {
		if all || !e.tried {
			due = append(due, func() { f.deleteOne(ctx, id, e) })
		}
	}
	f.mu.Unlock()
	var running errgroup.Group
	running.SetLimit(writers)
	for _, write := range due {
		running.Go(func() error { write(); return nil })
	}
	running.Wait()
}

// writeOne writes what is new of a conversation, or renews what there is.
func (f *Fleet) writeOne(ctx context.Context, r *Record) {
	f.mu.Lock()
	if _, known := f.records[r]; !known { // it has ended meanwhile
		f.mu.Unlock()
		return
	}
	next, over := r.next, r.over
	r.next, r.written = nil, true
	f.mu.Unlock()
	now, err := f.renew(ctx, r.id, r.generation, next, f.Keep+leaseTime)
	if err == nil && now == 0 { // the store has forgotten it
		next = r.last
		now, err = f.renew(ctx, r.id, r.generation, next, f.Keep+leaseTime)
	}
	f.mu.Lock()
	switch {
	case err != nil:
		if r.next == nil {
			r.next = next // later, with the renewal
		}
		if over {
			delete(f.records, r) // what the store has ends by itself
		}
	case now > r.generation:
		r.taken = true
	case next != nil:
		r.last = next
	}
	taken := r.taken
	if err == nil && (over || taken && r.over) {
		delete(f.records, r)
	}
	f.mu.Unlock()
	if taken && !over {
		r.lost()
	}
}

// deleteOne deletes a conversation that has ended here from the store.
func (f *Fleet) deleteOne(ctx context.Context, id string, e *ended) {
	_, err := f.renew(ctx, id, e.generation, nil, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.tried = true; err == nil || time.Now().After(e.until) {
		delete(f.ended, id)
	}
}

// renew writes a snapshot of a conversation of ours, or with nil renews the one there is; with ttl 0 it deletes it. now
// is the generation that the store has afterwards.
func (f *Fleet) renew(
	ctx context.Context, id string, generation uint64, s Snapshot, ttl time.Duration,
) (now uint64, err error) {
	now, err = f.swap(ctx, id, generation, generation, s, ttl)
	if err == nil && now > 0 && now < generation { // a failover of the store has lost what we wrote when we took it
		now, err = f.swap(ctx, id, now, generation, s, ttl)
	}
	return now, err
}

// swap writes a snapshot; see [store.Store].Swap.
func (f *Fleet) swap(
	ctx context.Context, id string, was, generation uint64, s Snapshot, ttl time.Duration,
) (now uint64, err error) {
	var value []byte
	if s != nil {
		if value, err = json.Marshal(s); err != nil {
			f.Logger.Error("snapshot", "call", id, "err", err)
			return 0, err
		}
	}
	return f.Store.Swap(ctx, snapshotOf(id), was, generation, value, ttl)
}

// readNotices ends the conversations here that others have taken over.
func (f *Fleet) readNotices(ctx context.Context) {
	f.mu.Lock()
	none := len(f.records) == 0
	f.mu.Unlock()
	if none {
		return
	}
	list, err := f.Store.Members(ctx, noticesFor(f.Node))
	if err != nil || len(list) == 0 {
		return
	}
	var lost []*Record
	f.mu.Lock()
	for r := range f.records {
		if list[r.id] > int(r.generation) && !r.taken {
			r.taken = true
			lost = append(lost, r)
		}
	}
	f.mu.Unlock()
	for _, r := range lost {
		r.lost()
	}
}

// shareQuota publishes that Google has refused this gateway for lack of quota, or learns it from the others.
func (f *Fleet) shareQuota(ctx context.Context) {
	for model, left := range f.Quota.RefusedModels() {
		_, _, _ = f.Store.Count(ctx, quota, model+"\n"+f.Node, f.nextOrder(), int(left.Milliseconds()), -1, left)
	}
	list, err := f.Store.Members(ctx, quota)
	if err != nil {
		return
	}
	for member, left := range list {
		if model, node, ok := strings.Cut(member, "\n"); ok && node != f.Node {
			f.Quota.LearnRefusal(model, time.Duration(left)*time.Millisecond)
		}
	}
}

// nextOrder is the order of a call of Count.
func (f *Fleet) nextOrder() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.order++
	return f.order
}

// announce publishes that this gateway serves, or is about to stop, and counts the others.
func (f *Fleet) announce(ctx context.Context) {
	f.mu.Lock()
	here, going, stopped := len(f.records)+1, f.going, f.stopped
	f.mu.Unlock()
	loads := map[string]int{present: here}
	if going {
		loads = map[string]int{present: 0, leaving: here}
	}
	if stopped {
		loads[leaving] = 0
	}
	for list, load := range loads {
		_, _, _ = f.Store.Count(ctx, list, f.Node, f.nextOrder(), load, -1, leaseTime)
	}
	list, err := f.Store.Members(ctx, present)
	if err != nil {
		return
	}
	delete(list, f.Node)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.others = len(list)
}

// Withdraw stops conversations from coming here.
func (f *Fleet) Withdraw() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.going = true
}

// Alone reports whether there was no other gateway when this one last looked.
func (f *Fleet) Alone() bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.others == 0
}

// Where is the gateway that has a conversation; empty: no known gateway has it.
func (f *Fleet) Where(ctx context.Context, id string) string {
	if f == nil {
		return ""
	}
	value, _, err := f.Store.Get(ctx, snapshotOf(id))
	var head Head
	if err != nil || json.Unmarshal(value, &head) != nil {
		return ""
	}
	return head.Node
}

// Others are the other gateways that have conversations or may have some, and how many each has.
func (f *Fleet) Others(ctx context.Context) (map[string]int, error) {
	list := map[string]int{}
	if f == nil {
		return list, nil
	}
	for _, name := range []string{present, leaving} {
		some, err := f.Store.Members(ctx, name)
		if err != nil {
			return nil, err
		}
		for node, load := range some {
			list[node] = load - 1
		}
	}
	delete(list, f.Node)
	return list, nil
}
