// Package cluster shares conversations between several gateways through a store. The gateway that runs a conversation
// has its authoritative state. It writes a snapshot to the store after each relevant change, and detects when another
// gateway has taken over the conversation. Only the goroutine of the [Cluster] and the methods that take a context wait
// for the store.
//
// A gateway without a store has a nil [Cluster] and nil [Entry] values, whose methods do nothing.
package cluster

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
	// leaseEvery is the interval at which a gateway renews its entries in the store. When it renews an entry, it
	// notices whether another gateway has taken over that conversation.
	leaseEvery = 5 * time.Second
	// leaseTime is the lifetime of an entry that is not renewed.
	leaseTime = 15 * time.Second

	// noticeEvery is the interval at which a gateway looks for notices that others have taken over its conversations.
	// It is short, because Gemini rejects the other gateway until this one has closed its connection.
	noticeEvery = 250 * time.Millisecond

	// quotaEvery is the interval at which gateways tell each other that the quota of their common key is exhausted. It
	// is short, because rejected attempts count towards the quota, too.
	quotaEvery = time.Second

	// writers is the number of concurrent writes to the store. If each write takes 200 ms, 400 conversations can be
	// renewed within leaseEvery.
	writers = 16

	// releaseTime limits how long TakeOver waits until another gateway has released a conversation. TakeOver polls
	// every releaseEvery.
	releaseTime  = time.Second
	releaseEvery = 10 * time.Millisecond

	// publishTime limits how long FindOwner looks for a conversation that is not in the store. It waits because a
	// gateway lists a new conversation at once, but writes it to the store a little later. FindOwner polls every
	// publishEvery.
	publishTime  = 250 * time.Millisecond
	publishEvery = 25 * time.Millisecond

	// maxTakeTries limits the attempts of TakeOver. An attempt fails if another gateway takes over the same
	// conversation first.
	maxTakeTries = 3
)

// Keys in the store. They must not change, because gateways of different versions share a store.
const (
	allNodesKey     = "nodes/all"     // the gateways, each with the number of its conversations plus one
	leavingNodesKey = "nodes/leaving" // gateways that accept no more conversations and still have some
	quotaKey        = "quota/models"  // exhausted quotas of the common key; a member is a model, a line break and a gateway
)

// snapshotKey returns the key of a conversation's snapshot.
func snapshotKey(id string) string { return "session/" + id }

// noticesKey returns the key under which other gateways tell a gateway that they have taken over its conversations.
func noticesKey(node string) string { return "taken/" + node }

// ErrUnavailable reports that the store did not answer.
var ErrUnavailable = errors.New("the store does not answer")

// SnapshotHeader is the part of a snapshot that this package reads. A [Snapshot] embeds it.
type SnapshotHeader struct {
	Node     string // gateway that owns the conversation
	Moving   bool   `json:",omitempty"` // its client was asked to move to another gateway
	Released bool   `json:",omitempty"` // the conversation has ended at Node, and so has its connection to the model
}

// Header implements [Snapshot].
func (h *SnapshotHeader) Header() *SnapshotHeader { return h }

// Snapshot holds what another gateway needs to continue a conversation. It is stored as JSON, and must not be changed
// once it is passed to this package.
type Snapshot interface{ Header() *SnapshotHeader }

// QuotaExchange knows for which models the quota of the gateways' key is exhausted; see upstream.Breakers.
type QuotaExchange interface {
	RefusedModels() map[string]time.Duration
	LearnRefusal(model string, left time.Duration)
}

// Options configure a [Cluster]. All fields are required.
type Options struct {
	Store       store.Store
	Node        string        // a name that no other gateway has or had; a space and this gateway's URL may follow
	SnapshotTTL time.Duration // how long the store keeps a snapshot after its lease has run out
	Quota       QuotaExchange
	Logger      *slog.Logger
}

// Cluster connects this gateway with the others. Its methods are safe for concurrent use. Those that take a context
// wait for the store.
type Cluster struct {
	Options
	wake       chan struct{} // has a token when there is something to write
	stop       chan struct{}
	goroutines sync.WaitGroup

	mu         sync.Mutex
	entries    map[*Entry]struct{}
	endedConvs map[string]*endedConv // ended conversations by ID
	countOrder uint64                // sequence number of the last call of SetUsage
	isLeaving  bool                  // this gateway accepts no more conversations
	isStopped  bool                  // this gateway has no more conversations
	otherCount int                   // number of other gateways that accept conversations
}

// Entry is the entry of a local conversation in the store.
type Entry struct {
	cluster    *Cluster
	id         string
	generation uint64
	onTaken    func() // ends the conversation at this gateway

	// Guarded by mu of the cluster.
	pending  Snapshot // snapshot to be written, or nil
	stored   Snapshot // snapshot last written, or nil
	isStored bool     // the store has an entry, or may have one
	hasEnded bool     // the conversation has ended at this gateway, and continues at another one
	isTaken  bool     // another gateway has taken the conversation over
}

// endedConv is a conversation that has ended for good and must not be resumed. It is kept until the conversation's
// entry in the store is deleted or has expired.
type endedConv struct {
	generation  uint64
	expiresAt   time.Time // when its entry in the store has expired
	deleteTried bool      // a deletion was tried; it is tried again at each renewal
}

// New returns the cluster connection of a gateway, or nil if the gateway has no store. Close releases it.
func New(o Options) *Cluster {
	if o.Store == nil {
		return nil
	}
	f := &Cluster{
		Options: o, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		entries: map[*Entry]struct{}{}, endedConvs: map[string]*endedConv{},
	}
	f.goroutines.Go(f.runLoop)
	return f
}

// Close writes the pending snapshots and deletions, and blocks until that is done.
func (c *Cluster) Close() {
	if c != nil {
		close(c.stop)
		c.goroutines.Wait()
	}
}

func (c *Cluster) runLoop() {
	ctx := context.Background() // each store call has its own timeout
	renew, notices, quota := time.NewTicker(leaseEvery), time.NewTicker(noticeEvery), time.NewTicker(quotaEvery)
	defer renew.Stop()
	defer notices.Stop()
	defer quota.Stop()
	c.publishPresence(ctx)
	for {
		select {
		case <-c.wake:
			c.writeEntries(ctx, false)
		case <-renew.C:
			c.publishPresence(ctx)
			c.writeEntries(ctx, true)
		case <-notices.C:
			c.endTakenEntries(ctx)
		case <-quota.C:
			c.exchangeQuota(ctx)
		case <-c.stop:
			c.StopAccepting() // if not done before
			c.mu.Lock()
			c.isStopped = true
			c.mu.Unlock()
			c.publishPresence(ctx)
			c.writeEntries(ctx, true)
			return
		}
	}
}

// AddEntry starts publishing a conversation. generation is 1 for a new conversation, and otherwise the result of
// TakeOver. onTaken is called when another gateway has taken over the conversation, and must end it at this gateway. It
// is called from any goroutine, perhaps repeatedly.
func (c *Cluster) AddEntry(id string, generation uint64, onTaken func()) *Entry {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &Entry{cluster: c, id: id, generation: generation, onTaken: onTaken}
	r.isStored = generation > 1 // TakeOver has written the snapshot to the store
	c.entries[r] = struct{}{}
	return r
}

// QueueSnapshot queues a snapshot to be written. It replaces a snapshot that is still queued. It does not block.
func (e *Entry) QueueSnapshot(next Snapshot) {
	if e == nil {
		return
	}
	e.cluster.mu.Lock()
	defer e.cluster.mu.Unlock()
	e.pending = next
	e.cluster.wakeWriter()
}

// End deletes an ended conversation from the store if last is nil. Otherwise it stores the snapshot last, from which
// another gateway continues the conversation. It does not block, and must be called only once.
func (e *Entry) End(last Snapshot) {
	if e == nil {
		return
	}
	f := e.cluster
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case e.isTaken || last == nil && !e.isStored:
		delete(f.entries, e)
		return
	case last == nil:
		delete(f.entries, e)
		f.endedConvs[e.id] = &endedConv{generation: e.generation, expiresAt: time.Now().Add(f.SnapshotTTL + leaseTime + leaseEvery)}
	default:
		e.hasEnded, e.pending = true, last
	}
	f.wakeWriter()
}

// EndIfTaken ends the conversation at this gateway if another gateway has taken it over, and reports whether it has
// ended here. generation is the generation of the conversation in the store.
func (e *Entry) EndIfTaken(generation uint64) (isEnded bool) {
	f := e.cluster
	f.mu.Lock()
	_, known := f.entries[e]
	e.isTaken = e.isTaken || generation > e.generation
	hasEnded := !known || e.isTaken
	f.mu.Unlock()
	if hasEnded {
		e.onTaken()
	}
	return hasEnded
}

// TakeOver takes over a conversation from another gateway, and increases its generation. parse decodes the snapshot of
// the conversation. accept decides whether to take over the conversation, and may block.
//
// It returns the new generation, or 0 if the conversation was not found or not accepted. The error is [ErrUnavailable]
// or the error of ctx.
func (c *Cluster) TakeOver(
	ctx context.Context, id string, parse func(value []byte) (Snapshot, error), accept func(generation uint64) bool,
) (generation uint64, err error) {
	if c == nil {
		return 0, nil
	}
	for range maxTakeTries {
		found, generation, err := c.findSnapshot(ctx, id, parse)
		if err != nil || found == nil || !accept(generation) || c.hasEnded(id) {
			return 0, err
		}
		head := found.Header()
		was := *head
		*head = SnapshotHeader{Node: c.Node}
		now, err := c.swapSnapshot(ctx, id, generation, generation+1, found, c.SnapshotTTL+leaseTime)
		if err != nil {
			c.Logger.Warn("store: conversation not taken", "call", id, "err", err)
			return 0, ErrUnavailable
		}
		if now != generation+1 { // another gateway was faster
			continue
		}
		if !was.Released {
			// If this notice cannot be stored, the other gateway learns of the takeover when it next renews its entry.
			_, _, _ = c.Store.SetUsage(ctx, noticesKey(was.Node), id, now, int(now), -1, leaseTime)
		}
		c.Logger.Info("conversation taken over from another gateway", "call", id, "released", was.Released, "generation", now)
		return now, nil
	}
	return 0, ErrUnavailable
}

// findSnapshot returns the snapshot of a conversation with its generation, or nil. If another gateway is about to
// release the conversation, it waits for that.
func (c *Cluster) findSnapshot(ctx context.Context, id string, parse func([]byte) (Snapshot, error)) (Snapshot, uint64, error) {
	for start := time.Now(); ; {
		value, generation, err := c.Store.Get(ctx, snapshotKey(id))
		if err != nil {
			c.Logger.Warn("store: conversation not read", "call", id, "err", err)
			return nil, 0, ErrUnavailable
		}
		if generation == 0 {
			return nil, 0, nil
		}
		found, err := parse(value)
		if err != nil {
			c.Logger.Error("invalid snapshot", "call", id, "err", err)
			return nil, 0, nil
		}
		if head := found.Header(); !head.Moving || head.Released || time.Since(start) > releaseTime {
			return found, generation, nil
		}
		select {
		case <-time.After(releaseEvery):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// hasEnded reports whether a conversation has ended for good at this gateway. The store may still have its entry.
func (c *Cluster) hasEnded(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endedConvs[id] != nil
}

func (c *Cluster) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// writeEntries writes queued snapshots to the store and deletes ended conversations. If renewsAll is true, it also
// renews all other entries and retries failed deletions. It blocks.
func (c *Cluster) writeEntries(ctx context.Context, renewsAll bool) {
	c.mu.Lock()
	var jobs []func()
	for r := range c.entries {
		if r.pending != nil || r.hasEnded || renewsAll && r.stored != nil {
			jobs = append(jobs, func() { c.writeEntry(ctx, r) })
		}
	}
	for id, e := range c.endedConvs {
		if renewsAll || !e.deleteTried {
			jobs = append(jobs, func() { c.deleteEnded(ctx, id, e) })
		}
	}
	c.mu.Unlock()
	var running errgroup.Group
	running.SetLimit(writers)
	for _, write := range jobs {
		running.Go(func() error { write(); return nil })
	}
	running.Wait()
}

// writeEntry writes the queued snapshot of a conversation, or renews its entry.
func (c *Cluster) writeEntry(ctx context.Context, r *Entry) {
	c.mu.Lock()
	if _, known := c.entries[r]; !known { // the conversation has ended meanwhile
		c.mu.Unlock()
		return
	}
	next, over := r.pending, r.hasEnded
	r.pending, r.isStored = nil, true
	c.mu.Unlock()
	now, err := c.replaceSnapshot(ctx, r.id, r.generation, next, c.SnapshotTTL+leaseTime)
	if err == nil && now == 0 { // the entry has expired in the store
		next = r.stored
		now, err = c.replaceSnapshot(ctx, r.id, r.generation, next, c.SnapshotTTL+leaseTime)
	}
	c.mu.Lock()
	switch {
	case err != nil:
		if r.pending == nil {
			r.pending = next // written again at the next renewal
		}
		if over {
			delete(c.entries, r) // the stored entry will expire
		}
	case now > r.generation:
		r.isTaken = true
	case next != nil:
		r.stored = next
	}
	isTaken := r.isTaken
	if err == nil && (over || isTaken && r.hasEnded) {
		delete(c.entries, r)
	}
	c.mu.Unlock()
	if isTaken && !over {
		r.onTaken()
	}
}

// deleteEnded deletes an ended conversation from the store.
func (c *Cluster) deleteEnded(ctx context.Context, id string, e *endedConv) {
	_, err := c.replaceSnapshot(ctx, id, e.generation, nil, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.deleteTried = true; err == nil || time.Now().After(e.expiresAt) {
		delete(c.endedConvs, id)
	}
}

// replaceSnapshot writes the snapshot s if the store still has this generation. If s is nil, it renews the stored
// snapshot. If ttl is 0, it deletes the stored snapshot. now is the generation in the store afterwards.
func (c *Cluster) replaceSnapshot(
	ctx context.Context, id string, generation uint64, s Snapshot, ttl time.Duration,
) (now uint64, err error) {
	now, err = c.swapSnapshot(ctx, id, generation, generation, s, ttl)
	if err == nil && now > 0 && now < generation { // a failover of the store has lost the takeover by this gateway
		now, err = c.swapSnapshot(ctx, id, now, generation, s, ttl)
	}
	return now, err
}

// swapSnapshot writes a snapshot; see [store.Store].CompareAndSwap.
func (c *Cluster) swapSnapshot(
	ctx context.Context, id string, was, generation uint64, s Snapshot, ttl time.Duration,
) (now uint64, err error) {
	var value []byte
	if s != nil {
		if value, err = json.Marshal(s); err != nil {
			c.Logger.Error("snapshot not marshalled", "call", id, "err", err)
			return 0, err
		}
	}
	return c.Store.CompareAndSwap(ctx, snapshotKey(id), was, generation, value, ttl)
}

// endTakenEntries ends conversations at this gateway that other gateways have taken over.
func (c *Cluster) endTakenEntries(ctx context.Context) {
	c.mu.Lock()
	none := len(c.entries) == 0
	c.mu.Unlock()
	if none {
		return
	}
	list, err := c.Store.Members(ctx, noticesKey(c.Node))
	if err != nil || len(list) == 0 {
		return
	}
	var lost []*Entry
	c.mu.Lock()
	for r := range c.entries {
		if list[r.id] > int(r.generation) && !r.isTaken {
			r.isTaken = true
			lost = append(lost, r)
		}
	}
	c.mu.Unlock()
	for _, r := range lost {
		r.onTaken()
	}
}

// exchangeQuota publishes the models that Google has refused to this gateway because the quota is exhausted. It also
// reads what the other gateways have published.
func (c *Cluster) exchangeQuota(ctx context.Context) {
	for model, left := range c.Quota.RefusedModels() {
		_, _, _ = c.Store.SetUsage(ctx, quotaKey, model+"\n"+c.Node, c.nextSequenceNumber(), int(left.Milliseconds()), -1, left)
	}
	list, err := c.Store.Members(ctx, quotaKey)
	if err != nil {
		return
	}
	for member, left := range list {
		if model, node, ok := strings.Cut(member, "\n"); ok && node != c.Node {
			c.Quota.LearnRefusal(model, time.Duration(left)*time.Millisecond)
		}
	}
}

// nextSequenceNumber returns the sequence number for the next call of [store.Store].SetUsage.
func (c *Cluster) nextSequenceNumber() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countOrder++
	return c.countOrder
}

// publishPresence publishes whether this gateway accepts conversations or is about to stop. It also counts the other
// gateways.
func (c *Cluster) publishPresence(ctx context.Context) {
	c.mu.Lock()
	here, going, stopped := len(c.entries)+1, c.isLeaving, c.isStopped
	c.mu.Unlock()
	loads := map[string]int{allNodesKey: here}
	if going {
		loads = map[string]int{allNodesKey: 0, leavingNodesKey: here}
	}
	if stopped {
		loads[leavingNodesKey] = 0
	}
	for list, load := range loads {
		_, _, _ = c.Store.SetUsage(ctx, list, c.Node, c.nextSequenceNumber(), load, -1, leaseTime)
	}
	list, err := c.Store.Members(ctx, allNodesKey)
	if err != nil {
		return
	}
	delete(list, c.Node)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.otherCount = len(list)
}

// StopAccepting records that this gateway accepts no more conversations. The next renewal publishes that to the other
// gateways.
func (c *Cluster) StopAccepting() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isLeaving = true
}

// IsAlone reports whether there was no other gateway at the last check.
func (c *Cluster) IsAlone() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.otherCount == 0
}

// FindOwner returns the gateway that owns a conversation, or "" if that is unknown. The conversation may have just
// begun, so it waits for the conversation to appear in the store, but at most for [publishTime].
func (c *Cluster) FindOwner(ctx context.Context, id string) string {
	if c == nil {
		return ""
	}
	for start := time.Now(); ; {
		value, generation, err := c.Store.Get(ctx, snapshotKey(id))
		if err != nil {
			c.Logger.Warn("store: owner of a conversation not read", "call", id, "err", err)
			return ""
		}
		if generation != 0 {
			var head SnapshotHeader
			if json.Unmarshal(value, &head) != nil {
				return ""
			}
			return head.Node
		}
		if time.Since(start) >= publishTime || c.hasEnded(id) {
			return ""
		}
		select {
		case <-time.After(publishEvery):
		case <-ctx.Done():
			return ""
		}
	}
}

// OtherGateways returns the other gateways that accept conversations or still have some, with the number of
// conversations of each.
func (c *Cluster) OtherGateways(ctx context.Context) (map[string]int, error) {
	list := map[string]int{}
	if c == nil {
		return list, nil
	}
	for _, name := range []string{allNodesKey, leavingNodesKey} {
		some, err := c.Store.Members(ctx, name)
		if err != nil {
			return nil, err
		}
		for node, load := range some {
			list[node] = load - 1
		}
	}
	delete(list, c.Node)
	return list, nil
}
