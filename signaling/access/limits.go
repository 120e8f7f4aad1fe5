package access

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
)

// Limits are how much is served. A field that is 0 has its default; a negative one has no limit.
type Limits struct {
	Sessions           int // conversations at once, in all
	SessionsPerAddress int
	SessionsPerKey     int // of a server key or an issuer that does not say itself
	NewPerSecond       int // conversations begun, in all
	NewPerSecondPerKey int
	NewPerMinute       int // of an address
	CallsPerMinute     int // of an address, at doors whose calls are short: REST
	Parked             int // conversations that wait for their lost client, in all
	ParkedPerAddress   int
	WaitingPerAddress  int // WebSockets that have not sent their first message
}

// defaultLimits: what an address may is far above what a household needs, and what one machine carries is by its CPU: some
// 400 calls a core (README).
var defaultLimits = Limits{
	Sessions: 1000, SessionsPerAddress: 10, SessionsPerKey: 100, NewPerSecond: 50, NewPerSecondPerKey: 20, NewPerMinute: 30, CallsPerMinute: 600,
	Parked: 300, ParkedPerAddress: 10, WaitingPerAddress: 20,
}

// names are the limits as an operator writes them.
func (l *Limits) names() map[string]*int {
	return map[string]*int{
		"sessions": &l.Sessions, "sessions-per-address": &l.SessionsPerAddress, "sessions-per-key": &l.SessionsPerKey,
		"new-per-second": &l.NewPerSecond, "new-per-second-per-key": &l.NewPerSecondPerKey, "new-per-minute": &l.NewPerMinute, "calls-per-minute": &l.CallsPerMinute,
		"parked": &l.Parked, "parked-per-address": &l.ParkedPerAddress, "waiting-per-address": &l.WaitingPerAddress,
	}
}

// ParseLimit reads "name=number" into l; 0 is no limit.
func (l *Limits) ParseLimit(text string) error {
	name, number, _ := strings.Cut(text, "=")
	field := l.names()[strings.TrimSpace(name)]
	n, err := strconv.Atoi(strings.TrimSpace(number))
	if field == nil || err != nil || n < 0 {
		return fmt.Errorf("%q is no limit: sessions=1000 would be one; docs/access.md lists them", text)
	}
	if *field = n; n == 0 {
		*field = -1
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	defaults := defaultLimits.names()
	for name, field := range l.names() {
		if *field == 0 {
			*field = *defaults[name]
		}
	}
	return l
}

// share is whose use is counted: everybody's, or that of an address, a key or a token.
type share struct{ kind, name string }

// usage is what a share uses.
type usage struct {
	sessions, parked, waiting int
	begun, called             *rate.Limiter // conversations and short calls; nil: no limit
	spent                     int           // tokens of Gemini: of a key on this day, of a token in all
	others                    int           // likewise, at other gateways
	day                       string
	expires                   time.Time // of a token
}

// idle tells whether nothing would be lost with it.
func (u *usage) idle(now time.Time) bool {
	for _, l := range []*rate.Limiter{u.begun, u.called} {
		if l != nil && l.TokensAt(now) < float64(l.Burst()) {
			return false
		}
	}
	return u.sessions == 0 && u.parked == 0 && u.waiting == 0 && u.spent == 0
}

// sweepEvery is how often what nobody uses is dropped.
const sweepEvery = time.Minute

// usage of a share. Needs mu.
func (g *Gate) usage(s share) *usage {
	now := g.options.Now()
	if now.Sub(g.swept) > sweepEvery {
		g.sweep(now)
	}
	u := g.shares[s]
	if u == nil {
		u = &usage{}
		switch s.kind {
		case "all":
			u.begun = limiter(g.options.Limits.NewPerSecond, time.Second)
		case "key":
			u.begun = limiter(g.options.Limits.NewPerSecondPerKey, time.Second)
		case "address":
			u.begun = limiter(g.options.Limits.NewPerMinute, time.Minute)
			u.called = limiter(g.options.Limits.CallsPerMinute, time.Minute)
		}
		g.shares[s] = u
	}
	if day := today(now); s.kind == "key" && u.day != day {
		u.day, u.spent, u.others = day, 0, 0
	}
	return u
}

// today is the day for which a budget counts, in UTC.
func today(now time.Time) string { return now.UTC().Format(time.DateOnly) }

// sweep forgets who uses nothing. Needs mu.
func (g *Gate) sweep(now time.Time) {
	g.swept = now
	for s, u := range g.shares {
		if s.kind == "token" && now.After(u.expires.Add(leeway)) || s.kind == "key" && u.day != today(now) {
			u.spent = 0
		}
		if u.idle(now) && !g.shared.changed[s] {
			delete(g.shares, s)
		}
	}
}

func limiter(n int, per time.Duration) *rate.Limiter {
	if n < 0 {
		return nil
	}
	return rate.NewLimiter(rate.Every(per/time.Duration(n)), n)
}

// block is what stands for an address in limits: itself, or the /64 of IPv6, which is the least that a household has (RFC 6177).
// The loopback has none: behind it are proxies and tests.
func block(a netip.Addr) (block string, limited bool) {
	if a.IsLoopback() || !a.IsValid() {
		return "", false
	}
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return "", false
	}
	return p.String(), true
}

// Wait counts a socket that has not sent its first message; done is called when it has, or is closed.
func (v *Visitor) Wait() (done func(), err error) {
	g := v.gate
	if g == nil {
		return func() {}, nil
	}
	name, limited := block(v.address)
	if !limited {
		return func() {}, nil
	}
	g.mu.Lock()
	u := g.usage(share{"address", name})
	full := exceeds(u.waiting+1, g.options.Limits.WaitingPerAddress)
	if !full {
		u.waiting++
	}
	g.mu.Unlock()
	if full {
		return nil, v.refuse(&refusal{
			rule: "waiting per address", code: bridge.CodeBusy, retry: comeBack,
			message: "Too many connections from your address have not said what they want.",
		})
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		u.waiting--
	}, nil
}

// comeBack is when to try again at a limit that others have to leave room at.
const comeBack = 10 * time.Second

func exceeds(n, limit int) bool { return limit >= 0 && n > limit }

// account counts one conversation. It implements bridge.Account.
type account struct {
	visitor *Visitor
	pass    pass
	short   bool     // it is a call that is answered at once
	begun   []*usage // whose sessions it counts among
	waits   []*usage // whose parked ones
}

// claim is a share that a conversation takes of, and how many of its kind there may be.
type claim struct {
	share
	most int
	what string // for the person
}

// claims are in the order in which they are asked: who is refused by their own limit takes nothing of what is for all.
func (a *account) claims() (claims []claim) {
	l := a.visitor.gate.options.Limits
	if name, limited := block(a.visitor.address); limited {
		claims = append(claims, claim{share{"address", name}, l.SessionsPerAddress, "There are too many conversations from your address."})
	}
	p := a.pass
	if p.id != "" {
		most := -1
		if p.grant.Sessions > 0 {
			most = p.grant.Sessions
		}
		claims = append(claims, claim{share{"token", p.issuer + " " + p.id}, most, "There are too many conversations of this token at once."})
	}
	if p.issuer != "" {
		most := l.SessionsPerKey
		if p.sessions > 0 {
			most = p.sessions
		}
		claims = append(claims, claim{share{"key", p.issuer}, most, "There are too many conversations of this service at once."})
	}
	return append(claims, claim{share{"all", ""}, l.Sessions, "The gateway is full."})
}

// Begin counts a conversation that begins, or refuses it.
func (a *account) Begin() error {
	err := a.begin()
	if err != nil {
		return a.visitor.refuse(err)
	}
	if err = a.beginAmong(); err == nil && a.pass.once && !a.useUp() {
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
	usages := make([]*usage, len(claims))
	for i, c := range claims {
		u := g.usage(c.share)
		usages[i] = u
		if exceeds(u.sessions+1, c.most) {
			return &refusal{rule: "sessions of " + c.kind, code: bridge.CodeBusy, message: c.what, retry: comeBack}
		}
		if left, limited := a.left(c.share, u); limited && left <= 0 {
			return a.spentUp(c.share, now)
		}
	}
	for i, u := range usages { // last, because what it takes is not given back
		l := u.begun
		if a.short {
			l = u.called
		}
		if l != nil && !l.AllowN(now, 1) {
			return &refusal{
				rule: "new of " + claims[i].kind, code: bridge.CodeBusy, message: "Conversations begin too fast.",
				retry: time.Duration((1 - l.TokensAt(now)) / float64(l.Limit()) * float64(time.Second)),
			}
		}
	}
	for i, u := range usages {
		u.sessions++
		if claims[i].kind == "token" {
			u.expires = a.pass.expires
		}
	}
	a.begun = usages
	return nil
}

// spentUp refuses a conversation that nobody pays for.
func (a *account) spentUp(s share, now time.Time) error {
	return &refusal{rule: "budget of " + s.kind, code: bridge.CodeBusy, message: "What may be spent is spent.", retry: a.renewed(s, now)}
}

// Continue counts a conversation that comes from another gateway, which has let it in.
func (a *account) Continue() {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range a.claims() {
		u := g.usage(c.share)
		u.sessions++
		a.begun = append(a.begun, u)
		g.changed(c.share)
	}
}

// left is what a share may still spend. Needs mu.
func (a *account) left(s share, u *usage) (left int, limited bool) {
	switch {
	case s.kind == "key" && a.pass.budget > 0:
		return a.pass.budget - u.spent - u.others, true
	case s.kind == "token" && a.pass.grant.Tokens > 0:
		return a.pass.grant.Tokens - u.spent - u.others, true
	}
	return 0, false
}

// renewed is when there will be more to spend; 0: never.
func (a *account) renewed(s share, now time.Time) time.Duration {
	if s.kind != "key" {
		return 0
	}
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// Spend counts tokens of Gemini with the key and the token, and returns what is left of the tighter budget.
func (a *account) Spend(tokens int) (left, most int) {
	g := a.visitor.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range a.claims() {
		u := g.usage(c.share)
		if _, limited := a.left(c.share, u); !limited {
			continue
		}
		u.spent += tokens
		if tokens > 0 {
			g.changed(c.share)
		}
		if n, _ := a.left(c.share, u); most == 0 || n < left {
			left, most = n, n+u.spent+u.others
		}
	}
	return left, most
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
	for _, u := range a.begun {
		u.sessions--
	}
	for _, c := range a.claims() {
		g.changed(c.share)
	}
	a.begun = nil
}
