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

// Limits are the operator's limits. A field of 0 means the default. A negative field means no limit.
type Limits struct {
	Sessions           int // concurrent conversations, in all
	SessionsPerAddress int
	SessionsPerKey     int // concurrent conversations of a server key or an issuer without its own limit
	NewPerSecond       int // new conversations, in all
	NewPerSecondPerKey int
	NewPerMinute       int // new conversations of an address
	CallsPerMinute     int // short calls of an address, such as REST
	Parked             int // conversations that wait for their lost client, in all
	ParkedPerAddress   int
	WaitingPerAddress  int // WebSockets that have not sent their first message

	// Limits of the request bodies in memory, in MiB. The first 64 KiB of each body are not counted.
	BodyMegabytes, BodyMegabytesPerAddress, BodyMegabytesPerKey int
}

// defaultLimits allow an address far more than a household needs. For comparison, a core can handle about 400 calls
// (docs/figures.md).
var defaultLimits = Limits{
	Sessions: 1000, SessionsPerAddress: 10, SessionsPerKey: 100, NewPerSecond: 50, NewPerSecondPerKey: 20, NewPerMinute: 30,
	CallsPerMinute: 600, Parked: 300, ParkedPerAddress: 10, WaitingPerAddress: 20,
	BodyMegabytes: 64, BodyMegabytesPerAddress: 24, BodyMegabytesPerKey: 40, // the longest body has 20 MiB; calls need memory, too
}

// fields returns pointers to the limits by the names that operators use.
func (l *Limits) fields() map[string]*int {
	return map[string]*int{
		"sessions": &l.Sessions, "sessions-per-address": &l.SessionsPerAddress, "sessions-per-key": &l.SessionsPerKey,
		"new-per-second": &l.NewPerSecond, "new-per-second-per-key": &l.NewPerSecondPerKey, "new-per-minute": &l.NewPerMinute,
		"calls-per-minute": &l.CallsPerMinute, "parked": &l.Parked,
		"parked-per-address": &l.ParkedPerAddress, "waiting-per-address": &l.WaitingPerAddress,
		"body-megabytes": &l.BodyMegabytes, "body-megabytes-per-address": &l.BodyMegabytesPerAddress,
		"body-megabytes-per-key": &l.BodyMegabytesPerKey,
	}
}

// ParseLimit parses "name=number" and sets that limit in l. A number of 0 means no limit.
func (l *Limits) ParseLimit(text string) error {
	name, number, _ := strings.Cut(text, "=")
	field := l.fields()[strings.TrimSpace(name)]
	n, err := strconv.Atoi(strings.TrimSpace(number))
	if field == nil || err != nil || n < 0 {
		return fmt.Errorf("%q is not a limit such as sessions=1000; docs/access.md lists them", text)
	}
	if *field = n; n == 0 {
		*field = -1
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	defaults := defaultLimits.fields()
	for name, field := range l.fields() {
		if *field == 0 {
			*field = *defaults[name]
		}
	}
	return l
}

// budgetOwner identifies whose usage is counted and limited: the whole gateway, an address, a key, a person or a token.
type budgetOwner struct{ kind, name string }

// isDaily reports whether the owner's budget is daily.
func (b budgetOwner) isDaily() bool { return b.kind == "key" || b.kind == "person" }

// resource is a quantity that is counted for each owner, across all gateways.
type resource int

const (
	sessions    resource = iota // concurrent conversations
	reserved                    // tokens of Gemini reserved by conversations in progress
	spent                       // tokens of Gemini: of a key on this day, of a token in all
	reservedPay                 // spending reserved by conversations in progress, in millionths of a US dollar
	spentPay
	resources
)

// unit says what a budget counts: tokens or money.
type unit int

const (
	inTokens unit = iota
	inMicros      // millionths of a US dollar
	units
)

// unitNames are the names of the units in the store.
var unitNames = [units]string{"tokens", "micros"}

func (u unit) reservedResource() resource { return [units]resource{reserved, reservedPay}[u] }
func (u unit) spentResource() resource    { return [units]resource{spent, spentPay}[u] }

// costField returns the field of a [bridge.Cost] that counts this unit.
func (u unit) costField(c *bridge.Cost) *int { return [units]*int{&c.Tokens, &c.Micros}[u] }

// usageCount is the usage of one resource: local by this gateway, and remote by all other gateways according to the
// store's last answer.
type usageCount struct{ local, remote int }

// ownerUsage is the usage of one owner.
type ownerUsage struct {
	counts                      [resources]usageCount
	parked, waiting             int
	bodies                      int64         // bytes of requests in progress
	bodyWaits                   int           // requests that wait for room for their bodies
	sessionLimiter, callLimiter *rate.Limiter // of conversations and short calls; nil means no limit
	hasBudget                   bool          // its spending is limited
	lastReports                 [units]uint64 // by unit, the number of the newest call of Reserve (see clusterCounts.order)
	day                         string
	expires                     time.Time // expiry of a token; zero for other owners
}

// remaining returns how much of a budget is left. It ignores the reservations of other gateways, which only the store
// knows exactly.
func (u *ownerUsage) remaining(b budgetLimit) int {
	paid := u.counts[b.unit.spentResource()]
	return b.limit - paid.local - paid.remote - u.counts[b.unit.reservedResource()].local
}

// isRunning reports whether a conversation or a call of the owner is in progress here.
func (u *ownerUsage) isRunning() bool {
	return u.counts[sessions].local > 0 || u.counts[reserved].local > 0 || u.counts[reservedPay].local > 0
}

// isIdle reports whether this usage can be dropped without losing information.
func (u *ownerUsage) isIdle(now time.Time) bool {
	for _, l := range []*rate.Limiter{u.sessionLimiter, u.callLimiter} {
		if l != nil && l.TokensAt(now) < float64(l.Burst()) {
			return false
		}
	}
	waits := u.parked + u.waiting + u.bodyWaits
	return !u.isRunning() && waits == 0 && u.bodies == 0 && u.counts[spent].local == 0 && u.counts[spentPay].local == 0
}

// sweepEvery is the interval at which the usage of idle owners is dropped.
const sweepEvery = time.Minute

// usageOf returns the usage of an owner, and creates it if necessary. The caller must hold mu.
func (g *Gate) usageOf(s budgetOwner) *ownerUsage {
	now := g.options.Now()
	if now.Sub(g.sweptAt) > sweepEvery {
		g.dropIdleUsages(now)
	}
	u := g.usages[s]
	if u == nil {
		u = &ownerUsage{}
		switch s.kind {
		case "all":
			u.sessionLimiter = newLimiter(g.options.Limits.NewPerSecond, time.Second)
		case "key":
			u.sessionLimiter = newLimiter(g.options.Limits.NewPerSecondPerKey, time.Second)
		case "address":
			u.sessionLimiter = newLimiter(g.options.Limits.NewPerMinute, time.Minute)
			u.callLimiter = newLimiter(g.options.Limits.CallsPerMinute, time.Minute)
		}
		g.usages[s] = u
	}
	if day := budgetDay(now); s.isDaily() && u.day != day {
		u.day = day
		u.resetSpent()
	}
	return u
}

func (u *ownerUsage) resetSpent() { u.counts[spent], u.counts[spentPay] = usageCount{}, usageCount{} }

// budgetDay returns the day of a daily budget, in UTC.
func budgetDay(now time.Time) string { return now.UTC().Format(time.DateOnly) }

// dropIdleUsages drops the usage of idle owners. The caller must hold mu.
func (g *Gate) dropIdleUsages(now time.Time) {
	g.sweptAt = now
	for s, u := range g.usages {
		// A conversation may outlive its token, so the token's usage is kept until the conversation ends.
		if s.kind == "token" && !u.isRunning() && now.After(u.expires.Add(leeway)) || s.isDaily() && u.day != budgetDay(now) {
			u.resetSpent()
		}
		if u.isIdle(now) && !g.cluster.hasPending(s) {
			delete(g.usages, s)
		}
	}
}

func newLimiter(n int, per time.Duration) *rate.Limiter {
	if n < 0 {
		return nil
	}
	return rate.NewLimiter(rate.Every(per/time.Duration(n)), n)
}

// limitBlock returns the block of addresses that are counted together. isLimited is false for loopback addresses,
// because proxies and tests connect from them.
func limitBlock(a netip.Addr) (block string, isLimited bool) {
	if a.IsLoopback() || !a.IsValid() {
		return "", false
	}
	return addressBlock(a).String(), true
}

// addressBlock returns an IPv4 address, or the /64 of an IPv6 address, which is the smallest block that a household
// gets (RFC 6177).
func addressBlock(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a.WithZone(""), bits).Masked()
}

// CountUnopened counts a socket whose client has not sent its first message yet. Call done when the message has arrived
// or the socket is closed.
func (cl *Client) CountUnopened() (done func(), err error) {
	g := cl.gate
	if g == nil {
		return func() {}, nil
	}
	name, limited := limitBlock(cl.address)
	if !limited {
		return func() {}, nil
	}
	g.mu.Lock()
	u := g.usageOf(budgetOwner{"address", name})
	full := exceedsLimit(u.waiting+1, g.options.Limits.WaitingPerAddress)
	if !full {
		u.waiting++
	}
	g.mu.Unlock()
	if full {
		return nil, cl.reportRefusal(&refusal{
			rule: "waiting per address", code: bridge.CodeBusy, retry: retryLater,
			message: "Too many connections from your address have not sent their first message.",
		})
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		u.waiting--
	}, nil
}

// retryLater is the retry time for clients that were rejected because a limit is reached. The limit has room again only
// after other clients have finished.
const retryLater = 10 * time.Second

func exceedsLimit(n, limit int) bool { return limit >= 0 && n > limit }
