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
	short   bool     // a call that is answered at once
	begun   []*usage // whose sessions it counts among
	waits   []*usage // whose parked ones
	turn    int      // the tokens of its most expensive turn
	next    int      // reserved for its next turn
}

// claim is a share that a conversation takes of.
type claim struct {
	share
	most   int // conversations at once; below 0: no limit
	budget int // tokens that may be spent; 0: no limit
	what   string
}

// claims are in the order in which they are checked: a caller over its own limit takes nothing from what all share.
func (a *account) claims() (claims []claim) {
	l := a.visitor.gate.options.Limits
	if name, limited := block(a.visitor.address); limited {
		claims = append(claims, claim{share{"address", name}, l.SessionsPerAddress, 0, "There are too many conversations from your address."})
	}
	p := a.pass
	if p.id != "" {
		most := -1
		if p.grant.Sessions > 0 {
			most = p.grant.Sessions
		}
		claims = append(
			claims,
			claim{share{"token", p.issuer + " " + p.id}, most, p.grant.Tokens, "There are too many conversations of this token at once."},
		)
	}
	if p.issuer != "" {
		most := l.SessionsPerKey
		if p.sessions > 0 {
			most = p.sessions
		}
		claims = append(claims, claim{share{"key", p.issuer}, most, p.budget, "There are too many conversations of this service at once."})
	}
	return append(claims, claim{share{"all", ""}, l.Sessions, 0, "The gateway is full."})
}

// budgets are the claims with a limit to what may be spent.
func (a *account) budgets() (list []claim) {
	for _, c := range a.claims() {
		if c.budget > 0 {
			list = append(list, c)
		}
	}
	return list
}

// Begin counts a conversation that begins, or refuses it.
func (a *account) Begin() error {
	err := a.begin()
	if err != nil {
		return a.visitor.refuse(err)
	}
	if err = a.beginAmong(); err == nil && !a.short {
		a.next, err = a.reserve(a.turnCost())
	}
	if err == nil && a.pass.once && !a.useUp() {
		err = &refusal{rule: "token used twice", code: bridge.CodeUnauthorized, message: "This token was for one conversation, which has begun."}
	}
	if err != nil {
		a.End()
		return a.visitor.refuse(err)
	}
	return nil
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
		if c.budget > 0 && u.left(c.budget) <= 0 {
			return g.nothingLeft(c)
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
		u.budgeted = c.budget > 0
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
func (g *Gate) nothingLeft(c claim) error {
	r := &refusal{rule: "budget of " + c.kind, code: bridge.CodeBusy, message: "What may be spent is spent."}
	now, u := g.options.Now(), g.usage(c.share)
	switch {
	case u.counts[spent].own+u.counts[spent].others < c.budget:
		r.message, r.retry = "What may still be spent is reserved for calls that run.", comeBack
	case c.kind == "key":
		r.retry = now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
	}
	return r
}

// Continue counts a conversation that comes from another gateway, which has let it in.
func (a *account) Continue() {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	claims := a.claims()
	a.enter(claims)
	a.reserveTurn()
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
		if now, err := s.Swap(context.Background(), "token/"+a.pass.issuer+"/"+a.pass.id, 0, mine, []byte{1}, ttl); err == nil && now != mine {
			return false
		}
	}
	return true
}

// firstTurn is what is reserved for a turn of a conversation, in tokens, while none of its own was more expensive: a prompt of 500, and ten
// seconds each of the person and the model, of which a second is 25 (https://ai.google.dev/gemini-api/docs/tokens).
const firstTurn = 1000

func (a *account) turnCost() int { return max(firstTurn, a.turn) }

// reserveTries is how often a reservation is tried while others take of the same budget, after a random part of reservePause: of
// several at the same moment each may see the others' requests, and all may fail.
const (
	reserveTries = 3
	reservePause = 20 * time.Millisecond
)

// Reserve reserves tokens for what may cost so many; got is fewer if fewer are left. Settle says, once, what it has cost: what is left of
// the reservation is given back. It takes the place of what the conversation itself has reserved for its next turn. It blocks for as long
// as the store may take.
func (a *account) Reserve(tokens int) (got int, settle func(cost int), err error) {
	g := a.visitor.gate
	g.mu.Lock()
	a.giveBack()
	g.mu.Unlock()
	got, err = a.reserve(tokens)
	if err != nil {
		return 0, nil, a.visitor.refuse(err)
	}
	return got, func(cost int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		a.add(spent, cost)
		a.add(reserved, -got)
	}, nil
}

// reserve takes the same number of tokens from each budget: as many as the tightest has left, and no more than asked for.
func (a *account) reserve(tokens int) (got int, err error) {
	g := a.visitor.gate
	budgets, want := a.budgets(), tokens
	if len(budgets) == 0 {
		return want, nil
	}
	for range reserveTries {
		g.mu.Lock()
		tight := a.tightest(budgets)
		left := g.usage(tight.share).left(tight.budget)
		if left <= 0 || want <= 0 {
			defer g.mu.Unlock()
			return 0, g.nothingLeft(tight)
		}
		got = min(want, left)
		a.add(reserved, got)
		g.mu.Unlock()
		room, ok := a.roomAmong(budgets, got)
		if ok {
			return got, nil
		}
		g.mu.Lock()
		a.add(reserved, -got)
		g.mu.Unlock()
		if want = min(want, room); room <= 0 {
			want = tokens
			time.Sleep(rand.N(reservePause))
		}
	}
	return 0, &refusal{
		rule: "budget reserved", code: bridge.CodeBusy, message: "What may still be spent is reserved for calls that run.", retry: comeBack,
	}
}

// tightest is the budget of which the least is left. Needs mu.
func (a *account) tightest(budgets []claim) (tight claim) {
	g := a.visitor.gate
	for i, c := range budgets {
		if i == 0 || g.usage(c.share).left(c.budget) < g.usage(tight.share).left(tight.budget) {
			tight = c
		}
	}
	return tight
}

// roomAmong reports to the other gateways what is reserved here, got of it for this account. ok is false if they leave no room for all of
// that; room says how much. First what is reserved is counted and then what is spent, in the reverse order of a settlement, so no token is
// missed in between.
func (a *account) roomAmong(budgets []claim, got int) (room int, ok bool) {
	g := a.visitor.gate
	rooms := make([]int, len(budgets))
	taken := make([]bool, len(budgets))
	var wg sync.WaitGroup
	for i, c := range budgets {
		wg.Go(func() {
			g.mu.Lock()
			counts := g.usage(c.share).counts
			g.mu.Unlock()
			most := max(0, c.budget-counts[spent].own-counts[spent].others)
			all, ok := g.count(counter{c.share, reserved}, most)
			if !ok {
				rooms[i] = most - all
				return
			}
			used, _ := g.count(counter{c.share, spent}, -1)
			rooms[i] = got - max(0, all+used-c.budget)
			taken[i] = rooms[i] == got
		})
	}
	wg.Wait()
	return slices.Min(rooms), !slices.Contains(taken, false)
}

// add counts tokens with each budget, and has the others informed. Needs mu.
func (a *account) add(what resource, tokens int) {
	if tokens == 0 {
		return
	}
	for _, c := range a.budgets() {
		u := a.visitor.gate.usage(c.share)
		u.counts[what].own = max(0, u.counts[what].own+tokens)
		a.visitor.gate.changed(c.share, what)
	}
}

// giveBack gives back what is reserved for the next turn. Needs mu.
func (a *account) giveBack() {
	a.add(reserved, -a.next)
	a.next = 0
}

// reserveTurn reserves the next turn of a conversation, as far as it is known here how much there is, and returns what this one may spend
// of the tightest budget. Needs mu.
func (a *account) reserveTurn() (left, most int) {
	a.giveBack()
	budgets := a.budgets()
	if len(budgets) == 0 {
		return 0, 0
	}
	tight := a.tightest(budgets)
	u := a.visitor.gate.usage(tight.share)
	left, most = u.left(tight.budget), tight.budget
	if a.begun != nil && !a.short {
		a.next = max(0, min(a.turnCost(), left))
		a.add(reserved, a.next)
	}
	return left, most
}

// Spend counts tokens of Gemini with the key and the token, and returns what this conversation may still spend of the tighter budget.
func (a *account) Spend(tokens int) (left, most int) {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.turn = max(a.turn, tokens)
	a.add(spent, tokens)
	return a.reserveTurn()
}

// Park asks whether the conversation may wait for its lost caller.
func (a *account) Park() bool {
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

// Unpark says that somebody has come back.
func (a *account) Unpark() {
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
