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

// ProxiedHeader is the header of a request that another gateway has passed on: it says who asks there, in place of their credentials.
const ProxiedHeader = "Voxgate-Passed"

// forwardedLifetime is how long what it says is good: a request between two gateways takes milliseconds, and their clocks may differ by the
// leeway.
const forwardedLifetime = 10 * time.Second

// ClusterKey is what gateways that share a Redis know each other by. The zero value is of a gateway that is alone.
type ClusterKey struct{ key []byte }

// NewClusterKey derives it from the secret that they share; empty: this gateway is alone.
func NewClusterKey(secret string) (ClusterKey, error) {
	if secret == "" {
		return ClusterKey{}, nil
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "voxgate between gateways", 32)
	return ClusterKey{key}, err
}

// SignNode is what a gateway is called in the store: its name, the URL by which the others reach it, and a signature, without which they
// believe no URL: whoever writes to the store could have requests sent to theirs.
func (f ClusterKey) SignNode(name, at string) string {
	return name + " " + at + " " + base64.RawURLEncoding.EncodeToString(f.sign(name+" "+at))
}

func (f ClusterKey) sign(text string) []byte {
	mac := hmac.New(sha256.New, f.key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// nodeURL is where a node is reached; nil: it does not say, or was not signed by one of the fleet.
func (f ClusterKey) nodeURL(node string) *url.URL {
	i := strings.LastIndexByte(node, ' ')
	if f.key == nil || i < 0 {
		return nil
	}
	mac, err := base64.RawURLEncoding.DecodeString(node[i+1:])
	if err != nil || !hmac.Equal(mac, f.sign(node[:i])) {
		return nil
	}
	_, at, _ := strings.Cut(node[:i], " ")
	u, err := url.Parse(at)
	if err != nil || u.Host == "" {
		return nil
	}
	return u
}

// NodeURL is where another gateway is reached; nil: it does not say, or is none of ours.
func (v *Client) NodeURL(node string) *url.URL {
	if v.gate == nil {
		return nil
	}
	return v.gate.options.ClusterKey.nodeURL(node)
}

// forwardedClaims are what one gateway says to another about who asks.
type forwardedClaims struct {
	jwt.RegisteredClaims
	Request string   `json:"request"` // the only one that it is for: method and path
	Server  bool     `json:"server,omitempty"`
	Key     string   `json:"key,omitempty"`
	May     []string `json:"may,omitempty"` // of a server key
	Person  string   `json:"person,omitempty"`
	Doors   []string `json:"doors,omitempty"`
}

func requestLine(r *http.Request) string { return r.Method + " " + r.URL.Path }

// SignForward puts who asks into a request to another gateway, in place of what they have shown. Token is what the door
// has made of that; empty: what came with the request counts.
func (v *Client) SignForward(r *http.Request, token string) {
	for _, name := range []string{"Authorization", "X-Goog-Api-Key", "Api-Key", "Cookie", "Proxy-Authorization"} {
		r.Header.Del(name)
	}
	offered := r.Header.Values("Sec-Websocket-Protocol")
	r.Header.Del("Sec-Websocket-Protocol")
	for _, p := range strings.Split(strings.Join(offered, ","), ",") {
		if p = strings.TrimSpace(p); p != "" && len(p) < len(tokenPrefix) { // a longer one has a token in it
			r.Header.Add("Sec-Websocket-Protocol", p)
		}
	}
	g := v.gate
	now := g.options.Now()
	c := forwardedClaims{
		Request:          requestLine(r),
		RegisteredClaims: jwt.RegisteredClaims{ExpiresAt: jwt.NewNumericDate(now.Add(forwardedLifetime))},
	}
	if token == "" {
		token = v.token
	}
	if k, err := g.keys.findKey(token); err == nil {
		c.Server, c.Key, c.May = true, k.Name, k.May
	} else if p, err := g.checkCredentials(v, token, true); err == nil {
		c.Key, c.Person, c.Doors = p.issuer, p.identity, p.grant.Doors
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(g.options.ClusterKey.key)
	if err != nil {
		signed = "none"
	}
	r.Header.Set(ProxiedHeader, signed)
}

// parseForwarded is what another gateway says of who asks; nil: none has passed the request on.
func (g *Gate) parseForwarded(r *http.Request) *forwardedClaims {
	said := r.Header.Get(ProxiedHeader)
	if said == "" || g.options.ClusterKey.key == nil {
		return nil
	}
	c := &forwardedClaims{}
	_, err := jwt.ParseWithClaims(
		said,
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

// serverKey is the server key of who asks.
func (v *Client) serverKey(token string) (Key, error) {
	if c := v.forwarded; c != nil && c.Server {
		return Key{Name: c.Key, May: c.May}, nil
	}
	return v.gate.keys.findKey(token)
}

// actingCaller is who asks about a conversation that runs.
func (v *Client) actingCaller(token string) (who bridge.Origin, doors Grant, err error) {
	if c := v.forwarded; c != nil && !c.Server && c.Key != "" {
		return bridge.Origin{Key: c.Key, Identity: c.Person}, Grant{Doors: c.Doors}, nil
	}
	p, err := v.gate.checkCredentials(v, token, true)
	return bridge.Origin{Key: p.issuer, Identity: p.identity}, p.grant, err
}
