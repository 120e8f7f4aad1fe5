package access

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"voxgate/bridge"
)

// ProxiedHeader is the header of a request that another gateway proxies. It contains the client's signed identity and
// replaces the client's credentials.
const ProxiedHeader = "Voxgate-Passed"

// forwardedLifetime is the lifetime of a signed identity. A request reaches another gateway within milliseconds. The
// rest of the time allows for gateways whose clocks differ, by up to leeway.
const forwardedLifetime = 10 * time.Second

// ClusterKey is the key with which gateways that share a Redis authenticate each other. The zero value belongs to a
// gateway without a cluster.
type ClusterKey struct{ key []byte }

// NewClusterKey derives the key from the shared secret. For an empty secret, which means no cluster, it returns the
// zero value.
func NewClusterKey(secret string) (ClusterKey, error) {
	if secret == "" {
		return ClusterKey{}, nil
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "voxgate between gateways", 32)
	return ClusterKey{key}, err
}

// SignNode returns the name of a gateway in the store: name, URL and signature. Without the signature, anyone who can
// write to the store could redirect requests.
func (c ClusterKey) SignNode(name, rawURL string) string {
	return name + " " + rawURL + " " + base64.RawURLEncoding.EncodeToString(c.sign(name+" "+rawURL))
}

func (c ClusterKey) sign(text string) []byte {
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// nodeURL returns the URL in a gateway's name in the store, or nil if the name has no URL or no valid signature.
func (c ClusterKey) nodeURL(node string) *url.URL {
	i := strings.LastIndexByte(node, ' ')
	if c.key == nil || i < 0 {
		return nil
	}
	mac, err := base64.RawURLEncoding.DecodeString(node[i+1:])
	if err != nil || !hmac.Equal(mac, c.sign(node[:i])) {
		return nil
	}
	_, at, _ := strings.Cut(node[:i], " ")
	u, err := url.Parse(at)
	if err != nil || u.Host == "" {
		return nil
	}
	return u
}

// NodeURL returns the URL in another gateway's name in the store, or nil if the name has no URL or no valid signature.
func (cl *Client) NodeURL(node string) *url.URL {
	if cl.gate == nil {
		return nil
	}
	return cl.gate.options.ClusterKey.nodeURL(node)
}

// forwardedClaims is the client's identity that one gateway signs for another.
type forwardedClaims struct {
	jwt.RegisteredClaims
	Request   string   `json:"request"` // method and path of the only request that the claims are valid for
	Server    bool     `json:"server,omitempty"`
	Key       string   `json:"key,omitempty"`
	May       []string `json:"may,omitempty"` // privileges of the client's server key
	Person    string   `json:"person,omitempty"`
	Protocols []string `json:"doors,omitempty"`
}

func requestLine(r *http.Request) string { return r.Method + " " + r.URL.Path }

// SignForward prepares a request to be sent to another gateway: it replaces the client's credentials by a signed
// identity. If token is not empty, it is used instead of the access token of the request.
func (cl *Client) SignForward(r *http.Request, token string) {
	for _, name := range []string{"Authorization", "X-Goog-Api-Key", "Api-Key", "Cookie", "Proxy-Authorization"} {
		r.Header.Del(name)
	}
	offered := r.Header.Values("Sec-Websocket-Protocol")
	r.Header.Del("Sec-Websocket-Protocol")
	for _, p := range strings.Split(strings.Join(offered, ","), ",") {
		if p = strings.TrimSpace(p); p != "" && len(p) < len(tokenPrefix) { // a longer subprotocol may contain a token
			r.Header.Add("Sec-Websocket-Protocol", p)
		}
	}
	g := cl.gate
	now := g.options.Now()
	c := forwardedClaims{
		Request:          requestLine(r),
		RegisteredClaims: jwt.RegisteredClaims{ExpiresAt: jwt.NewNumericDate(now.Add(forwardedLifetime))},
	}
	if token == "" {
		token = cl.token
	}
	if k, err := g.keys.findKey(token); err == nil {
		c.Server, c.Key, c.May = true, k.Name, k.May
	} else if p, err := g.checkCredentials(cl, token, true); err == nil {
		c.Key, c.Person, c.Protocols = p.issuer, p.identity, p.grant.Protocols
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(g.options.ClusterKey.key)
	if err != nil {
		signed = "none"
	}
	r.Header.Set(ProxiedHeader, signed)
}

// verifyForwardedClaims returns the client's identity that another gateway has signed for this request, or nil if the
// request has none that is valid.
func (g *Gate) verifyForwardedClaims(r *http.Request) *forwardedClaims {
	proxied := r.Header.Get(ProxiedHeader)
	if proxied == "" || g.options.ClusterKey.key == nil {
		return nil
	}
	c := &forwardedClaims{}
	_, err := jwt.ParseWithClaims(
		proxied,
		c,
		func(*jwt.Token) (any, error) { return g.options.ClusterKey.key, nil },
		jwt.WithValidMethods(
			[]string{jwt.SigningMethodHS256.Name},
		),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(g.options.Now),
		jwt.WithLeeway(leeway),
	)
	if err != nil || c.Request != requestLine(r) {
		return nil
	}
	return c
}

// serverKey returns the client's server key: the key that another gateway has verified and forwarded, or otherwise the
// key in token.
func (cl *Client) serverKey(token string) (Key, error) {
	if c := cl.forwarded; c != nil && c.Server {
		return Key{Name: c.Key, May: c.May}, nil
	}
	return cl.gate.keys.findKey(token)
}

// identifyCaller returns the identity and the grant of a client. It accepts an expired token.
func (cl *Client) identifyCaller(token string) (who bridge.Origin, grant Grant, err error) {
	if c := cl.forwarded; c != nil && !c.Server && c.Key != "" {
		return bridge.Origin{Key: c.Key, Identity: c.Person}, Grant{Protocols: c.Protocols}, nil
	}
	p, err := cl.gate.checkCredentials(cl, token, true)
	return bridge.Origin{Key: p.issuer, Identity: p.identity}, p.grant, err
}
