package access

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"voxgate/tools"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"voxgate/bridge"
)

const (
	// tokenIssuer is the issuer and the audience of the tokens that we mint.
	tokenIssuer = "voxgate"
	tokenLife   = 5 * time.Minute // default time in which a token may begin conversations
	maxLife     = 24 * time.Hour  // maximum lifetime that a token request may ask for
	// maxToken limits the size of a token, in bytes, because servers usually accept only 8 KiB of headers.
	maxToken     = 8 << 10
	jwksTimeout  = 5 * time.Second  // timeout of a request for an issuer's keys
	jwksInterval = time.Hour        // interval between requests for an issuer's keys
	unknownKID   = 10 * time.Second // minimum interval between extra requests because of an unknown key ID, as after a rotation
)

// tokenClaims are the claims of a token (RFC 7519 section 4).
type tokenClaims struct {
	jwt.RegisteredClaims
	Key   string `json:"key,omitempty"`   // server key that it was minted for
	Once  bool   `json:"once,omitempty"`  // the token is for one conversation
	Grant *Grant `json:"grant,omitempty"` // nil: the issuer's grant
}

// Issuer is an external issuer of tokens.
type Issuer struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`        // the only accepted algorithm: HS256, RS256, ES256, EdDSA …
	Key       string `json:"key,omitempty"`    // the shared secret, or the public key in PEM; ${NAME} is a variable of the environment
	JWKS      string `json:"jwks,omitempty"`   // in place of Key, the URL of the issuer's keys (RFC 7517)
	Audience  string `json:"audience"`         // required "aud"
	Issuer    string `json:"issuer,omitempty"` // required "iss"; empty means any
	Once      bool   `json:"once,omitempty"`   // each token is for one conversation; it must have a "jti"
	Issuance
}

// issuer is an Issuer together with its keys.
type issuer struct {
	Issuer
	keys jwt.Keyfunc
}

// newIssuer returns an issuer together with its keys. If the issuer has a JWKS, the keys are fetched from there, and
// again every hour until ctx is done.
func newIssuer(ctx context.Context, i Issuer, log *slog.Logger) (*issuer, error) {
	if i.Audience == "" {
		return nil, errors.New("audience is missing: tokens made for other services would be accepted")
	}
	method := jwt.GetSigningMethod(i.Algorithm)
	if method == nil || method == jwt.SigningMethodNone {
		return nil, fmt.Errorf("algorithm %q is not known", i.Algorithm)
	}
	if i.JWKS == "" {
		key, err := parseVerificationKey(method, i.Key)
		return &issuer{i, func(*jwt.Token) (any, error) { return key, nil }}, err
	}
	if _, shared := method.(*jwt.SigningMethodHMAC); shared || i.Key != "" {
		return nil, errors.New("jwks has public keys: it goes with no key and no HS algorithm")
	}
	failed := func(at string) func(context.Context, error) { // the keyfunc library would log a line of text
		return func(_ context.Context, err error) {
			log.Error("issuer's keys not fetched", "issuer", i.Name, "jwks", at, "err", err)
		}
	}
	later := true // the gateway starts even if an issuer is unreachable
	set, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{i.JWKS}, keyfunc.Override{
		Client: keySetClient(), HTTPTimeout: jwksTimeout,
		RefreshInterval: jwksInterval, NoErrorReturnFirstHTTPReq: &later,
		RefreshUnknownKID: rate.NewLimiter(rate.Every(unknownKID), 1), RateLimitWaitMax: jwksTimeout, RefreshErrorHandlerFunc: failed,
	})
	if err != nil {
		return nil, fmt.Errorf("jwks: %w", err)
	}
	return &issuer{i, set.Keyfunc}, nil
}

func parseVerificationKey(method jwt.SigningMethod, key string) (any, error) {
	var parsed any
	var err error
	switch method.(type) {
	case *jwt.SigningMethodHMAC:
		if len(key) < 32 {
			err = errors.New("a shared secret has at least 32 bytes (RFC 7518 section 3.2)")
		}
		parsed = []byte(key)
	case *jwt.SigningMethodECDSA:
		parsed, err = jwt.ParseECPublicKeyFromPEM([]byte(key))
	case *jwt.SigningMethodEd25519:
		var public any
		public, err = jwt.ParseEdPublicKeyFromPEM([]byte(key))
		parsed, _ = public.(ed25519.PublicKey)
	default: // RSA: RS256, PS256 and their longer forms
		parsed, err = jwt.ParseRSAPublicKeyFromPEM([]byte(key))
	}
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return parsed, nil
}

// verifyToken checks a token, or a server key that may open conversations itself. If acceptExpired is true, it accepts
// an expired token.
func (k *keyring) verifyToken(token string, acceptExpired bool) (authorization, error) {
	k.reloadIfChanged()
	k.mu.Lock()
	secret, issuers := k.secret, k.issuers
	key, unknown := k.findKeyLocked(token)
	k.mu.Unlock()
	switch {
	case unknown == nil && !key.hasPrivilege(MayTalk):
		return authorization{}, &refusal{
			rule: "key", code: bridge.CodeForbidden,
			message: "This server key may not talk itself: mint a token with it.",
		}
	case unknown == nil:
		return key.newAuthorization(key.Name, ""), nil
	case strings.HasPrefix(token, keyPrefix):
		return authorization{}, unknown
	case len(token) > maxToken:
		return authorization{}, newInvalidTokenError(fmt.Errorf("it has %d bytes; the limit is %d", len(token), maxToken))
	}
	// The signature is not checked yet. Of these unverified claims, only the issuer and the expiry are used: the issuer
	// determines the key and the algorithm of the check.
	var said tokenClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &said); err != nil {
		return authorization{}, newInvalidTokenError(err)
	}
	now := k.now
	if e := said.ExpiresAt; acceptExpired && e != nil && e.Before(now()) {
		now = func() time.Time { return e.Time }
	}
	if said.Issuer == tokenIssuer {
		return k.verifyMinted(token, secret, now)
	}
	var err error = errors.New("its issuer is unknown to this gateway")
	for _, i := range issuers {
		if i.Issuer.Issuer != "" && i.Issuer.Issuer != said.Issuer {
			continue
		}
		var c tokenClaims
		if c, err = verifyJWT(token, i.keys, i.Algorithm, i.Audience, now); err != nil {
			continue
		}
		p, err := i.Issuance.authorize(c, i.Name, i.Once || c.Once)
		if p.id == "" { // without "jti": the grant's limits need an ID to count by
			p.id = tokenDigest(token)
		}
		return p, err
	}
	return authorization{}, newInvalidTokenError(err)
}

// tokenDigest returns an ID for a token without "jti": the hash of the signed part. The signature is left out, because
// one signature may have several encodings.
func tokenDigest(token string) string {
	sum := sha256.Sum256([]byte(token[:strings.LastIndexByte(token, '.')]))
	return hex.EncodeToString(sum[:])
}

// verifyMinted checks a token that the gateway has minted. The server key in whose name it was minted must still exist.
func (k *keyring) verifyMinted(token string, secret []byte, now func() time.Time) (authorization, error) {
	c, err := verifyJWT(token, func(*jwt.Token) (any, error) { return secret, nil }, jwt.SigningMethodHS256.Name, tokenIssuer, now)
	if err != nil {
		return authorization{}, newInvalidTokenError(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.file.Keys {
		if key.Name == c.Key && key.hasPrivilege(MayMint) {
			return key.Issuance.authorize(c, key.Name, c.Once)
		}
	}
	return authorization{}, newInvalidTokenError(errors.New("the key that it was minted for was removed"))
}

// leeway is the accepted difference between two clocks.
const leeway = 5 * time.Second

// verifyJWT verifies the signature, audience and expiry of a token, and returns its claims.
func verifyJWT(token string, keys jwt.Keyfunc, algorithm, audience string, now func() time.Time) (c tokenClaims, err error) {
	_, err = jwt.ParseWithClaims(token, &c, keys, jwt.WithValidMethods([]string{algorithm}), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(now), jwt.WithLeeway(leeway))
	return c, err
}

// authorize returns the authorization for verified claims. A single-use token is for one conversation, and needs a "jti".
func (i Issuance) authorize(c tokenClaims, issuer string, isSingleUse bool) (authorization, error) {
	p := i.newAuthorization(issuer, c.Subject)
	p.id, p.once, p.expires = c.ID, isSingleUse, c.ExpiresAt.Time
	if isSingleUse && c.ID == "" {
		return p, newInvalidTokenError(errors.New(`it is for one conversation and has no "jti"`))
	}
	if c.Grant == nil {
		return p, nil
	}
	var err error
	if p.grant, err = c.Grant.restrictTo(i.Grant, "grant"); err != nil {
		return p, newInvalidTokenError(err)
	}
	return p, nil
}

// newInvalidTokenError returns the refusal of a token; err is the reason.
func newInvalidTokenError(err error) error {
	why := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", ", "), "token has invalid claims: ")
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		claim := *kind
		claim.Field = strings.TrimPrefix(claim.Field, "RegisteredClaims.")
		why = "token is malformed: " + tools.ExplainJSON(&claim, "").Error()
	}
	for _, library := range []string{": json: ", ": strconv."} { // text that names Go types and functions
		why, _, _ = strings.Cut(why, library)
	}
	return &refusal{rule: "bad token", code: bridge.CodeUnauthorized, message: "This token is not good: " + why + ".", err: err}
}

// TokenRequest is the body of a request to mint a token.
type TokenRequest struct {
	Identity  string `json:"identity,omitempty"`  // of the person, for tools and logs; "sub" of the token
	ExpiresIn int    `json:"expiresIn,omitempty"` // in seconds; 300 by default
	Once      *bool  `json:"once,omitempty"`      // for one conversation and its resumes; default: true
	Grant     *Grant `json:"grant,omitempty"`     // the maximum grant of the key by default
}

// TokenResponse is the answer to a [TokenRequest].
type TokenResponse struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// maxTokenRequest limits the size of a token request, in bytes. Most of such a request is the prompt of an agent.
const maxTokenRequest = 64 << 10

// ServeHTTP handles POST /v1/tokens: it mints a session token if the client has a server key that may mint.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, err := From(r.Context()).RequireKey(MayMint)
	if err != nil {
		WriteError(w, err)
		return
	}
	var wanted TokenRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTokenRequest))
	if err == nil {
		err = tools.ReadStrictJSON(body, &wanted) // strict: a misspelt limit would be ignored
	}
	if err != nil {
		WriteError(w, &bridge.Error{Code: bridge.CodeBadMessage, Message: "The body cannot be read: " + err.Error()})
		return
	}
	var minted TokenResponse
	if wanted.Grant != nil {
		err = wanted.Grant.checkNames("grant", g.options.Agents)
	}
	if err == nil {
		minted, err = g.keys.mintToken(name, wanted)
	}
	if err != nil {
		WriteError(w, &bridge.Error{Code: bridge.CodeBadMessage, Message: err.Error()})
		return
	}
	g.options.Logger.Info("token minted", "key", name, "identity", wanted.Identity, "expires", minted.ExpiresAt)
	WriteJSON(w, http.StatusOK, minted)
}

// Minter mints session tokens in the name of a server key.
type Minter struct {
	gate  *Gate
	name  string
	share budgetOwner // the owner whose secrets are counted: the key, or without keys the address
}

// RequireMinter returns a Minter if the client's server key may mint tokens. If key is empty, the key of the request is
// used. Without a keys file, every client gets a Minter.
func (cl *Client) RequireMinter(key string) (Minter, error) {
	if !cl.gate.HasKeys() {
		name, _ := limitBlock(cl.address)
		return Minter{share: budgetOwner{"address", name}}, nil
	}
	visible := *cl
	visible.token = cmp.Or(key, cl.token)
	name, err := visible.RequireKey(MayMint)
	return Minter{cl.gate, name, budgetOwner{"key", name}}, err
}

// Mint mints a token for one protocol only, with all tools that the minter's key may grant. Without a keys file it
// returns an empty token.
func (m Minter) Mint(request TokenRequest, protocol string) (TokenResponse, error) {
	if m.gate == nil {
		return TokenResponse{}, nil
	}
	request.Grant = &Grant{Protocols: []string{protocol}, Tools: m.gate.keys.grantedTools(m.name)}
	minted, err := m.gate.keys.mintToken(m.name, request)
	if err != nil {
		return TokenResponse{}, &bridge.Error{Code: bridge.CodeBadMessage, Message: err.Error()}
	}
	m.gate.options.Logger.Info("token minted", "key", m.name, "identity", request.Identity, "expires", minted.ExpiresAt)
	return minted, nil
}

// grantedTools returns the tools that a key may grant.
func (k *keyring) grantedTools(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.file.Keys {
		if key.Name == name {
			return key.Grant.Tools
		}
	}
	return nil
}

// mintToken mints a token in the name of a key.
func (k *keyring) mintToken(name string, request TokenRequest) (TokenResponse, error) {
	life := time.Duration(cmp.Or(request.ExpiresIn, int(tokenLife/time.Second))) * time.Second
	if life <= 0 || life > maxLife {
		return TokenResponse{}, fmt.Errorf("expiresIn %d is not between 1 and %d seconds", request.ExpiresIn, int(maxLife/time.Second))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.IndexFunc(k.file.Keys, func(key Key) bool { return key.Name == name }); i >= 0 && request.Grant != nil {
		if _, err := request.Grant.restrictTo(k.file.Keys[i].Grant, "grant"); err != nil {
			return TokenResponse{}, err
		}
	}
	now := k.now()
	expires := now.Add(life).Truncate(time.Second)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: tokenIssuer, Audience: jwt.ClaimStrings{tokenIssuer}, Subject: request.Identity, ID: rand.Text(),
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
		},
		Key: name, Once: request.Once == nil || *request.Once, Grant: request.Grant,
	}).SignedString(k.secret)
	if err == nil && len(token) > maxToken {
		err = fmt.Errorf("the token would have %d bytes; the limit is %d: a long prompt belongs in the grant of the key", len(token), maxToken)
	}
	return TokenResponse{token, expires.UTC()}, err
}

// WriteError answers a request with an error: {"error": {"code", "message"}}. The status fits errors of this package;
// other errors get 400.
func WriteError(w http.ResponseWriter, err error) {
	e := bridge.AsError(err)
	status := cmp.Or(RefusalStatusOrZero(e), http.StatusBadRequest)
	switch h := w.Header(); status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer") // RFC 6750 section 3
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", fmt.Sprint(RetrySeconds(e.Retry)))
	}
	WriteJSON(w, status, map[string]any{"error": map[string]string{"code": string(e.Code), "message": e.Message}})
}

// WriteNotFound answers a request for something that does not exist, or that its sender must not know to exist.
func WriteNotFound(w http.ResponseWriter, message string) {
	WriteJSON(w, http.StatusNotFound, map[string]any{"error": map[string]string{"code": "not_found", "message": message}})
}

// WriteJSON answers a request with JSON.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails if the client has gone
}

// RetrySeconds returns d as a value for the header Retry-After. It rounds up, because otherwise a client would retry
// too early.
func RetrySeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
