package access

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/store"
)

// gates are those of two gateways with one store.
func gates(t *testing.T, f func(t *testing.T, a, b *Gate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		gate := func(node string) *Gate {
			g, err := New(Options{Store: s, Node: node, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		a, b := gate("a"), gate("b")
		f(t, a, b)
		a.Close()
		b.Close()
	})
}

func begins(t *testing.T, a bridge.Account, want bool) {
	t.Helper()
	synctest.Wait()
	if err := a.Begin(); (err == nil) != want {
		t.Errorf("it began: %v", err)
	}
}

// What all gateways may have together none has alone, and what a dead one had is given back.
func TestSessionsAmongGateways(t *testing.T) {
	gates(t, func(t *testing.T, a, b *Gate) {
		first, second := a.Trunk("line", 2), b.Trunk("line", 2)
		begins(t, first, true)
		begins(t, second, true)
		begins(t, a.Trunk("line", 2), false)
		begins(t, b.Trunk("line", 2), false)
		begins(t, b.Trunk("another", 1), true)
		first.End()
		begins(t, b.Trunk("line", 2), true)
		begins(t, a.Trunk("line", 2), false)
		second.End()
		time.Sleep(time.Minute) // it is said again and again
		begins(t, a.Trunk("line", 1), false)

		close(b.shared.stop) // b is dead
		b.shared.running.Wait()
		time.Sleep(leaseTime)
		begins(t, a.Trunk("line", 1), true)
		b.shared.stop = make(chan struct{})

		moved := a.Trunk("line", 1) // from b
		moved.Continue()
		begins(t, a.Trunk("line", 2), false)
		moved.End()
		begins(t, a.Trunk("line", 2), true)
	})
}

func TestBudgetAmongGateways(t *testing.T) {
	gates(t, func(t *testing.T, a, b *Gate) {
		spender := func(g *Gate) *account {
			return &account{visitor: &Visitor{gate: g}, pass: pass{issuer: "shop", budget: 100}}
		}
		one, other := spender(a), spender(b)
		begins(t, one, true)
		begins(t, other, true)
		one.Spend(60)
		synctest.Wait()
		other.Spend(0)
		begins(t, spender(b), true) // which learns of it
		if left, most := other.Spend(30); left != 10 || most != 100 {
			t.Errorf("%d of %d are left", left, most)
		}
		synctest.Wait()
		begins(t, spender(a), true)
		other.Spend(10)
		begins(t, spender(a), false)
	})
}

func TestATokenForOneConversationAmongGateways(t *testing.T) {
	gates(t, func(t *testing.T, a, b *Gate) {
		shows := func(g *Gate, id string) *account {
			return &account{visitor: &Visitor{gate: g}, pass: pass{issuer: "shop", id: id, once: true, expires: time.Now().Add(time.Minute)}}
		}
		begins(t, shows(a, "1"), true)
		begins(t, shows(a, "1"), false)
		begins(t, shows(b, "1"), false)
		begins(t, shows(b, "2"), true)
	})
}
