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

// account counts the usage of one conversation, or of one short call. It implements bridge.Account.
type account struct {
	client        *Client
	auth          authorization
	isShort       bool          // a short call
	sessionUsages []*ownerUsage // owners that count this conversation as a session
	parkedUsages  []*ownerUsage // owners that count this conversation as parked
	nextReserve   bridge.Cost   // reserved for the conversation's next turn
}

// quotaCheck holds the limits of one budget owner, which its conversations together must not exceed.
type quotaCheck struct {
	budgetOwner
	limit   int         // concurrent conversations; below 0: no limit
	budget  bridge.Cost // 0: no limit
	message string
}

// budgetLimit is the amount that an owner may spend, in tokens or in money.
type budgetLimit struct {
	budgetOwner
	unit  unit
	limit int
}

// quotaChecks returns the limits in the order in which they are checked. The address and the token come before the key
// and the gateway, so that a client over its own limit does not consume quota that it shares with others.
func (a *account) quotaChecks() (checks []quotaCheck) {
	l := a.client.gate.options.Limits
	if name, limited := limitBlock(a.client.address); limited {
		const many = "There are too many conversations from your address."
		checks = append(checks, quotaCheck{budgetOwner{"address", name}, l.SessionsPerAddress, bridge.Cost{}, many})
	}
	p := a.auth
	if p.id != "" {
		most := -1
		if p.grant.Sessions > 0 {
			most = p.grant.Sessions
		}
		checks = append(
			checks,
			quotaCheck{
				budgetOwner{"token", p.issuer + " " + p.id},
				most, p.grant.budgetCost(),
				"There are too many conversations of this token at once.",
			},
		)
	}
	if p.issuer != "" {
		most := l.SessionsPerKey
		if p.sessions > 0 {
			most = p.sessions
		}
		checks = append(checks, quotaCheck{
			budgetOwner{"key", p.issuer},
			most, p.budget,
			"There are too many conversations of this service at once.",
		})
	}
	if p.identity != "" && p.personBudget != (bridge.Cost{}) {
		checks = append(checks, quotaCheck{budgetOwner{"person", p.issuer + " " + p.identity}, -1, p.personBudget, ""})
	}
	return append(checks, quotaCheck{budgetOwner{"all", ""}, l.Sessions, bridge.Cost{}, "The gateway is full."})
}

// Caller returns an ID of the person: the token issuer and the person's identity, separated by a space. If the identity
// is unknown, the address block of the client takes its place.
func (a *account) Caller() string {
	if a.auth.identity != "" {
		return a.auth.issuer + " " + a.auth.identity
	}
	name, _ := limitBlock(a.client.address)
	return a.auth.issuer + " " + name
}

// budgetLimits returns the spending limits.
func (a *account) budgetLimits() (list []budgetLimit) {
	for _, c := range a.quotaChecks() {
		for u := range units {
			if most := *u.costField(&c.budget); most > 0 {
				list = append(list, budgetLimit{c.budgetOwner, u, most})
			}
		}
	}
	return list
}

// HasLimits reports whether the spending of tokens and of money is limited.
func (a *account) HasLimits() (tokens, dollars bool) {
	for _, b := range a.budgetLimits() {
		tokens, dollars = tokens || b.unit == inTokens, dollars || b.unit == inMicros
	}
	return tokens, dollars
}

// BeginSession counts a new conversation, or returns an error, for example if the budget is used up. It also reserves
// the cost of the first turn. If fewer tokens are left than that turn may need, it reserves all tokens that are left.
func (a *account) BeginSession(first bridge.Cost) error {
	err := a.admitLocally()
	if err != nil {
		return a.client.reportRefusal(err)
	}
	if err = a.admitInCluster(); err == nil && first != (bridge.Cost{}) {
		if a.nextReserve, err = a.reserveBudget(first); err == nil && a.nextReserve.Micros < first.Micros {
			err = a.newTurnBudgetRefusal(first)
		}
	}
	if err != nil {
		a.End()
		return a.client.reportRefusal(err)
	}
	return nil
}

// ConsumeToken marks a single-use token as used, or returns an error if it was used before.
func (a *account) ConsumeToken() error {
	if !a.auth.once || a.consumeSingleUseToken() {
		return nil
	}
	return a.client.reportRefusal(&refusal{
		rule: "token used twice", code: bridge.CodeUnauthorized, message: "This token was for one conversation and has been used.",
	})
}

// admitLocally counts a conversation at this gateway, or returns an error if a limit is reached or a budget is used up.
func (a *account) admitLocally() error {
	g := a.client.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.options.Now()
	claims := a.quotaChecks()
	for _, c := range claims {
		u := g.usageOf(c.budgetOwner)
		if exceedsLimit(u.counts[sessions].local+1, c.limit) {
			return newTooManyError(c)
		}
	}
	for _, b := range a.budgetLimits() {
		if g.usageOf(b.budgetOwner).remaining(b) <= 0 {
			return g.newBudgetError(b)
		}
	}
	for _, c := range claims { // checked last, because a rate limiter does not take back what it has granted
		l := g.usageOf(c.budgetOwner).sessionLimiter
		if a.isShort {
			l = g.usageOf(c.budgetOwner).callLimiter
		}
		if l != nil && !l.AllowN(now, 1) {
			return &refusal{
				rule: "new of " + c.kind, code: bridge.CodeBusy, message: "Too many new conversations.",
				retry: time.Duration((1 - l.TokensAt(now)) / float64(l.Limit()) * float64(time.Second)),
			}
		}
	}
	a.countSession(claims)
	return nil
}

// countSession counts a conversation for each of its budget owners. The caller must hold mu.
func (a *account) countSession(checks []quotaCheck) {
	for _, c := range checks {
		u := a.client.gate.usageOf(c.budgetOwner)
		u.counts[sessions].local++
		u.hasBudget = c.budget != (bridge.Cost{})
		if c.kind == "token" && a.auth.expires.After(u.expires) {
			u.expires = a.auth.expires
		}
		a.sessionUsages = append(a.sessionUsages, u)
	}
}

func newTooManyError(c quotaCheck) error {
	return &refusal{rule: "sessions of " + c.kind, code: bridge.CodeBusy, message: c.message, retry: retryLater}
}

// newBudgetError returns the error for a conversation whose budget b is used up. The caller must hold mu.
func (g *Gate) newBudgetError(b budgetLimit) error {
	r := &refusal{rule: "budget of " + b.kind, code: bridge.CodeBusy, message: "The budget is used up."}
	paid := g.usageOf(b.budgetOwner).counts[b.unit.spentResource()]
	switch {
	case paid.local+paid.remote < b.limit:
		r.message, r.retry = "The rest of the budget is reserved by calls in progress.", retryLater
	case b.isDaily():
		r.retry = g.untilMidnight()
	}
	return r
}

// untilMidnight returns the time until daily budgets are reset.
func (g *Gate) untilMidnight() time.Duration {
	now := g.options.Now()
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// newTurnBudgetRefusal returns the error for a conversation whose first turn costs more than the rest of the budget.
// The client may retry soon if other conversations may give back what they have reserved, and otherwise after midnight.
func (a *account) newTurnBudgetRefusal(first bridge.Cost) error {
	g := a.client.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &refusal{
		rule: "budget for a turn", code: bridge.CodeBusy, message: "The rest of the budget does not cover a turn.", retry: retryLater,
	}
	for _, b := range a.budgetLimits() {
		paid := g.usageOf(b.budgetOwner).counts[b.unit.spentResource()]
		if b.unit == inMicros && b.isDaily() && paid.local+paid.remote+first.Micros > b.limit {
			r.retry = g.untilMidnight()
		}
	}
	return r
}

// CountTakenOverSession counts a conversation that another gateway had admitted and this gateway has taken over.
func (a *account) CountTakenOverSession(nextCost bridge.Cost) {
	g := a.client.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	claims := a.quotaChecks()
	a.countSession(claims)
	a.reserveTurn(nextCost)
	for _, c := range claims {
		g.markChanged(c.budgetOwner, inSessions)
	}
}

// admitInCluster reports to the store a conversation that this gateway has counted. It returns an error if all gateways
// together exceed a limit. It blocks until the store answers.
func (a *account) admitInCluster() error {
	g := a.client.gate
	claims := a.quotaChecks()
	room := make([]bool, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		if room[i] = true; c.limit < 0 || c.kind == "all" { // each gateway limits its own capacity, which others do not share
			continue
		}
		wg.Go(func() { room[i] = g.reportSessions(c.budgetOwner, c.limit) })
	}
	wg.Wait()
	for i, c := range claims {
		if !room[i] {
			return newTooManyError(c)
		}
	}
	return nil
}

// consumeSingleUseToken marks a single-use token as used. isFirstUse is false if a gateway of the cluster had already
// marked it.
func (a *account) consumeSingleUseToken() (isFirstUse bool) {
	g := a.client.gate
	newGeneration := rand.Uint64N(1<<53-1) + 1 // a random generation, which tells this call's entry from others
	ttl := max(a.auth.expires.Add(leeway).Sub(g.options.Now()), time.Second)
	for _, s := range []store.Store{g.tokens, g.cluster.store} { // one of them may be unavailable
		name := "token/" + a.auth.issuer + "/" + a.auth.id
		if now, err := s.CompareAndSwap(context.Background(), name, 0, newGeneration, []byte{1}, ttl); err == nil && now != newGeneration {
			return false
		}
	}
	return true
}

// ReserveCost reserves the maximum cost of one operation, or what the budget has left if that is less. got is the
// reserved cost. settle must be called once with the actual cost.
func (a *account) ReserveCost(maxCost bridge.Cost) (got bridge.Cost, settle func(bridge.Cost), err error) {
	g := a.client.gate
	got, err = a.reserveBudget(maxCost)
	if err != nil {
		return bridge.Cost{}, nil, a.client.reportRefusal(err)
	}
	return got, func(cost bridge.Cost) {
		g.mu.Lock()
		defer g.mu.Unlock()
		a.addCost(unit.spentResource, cost, 1)
		a.addCost(unit.reservedResource, got, -1)
	}, nil
}

// reserveBudget reserves maxCost in all budgets that apply to the conversation. If one of them has less left, only that
// much is reserved in each. It fails if a budget is used up. It blocks until the store answers.
func (a *account) reserveBudget(maxCost bridge.Cost) (got bridge.Cost, err error) {
	g := a.client.gate
	budgets := slices.DeleteFunc(a.budgetLimits(), func(b budgetLimit) bool { return *b.unit.costField(&maxCost) == 0 })
	if len(budgets) == 0 {
		return maxCost, nil
	}
	want := maxCost
	// Reserve in this gateway first, so that its other calls see the reservation at once, and then in the store.
	g.mu.Lock()
	for _, b := range budgets {
		left, wanted := g.usageOf(b.budgetOwner).remaining(b), b.unit.costField(&want)
		if left <= 0 {
			defer g.mu.Unlock()
			return bridge.Cost{}, g.newBudgetError(b)
		}
		*wanted = min(*wanted, left)
	}
	for _, b := range budgets { // not by addCost, which would report the reservation to other gateways before it is granted
		g.usageOf(b.budgetOwner).counts[b.unit.reservedResource()].local += *b.unit.costField(&want)
	}
	g.mu.Unlock()
	grants := make([]int, len(budgets))
	var wg sync.WaitGroup
	for i, b := range budgets {
		wg.Go(func() { grants[i] = g.reserveInCluster(b, *b.unit.costField(&want)) })
	}
	wg.Wait()
	got = want
	for i, b := range budgets {
		*b.unit.costField(&got) = min(*b.unit.costField(&got), grants[i])
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, b := range budgets {
		if grants[i] <= 0 {
			a.addCost(unit.reservedResource, want, -1)
			return bridge.Cost{}, g.newBudgetError(b)
		}
	}
	a.addCost(unit.reservedResource, bridge.Cost{Tokens: want.Tokens - got.Tokens, Micros: want.Micros - got.Micros}, -1)
	return got, nil
}

// addCost adds cost to the usage of each budget if sign is 1, or subtracts it if sign is -1. resourceOf returns the
// resource to change for a unit. Other gateways are told later. The caller must hold mu.
func (a *account) addCost(resourceOf func(unit) resource, cost bridge.Cost, sign int) {
	for _, b := range a.budgetLimits() {
		if n := sign * *b.unit.costField(&cost); n != 0 {
			counts := &a.client.gate.usageOf(b.budgetOwner).counts[resourceOf(b.unit)]
			counts.local = max(0, counts.local+n)
			a.client.gate.markChanged(b.budgetOwner, b.unit)
		}
	}
}

// releaseReserve gives back the reservation for the next turn. The caller must hold mu.
func (a *account) releaseReserve() {
	a.addCost(unit.reservedResource, a.nextReserve, -1)
	a.nextReserve = bridge.Cost{}
}

// reserveTurn reserves the cost of the next turn in the budgets, as this gateway knows them, without asking the store.
// It returns what is left of the tightest budget in each unit, and that budget's limit. The caller must hold mu.
func (a *account) reserveTurn(nextCost bridge.Cost) (remaining, limit bridge.Cost) {
	a.releaseReserve()
	for _, b := range a.budgetLimits() {
		l, m := b.unit.costField(&remaining), b.unit.costField(&limit)
		u := a.client.gate.usageOf(b.budgetOwner)
		here := u.remaining(b)
		if b.unit == inMicros { // do not begin a turn with money that others may have reserved
			here -= u.counts[reservedPay].remote
		}
		if *m == 0 || here < *l {
			*l, *m = here, b.limit
		}
		n := b.unit.costField(&nextCost)
		*n = max(0, min(*n, *l))
	}
	if a.sessionUsages != nil {
		a.nextReserve = nextCost
		a.addCost(unit.reservedResource, nextCost, 1)
	}
	return remaining, limit
}

// RecordCost counts a cost in all budgets, and reserves the cost of the next turn. It returns what is left of the
// tightest budget in each unit, and that budget's limit.
func (a *account) RecordCost(cost, nextCost bridge.Cost) (remaining, limit bridge.Cost) {
	g := a.client.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.addCost(unit.spentResource, cost, 1)
	return a.reserveTurn(nextCost)
}

// ParkSession counts the conversation as parked: its caller was lost and may return. ok is false if too many
// conversations are parked already.
func (a *account) ParkSession() (ok bool) {
	g := a.client.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.options.Limits
	all := g.usageOf(budgetOwner{"all", ""})
	if exceedsLimit(all.parked+1, l.Parked) {
		return false
	}
	a.parkedUsages = []*ownerUsage{all}
	if name, limited := limitBlock(a.client.address); limited {
		u := g.usageOf(budgetOwner{"address", name})
		if exceedsLimit(u.parked+1, l.ParkedPerAddress) {
			a.parkedUsages = nil
			return false
		}
		a.parkedUsages = append(a.parkedUsages, u)
	}
	for _, u := range a.parkedUsages {
		u.parked++
	}
	return true
}

// UnparkSession records that the caller of a parked conversation has returned.
func (a *account) UnparkSession() {
	g := a.client.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.unparkLocked()
}

// unparkLocked is UnparkSession for callers that hold mu.
func (a *account) unparkLocked() {
	for _, u := range a.parkedUsages {
		u.parked--
	}
	a.parkedUsages = nil
}

// End releases all counts and reservations of the conversation.
func (a *account) End() {
	g := a.client.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.unparkLocked()
	a.releaseReserve()
	for _, u := range a.sessionUsages {
		u.counts[sessions].local--
	}
	for _, c := range a.quotaChecks() {
		g.markChanged(c.budgetOwner, inSessions)
	}
	a.sessionUsages = nil
}
