package sip

import (
	"crypto/rand"
	"crypto/subtle"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"
	"golang.org/x/time/rate"
)

const (
	realm = "voxgate"
	// nonceLife is how long a nonce may be answered, once.
	nonceLife = 30 * time.Second
	// maxNonces bounds those that wait. Above it the oldest are void.
	maxNonces = 10000
)

// gate decides whose calls are let in. What it refuses has the name of a rule, for the log.
type gate struct {
	trunks []*lane
	total  int
	now    func() time.Time

	mu     sync.Mutex
	calls  int
	nonces map[string]time.Time // that have not been answered, until when they may be
	queue  []string             // of nonces, the oldest first

	strangers map[netip.AddrPort]struct{}
}

// lane is a trunk and what uses it. Its counts are the gate's to lock.
type lane struct {
	*Trunk
	begun   *rate.Limiter
	calls   int
	callers map[string]int
}

func newGate(c *Config, now func() time.Time) *gate {
	g := &gate{total: c.Calls, now: now, nonces: map[string]time.Time{}, strangers: map[netip.AddrPort]struct{}{}}
	for i := range c.Trunks {
		t := &c.Trunks[i]
		g.trunks = append(g.trunks, &lane{Trunk: t, begun: rate.NewLimiter(rate.Limit(t.CallsPerSecond), int(2*t.CallsPerSecond)+1), callers: map[string]int{}})
	}
	return g
}

func (g *gate) trunk(name string) *lane {
	i := slices.IndexFunc(g.trunks, func(t *lane) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return g.trunks[i]
}

// maxStrangers bounds the addresses that packets are taken of without their being a trunk's: sipgo keeps each for good.
const maxStrangers = 50000

// known tells whether a packet of an address may be of somebody: of a trunk, of who may know a password, or of where we call. Others
// are not read.
func (g *gate) known(from netip.AddrPort) bool {
	if g.listed(from.Addr()) {
		return true
	}
	if !slices.ContainsFunc(g.trunks, func(t *lane) bool { return len(t.From) == 0 || t.Outbound != nil }) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.strangers[from]; !ok && len(g.strangers) >= maxStrangers {
		return false
	}
	g.strangers[from] = struct{}{}
	return true
}

// listed tells whether an address is a trunk's. Others are answered only if they know a password.
func (g *gate) listed(from netip.Addr) bool {
	return slices.ContainsFunc(g.trunks, func(t *lane) bool { return t.has(from) })
}

// ruling is what becomes of a request that begins something.
type ruling struct {
	trunk *lane    // who it is of; nil: it is refused
	code  int      // 0: without a word
	rule  string   // by which
	by    []string // the algorithms of a challenge
}

// admit finds the trunk that a request is of.
func (g *gate) admit(req *sip.Request, from netip.Addr) ruling {
	var asked []string
	sent := credentials(req)
	for _, t := range g.trunks {
		if len(t.From) > 0 && !t.has(from) {
			continue
		}
		if t.Username == "" {
			return ruling{trunk: t}
		}
		if asked == nil {
			asked = t.algorithms()
		}
		if sent != nil && sent.Username == t.Username && g.proved(sent, t, req) {
			return ruling{trunk: t}
		}
	}
	switch {
	case asked == nil:
		return ruling{rule: "no trunk has this address"}
	case sent == nil:
		return ruling{code: 401, rule: "no password yet", by: asked}
	}
	return ruling{code: 401, rule: "wrong password, or an answer that was given before", by: asked}
}

func credentials(req *sip.Request) *digest.Credentials {
	for _, name := range []string{"Authorization", "Proxy-Authorization"} {
		if h := req.GetHeader(name); h != nil {
			if c, err := digest.ParseCredentials(h.Value()); err == nil {
				return c
			}
		}
	}
	return nil
}

// proved checks an answer to a challenge (RFC 7616, RFC 8760), which is good once.
func (g *gate) proved(c *digest.Credentials, t *lane, req *sip.Request) bool {
	if c.Realm != realm || c.QOP != "auth" || c.URI == "" || !slices.Contains(t.algorithms(), algorithmOf(c)) {
		return false
	}
	want, err := digest.Digest(
		&digest.Challenge{Realm: realm, Nonce: c.Nonce, Algorithm: c.Algorithm, QOP: []string{"auth"}},
		digest.Options{Method: string(req.Method), URI: c.URI, Username: t.Username, Password: t.Password, Cnonce: c.Cnonce, Count: c.Nc},
	)
	if err != nil || subtle.ConstantTimeCompare([]byte(strings.ToLower(c.Response)), []byte(want.Response)) != 1 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	until, ok := g.nonces[c.Nonce]
	delete(g.nonces, c.Nonce)
	return ok && g.now().Before(until)
}

// algorithms are those of challenges, the best first.
var algorithms = []string{"SHA-256", "MD5"}

// algorithms are those that the trunk's telephones are offered. Some know only MD5, and give up where SHA-256 is offered too (libre 1.0).
func (t *Trunk) algorithms() []string {
	if t.Digest != "" {
		return []string{t.Digest}
	}
	return algorithms
}

func algorithmOf(c *digest.Credentials) string {
	if c.Algorithm == "" {
		return "MD5"
	}
	return strings.ToUpper(c.Algorithm)
}

// challenges are the headers that ask for a password.
func (g *gate) challenges(algorithms []string) (list []sip.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	nonce := rand.Text()
	now := g.now()
	for len(g.queue) > 0 && (len(g.queue) >= maxNonces || now.After(g.nonces[g.queue[0]])) {
		delete(g.nonces, g.queue[0])
		g.queue = g.queue[1:]
	}
	g.nonces[nonce] = now.Add(nonceLife)
	g.queue = append(g.queue, nonce)
	for _, algorithm := range algorithms {
		c := digest.Challenge{Realm: realm, Nonce: nonce, Algorithm: algorithm, QOP: []string{"auth"}}
		list = append(list, sip.NewHeader("WWW-Authenticate", c.String()))
	}
	return list
}

// begin counts a call of a trunk's caller, or names the limit that refuses it.
func (g *gate) begin(t *lane, caller string) (rule string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.calls >= g.total:
		return "calls in all"
	case t.calls >= t.Calls:
		return "calls of the trunk"
	case caller != "" && t.callers[caller] >= t.CallsPerCaller:
		return "calls of the caller"
	case !t.begun.AllowN(g.now(), 1):
		return "calls of the trunk in a second"
	}
	g.calls++
	t.calls++
	if caller != "" {
		t.callers[caller]++
	}
	return ""
}

func (g *gate) end(t *lane, caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	t.calls--
	if t.callers[caller]--; t.callers[caller] <= 0 {
		delete(t.callers, caller)
	}
}
