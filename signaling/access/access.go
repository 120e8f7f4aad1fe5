// Package access admits clients to the gateway and limits their use.
//
// A [Gate] holds the operator's keys and limits. It makes a [Client] for each request. An endpoint calls
// [Client.Authorize] with what the client wants, and with the token of the client's first message, if any. A rejection
// has a sentence, an error code and, where it helps, the time to retry.
//
// There are two kinds of credentials. A server key belongs to the operator or the backend: it mints tokens and watches
// conversations. A session token belongs to a client. It is a JSON Web Token (RFC 7519). Either the gateway mints it in
// the name of a key, or the backend mints it itself, and the gateway verifies it with a key or a JWKS from the keys
// file.
//
// Clients send both kinds as "Authorization: Bearer", as the WebSocket subprotocol "voxgate.token.…" together with
// "voxgate", as x-goog-api-key, or in the first message.
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

// Options configure a [Gate].
type Options struct {
	// Required makes a token necessary for every conversation. Without it anyone may use the gateway, within the
	// limits.
	Required bool
	// Keys is the path of the keys file; empty means none. The file is read again when it has changed.
	Keys string
	// Agents is the operator's folder of agents. It may be nil.
	Agents *agents.Folder
	// Proxies are the addresses of the proxies whose X-Forwarded-For header is trusted.
	Proxies []netip.Prefix
	// IdentityHeader is a request header with which a trusted proxy sends the identity of the person; empty means none.
	IdentityHeader string
	Limits         Limits
	// OnRefused is called for each rejection, with the name of the rule that caused it. It must not block and may be
	// nil.
	OnRefused func(rule string)
	// Store holds the counts that several gateways share. If it is nil, this process counts alone.
	Store      store.Store
	Node       string // name of this gateway in the store; unique, also among earlier gateways
	ClusterKey ClusterKey
	Logger     *slog.Logger
	Now        func() time.Time // nil: time.Now
}

// Gate checks credentials and limits. Its methods are safe for concurrent use.
type Gate struct {
	options Options
	keys    *keyring
	tokens  store.Store // single-use tokens used here
	cluster *clusterCounts

	logged rate.Sometimes

	mu        sync.Mutex
	usages    map[budgetOwner]*ownerUsage
	sweptAt   time.Time
	bodyFreed chan struct{}             // closed, and replaced, when request bodies are released
	bodies    map[*requestBody]struct{} // request bodies that have reserved bytes
}

// New returns a gate. It fails if the keys file cannot be read or is invalid.
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
		options: o, keys: keys, tokens: store.NewMemory(), cluster: newClusterCounts(o.Store, o.Node),
		bodyFreed: make(chan struct{}), bodies: map[*requestBody]struct{}{}, usages: map[budgetOwner]*ownerUsage{},
		logged: rate.Sometimes{First: 100, Interval: 100 * time.Millisecond},
	}
	g.cluster.running.Go(g.runPublisher)
	return g, nil
}

// HasKeys reports whether there is a keys file. Without one there are no valid credentials.
func (g *Gate) HasKeys() bool { return g != nil && g.keys.isConfigured() }

// Close stops the gate's background work.
func (g *Gate) Close() {
	g.keys.close()
	close(g.cluster.stop)
	g.cluster.running.Wait()
}

// Client is the client that has sent a request.
type Client struct {
	gate        *Gate
	address     netip.Addr       // of the client, as far as known
	proxied     bool             // sent by a trusted proxy
	identity    string           // from a trusted proxy; empty means none
	forwarded   *forwardedClaims // from another gateway, or nil
	key         string           // server key or issuer, when known
	isAmbiguous bool             // the identity header came twice, so one of them may have been sent by the client itself
	token       string           // of the request; empty means none
	device      string           // User-Agent header
}

// maxDevice limits how much of the User-Agent header is kept, in bytes.
const maxDevice = 300

type clientKey struct{}

func truncateUserAgent(agent string) string {
	return strings.ToValidUTF8(agent[:min(len(agent), maxDevice)], "")
}

// WithClient returns the request's context with its [Client], which [From] returns. It does not check credentials yet.
func (g *Gate) WithClient(r *http.Request) context.Context {
	if g == nil { // no access control
		return r.Context()
	}
	v := &Client{
		gate: g, token: requestToken(r), forwarded: g.verifyForwardedClaims(r), device: truncateUserAgent(r.UserAgent()),
	}
	v.address, v.proxied = g.clientAddress(r)
	if name := g.options.IdentityHeader; name != "" && v.proxied {
		said := r.Header.Values(name)
		v.identity = strings.Join(said, ", ")
		v.isAmbiguous = len(said) > 1
	}
	return context.WithValue(r.Context(), clientKey{}, v)
}

// From returns the client of a request's context. Without a gate the context has no client, and From returns a client
// without restrictions.
func From(ctx context.Context) *Client {
	if v, ok := ctx.Value(clientKey{}).(*Client); ok {
		return v
	}
	return &Client{}
}

// Address returns the client's address: the peer of the connection, or the address given by a trusted proxy.
func (cl *Client) Address() netip.Addr { return cl.address }

// IsProxied reports whether a trusted proxy has sent the request, so that its X-Forwarded-* headers can be trusted.
func (cl *Client) IsProxied() bool { return cl.proxied }

// Subprotocol is the WebSocket subprotocol that a client offers together with the subprotocol that contains its token.
// The gateway selects Subprotocol in its answer, because clients give up if none is selected (RFC 6455, section 4.1).
const Subprotocol = "voxgate"

// tokenPrefix precedes the token in Sec-WebSocket-Protocol, the only header that a browser's WebSocket lets a page set.
const tokenPrefix = Subprotocol + ".token."

// requestToken returns the token or key of a request. It ignores the URL, because URLs are logged.
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

// BearerToken returns the token in the value of an Authorization header (RFC 6750, section 2.1), or "".
func BearerToken(authorization string) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// clientAddress returns the address of a request's client. In X-Forwarded-For, that is the last address that does not
// belong to a trusted proxy, because clients can forge the addresses before it. trusted reports whether a trusted proxy
// sent the request.
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

// parseHop parses an address as proxies write it: some add a port, and some write IPv6 in brackets.
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

// Authorize calls [Client.Admit], and then selects the agent: the one that the grant requires, or otherwise the
// client's choice in Origin.Agent.
func (cl *Client) Authorize(open *bridge.SessionRequest, token string) error {
	if err := cl.Admit(open, token); err != nil {
		return err
	}
	if cl.gate == nil {
		return (*agents.Folder)(nil).Select(open, nil)
	}
	return cl.gate.options.Agents.Select(open, nil)
}

// Admit checks whether the client may open a conversation, and sets identity, grant and account of open. Unlike
// [Client.Authorize] it selects no agent: it is for endpoints that do so later. If token is empty, the token of the
// request is used.
//
// The conversation is counted only when it begins, so it may still be rejected then. With an expired token the client
// may only resume a conversation.
func (cl *Client) Admit(open *bridge.SessionRequest, token string) error {
	g := cl.gate
	if g == nil {
		return nil
	}
	if token == "" {
		token = cl.token
	}
	p, err := g.checkCredentials(cl, token, false)
	if err != nil && open.ResumeToken != "" { // a conversation outlives its token, so its person may come back to it
		if late, lateErr := g.checkCredentials(cl, token, true); lateErr == nil {
			p, open.ResumeError, err = late, toPublicError(err), nil
		}
	}
	if err == nil && !p.grant.allowsProtocol(open.Origin.Protocol) {
		err = &refusal{
			rule: "door", code: bridge.CodeForbidden,
			message: "This token is not valid for the protocol " + open.Origin.Protocol + ".",
		}
	}
	if err != nil {
		return cl.reportRefusal(err)
	}
	open.Origin.Identity, open.Origin.Key, cl.key = p.identity, p.issuer, p.issuer
	open.Origin.Device = cl.device
	if cl.address.IsValid() {
		open.Origin.Address = cl.address.String()
	}
	if p.limited {
		open.Origin.Grant = p.grant.toJSON()
		open.Grant = p.grant.toBridgeGrant()
	}
	open.Account = &account{client: cl, auth: p}
	return nil
}

// errOtherCaller rejects a client that may not control a conversation. Endpoints answer that the conversation does
// not exist.
var errOtherCaller = &bridge.Error{Code: bridge.CodeForbidden, Message: "This conversation belongs to another caller."}

// IsOtherCallerError reports whether an error of [Client.AuthorizeControl] means that the conversation belongs to
// another caller.
func IsOtherCallerError(err error) bool { return err == error(errOtherCaller) }

// AuthorizeControl returns an error unless the client may control a running conversation, for example end it. If token
// is empty, the token of the request is used. These may control it:
//
//   - the caller that began the conversation, with a token of the same key and person, even an expired one
//   - the server key in whose name it was begun, if that key may mint tokens
//   - a key that may watch it
func (cl *Client) AuthorizeControl(origin bridge.Origin, token string) error {
	g := cl.gate
	if g == nil || !g.keys.isConfigured() {
		return nil
	}
	token = cmp.Or(token, cl.token)
	if k, err := cl.serverKey(token); err == nil && (k.mayWatch(origin) || k.hasPrivilege(MayMint) && k.Name == origin.Key) {
		return nil
	}
	who, grant, err := cl.identifyCaller(token)
	switch {
	case err != nil:
		return cl.reportRefusal(err)
	case !origin.SameCaller(who), !grant.allowsProtocol(origin.Protocol):
		return errOtherCaller
	}
	return nil
}

// AuthorizeShortCall is [Client.Authorize] for protocols with short calls, such as REST, which have a higher rate
// limit.
func (cl *Client) AuthorizeShortCall(open *bridge.SessionRequest, token string) error {
	err := cl.Authorize(open, token)
	if a, ok := open.Account.(*account); ok {
		a.isShort = true
	}
	return err
}

// TrunkAccount returns an account for a telephone trunk, whose protocol authenticates callers itself. The conversations
// are counted under name. At most sessions of them may run at once; 0 means that only the operator's limits apply.
func (g *Gate) TrunkAccount(name string, sessions int) bridge.Account {
	if g == nil {
		return bridge.Unlimited
	}
	return &account{client: &Client{gate: g}, auth: authorization{issuer: name, sessions: sessions}}
}

// RequireKey returns the name of the client's server key, or an error if the client has no server key with this
// privilege. Without access control it returns "".
func (cl *Client) RequireKey(privilege string) (name string, err error) {
	if cl.gate == nil {
		return "", nil
	}
	k, err := cl.gate.keys.findKey(cl.token)
	if err == nil && !k.hasPrivilege(privilege) {
		err = newMissingPrivilegeError(privilege)
	}
	if err != nil {
		return "", cl.reportRefusal(err)
	}
	return k.Name, nil
}

// Watcher is a server key that may watch conversations: those begun in the key's name, or all.
type Watcher struct{ key *Key }

// RequireWatcher returns an error unless the client has a server key that may watch conversations and has all the given
// privileges.
func (cl *Client) RequireWatcher(privileges ...string) (Watcher, error) {
	if cl.gate == nil {
		return Watcher{}, nil
	}
	k, err := cl.serverKey(cl.token)
	if err == nil && !k.hasPrivilege(MayWatch) && !k.hasPrivilege(MayWatchAll) {
		err = newMissingPrivilegeError(MayWatch)
	}
	for _, may := range privileges {
		if err == nil && !k.hasPrivilege(may) {
			err = newMissingPrivilegeError(may)
		}
	}
	if err != nil {
		return Watcher{}, cl.reportRefusal(err)
	}
	return Watcher{&k}, nil
}

// Name returns the name of the key, or "" if no key was needed.
func (w Watcher) Name() string {
	if w.key == nil {
		return ""
	}
	return w.key.Name
}

// MayWatch reports whether the key may watch, steer and end a conversation.
func (w Watcher) MayWatch(origin bridge.Origin) bool { return w.key == nil || w.key.mayWatch(origin) }

// newMissingPrivilegeError returns the error for a server key that lacks a privilege.
func newMissingPrivilegeError(privilege string) error {
	return &refusal{
		rule: "key", code: bridge.CodeForbidden,
		message: "This key may not do that; its \"may\" in the keys file lacks " + strconv.Quote(privilege) + ".",
	}
}

// authorization is the result of a check of credentials.
type authorization struct {
	identity     string
	grant        Grant
	limited      bool        // the grant applies; false if there were no credentials
	issuer       string      // the responsible key or issuer
	id           string      // of the token; empty means no token
	once         bool        // the token is for one conversation
	expires      time.Time   // of the token
	budget       bridge.Cost // of the issuer per day; 0 means no limit
	personBudget bridge.Cost // of this identity per day; 0 means no limit
	sessions     int         // concurrent conversations of the issuer; 0 means use the limits
}

// checkCredentials checks a client's credentials. If acceptExpired is true, it accepts an expired token.
func (g *Gate) checkCredentials(v *Client, token string, acceptExpired bool) (authorization, error) {
	switch {
	case v.isAmbiguous:
		return authorization{}, &refusal{
			rule: "identity header", code: bridge.CodeUnauthorized,
			message: "The header " + g.options.IdentityHeader + " came more than once: the proxy must replace it, not add to it.",
		}
	case !g.keys.isConfigured():
		return authorization{identity: v.identity}, nil
	case token != "":
		p, err := g.keys.verifyToken(token, acceptExpired)
		if p.identity == "" {
			p.identity = v.identity
		}
		return p, err
	case v.identity != "":
		return g.keys.proxyAuthorization(v.identity), nil
	case g.options.Required:
		return authorization{}, &refusal{
			rule: "no token", code: bridge.CodeUnauthorized,
			message: "Authentication is required: send a token, as Authorization: Bearer or in the first message.",
		}
	}
	return authorization{}, nil
}

// refusal is the error for a rejected client inside this package. reportRefusal logs and counts it, and converts it to
// the error that the client receives.
type refusal struct {
	rule    string // for the log and the metrics
	code    bridge.Code
	message string
	retry   time.Duration // the time to wait before a retry; 0 means unknown
	status  int           // HTTP status in place of that of the code; 0 means none
	err     error         // cause, for the log only; may be nil
}

func (r *refusal) Error() string { return r.message }

// reportRefusal logs and counts a rejection, and returns it as the error that the client receives.
func (cl *Client) reportRefusal(err error) error {
	r, ok := err.(*refusal)
	if !ok {
		return err
	}
	if f := cl.gate.options.OnRefused; f != nil {
		f(r.rule)
	}
	cl.LogLimited(cl.gate.options.Logger, "refused", "rule", r.rule, "address", cl.address, "why", r.message, "err", r.err)
	return toPublicError(err)
}

// LogLimited logs a rejection. It skips the entry if there were too many lately, because strangers must not be able to
// fill the disk. The metrics count all rejections.
func (cl *Client) LogLimited(log *slog.Logger, message string, fields ...any) {
	if cl.gate == nil { // no access control
		log.Info(message, fields...)
		return
	}
	cl.gate.logged.Do(func() { log.Info(message, fields...) })
}

// toPublicError converts a refusal to the error that the client receives, and returns other errors as they are.
func toPublicError(err error) error {
	if r, ok := err.(*refusal); ok {
		return &bridge.Error{Code: r.code, Message: r.message, Retry: r.retry, Status: r.status}
	}
	return err
}

// RefusalStatusOrZero returns the HTTP status for an error of this package, or 0 for any other error.
func RefusalStatusOrZero(err *bridge.Error) int {
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
