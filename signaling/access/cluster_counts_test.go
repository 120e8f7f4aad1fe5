package access

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/store"
)

// gates returns the gates of two gateways with one store.
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
	err := a.BeginSession(bridge.Cost{Tokens: 1000})
	if err == nil {
		err = a.ConsumeToken()
	}
	if (err == nil) != want {
		t.Errorf("it began: %v", err)
	}
}

// A shared limit applies to all gateways together, and the usage of a dead gateway is released.
func TestSessionsAmongGateways(t *testing.T) {
	gates(t, func(t *testing.T, a, b *Gate) {
		first, second := a.TrunkAccount("line", 2), b.TrunkAccount("line", 2)
		begins(t, first, true)
		begins(t, second, true)
		begins(t, a.TrunkAccount("line", 2), false)
		begins(t, b.TrunkAccount("line", 2), false)
		begins(t, b.TrunkAccount("another", 1), true)
		first.End()
		begins(t, b.TrunkAccount("line", 2), true)
		begins(t, a.TrunkAccount("line", 2), false)
		second.End()
		time.Sleep(time.Minute) // the usage is reported repeatedly
		begins(t, a.TrunkAccount("line", 1), false)

		close(b.cluster.stop) // b is dead
		b.cluster.running.Wait()
		time.Sleep(leaseTime)
		begins(t, a.TrunkAccount("line", 1), true)
		b.cluster.stop = make(chan struct{})

		moved := a.TrunkAccount("line", 1) // from b
		moved.CountTakenOverSession(bridge.Cost{})
		begins(t, a.TrunkAccount("line", 2), false)
		moved.End()
		begins(t, a.TrunkAccount("line", 2), true)
	})
}

// Spending and reservations count at all gateways.
func TestBudgetAmongGateways(t *testing.T) {
	gates(t, func(t *testing.T, a, b *Gate) {
		spender := func(g *Gate) *account {
			return &account{client: &Client{gate: g}, auth: authorization{issuer: "shop", budget: bridge.Cost{Tokens: 4000}}}
		}
		one, other := spender(a), spender(b)
		begins(t, one, true)
		begins(t, other, true)
		one.RecordCost(bridge.Cost{Tokens: 1800}, bridge.Cost{Tokens: 1800}) // and the same amount is reserved for its next turn
		synctest.Wait()
		begins(t, spender(b), false) // 400 are left, reserved for the other's next turn
		one.End()
		synctest.Wait()
		third := spender(b)
		begins(t, third, true) // by which b learns of it
		if left, most := other.RecordCost(bridge.Cost{Tokens: 300}, bridge.Cost{Tokens: 1000}); left.Tokens != 900 || most.Tokens != 4000 {
			t.Errorf("%v of %v are left", left, most)
		}
		other.RecordCost(bridge.Cost{Tokens: 1900}, bridge.Cost{})
		other.End()
		third.End()
		synctest.Wait()
		begins(t, spender(a), false)
	})
}

// units lists the units of budgets, and an amount of each.
var unitsOfBudgets = map[string]func(n int) bridge.Cost{
	"tokens":  func(n int) bridge.Cost { return bridge.Cost{Tokens: n} },
	"dollars": func(n int) bridge.Cost { return bridge.Cost{Tokens: 7, Micros: n} },
}

// No turn begins, here or at another gateway, if the money does not cover it.
func TestMoneyAmongGateways(t *testing.T) {
	gates(t, func(t *testing.T, a, b *Gate) {
		spender := func(g *Gate) *account {
			return &account{client: &Client{gate: g}, auth: authorization{issuer: "shop", budget: bridge.Cost{Micros: 10_000}}}
		}
		turn := bridge.Cost{Tokens: 1000, Micros: 4000}
		one, other, third := spender(a), spender(b), spender(b)
		for _, s := range []*account{one, other} {
			if err := s.BeginSession(turn); err != nil {
				t.Fatal(err)
			}
		}
		if err := third.BeginSession(turn); err == nil {
			t.Error("a third conversation begins with half of what a turn may cost")
		}
		time.Sleep(leaseEvery) // until each knows the other's reservations
		synctest.Wait()
		if left, most := one.RecordCost(bridge.Cost{Micros: 3000}, turn); left.Micros != 3000 || most.Micros != 10_000 || most.Tokens != 0 {
			t.Errorf("%v of %v are left", left, most) // the other has 4000
		}
		synctest.Wait()
		other.End()
		synctest.Wait()
		one.RecordCost(bridge.Cost{}, turn) // requests the others' usage
		synctest.Wait()
		if left, _ := one.RecordCost(bridge.Cost{}, turn); left.Micros != 7000 {
			t.Errorf("%v are left", left)
		}
		one.End()
	})
}

// Concurrent calls at two gateways spend the whole budget and not one token more; unused reservations are returned.
func TestCallsAtOnceKeepToABudget(t *testing.T) {
	for unit, of := range unitsOfBudgets {
		for _, kind := range []string{"key", "token"} {
			gates(t, func(t *testing.T, a, b *Gate) {
				p := authorization{issuer: "shop", budget: of(10_000)}
				if kind == "token" {
					p = authorization{issuer: "shop", id: "1", expires: time.Now().Add(time.Minute), grant: Grant{Tokens: 10_000}}
					if unit == "dollars" {
						p.grant = Grant{Dollars: 0.01}
					}
				}
				if unit == "dollars" {
					p.budget.Tokens = 0
				}
				keepsTo(t, unit+" of a "+kind, p, of, a, b)
			})
		}
	}
}

func keepsTo(t *testing.T, name string, p authorization, of func(int) bridge.Cost, a, b *Gate) {
	var wg sync.WaitGroup
	var paid atomic.Int64
	call := func(g *Gate, wants, costs int) {
		c := &account{client: &Client{gate: g}, auth: p, isShort: true}
		if c.BeginSession(bridge.Cost{}) != nil {
			return
		}
		defer c.End()
		got, settle, err := c.ReserveCost(of(wants))
		if err != nil {
			return
		}
		time.Sleep(time.Second)
		n := got.Tokens
		if got.Micros > 0 {
			n = got.Micros
		}
		n = min(n, costs)
		settle(of(n))
		paid.Add(int64(n))
	}
	for range 45 {
		wg.Go(func() { call(a, 3000, 1000) })
		wg.Go(func() { call(b, 3000, 1000) })
	}
	wg.Wait()
	if paid.Load() > 10_000 {
		t.Errorf("%s: calls at once were paid %d", name, paid.Load())
	}
	for range 30 { // unused reservations are available to others
		synctest.Wait()
		call(a, 3000, 1000)
		synctest.Wait()
		call(b, 3000, 1000)
	}
	if paid.Load() != 10_000 {
		t.Errorf("%s: %d was paid in all", name, paid.Load())
	}
}

// Reservations of a dead gateway are released when its lease ends; its spending is not.
func TestADeadGatewayReservesNothing(t *testing.T) {
	for unit, of := range unitsOfBudgets {
		t.Run(unit, func(t *testing.T) { leavesNothing(t, of) })
	}
}

func leavesNothing(t *testing.T, of func(int) bridge.Cost) {
	budget := of(1000)
	if budget.Micros > 0 {
		budget.Tokens = 0
	}
	gates(t, func(t *testing.T, a, b *Gate) {
		caller := func(g *Gate) *account {
			c := &account{client: &Client{gate: g}, auth: authorization{issuer: "shop", budget: budget}, isShort: true}
			if err := c.BeginSession(bridge.Cost{}); err != nil {
				t.Fatal(err)
			}
			return c
		}
		_, settle, err := caller(b).ReserveCost(of(300))
		if err != nil {
			t.Fatal(err)
		}
		settle(of(300))
		if _, _, err := caller(b).ReserveCost(of(700)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(b.cluster.stop) // b is dead
		b.cluster.running.Wait()
		if _, _, err := caller(a).ReserveCost(of(1)); err == nil {
			t.Error("what b has reserved is given away")
		}
		time.Sleep(leaseTime)
		if got, _, err := caller(a).ReserveCost(of(1000)); got != of(700) || err != nil {
			t.Errorf("%v are left: %v", got, err)
		}
		b.cluster.stop = make(chan struct{})
	})
}

func TestATokenForOneConversationAmongGateways(t *testing.T) {
	gates(t, func(t *testing.T, a, b *Gate) {
		shows := func(g *Gate, id string) *account {
			return &account{client: &Client{gate: g}, auth: authorization{issuer: "shop", id: id, once: true, expires: time.Now().Add(time.Minute)}}
		}
		begins(t, shows(a, "1"), true)
		begins(t, shows(a, "1"), false)
		begins(t, shows(b, "1"), false)
		begins(t, shows(b, "2"), true)

		var used atomic.Int64
		var wg sync.WaitGroup
		for _, g := range []*Gate{a, a, b, b} { // at once
			wg.Go(func() {
				if shows(g, "3").ConsumeToken() == nil {
					used.Add(1)
				}
			})
		}
		wg.Wait()
		if used.Load() != 1 {
			t.Errorf("%d conversations began by one token", used.Load())
		}
	})
}

// A reservation for a tool of a conversation leaves the conversation the reservation for its turn; otherwise the turn
// would exceed the budget.
func TestAToolLeavesTheTurnReserved(t *testing.T) {
	gates(t, func(t *testing.T, a, _ *Gate) {
		c := &account{client: &Client{gate: a}, auth: authorization{issuer: "shop", budget: bridge.Cost{Micros: 1000}}}
		if err := c.BeginSession(bridge.Cost{Tokens: 1, Micros: 100}); err != nil {
			t.Fatal(err)
		}
		got, settle, err := c.ReserveCost(bridge.Cost{Micros: 5000})
		if err != nil || got.Micros != 900 {
			t.Errorf("the tool may spend %v, %v", got, err)
		}
		settle(got)
		if left, _ := c.RecordCost(bridge.Cost{Micros: 100}, bridge.Cost{Micros: 100}); left.Micros != 0 {
			t.Errorf("%v are left", left)
		}
		c.End()
		if u := a.usageOf(budgetOwner{"key", "shop"}); u.counts[reservedPay].local != 0 || u.counts[spentPay].local != 1000 {
			t.Errorf("%+v", u.counts)
		}
	})
}

// Costs after the end of a conversation are counted, too, and do not change reservations that others make meanwhile.
func TestWorkAfterTheEnd(t *testing.T) {
	gates(t, func(t *testing.T, a, _ *Gate) {
		spender := func() *account {
			return &account{client: &Client{gate: a}, auth: authorization{issuer: "key", budget: bridge.Cost{Tokens: 2000}}}
		}
		one := spender()
		begins(t, one, true)
		one.RecordCost(bridge.Cost{Tokens: 500}, bridge.Cost{})
		one.End()
		got, settle, err := one.ReserveCost(bridge.Cost{Tokens: 8000})
		if err != nil || got.Tokens != 1500 {
			t.Fatalf("reserved %v, %v", got, err)
		}
		begins(t, spender(), false)
		settle(bridge.Cost{Tokens: 700})
		if got, _, err := spender().ReserveCost(bridge.Cost{Tokens: 8000}); err != nil || got.Tokens != 800 {
			t.Errorf("%v are left, %v", got, err)
		}
	})
}
