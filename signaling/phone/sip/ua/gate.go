package ua

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"
	"golang.org/x/time/rate"

	"voxgate/signaling/access"
	"voxgate/signaling/phone"
)

const (
	realm = "voxgate"
	// nonceLifetime limits the time in which a nonce may be used in an answer. Each nonce is accepted only once.
	nonceLifetime = 30 * time.Second
	// provenAddressLifetime is the minimum time for which an authenticated address stays known after its last packet.
	provenAddressLifetime = 10 * time.Minute
	// earlyCancelWindow limits the time from a CANCEL to its INVITE if they arrive in this order, which happens because
	// UDP packets can be reordered.
	earlyCancelWindow = 4 * time.Second
)

// gate decides which calls are accepted. Each refusal names the rule that caused it, for the log. Nothing is stored
// about an address before the address has authenticated (see newNonce).
type gate struct {
	trunks    []*trunkState
	maxCalls  int
	passwords bool // at least one trunk accepts calls from any address, with a password
	elsewhere bool // at least one trunk makes outgoing calls, so responses may come from an address outside its list
	now       func() time.Time
	secret    []byte // key of the MAC in a nonce
	guesses   *access.FailedAttempts

	mu           sync.Mutex
	calls        int
	usedNonces   access.TTLCache[string, struct{}]            // nonces that were already used
	provenAddrs  access.TTLCache[netip.AddrPort, struct{}]    // sources of calls that authenticated with a password
	earlyCancels access.TTLCache[[sha256.Size]byte, struct{}] // keys (inviteKey) of INVITEs whose CANCEL arrived first
}

// trunkState is a trunk with the counts of its current calls. The gate's mu guards the counts.
type trunkState struct {
	*Trunk
	callRate *rate.Limiter
	calls    int
	callers  map[string]int
}

func newGate(trunks []*Trunk, maxCalls int, now func() time.Time) *gate {
	g := &gate{maxCalls: maxCalls, now: now, secret: make([]byte, 32), guesses: access.NewFailedAttempts()}
	_, _ = rand.Read(g.secret) // never fails
	g.usedNonces.Period, g.provenAddrs.Period, g.earlyCancels.Period = nonceLifetime, provenAddressLifetime, earlyCancelWindow
	for _, t := range trunks {
		begun := rate.NewLimiter(rate.Limit(t.CallsPerSecond), int(2*t.CallsPerSecond)+1)
		g.trunks = append(g.trunks, &trunkState{Trunk: t, callRate: begun, callers: map[string]int{}})
		g.passwords = g.passwords || len(t.From) == 0
		g.elsewhere = g.elsewhere || t.Outbound != nil
	}
	return g
}

// findTrunk returns the trunk with this name, or nil.
func (g *gate) findTrunk(name string) *trunkState {
	i := slices.IndexFunc(g.trunks, func(t *trunkState) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return g.trunks[i]
}

// isKnown reports whether packets from an address pass the packet filter, because the address belongs to a trunk or has
// authenticated recently.
func (g *gate) isKnown(from netip.AddrPort) bool {
	if g.isTrunkAddress(from.Addr()) {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.provenAddrs.Get(g.now(), from)
	return ok
}

// authenticatePacket checks whether a packet from an unknown address authenticates for one of the trunks. If it does,
// the address becomes known (see isKnown).
func (g *gate) authenticatePacket(req *sip.Request, from netip.AddrPort, trunks []*trunkState) ruling {
	r := g.authenticateForTrunk(req, from.Addr(), trunks)
	if r.trunk != nil {
		g.mu.Lock()
		g.provenAddrs.Put(g.now(), from, struct{}{})
		g.mu.Unlock()
	}
	return r
}

// isTrunkAddress reports whether an address belongs to a trunk. Other addresses must authenticate with a password.
func (g *gate) isTrunkAddress(from netip.Addr) bool {
	return slices.ContainsFunc(g.trunks, func(t *trunkState) bool { return t.hasAddress(from) })
}

// storeEarlyCancel stores a CANCEL that has arrived before its INVITE. It stores nothing for unknown addresses.
func (g *gate) storeEarlyCancel(req *sip.Request) {
	if from, err := netip.ParseAddrPort(req.Source()); err != nil || !g.isKnown(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.earlyCancels.Put(g.now(), inviteKey(req), struct{}{})
}

// hasEarlyCancel reports whether the CANCEL of an INVITE arrived before the INVITE.
func (g *gate) hasEarlyCancel(invite *sip.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.earlyCancels.Get(g.now(), inviteKey(invite))
	return ok
}

// ruling is the decision on a request outside a dialog.
type ruling struct {
	trunk      *trunkState // the matching trunk; nil if the request is refused
	code       int         // SIP status of the refusal; 0 if no response is sent
	rule       string      // name of the rule that refuses the request
	algorithms []string    // digest algorithms to offer in a challenge (401)
}

// These rules only ask the phone to send the request again with a new nonce. They are not counted as refusals, because
// a phone's first request often has no nonce or an old one.
const (
	rulePassword = "no password yet"
	ruleReplay   = "a nonce that was used before"
	ruleStale    = "an unknown or expired nonce"
)

// These rules are used in several places. Their texts must not change, because they are values of the metric
// voxgate_refusals_total.
const (
	ruleStranger = "no trunk has this address"
	ruleCancel   = "a CANCEL of another's call"
	ruleCrowd    = "too many strangers"
	// ruleOwner refuses a request within a call from an address that does not belong to the call.
	ruleOwner = "a request of another's call"
)

// admitRequest returns the trunk to which a request outside a dialog belongs, or the rule that refuses the request. It
// accepts each nonce only once.
func (g *gate) admitRequest(req *sip.Request, from netip.Addr, trunks []*trunkState) ruling {
	r := g.authenticateForTrunk(req, from, trunks)
	if r.trunk == nil || r.trunk.Username == "" {
		return r
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	nonce := parseCredentials(req).Nonce
	if _, used := g.usedNonces.Get(g.now(), nonce); used {
		return ruling{code: 401, rule: ruleReplay, algorithms: r.trunk.algorithms()}
	}
	g.usedNonces.Put(g.now(), nonce, struct{}{})
	if at, err := netip.ParseAddrPort(req.Source()); err == nil {
		g.provenAddrs.Put(g.now(), netip.AddrPortFrom(from, at.Port()), struct{}{})
	}
	return r
}

// authenticateForTrunk returns the trunk to which a request belongs, by its address and password, or the rule that
// refuses the request. It accepts a used nonce, and counts wrong passwords for each address.
func (g *gate) authenticateForTrunk(req *sip.Request, from netip.Addr, trunks []*trunkState) ruling {
	var challengeAlgorithms []string
	sent := parseCredentials(req)
	fresh := sent != nil && g.isFreshNonce(sent.Nonce, from)
	for _, t := range trunks {
		if len(t.From) > 0 && !t.hasAddress(from) {
			continue
		}
		if t.Username == "" {
			return ruling{trunk: t}
		}
		if challengeAlgorithms == nil {
			challengeAlgorithms = t.algorithms()
		}
		if !fresh { // an answer with an invalid nonce is not checked, so it does not help to guess the password
			continue
		}
		if g.guesses.IsBlocked(g.now(), from) {
			return ruling{code: 403, rule: "too many wrong passwords"}
		}
		if sent.Username == t.Username && verifyDigest(sent, t, req) {
			return ruling{trunk: t}
		}
	}
	switch {
	case challengeAlgorithms == nil:
		return ruling{rule: ruleStranger}
	case sent == nil:
		return ruling{code: 401, rule: rulePassword, algorithms: challengeAlgorithms}
	case !fresh:
		return ruling{code: 401, rule: ruleStale, algorithms: challengeAlgorithms}
	}
	g.guesses.RecordFailure(g.now(), from)
	return ruling{code: 401, rule: "wrong password", algorithms: challengeAlgorithms}
}

// parseCredentials returns the digest credentials of a request, or nil if it has none that can be parsed.
func parseCredentials(req *sip.Request) *digest.Credentials {
	for _, name := range []string{"Authorization", "Proxy-Authorization"} {
		if h := req.GetHeader(name); h != nil {
			if c, err := digest.ParseCredentials(h.Value()); err == nil {
				return c
			}
		}
	}
	return nil
}

// verifyDigest reports whether the answer to a digest challenge is correct (RFC 7616, RFC 8760).
func verifyDigest(c *digest.Credentials, t *trunkState, req *sip.Request) (ok bool) {
	if c.Realm != realm || c.QOP != "auth" || !sameURI(c.URI, req) || !slices.Contains(t.algorithms(), algorithmOf(c)) {
		return false
	}
	want, err := digest.Digest(
		&digest.Challenge{Realm: realm, Nonce: c.Nonce, Algorithm: c.Algorithm, QOP: []string{"auth"}},
		digest.Options{Method: string(req.Method), URI: c.URI, Username: t.Username, Password: t.Password, Cnonce: c.Cnonce, Count: c.Nc},
	)
	return err == nil && subtle.ConstantTimeCompare([]byte(strings.ToLower(c.Response)), []byte(want.Response)) == 1
}

// sameURI reports whether the URI in a digest answer has the number and the host of the request (RFC 7616, section
// 3.4.6). Without this check, an attacker could use a captured answer to call another number.
func sameURI(text string, req *sip.Request) bool {
	var uri sip.Uri
	if sip.ParseUri(strings.Trim(strings.TrimSpace(text), "<>"), &uri) != nil || userNumber(uri) != userNumber(req.Recipient) {
		return false
	}
	if uri.Scheme == "tel" || req.Recipient.Scheme == "tel" {
		return uri.Scheme == req.Recipient.Scheme
	}
	// A proxy may have put our address into the Request-URI.
	return sameAddress(uri, req.Recipient) || sameAddress(uri, req.To().Address)
}

// sameAddress reports whether two URIs have the same host and port (RFC 3261, section 19.1.4). A missing port matches
// any port.
func sameAddress(a, b sip.Uri) bool {
	plain := func(uri sip.Uri) string {
		host := strings.ToLower(strings.TrimSuffix(strings.Trim(uri.Host, "[]"), "."))
		if address, err := netip.ParseAddr(host); err == nil {
			return address.Unmap().String()
		}
		return host
	}
	return plain(a) == plain(b) && (a.Port == b.Port || a.Port == 0 || b.Port == 0)
}

// newNonce returns a nonce for one address. It consists of the time, random bytes, and a MAC over both and the address.
// The nonce is not stored, so thousands of requests use no memory.
func (g *gate) newNonce(from netip.Addr) string {
	data := binary.BigEndian.AppendUint64(nil, uint64(g.now().UnixMilli()))
	data = append(data, rand.Text()[:8]...)
	return hex.EncodeToString(append(data, g.nonceMAC(data, from)...))
}

// nonceDataLength is the length of a nonce without its MAC, in bytes.
const nonceDataLength = 16

// isFreshNonce reports whether a nonce was made for an address and has not expired.
func (g *gate) isFreshNonce(nonce string, from netip.Addr) bool {
	data, err := hex.DecodeString(nonce)
	if err != nil || len(data) < nonceDataLength || !hmac.Equal(data[nonceDataLength:], g.nonceMAC(data[:nonceDataLength], from)) {
		return false
	}
	madeAt := time.UnixMilli(int64(binary.BigEndian.Uint64(data)))
	return g.now().Sub(madeAt) < nonceLifetime
}

func (g *gate) nonceMAC(data []byte, from netip.Addr) []byte {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write(data)
	mac.Write(from.AsSlice())
	return mac.Sum(nil)[:16]
}

func algorithmOf(c *digest.Credentials) string {
	if c.Algorithm == "" {
		return "MD5"
	}
	return strings.ToUpper(c.Algorithm)
}

// challengeHeaders returns the headers that challenge an address for a password.
func (g *gate) challengeHeaders(algorithms []string, from netip.Addr) (list []sip.Header) {
	nonce := g.newNonce(from)
	for _, algorithm := range algorithms {
		c := digest.Challenge{Realm: realm, Nonce: nonce, Algorithm: algorithm, QOP: []string{"auth"}}
		list = append(list, sip.NewHeader("WWW-Authenticate", c.String()))
	}
	return list
}

// refusalResponse returns the response to a refused request, or nil if no response is to be sent.
func (g *gate) refusalResponse(r ruling, req *sip.Request, from netip.Addr) *sip.Response {
	switch r.code {
	case 401:
		res := sip.NewResponseFromRequest(req, 401, "Unauthorized", nil)
		for _, h := range g.challengeHeaders(r.algorithms, from) {
			res.AppendHeader(h)
		}
		return res
	case 403:
		return sip.NewResponseFromRequest(req, 403, "Forbidden", nil)
	}
	return nil
}

// countCall counts a call towards the limits of its trunk and its caller. If a limit would be exceeded, it counts
// nothing and returns the name of that limit.
func (g *gate) countCall(t *trunkState, caller string) (exceededLimit string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.calls >= g.maxCalls:
		return "calls in all"
	case t.calls >= t.Calls:
		return "calls of the trunk"
	case caller != "" && t.callers[caller] >= t.CallsPerCaller:
		return "calls of the caller"
	case !t.callRate.AllowN(g.now(), 1):
		return "calls of the trunk in a second"
	}
	g.calls++
	t.calls++
	if caller != "" {
		t.callers[caller]++
	}
	return ""
}

func (g *gate) releaseCall(t *trunkState, caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	t.calls--
	if t.callers[caller]--; t.callers[caller] <= 0 {
		delete(t.callers, caller)
	}
}

// registeredNumbers returns our own numbers at the trunks where we register. Such a trunk sends calls to our Contact,
// which contains our number and not always the called one.
func (g *gate) registeredNumbers() (list []phone.Number) {
	for _, t := range g.trunks {
		if t.Outbound != nil && t.Outbound.Register {
			list = append(list, userNumber(t.Outbound.localURI("here")))
		}
	}
	return list
}

// refusals counts and logs refused calls and packets.
type refusals struct {
	count     func(rule string)
	strangers *rate.Limiter // limits log lines about strangers
	log       *slog.Logger
}

func newRefusals(count func(rule string), log *slog.Logger) *refusals {
	if count == nil {
		count = func(string) {}
	}
	return &refusals{count, rate.NewLimiter(rate.Every(10*time.Second), 3), log}
}

// record counts a refusal and logs it. The log is rate-limited, so that strangers cannot fill the disk.
func (r *refusals) record(message, rule, source string) {
	switch rule {
	case rulePassword, ruleReplay, ruleStale:
	default:
		r.count("sip " + rule)
	}
	if rule != rulePassword && r.strangers.Allow() {
		r.log.Warn(message, "rule", rule, "from", source)
	}
}
