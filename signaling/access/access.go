// Package access decides who may talk to the gateway, and how much.
//
// A [Gate] knows the operator's keys and limits. The kit gives each request a [Client]; a front door calls [Client.Authorize]
// with what the client wants and the token that came in its first message, if one did. What is refused is refused with a sentence,
// an error code and, where it helps, the time to come back.
//
// There are two kinds of credentials. A server key is the operator's or the backend's own: it mints tokens and watches
// conversations. A session token is what a client shows: a JSON Web Token (RFC 7519), minted by the gateway for a key, or by the
// backend itself and verified with a key or a JWKS that the keys file names. Both are sent as "Authorization: Bearer", as the
// WebSocket subprotocol "voxgate.token.…" beside "voxgate", as x-goog-api-key, or in the first message.
package access

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/store"
)

// Options make a [Gate].
type Options struct {
	// Required: a conversation needs a token. Otherwise anybody may talk, within the limits.
	Required bool
	// Keys is the keys file; empty: there is none. It is read again when it has changed.
	Keys string
	// Agents are the operator's; nil: there are none.
	Agents *agents.Folder
	// Proxies are trusted to say, by X-Forwarded-For, whom they speak for.
	Proxies []netip.Prefix
	// IdentityHeader is a request header by which a trusted proxy says who the person is; empty: none does.
	IdentityHeader string
	Limits         Limits
	// OnRefused gets the rule of each refusal. It must not block and may be nil.
	OnRefused func(rule string)
	// Store is what several gateways count together, and Node what this one is called there: a name that no other gateway has or had
	// before. Nil: a store of this process alone.
	Store      store.Store
	Node       string
	ClusterKey ClusterKey
	Logger     *slog.Logger
	Now        func() time.Time // nil: time.Now
}

// Gate decides. Its methods may be called by any goroutine.
type Gate struct {
	options Options
	keys    *keyring
	tokens  store.Store // those for one conversation that have begun it here
	cluster *clusterCounts

	logged rate.Sometimes

	mu        sync.Mutex
	usages    map[budgetOwner]*ownerUsage
	sweptAt   time.Time
	bodyFreed chan struct{}             // closed when bodies of requests are gone, and then another one
	bodies    map[*requestBody]struct{} // that have room
}

// New returns a gate. It fails if the keys file cannot be read or says something wrong.
func New(o Options) (*Gate, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limits = o.Limits.withDefaults()
	keys, err := openKeyring(o)
	if err != nil {
		return nil, err
	}
	g := &Gate{
		options: o, keys: keys, tokens: store.NewMemory(), cluster: newShared(o.Store, o.Node),
		bodyFreed: make(chan struct{}), bodies: map[*requestBody]struct{}{}, usages: map[budgetOwner]*ownerUsage{},
		logged: rate.Sometimes{First: 100, Interval: 100 * time.Millisecond},
	}
	g.cluster.running.Go(g.runPublisher)
	return g, nil
}

// HasKeys reports whether there is a keys file. Without one there are no valid credentials.
func (g *Gate) HasKeys() bool { return g != nil && g.keys.isConfigured() }

// Close ends what the gate does in the background.
func (g *Gate) Close() {
	g.keys.close()
	close(g.cluster.stop)
	g.cluster.running.Wait()
}

// Client is who sent a request.
type Client struct {
	gate        *Gate
	address     netip.Addr       // the client's, as far as it is known
	proxied     bool             // a trusted proxy has sent the request
	identity    string           // as a trusted proxy says; empty: none does
	forwarded   *forwardedClaims // by another gateway; nil: not
	key         string           // that answers for them, when it is known
	isAmbiguous bool             // the identity header came twice: one of the two may be the client's own
	token       string           // that came with the request; empty: none
}

type clientKey struct{}

// WithClient finds out who sends a request; it does not judge yet. [From] finds the visitor in the context that it returns.
func (g *Gate) WithClient(r *http.Request) context.Context {
	if g == nil { // no access control
		return r.Context()
	}
	v := &Client{gate: g, token: requestToken(r), forwarded: g.parseForwarded(r)}
	v.address, v.proxied = g.clientAddress(r)
	if name := g.options.IdentityHeader; name != "" && v.proxied {
		said := r.Header.Values(name)
		v.identity = strings.Join(said, ", ")
		v.isAmbiguous = len(said) > 1
	}
	return context.WithValue(r.Context(), clientKey{}, v)
}

// From returns the visitor of a request's context. Without a gate it is one that may do anything.
func From(ctx context.Context) *Client {
	if v, ok := ctx.Value(clientKey{}).(*Client); ok {
		return v
	}
	return &Client{}
}

// Address is where the visitor comes from: the peer of the connection, or whom a trusted proxy speaks for.
func (v *Client) Address() netip.Addr { return v.address }

// Proxied reports whether a trusted proxy has sent the request: its X-Forwarded-* headers count.
func (v *Client) Proxied() bool { return v.proxied }

// Subprotocol is what the gateway answers a WebSocket client that offers it beside the one with its token. By RFC 6455 section 4.1
// a client gives up if it has offered some and none was chosen.
const Subprotocol = "voxgate"

// tokenPrefix is before the token in Sec-WebSocket-Protocol: a browser's WebSocket can send no other header.
const tokenPrefix = Subprotocol + ".token."

// requestToken is the token or key that a request carries; never from its URL, which is logged.
func requestToken(r *http.Request) string {
	if token := BearerToken(r.Header.Get("Authorization")); token != "" {
		return token
	}
	if key := r.Header.Get("X-Goog-Api-Key"); key != "" {
		return key
	}
	for _, list := range r.Header.Values("Sec-Websocket-Protocol") {
		for _, offered := range strings.Split(list, ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(offered), tokenPrefix); ok {
				return token
			}
		}
	}
	return ""
}

// BearerToken is the token of a header Authorization (RFC 6750, section 2.1); empty: it has none.
func BearerToken(authorization string) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// clientAddress is where a request comes from: the nearest address that is no trusted proxy (X-Forwarded-For is read from its end, because
// anybody can write its beginning). trusted reports whether a trusted proxy has sent it.
func (g *Gate) clientAddress(r *http.Request) (address netip.Addr, trusted bool) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	address = from.Addr().Unmap()
	trusted = g.isTrustedProxy(address)
	if !trusted {
		return address, false
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && g.isTrustedProxy(address); i-- {
		hop, err := parseHop(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		address = hop.Unmap()
	}
	return address, true
}

// parseHop reads an address as proxies write it: some with a port, and IPv6 in brackets.
func parseHop(text string) (netip.Addr, error) {
	if hop, err := netip.ParseAddrPort(text); err == nil {
		return hop.Addr(), nil
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	return netip.ParseAddr(text)
}

func (g *Gate) isTrustedProxy(a netip.Addr) bool {
	for _, p := range g.options.Proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Authorize lets the visitor open a conversation, as Admit does, with the agent whom the client has named in Origin.Agent or the grant has.
func (v *Client) Authorize(open *bridge.SessionRequest, token string) error {
	if err := v.Admit(open, token); err != nil {
		return err
	}
	if v.gate == nil {
		return (*agents.Folder)(nil).Select(open, nil)
	}
	return v.gate.options.Agents.Select(open, nil)
}

// Admit is Authorize for a door that learns later who is to answer, and then has the agent chosen itself. It lets the visitor open a
// conversation, or refuses: it fills in who they are, what they may use, and who pays. token came in
// the first message; empty: that of the request counts. The visitor is counted when the conversation begins, and a refusal
// may come then, too. A token that has expired is good for a resume alone, not for a new conversation.
func (v *Client) Admit(open *bridge.SessionRequest, token string) error {
	g := v.gate
	if g == nil {
		return nil
	}
	if token == "" {
		token = v.token
	}
	p, err := g.checkCredentials(v, token, false)
	if err != nil && open.ResumeToken != "" { // a conversation outlives its token, so its person may come back to it
		if late, lateErr := g.checkCredentials(v, token, true); lateErr == nil {
			p, open.ResumeError, err = late, publicError(err), nil
		}
	}
	if err == nil && !p.grant.allowsProtocol(open.Origin.Protocol) {
		err = &refusal{rule: "door", code: bridge.CodeForbidden, message: "This token is not for the door " + open.Origin.Protocol + "."}
	}
	if err != nil {
		return v.reportRefusal(err)
	}
	open.Origin.Identity, open.Origin.Key, v.key = p.identity, p.issuer, p.issuer
	if p.limited {
		open.Origin.Grant = p.grant.toJSON()
		open.Grant = p.grant.toBridgeGrant()
	}
	open.Account = &account{client: v, auth: p}
	return nil
}

// errOtherCaller refuses a visitor that may not act on a conversation. Doors answer that there is no such conversation.
var errOtherCaller = &bridge.Error{Code: bridge.CodeForbidden, Message: "This conversation is somebody else's."}

// IsOtherCaller reports whether an error of [Client.AuthorizeControl] is that the conversation is somebody else's.
func IsOtherCaller(err error) bool { return err == error(errOtherCaller) }

// AuthorizeControl refuses a visitor that may not act on a running conversation, as join a call of OpenAI's or end it.
// These may: the one that began it, by a token of the same key for the same person, also when that has expired; the
// server key in whose name it was begun, if it may mint tokens; and a key that may watch it. Token came in a way of the
// door's own; empty: that of the request counts.
func (v *Client) AuthorizeControl(on bridge.Origin, token string) error {
	g := v.gate
	if g == nil || !g.keys.isConfigured() {
		return nil
	}
	token = cmp.Or(token, v.token)
	if k, err := v.serverKey(token); err == nil && (k.mayWatch(on) || k.hasPrivilege(MayMint) && k.Name == on.Key) {
		return nil
	}
	who, grant, err := v.actingCaller(token)
	switch {
	case err != nil:
		return v.reportRefusal(err)
	case !on.SameCaller(who), !grant.allowsProtocol(on.Protocol):
		return errOtherCaller
	}
	return nil
}

// AuthorizeShortCall is Authorize for a door whose calls are short, as those of REST: there may be more of them in a minute.
func (v *Client) AuthorizeShortCall(open *bridge.SessionRequest, token string) error {
	err := v.Authorize(open, token)
	if a, ok := open.Account.(*account); ok {
		a.isShort = true
	}
	return err
}

// TrunkAccount counts a conversation that comes by a way of its own, whose door knows who may use it: a telephone line
// of this name, of which so many may talk at once.
func (g *Gate) TrunkAccount(name string, sessions int) bridge.Account {
	if g == nil {
		return bridge.Unlimited
	}
	return &account{client: &Client{gate: g}, auth: authorization{issuer: name, sessions: sessions}}
}

// RequireKey refuses a visitor without a server key that may do this; name is the key's.
func (v *Client) RequireKey(may string) (name string, err error) {
	if v.gate == nil {
		return "", nil
	}
	k, err := v.gate.keys.findKey(v.token)
	if err == nil && !k.hasPrivilege(may) {
		err = missingPrivilege(may)
	}
	if err != nil {
		return "", v.reportRefusal(err)
	}
	return k.Name, nil
}

// Watcher is a server key that may watch conversations: its own, or all.
type Watcher struct{ key *Key }

// RequireWatcher refuses a visitor without a server key that may watch conversations, and all of more.
func (v *Client) RequireWatcher(more ...string) (Watcher, error) {
	if v.gate == nil {
		return Watcher{}, nil
	}
	k, err := v.serverKey(v.token)
	if err == nil && !k.hasPrivilege(MayWatch) && !k.hasPrivilege(MayWatchAll) {
		err = missingPrivilege(MayWatch)
	}
	for _, may := range more {
		if err == nil && !k.hasPrivilege(may) {
			err = missingPrivilege(may)
		}
	}
	if err != nil {
		return Watcher{}, v.reportRefusal(err)
	}
	return Watcher{&k}, nil
}

// MayWatch reports whether a conversation is one that the key may watch, steer and end.
func (w Watcher) MayWatch(on bridge.Origin) bool { return w.key == nil || w.key.mayWatch(on) }

func missingPrivilege(may string) error {
	return &refusal{
		rule: "key", code: bridge.CodeForbidden,
		message: "This key may not do that; its \"may\" in the keys file lacks " + strconv.Quote(may) + ".",
	}
}

// authorization is what somebody was let in with.
type authorization struct {
	identity     string
	grant        Grant
	limited      bool        // grant counts; else there was nothing to show
	issuer       string      // the key or the issuer that answers for it
	id           string      // of the token; empty: there is none
	once         bool        // the token is for one conversation
	expires      time.Time   // of the token
	budget       bridge.Cost // that the issuer may spend a day; 0: no limit
	personBudget bridge.Cost // likewise in the name of this identity
	sessions     int         // conversations of the issuer at once; 0: as the limits say
}

// checkCredentials checks somebody's credentials. With late, a token that has expired is good.
func (g *Gate) checkCredentials(v *Client, token string, late bool) (authorization, error) {
	switch {
	case v.isAmbiguous:
		return authorization{}, &refusal{
			rule: "identity header", code: bridge.CodeUnauthorized,
			message: "The header " + g.options.IdentityHeader + " came more than once: the proxy must replace it, not add to it.",
		}
	case !g.keys.isConfigured():
		return authorization{identity: v.identity}, nil
	case token != "":
		p, err := g.keys.verifyToken(token, late)
		if p.identity == "" {
			p.identity = v.identity
		}
		return p, err
	case v.identity != "":
		return g.keys.proxyAuthorization(v.identity), nil
	case g.options.Required:
		return authorization{}, &refusal{
			rule: "no token", code: bridge.CodeUnauthorized,
			message: "This gateway wants to know who you are: send a token, as Authorization: Bearer or in the first message.",
		}
	}
	return authorization{}, nil
}

// refusal says no.
type refusal struct {
	rule    string // for the log and the metrics
	code    bridge.Code
	message string
	retry   time.Duration // when to come back; 0: not known
	status  int           // of HTTP, where the code has another; 0: the code's
	err     error         // for the log
}

func (r *refusal) Error() string { return r.message }

// reportRefusal logs a refusal, counts it, and returns it in the form that callers get.
func (v *Client) reportRefusal(err error) error {
	r, ok := err.(*refusal)
	if !ok {
		return err
	}
	if f := v.gate.options.OnRefused; f != nil {
		f(r.rule)
	}
	v.LogRefusal(v.gate.options.Logger, "refused", "rule", r.rule, "address", v.address, "why", r.message, "err", r.err)
	return publicError(err)
}

// LogRefusal logs that a visitor was refused, unless there are many such lines: strangers must not fill the disk. The metrics count all.
func (v *Client) LogRefusal(log *slog.Logger, line string, fields ...any) {
	if v.gate == nil { // no access control
		log.Info(line, fields...)
		return
	}
	v.gate.logged.Do(func() { log.Info(line, fields...) })
}

// publicError is a refusal as callers see it.
func publicError(err error) error {
	if r, ok := err.(*refusal); ok {
		return &bridge.Error{Code: r.code, Message: r.message, Retry: r.retry, Status: r.status}
	}
	return err
}

// HTTPStatus is the HTTP status for an error of this package; 0 if it is none.
func HTTPStatus(err *bridge.Error) int {
	if err.Code == bridge.CodeBusy && err.Status == http.StatusServiceUnavailable {
		return err.Status
	}
	switch err.Code {
	case bridge.CodeUnauthorized:
		return http.StatusUnauthorized
	case bridge.CodeForbidden:
		return http.StatusForbidden
	case bridge.CodeBusy:
		return http.StatusTooManyRequests
	}
	return 0
}
