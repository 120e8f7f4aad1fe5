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

	// Bytes of requests that are under way, beyond 64 KiB of each.
	BodyMegabytes, BodyMegabytesPerAddress, BodyMegabytesPerKey int
}

// defaultLimits: an address may do far more than a household needs, and what one machine carries depends on its CPU: some
// 400 calls a core (docs/figures.md).
var defaultLimits = Limits{
	Sessions: 1000, SessionsPerAddress: 10, SessionsPerKey: 100, NewPerSecond: 50, NewPerSecondPerKey: 20, NewPerMinute: 30,
	CallsPerMinute: 600, Parked: 300, ParkedPerAddress: 10, WaitingPerAddress: 20,
	BodyMegabytes: 64, BodyMegabytesPerAddress: 24, BodyMegabytesPerKey: 40, // the longest has 20; a machine of 1 GB serves calls, too
}

// names are the limits as an operator writes them.
func (l *Limits) names() map[string]*int {
	return map[string]*int{
		"sessions": &l.Sessions, "sessions-per-address": &l.SessionsPerAddress, "sessions-per-key": &l.SessionsPerKey,
		"new-per-second": &l.NewPerSecond, "new-per-second-per-key": &l.NewPerSecondPerKey, "new-per-minute": &l.NewPerMinute,
		"calls-per-minute": &l.CallsPerMinute, "parked": &l.Parked,
		"parked-per-address": &l.ParkedPerAddress, "waiting-per-address": &l.WaitingPerAddress,
		"body-megabytes": &l.BodyMegabytes, "body-megabytes-per-address": &l.BodyMegabytesPerAddress,
		"body-megabytes-per-key": &l.BodyMegabytesPerKey,
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

// share is whose use is counted: everybody's, or that of an address, a key, a person or a token.
type share struct{ kind, name string }

// daily reports whether what it may spend is of a day.
func (s share) daily() bool { return s.kind == "key" || s.kind == "person" }

// resource is what gateways count together.
type resource int

const (
	sessions    resource = iota // conversations at once
	reserved                    // tokens of Gemini that what runs may still spend
	spent                       // tokens of Gemini: of a key on this day, of a token in all
	reservedPay                 // the same in millionths of a US dollar
	spentPay
	resources
)

var resourceNames = [resources]string{"sessions", "reserved", "spent", "reserved-micros", "spent-micros"}

// unit is what a budget counts.
type unit int

const (
	inTokens unit = iota
	inMicros      // millionths of a US dollar
	units
)

func (u unit) reserved() resource { return [units]resource{reserved, reservedPay}[u] }
func (u unit) spent() resource    { return [units]resource{spent, spentPay}[u] }

// isSpent reports whether it is what was spent, which is known for longer than what is held.
func (r resource) isSpent() bool { return r == spent || r == spentPay }

// of is a part of a cost.
func (u unit) of(c *bridge.Cost) *int { return [units]*int{&c.Tokens, &c.Micros}[u] }

// tally is how much this gateway uses, and how much the others do by the store's last answer.
type tally struct {
	own, others int
	reported    int    // of its own
	asked       uint64 // the newest call of Count
}

// usage is what a share uses.
type usage struct {
	counts          [resources]tally
	parked, waiting int
	bodies          int64         // bytes of requests under way
	bodyWaits       int           // requests that wait until there is room for their bodies
	begun, called   *rate.Limiter // conversations and short calls; nil: no limit
	budgeted        bool          // what it spends is limited
	day             string
	expires         time.Time // of a token
}

// left is how much of a budget is neither spent nor reserved here. What others have reserved the store knows.
func (u *usage) left(b budget) int {
	paid := u.counts[b.unit.spent()]
	return b.most - paid.own - paid.others - u.counts[b.unit.reserved()].own
}

// running reports whether a conversation or a call of it runs here.
func (u *usage) running() bool {
	return u.counts[sessions].own > 0 || u.counts[reserved].own > 0 || u.counts[reservedPay].own > 0
}

// idle reports whether nothing would be lost with it.
func (u *usage) idle(now time.Time) bool {
	for _, l := range []*rate.Limiter{u.begun, u.called} {
		if l != nil && l.TokensAt(now) < float64(l.Burst()) {
			return false
		}
	}
	waits := u.parked + u.waiting + u.bodyWaits
	return !u.running() && waits == 0 && u.bodies == 0 && u.counts[spent].own == 0 && u.counts[spentPay].own == 0
}

// sweepEvery is how often unused shares are dropped.
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
	if day := today(now); s.daily() && u.day != day {
		u.day = day
		u.forgetSpent()
	}
	return u
}

func (u *usage) forgetSpent() { u.counts[spent], u.counts[spentPay] = tally{}, tally{} }

// today is the day for which a budget counts, in UTC.
func today(now time.Time) string { return now.UTC().Format(time.DateOnly) }

// sweep forgets shares that nobody uses. Needs mu.
func (g *Gate) sweep(now time.Time) {
	g.swept = now
	for s, u := range g.shares {
		// A conversation outlives its token, and what it spends counts until it ends.
		if s.kind == "token" && !u.running() && now.After(u.expires.Add(leeway)) || s.daily() && u.day != today(now) {
			u.forgetSpent()
		}
		if u.idle(now) && !g.shared.pending(s) {
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

// block is what stands for an address in limits: its household. The loopback has none: behind it are proxies and tests.
func block(a netip.Addr) (block string, limited bool) {
	if a.IsLoopback() || !a.IsValid() {
		return "", false
	}
	return household(a).String(), true
}

// household is an address of IPv4, or the /64 of one of IPv6, which is the least that a household has (RFC 6177).
func household(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a.WithZone(""), bits).Masked()
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
