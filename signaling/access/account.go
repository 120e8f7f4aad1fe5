package access

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/store"
)

// account counts one conversation, or one call of a door whose calls are short. It implements bridge.Account.
type account struct {
	visitor *Visitor
	pass    pass
	short   bool        // a call that is answered at once
	begun   []*usage    // whose sessions it counts among
	waits   []*usage    // whose parked ones
	next    bridge.Cost // reserved for its next turn
}

// claim is a share that a conversation takes of.
type claim struct {
	share
	most   int         // conversations at once; below 0: no limit
	budget bridge.Cost // that may be spent; 0: no limit
	what   string
}

// budget is a limit to what a share may spend of a unit.
type budget struct {
	share
	unit unit
	most int
}

// claims are in the order in which they are checked: a caller over its own limit takes nothing from what all share.
func (a *account) claims() (claims []claim) {
	l := a.visitor.gate.options.Limits
	if name, limited := block(a.visitor.address); limited {
		const many = "There are too many conversations from your address."
		claims = append(claims, claim{share{"address", name}, l.SessionsPerAddress, bridge.Cost{}, many})
	}
	p := a.pass
	if p.id != "" {
		most := -1
		if p.grant.Sessions > 0 {
			most = p.grant.Sessions
		}
		claims = append(
			claims,
			claim{share{"token", p.issuer + " " + p.id}, most, p.grant.cost(), "There are too many conversations of this token at once."},
		)
	}
	if p.issuer != "" {
		most := l.SessionsPerKey
		if p.sessions > 0 {
			most = p.sessions
		}
		claims = append(claims, claim{share{"key", p.issuer}, most, p.budget, "There are too many conversations of this service at once."})
	}
	if p.identity != "" && p.personal != (bridge.Cost{}) {
		claims = append(claims, claim{share{"person", p.issuer + " " + p.identity}, -1, p.personal, ""})
	}
	return append(claims, claim{share{"all", ""}, l.Sessions, bridge.Cost{}, "The gateway is full."})
}

// Caller tells the people apart who use the gateway: by their identity under a key, else by their address.
func (a *account) Caller() string {
	if a.pass.identity != "" {
		return a.pass.issuer + " " + a.pass.identity
	}
	name, _ := block(a.visitor.address)
	return a.pass.issuer + " " + name
}

// budgets are the limits to what may be spent.
func (a *account) budgets() (list []budget) {
	for _, c := range a.claims() {
		for u := range units {
			if most := *u.of(&c.budget); most > 0 {
				list = append(list, budget{c.share, u, most})
			}
		}
	}
	return list
}

// HasLimits reports what a budget counts.
func (a *account) HasLimits() (tokens, dollars bool) {
	for _, b := range a.budgets() {
		tokens, dollars = tokens || b.unit == inTokens, dollars || b.unit == inMicros
	}
	return tokens, dollars
}

// BeginSession counts a conversation that begins, or refuses it. Of the tokens of its first turn it reserves those that
// are left, of the money all.
func (a *account) BeginSession(first bridge.Cost) error {
	err := a.begin()
	if err != nil {
		return a.visitor.refuse(err)
	}
	if err = a.beginAmong(); err == nil && first != (bridge.Cost{}) {
		if a.next, err = a.reserve(first); err == nil && a.next.Micros < first.Micros {
			err = a.noTurn(first)
		}
	}
	if err != nil {
		a.End()
		return a.visitor.refuse(err)
	}
	return nil
}

// ConsumeToken uses up a token that is good for one conversation, or refuses one that was used.
func (a *account) ConsumeToken() error {
	if !a.pass.once || a.useUp() {
		return nil
	}
	return a.visitor.refuse(&refusal{
		rule: "token used twice", code: bridge.CodeUnauthorized, message: "This token was for one conversation, which has begun.",
	})
}

func (a *account) begin() error {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.options.Now()
	claims := a.claims()
	for _, c := range claims {
		u := g.usage(c.share)
		if exceeds(u.counts[sessions].own+1, c.most) {
			return tooMany(c)
		}
	}
	for _, b := range a.budgets() {
		if g.usage(b.share).left(b) <= 0 {
			return g.nothingLeft(b)
		}
	}
	for _, c := range claims { // last, because what it takes is not given back
		l := g.usage(c.share).begun
		if a.short {
			l = g.usage(c.share).called
		}
		if l != nil && !l.AllowN(now, 1) {
			return &refusal{
				rule: "new of " + c.kind, code: bridge.CodeBusy, message: "Conversations begin too fast.",
				retry: time.Duration((1 - l.TokensAt(now)) / float64(l.Limit()) * float64(time.Second)),
			}
		}
	}
	a.enter(claims)
	return nil
}

// enter counts a conversation with the shares that it takes of. Needs mu.
func (a *account) enter(claims []claim) {
	for _, c := range claims {
		u := a.visitor.gate.usage(c.share)
		u.counts[sessions].own++
		u.budgeted = c.budget != (bridge.Cost{})
		if c.kind == "token" && a.pass.expires.After(u.expires) {
			u.expires = a.pass.expires
		}
		a.begun = append(a.begun, u)
	}
}

func tooMany(c claim) error {
	return &refusal{rule: "sessions of " + c.kind, code: bridge.CodeBusy, message: c.what, retry: comeBack}
}

// nothingLeft refuses a conversation whose budget is spent. Needs mu.
func (g *Gate) nothingLeft(b budget) error {
	r := &refusal{rule: "budget of " + b.kind, code: bridge.CodeBusy, message: "What may be spent is spent."}
	paid := g.usage(b.share).counts[b.unit.spent()]
	switch {
	case paid.own+paid.others < b.most:
		r.message, r.retry = "What may still be spent is reserved for calls that run.", comeBack
	case b.daily():
		r.retry = g.midnight()
	}
	return r
}

// midnight is when the budgets of a day begin anew.
func (g *Gate) midnight() time.Duration {
	now := g.options.Now()
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// noTurn refuses a conversation whose first turn there is not enough money for: until others give some back, or until midnight.
func (a *account) noTurn(first bridge.Cost) error {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &refusal{
		rule: "budget for a turn", code: bridge.CodeBusy, message: "What may still be spent does not pay for a turn.", retry: comeBack,
	}
	for _, b := range a.budgets() {
		paid := g.usage(b.share).counts[b.unit.spent()]
		if b.unit == inMicros && b.daily() && paid.own+paid.others+first.Micros > b.most {
			r.retry = g.midnight()
		}
	}
	return r
}

// ContinueSession counts a conversation that comes from another gateway, which has let it in.
func (a *account) ContinueSession(next bridge.Cost) {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	claims := a.claims()
	a.enter(claims)
	a.reserveTurn(next)
	for _, c := range claims {
		g.changed(c.share, sessions)
	}
}

// beginAmong asks whether the other gateways leave room for a conversation that has begun here. It blocks for as long as the store may
// take.
func (a *account) beginAmong() error {
	g := a.visitor.gate
	claims := a.claims()
	room := make([]bool, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		if room[i] = true; c.most < 0 || c.kind == "all" { // what a machine carries is its own
			continue
		}
		wg.Go(func() { _, room[i] = g.count(counter{c.share, sessions}, c.most) })
	}
	wg.Wait()
	for i, c := range claims {
		if !room[i] {
			return tooMany(c)
		}
	}
	return nil
}

// useUp uses a token that is good for one conversation, and reports whether it was unused: here or, where gateways share, anywhere.
func (a *account) useUp() bool {
	g := a.visitor.gate
	mine := rand.Uint64N(1<<53-1) + 1 // a generation that nobody else writes
	ttl := max(a.pass.expires.Add(leeway).Sub(g.options.Now()), time.Second)
	for _, s := range []store.Store{g.tokens, g.shared.store} { // the other may be away
		name := "token/" + a.pass.issuer + "/" + a.pass.id
		if now, err := s.CompareAndSwap(context.Background(), name, 0, mine, []byte{1}, ttl); err == nil && now != mine {
			return false
		}
	}
	return true
}

// reserveTries is how often a reservation is tried while others take of the same budget, after a random part of reservePause: of
// several at the same moment each may see the others' requests, and all may fail.
const (
	reserveTries = 3
	reservePause = 20 * time.Millisecond
)

// ReserveCost reserves what something may cost; got is less if less is left. Settle says, once, what it has cost: what is left of the
// reservation is given back. What the conversation itself has reserved for its turn stays reserved. It blocks for as long
// as the store may take.
func (a *account) ReserveCost(most bridge.Cost) (got bridge.Cost, settle func(bridge.Cost), err error) {
	g := a.visitor.gate
	got, err = a.reserve(most)
	if err != nil {
		return bridge.Cost{}, nil, a.visitor.refuse(err)
	}
	return got, func(cost bridge.Cost) {
		g.mu.Lock()
		defer g.mu.Unlock()
		a.add(unit.spent, cost, 1)
		a.add(unit.reserved, got, -1)
	}, nil
}

// reserve takes the same from each budget of a unit: as much as the tightest has left, and no more than asked for.
func (a *account) reserve(most bridge.Cost) (got bridge.Cost, err error) {
	g := a.visitor.gate
	want := most
	budgets := slices.DeleteFunc(a.budgets(), func(b budget) bool { return *b.unit.of(&most) == 0 })
	if len(budgets) == 0 {
		return want, nil
	}
	for range reserveTries {
		g.mu.Lock()
		got = want
		for _, b := range budgets {
			left, wanted := g.usage(b.share).left(b), b.unit.of(&got)
			if left <= 0 || *wanted <= 0 {
				defer g.mu.Unlock()
				return bridge.Cost{}, g.nothingLeft(b)
			}
			*wanted = min(*wanted, left)
		}
		a.add(unit.reserved, got, 1)
		g.mu.Unlock()
		room, ok := a.roomAmong(budgets, got)
		if ok {
			return got, nil
		}
		g.mu.Lock()
		a.add(unit.reserved, got, -1)
		g.mu.Unlock()
		full := false
		for _, b := range budgets {
			*b.unit.of(&want) = min(*b.unit.of(&want), *b.unit.of(&room))
			full = full || *b.unit.of(&room) <= 0
		}
		if full {
			want = most
			time.Sleep(rand.N(reservePause))
		}
	}
	return bridge.Cost{}, &refusal{
		rule: "budget reserved", code: bridge.CodeBusy, message: "What may still be spent is reserved for calls that run.", retry: comeBack,
	}
}

// roomAmong reports to the other gateways what is reserved here, got of it for this account. ok is false if they leave no room for all of
// that; room says how much. First what is reserved is counted and then what is spent, in the reverse order of a settlement, so nothing is
// missed in between.
func (a *account) roomAmong(budgets []budget, got bridge.Cost) (room bridge.Cost, ok bool) {
	g := a.visitor.gate
	rooms := make([]int, len(budgets))
	taken := make([]bool, len(budgets))
	var wg sync.WaitGroup
	for i, b := range budgets {
		got := *b.unit.of(&got)
		wg.Go(func() {
			g.mu.Lock()
			paid := g.usage(b.share).counts[b.unit.spent()]
			g.mu.Unlock()
			most := max(0, b.most-paid.own-paid.others)
			all, ok := g.count(counter{b.share, b.unit.reserved()}, most)
			if !ok {
				rooms[i] = most - all
				return
			}
			used, _ := g.count(counter{b.share, b.unit.spent()}, -1)
			rooms[i] = got - max(0, all+used-b.most)
			taken[i] = rooms[i] == got
		})
	}
	wg.Wait()
	room = got
	for i, b := range budgets {
		*b.unit.of(&room) = min(*b.unit.of(&room), rooms[i])
	}
	return room, !slices.Contains(taken, false)
}

// add counts a cost with each budget, times 1 or -1, and has the others informed. Needs mu.
func (a *account) add(what func(unit) resource, cost bridge.Cost, times int) {
	for _, b := range a.budgets() {
		if n := times * *b.unit.of(&cost); n != 0 {
			counts := &a.visitor.gate.usage(b.share).counts[what(b.unit)]
			counts.own = max(0, counts.own+n)
			a.visitor.gate.changed(b.share, what(b.unit))
		}
	}
}

// giveBack gives back what is reserved for the next turn. Needs mu.
func (a *account) giveBack() {
	a.add(unit.reserved, a.next, -1)
	a.next = bridge.Cost{}
}

// reserveTurn reserves the next turn of a conversation, as far as it is known here how much there is, and returns what this one may spend
// of the budget of each unit of which the least is left. Needs mu.
func (a *account) reserveTurn(next bridge.Cost) (left, most bridge.Cost) {
	a.giveBack()
	for _, b := range a.budgets() {
		l, m := b.unit.of(&left), b.unit.of(&most)
		u := a.visitor.gate.usage(b.share)
		here := u.left(b)
		if b.unit == inMicros { // a turn that others may have taken the money of must not begin
			here -= u.counts[reservedPay].others
		}
		if *m == 0 || here < *l {
			*l, *m = here, b.most
		}
		n := b.unit.of(&next)
		*n = max(0, min(*n, *l))
	}
	if a.begun != nil {
		a.next = next
		a.add(unit.reserved, next, 1)
	}
	return left, most
}

// RecordCost counts what was spent with the key and the token, reserves the next turn, and returns what this conversation may still spend.
func (a *account) RecordCost(cost, next bridge.Cost) (left, most bridge.Cost) {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.add(unit.spent, cost, 1)
	return a.reserveTurn(next)
}

// ParkSession asks whether the conversation may wait for its lost caller.
func (a *account) ParkSession() bool {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.options.Limits
	all := g.usage(share{"all", ""})
	if exceeds(all.parked+1, l.Parked) {
		return false
	}
	a.waits = []*usage{all}
	if name, limited := block(a.visitor.address); limited {
		u := g.usage(share{"address", name})
		if exceeds(u.parked+1, l.ParkedPerAddress) {
			a.waits = nil
			return false
		}
		a.waits = append(a.waits, u)
	}
	for _, u := range a.waits {
		u.parked++
	}
	return true
}

// UnparkSession says that somebody has come back.
func (a *account) UnparkSession() {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.unpark()
}

// unpark needs mu.
func (a *account) unpark() {
	for _, u := range a.waits {
		u.parked--
	}
	a.waits = nil
}

// End gives back what the conversation held.
func (a *account) End() {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.unpark()
	a.giveBack()
	for _, u := range a.begun {
		u.counts[sessions].own--
	}
	for _, c := range a.claims() {
		g.changed(c.share, sessions)
	}
	a.begun = nil
}
