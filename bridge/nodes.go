package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"voxgate/bridge/keeper"
	"voxgate/store"
)

const (
	// leaseEvery is how often what the store has of conversations and nodes is renewed, and leaseTime how long it lasts after that. A
	// node that has lost a conversation to another one finds out when it renews.
	leaseEvery = 5 * time.Second
	leaseTime  = 15 * time.Second

	// callEvery is how often a node looks whether it has been told that others have taken conversations of its own: until it
	// knows, the model refuses them.
	callEvery = 250 * time.Millisecond

	// quotaEvery is how often gateways tell each other that the quota of their key is used up: each conversation that tries costs some
	// of the next.
	quotaEvery = time.Second

	// writers is how many snapshots are written at once: of a store that takes 200 ms a node renews 400 conversations in time.
	writers = 16

	// releaseTime is how long a conversation is waited for that its gateway is about to let go of, looked for every releaseEvery.
	releaseTime  = time.Second
	releaseEvery = 10 * time.Millisecond

	// takeTries is how often a conversation is taken that others take at the same time.
	takeTries = 3
)

// nodes is what a host has to do with other gateways: it tells the store of its conversations, and notices when others have taken
// one. Only its own goroutine waits for the store, and callers who come with a token that is not known here.
type nodes struct {
	store store.Store // nil: there are no others, and nobody is told anything
	node  string
	log   *slog.Logger
	quota *keeper.Breaker

	wake    chan struct{} // has a token when there is something to write
	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	of      map[*Session]*written
	ended   map[string]*ended // by id
	order   uint64            // of calls of Count
	gone    bool              // no conversation shall come here any more
	stopped bool              // none is here any more
	others  int               // nodes that take conversations
}

// written is what the store has of a conversation.
type written struct {
	generation uint64
	next       *snapshot // is to be written; nil: nothing is
	last       *snapshot // was written; nil: nothing was
	begun      bool      // the store has something of it, or may have
	over       bool      // the conversation has ended here, and goes on elsewhere
	taken      bool      // by another node
}

// ended is a conversation that has ended here and goes on nowhere, though the store may still have it. It is kept until
// the store has forgotten it, so that nobody goes on with it.
type ended struct {
	generation uint64
	until      time.Time // then the store has forgotten it by itself
	tried      bool      // to delete it; again with the renewal
}

func newNodes(o Options, quota *keeper.Breaker) *nodes {
	n := &nodes{
		store: o.Store, node: o.Node, log: o.Logger, quota: quota,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), of: map[*Session]*written{}, ended: map[string]*ended{},
	}
	if n.store != nil {
		n.running.Go(n.run)
	}
	return n
}

// close writes what is left, and waits until that is done.
func (n *nodes) close() {
	close(n.stop)
	n.running.Wait()
}

func (n *nodes) run() {
	ctx := context.Background() // each call of the store has a limit of its own
	renew, call := time.NewTicker(leaseEvery), time.NewTicker(callEvery)
	defer renew.Stop()
	defer call.Stop()
	quota := time.NewTicker(quotaEvery)
	defer quota.Stop()
	n.announce(ctx)
	for {
		select {
		case <-n.wake:
			n.write(ctx, false)
		case <-renew.C:
			n.announce(ctx)
			n.write(ctx, true)
		case <-call.C:
			n.listen(ctx)
		case <-quota.C:
			n.shareQuota(ctx)
		case <-n.stop:
			n.withdraw() // if nobody has
			n.mu.Lock()
			n.stopped = true
			n.mu.Unlock()
			n.announce(ctx)
			n.write(ctx, true)
			return
		}
	}
}

// name is what the store has a conversation under.
func name(id string) string { return "session/" + id }

// add begins to tell of a conversation that is of a generation here.
func (n *nodes) add(s *Session, generation uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[s] = &written{generation: generation, begun: generation > 1} // more than 1: the store has what was taken
}

// put has a snapshot written, instead of the one before if that waits still. It does not block.
func (n *nodes) put(s *Session, next *snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.of[s]; w != nil {
		w.next = next
		n.signal()
	}
}

// end forgets a conversation that has ended here. With last another node goes on with it.
func (n *nodes) end(s *Session, last *snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.of[s]
	switch {
	case w.taken || last == nil && !w.begun:
		delete(n.of, s)
		return
	case last == nil:
		delete(n.of, s)
		n.ended[s.id] = &ended{generation: w.generation, until: time.Now().Add(s.host.options.Park + leaseTime + leaseEvery)}
	default:
		w.over, w.next = true, last
	}
	n.signal()
}

// hasEnded tells whether a conversation has ended here, though the store may still have it.
func (n *nodes) hasEnded(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ended[id] != nil
}

// forgetEnded has the store forget a conversation that has ended here.
func (n *nodes) forgetEnded(ctx context.Context, id string, e *ended) {
	_, err := n.swap(ctx, id, e.generation, nil, 0)
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.tried = true; err == nil || time.Now().After(e.until) {
		delete(n.ended, id)
	}
}

func (n *nodes) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// write writes the snapshots that wait and deletes those of conversations that have ended. With all it renews the
// others, and tries again to delete. It returns when that is done.
func (n *nodes) write(ctx context.Context, all bool) {
	n.mu.Lock()
	var due []func()
	for s, w := range n.of {
		if w.next != nil || w.over || all && w.last != nil {
			due = append(due, func() { n.writeOne(ctx, s) })
		}
	}
	for id, e := range n.ended {
		if all || !e.tried {
			due = append(due, func() { n.forgetEnded(ctx, id, e) })
		}
	}
	n.mu.Unlock()
	work := make(chan func())
	var wg sync.WaitGroup
	for range min(writers, len(due)) {
		wg.Go(func() {
			for f := range work {
				f()
			}
		})
	}
	for _, f := range due {
		work <- f
	}
	close(work)
	wg.Wait()
}

// writeOne writes what is new of a conversation, or renews what there is.
func (n *nodes) writeOne(ctx context.Context, s *Session) {
	n.mu.Lock()
	w := n.of[s]
	if w == nil { // it has ended meanwhile
		n.mu.Unlock()
		return
	}
	next, over, generation := w.next, w.over, w.generation
	w.next, w.begun = nil, true
	n.mu.Unlock()
	ttl := s.host.options.Park + leaseTime
	now, err := n.swap(ctx, s.id, generation, next, ttl)
	if err == nil && now == 0 { // the store has forgotten it
		next = w.last
		now, err = n.swap(ctx, s.id, generation, next, ttl)
	}
	n.mu.Lock()
	switch {
	case err != nil:
		if w.next == nil {
			w.next = next // later, with the renewal
		}
		if over {
			delete(n.of, s) // what the store has ends by itself
		}
	case now > generation:
		w.taken = true
	case next != nil:
		w.last = next
	}
	taken := w.taken
	if err == nil && (over || taken && w.over) {
		delete(n.of, s)
	}
	n.mu.Unlock()
	if taken && !over {
		n.lose(s)
	}
}

// swap writes a snapshot, or with nil keeps the one there is.
func (n *nodes) swap(ctx context.Context, id string, generation uint64, next *snapshot, ttl time.Duration) (now uint64, err error) {
	var value []byte
	if next != nil {
		if value, err = json.Marshal(next); err != nil {
			n.log.Error("snapshot", "call", id, "err", err)
			return 0, err
		}
	}
	now, err = n.store.Swap(ctx, name(id), generation, generation, value, ttl)
	if err == nil && now > 0 && now < generation { // a failover of the store has lost what we wrote when we took it
		now, err = n.store.Swap(ctx, name(id), now, generation, value, ttl)
	}
	return now, err
}

// lose ends a conversation here that another node has taken.
func (n *nodes) lose(s *Session) {
	s.log.Info("taken by another gateway")
	_ = s.Do(taken{}) // fails if it has just ended
}

// taken is a [Command] that ends a conversation which goes on at another gateway.
type taken struct{}

func (taken) command() {}

// calls is where a node is told which of its conversations were taken.
func calls(node string) string { return "taken/" + node }

// listen looks whether somebody has taken conversations.
func (n *nodes) listen(ctx context.Context) {
	n.mu.Lock()
	none := len(n.of) == 0
	n.mu.Unlock()
	if none {
		return
	}
	list, err := n.store.Members(ctx, calls(n.node))
	if err != nil || len(list) == 0 {
		return
	}
	var lost []*Session
	n.mu.Lock()
	for s, w := range n.of {
		if list[s.id] > int(w.generation) && !w.taken {
			w.taken = true
			lost = append(lost, s)
		}
	}
	n.mu.Unlock()
	for _, s := range lost {
		n.lose(s)
	}
}

// shareQuota tells the others that Google has refused us for want of quota, and takes it from them.
func (n *nodes) shareQuota(ctx context.Context) {
	const name = "quota/all" // they have one key
	if left := n.quota.Refused(); left > 0 {
		_, _, _ = n.store.Count(ctx, name, n.node, n.next(), int(left.Milliseconds()), -1, left)
		return
	}
	list, err := n.store.Members(ctx, name)
	if err != nil {
		return
	}
	delete(list, n.node)
	for _, left := range list {
		n.quota.Learn(time.Duration(left) * time.Millisecond)
	}
}

// next is the order of a call of Count.
func (n *nodes) next() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.order++
	return n.order
}

// fleet is the name under which nodes announce themselves, with one more than the conversations that they have; leaving is the one of
// those that take no more conversations and have some still.
const (
	fleet   = "nodes/all"
	leaving = "nodes/leaving"
)

// announce says that we are there, or that we are about to go.
func (n *nodes) announce(ctx context.Context) {
	n.mu.Lock()
	here, gone, stopped := len(n.of)+1, n.gone, n.stopped
	n.mu.Unlock()
	loads := map[string]int{fleet: here}
	if gone {
		loads = map[string]int{fleet: 0, leaving: here}
	}
	if stopped {
		loads[leaving] = 0
	}
	for list, load := range loads {
		_, _, _ = n.store.Count(ctx, list, n.node, n.next(), load, -1, leaseTime)
	}
	list, err := n.store.Members(ctx, fleet)
	if err != nil {
		return
	}
	delete(list, n.node)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.others = len(list)
}

// withdraw has nobody come here any more.
func (n *nodes) withdraw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
}

// alone tells whether there was no other node when we announced ourselves last.
func (n *nodes) alone() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.others == 0
}

// errStoreAway refuses a resume that cannot be looked up.
var errStoreAway = &Error{Code: CodeBusy, Message: "The conversation cannot be looked up just now.", Retry: time.Second}

// take takes the conversation of a resume token from the gateway that has it, or had it. A nil session: there is none.
func (h *Host) take(ctx context.Context, o Open) (*Session, error) {
	n := h.nodes
	id := conversationOf(o.ResumeToken)
	if id == "" || n.store == nil {
		return nil, nil
	}
	for range takeTries {
		found, generation, err := n.find(ctx, id)
		if err != nil {
			return nil, err
		}
		if found == nil || !found.opens(o) || !h.left(id, generation) || n.hasEnded(id) {
			return nil, nil
		}
		was := *found
		found.Node, found.Moving, found.Released = n.node, false, false
		now, err := n.claim(ctx, id, generation, found, h.options.Park+leaseTime)
		if err != nil {
			return nil, err
		}
		if now != generation+1 { // somebody else was quicker
			continue
		}
		if !was.Released {
			_, _, _ = n.store.Count(ctx, calls(was.Node), id, now, int(now), -1, leaseTime) // if it fails, the renewal tells
		}
		s, err := h.adopt(id, found, now, o)
		if err == nil {
			s.log.Info("taken from another gateway", "released", was.Released, "generation", now)
		}
		return s, err
	}
	return nil, errStoreAway
}

// left tells whether a conversation that the store has of a generation is not here. One that is just ending, or that others had
// meanwhile, is waited for.
func (h *Host) left(id string, generation uint64) bool {
	s := h.Session(id)
	if s == nil {
		return true
	}
	h.mu.Lock()
	session := h.sessions[s]
	h.mu.Unlock()
	if session == nil {
		return true
	}
	select {
	case <-s.over:
	default:
		if !h.nodes.outdated(s, generation) {
			return false // its tokens are known here, and this is none of them
		}
		h.nodes.lose(s)
	}
	<-session.gone
	return true
}

// outdated notes that the store has a conversation of a generation, and tells whether others have taken it by that.
func (n *nodes) outdated(s *Session, generation uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.of[s]
	if w != nil && generation > w.generation {
		w.taken = true
	}
	return w == nil || w.taken
}

// find reads what the store has of a conversation. One whose gateway is about to let go of it is waited for.
func (n *nodes) find(ctx context.Context, id string) (*snapshot, uint64, error) {
	for began := time.Now(); ; {
		value, generation, err := n.store.Get(ctx, name(id))
		if err != nil {
			n.log.Warn("the store was asked for a conversation", "call", id, "err", err)
			return nil, 0, errStoreAway
		}
		if generation == 0 {
			return nil, 0, nil
		}
		found := &snapshot{}
		if err := json.Unmarshal(value, found); err != nil {
			n.log.Error("snapshot", "call", id, "err", err)
			return nil, 0, nil
		}
		if !found.Moving || found.Released || time.Since(began) > releaseTime {
			return found, generation, nil
		}
		select {
		case <-time.After(releaseEvery):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// claim writes that a conversation is ours.
func (n *nodes) claim(ctx context.Context, id string, generation uint64, s *snapshot, ttl time.Duration) (now uint64, err error) {
	value, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	if now, err = n.store.Swap(ctx, name(id), generation, generation+1, value, ttl); err != nil {
		n.log.Warn("the store was asked for a conversation", "call", id, "err", err)
		return 0, errStoreAway
	}
	return now, nil
}

// adopt starts the loop of a conversation that was taken.
func (h *Host) adopt(id string, found *snapshot, generation uint64, o Open) (*Session, error) {
	s, err := h.restored(id, found, o)
	if err != nil {
		return nil, AsError(err)
	}
	o.Account.Continue()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		o.Account.End()
		return nil, ErrShutdown
	}
	s.move.wanted, s.move.since = h.draining, time.Now()
	h.start(s, generation)
	known := h.sessions[s]
	for i, t := range [2]*tokenHash{&known.current, &known.previous} {
		if copy(t[:], found.Tokens[i]) == len(t) {
			h.tokens[*t] = s
		}
	}
	return s, nil
}

// Node is the gateway that has a conversation; empty: none that is known has.
func (h *Host) Node(ctx context.Context, id string) string {
	if h.nodes.store == nil {
		return ""
	}
	value, _, err := h.nodes.store.Get(ctx, name(id))
	var found snapshot
	if err != nil || json.Unmarshal(value, &found) != nil {
		return ""
	}
	return found.Node
}

// Name is how the other gateways know this one, without its URL; empty: there are none.
func (h *Host) Name() string {
	name, _, _ := strings.Cut(h.options.Node, " ")
	return name
}

// Nodes are the gateways that have conversations or may have some, and how many each has; without ours.
func (h *Host) Nodes(ctx context.Context) (map[string]int, error) {
	list := map[string]int{}
	if h.nodes.store == nil {
		return list, nil
	}
	for _, name := range []string{fleet, leaving} {
		some, err := h.nodes.store.Members(ctx, name)
		if err != nil {
			return nil, err
		}
		for node, load := range some {
			list[node] = load - 1
		}
	}
	delete(list, h.nodes.node)
	return list, nil
}

// ErrMoved is the end of a conversation here that goes on at another gateway.
var ErrMoved = errors.New("the conversation goes on at another gateway")
