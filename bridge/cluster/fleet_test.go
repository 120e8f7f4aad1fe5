package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/cluster"
	"voxgate/store"
)

// talk is a snapshot.
type talk struct {
	cluster.SnapshotHeader
	Said string
}

// fakeQuota holds times in ns for the model "m": how long Google refuses this gateway, and the report of other gateways.
type fakeQuota struct{ refused, learned atomic.Int64 }

func (q *fakeQuota) RefusedModels() map[string]time.Duration {
	if left := q.refused.Load(); left > 0 {
		return map[string]time.Duration{"m": time.Duration(left)}
	}
	return nil
}

func (q *fakeQuota) LearnRefusal(model string, left time.Duration) {
	if model == "m" {
		q.learned.Store(int64(left))
	}
}

// gateway returns the cluster connection of a gateway with this name.
func gateway(t *testing.T, s store.Store, name string) (*cluster.Cluster, *fakeQuota) {
	t.Helper()
	quota := &fakeQuota{}
	f := cluster.New(cluster.Options{Store: s, Node: name, SnapshotTTL: time.Minute, Quota: quota, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(f.Close)
	return f, quota
}

// take takes a conversation over, if its snapshot has the expected text.
func take(t *testing.T, f *cluster.Cluster, id, said string) uint64 {
	t.Helper()
	var found *talk
	generation, err := f.TakeOver(t.Context(), id, func(value []byte) (cluster.Snapshot, error) {
		found = &talk{}
		return found, json.Unmarshal(value, found)
	}, func(uint64) bool { return found.Said == said })
	if err != nil {
		t.Error(err)
	}
	return generation
}

// TestTake: a conversation is taken over once, with its newest snapshot; its previous gateway learns of it and can
// write no more.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory()
		a, _ := gateway(t, shared, "a")
		b, _ := gateway(t, shared, "b")
		var lost atomic.Bool
		r := a.AddEntry("x", 1, func() { lost.Store(true) })
		r.QueueSnapshot(&talk{SnapshotHeader: cluster.SnapshotHeader{Node: "a"}, Said: "one"})
		r.QueueSnapshot(&talk{SnapshotHeader: cluster.SnapshotHeader{Node: "a"}, Said: "two"})
		synctest.Wait()
		if got := b.FindOwner(t.Context(), "x"); got != "a" {
			t.Errorf("is at %q", got)
		}
		if take(t, b, "x", "one") != 0 || take(t, b, "y", "two") != 0 || b.FindOwner(t.Context(), "x") != "a" {
			t.Error("taken, though it was not wanted or is not there")
		}
		if got := take(t, b, "x", "two"); got != 2 || b.FindOwner(t.Context(), "x") != "b" {
			t.Errorf("taken as generation %d, is at %q", got, b.FindOwner(t.Context(), "x"))
		}
		if time.Sleep(300 * time.Millisecond); !lost.Load() {
			t.Error("the gateway before has not noticed")
		}
		r.QueueSnapshot(&talk{SnapshotHeader: cluster.SnapshotHeader{Node: "a"}, Said: "three"})
		r.End(nil)
		time.Sleep(10 * time.Second)
		if got := take(t, a, "x", "two"); got != 3 {
			t.Errorf("back as generation %d", got)
		}
	})
}

// FindOwner also finds a conversation that a gateway has listed but not yet written to the store.
func TestOwnerIsFoundBeforeTheFirstWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory()
		a, _ := gateway(t, shared, "a")
		b, _ := gateway(t, shared, "b")
		time.AfterFunc(100*time.Millisecond, func() {
			a.AddEntry("x", 1, func() {}).QueueSnapshot(&talk{SnapshotHeader: cluster.SnapshotHeader{Node: "a"}})
		})
		if got := b.FindOwner(t.Context(), "x"); got != "a" {
			t.Errorf("is at %q", got)
		}
		start := time.Now()
		if got := b.FindOwner(t.Context(), "y"); got != "" || time.Since(start) > time.Second {
			t.Errorf("an unknown conversation is at %q, after %v", got, time.Since(start))
		}
	})
}

// TestEnd: an ended conversation cannot be taken over, not even by its own gateway. If the store fails at that moment,
// it is asked again.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &failing{Store: store.NewMemory()}
		a, _ := gateway(t, shared, "a")
		b, _ := gateway(t, shared, "b")
		r := a.AddEntry("x", 1, func() {})
		r.QueueSnapshot(&talk{SnapshotHeader: cluster.SnapshotHeader{Node: "a"}})
		synctest.Wait()
		shared.down.Store(true)
		r.End(nil)
		synctest.Wait()
		shared.down.Store(false)
		if take(t, a, "x", "") != 0 {
			t.Error("its own gateway goes on with it")
		}
		time.Sleep(6 * time.Second)
		if take(t, b, "x", "") != 0 {
			t.Error("another gateway goes on with it")
		}
	})
}

// failing is a store that may be down.
type failing struct {
	store.Store
	down atomic.Bool
}

func (f *failing) CompareAndSwap(
	ctx context.Context, name string, was, is uint64, value []byte, ttl time.Duration,
) (uint64, error) {
	if f.down.Load() {
		return 0, errors.New("down")
	}
	return f.Store.CompareAndSwap(ctx, name, was, is, value, ttl)
}

// TestOthers: gateways know each other, the number of conversations of each, and exhausted quotas; one that leaves gets
// no more conversations.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory()
		a, quota := gateway(t, shared, "a")
		b, theirs := gateway(t, shared, "b")
		r := a.AddEntry("x", 1, func() {})
		time.Sleep(6 * time.Second) // both gateways have counted the others since both exist
		if list, err := b.OtherGateways(t.Context()); err != nil || len(list) != 1 || list["a"] != 1 || a.IsAlone() || b.IsAlone() {
			t.Errorf("knows of %v, %v", list, err)
		}
		quota.refused.Store(int64(20 * time.Second))
		time.Sleep(2500 * time.Millisecond)
		if left := time.Duration(theirs.learned.Load()); left != 20*time.Second || quota.learned.Load() != 0 {
			t.Errorf("knows that the quota is used up for %v", left)
		}
		a.StopAccepting()
		r.End(nil)
		time.Sleep(11 * time.Second) // both count every 5 s, one of them first
		if !b.IsAlone() {
			t.Error("a gateway that leaves counts")
		}
	})
}

// TestAlone: a single gateway has no fleet, and all methods of a nil fleet work.
func TestAlone(t *testing.T) {
	f := cluster.New(cluster.Options{})
	r := f.AddEntry("x", 1, nil)
	r.QueueSnapshot(nil)
	r.End(nil)
	f.StopAccepting()
	others, err := f.OtherGateways(t.Context())
	if f != nil || r != nil || !f.IsAlone() || f.FindOwner(t.Context(), "x") != "" || len(others) != 0 || err != nil || take(t, f, "x",
		"") != 0 {
		t.Error("not alone")
	}
	f.Close()
}
