package access_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/signaling/access"
	"voxgate/tools"
)

// isRefused tries to open a conversation, and returns the message of its rejection.
func isRefused(t *testing.T, c *testkit.Client, payload, code string, closeCode int) string {
	t.Helper()
	c.Send("CONNECT_GEMINI", payload)
	m := c.AwaitEvent("SETUP_COMPLETE")
	if !strings.Contains(string(m.Payload), `"success":false`) {
		t.Fatalf("let in, want %s: %v", code, m)
	}
	e := c.AwaitEvent("GEMINI_ERROR")
	if !strings.Contains(string(e.Payload), fmt.Sprintf(`"code":%q`, code)) {
		t.Errorf("refused with %v, want %s", e, code)
	}
	c.AwaitEvent("GEMINI_DISCONNECTED")
	if got := c.AwaitCloseCode(); got != closeCode {
		t.Errorf("closed with %d, want %d", got, closeCode)
	}
	return string(e.Payload)
}

const policy = websocket.ClosePolicyViolation

// A token is accepted wherever a client can send it, except in the URL, which is logged.
func TestWhereATokenTravels(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	isRefused(t, testkit.DialWebSocket(t, l.URL), `{}`, "unauthorized", policy)
	isRefused(t, testkit.DialWebSocket(t, l.URL+"?token="+l.MintToken(`{}`)), `{}`, "unauthorized", policy)
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{}`), ""))
	for name, prefix := range map[string]string{
		"Authorization":          "Bearer ",
		"X-Goog-Api-Key":         "",
		"Sec-Websocket-Protocol": "voxgate, voxgate.token.",
	} {
		c := testkit.DialWebSocketWith(t, l.URL, http.Header{name: {prefix + l.MintToken(`{}`)}})
		testkit.EnterConversation(t, c, `{}`)
		if name == "Sec-Websocket-Protocol" && c.Conn.Subprotocol() != "voxgate" {
			t.Errorf("the gateway chose %q", c.Conn.Subprotocol())
		}
	}
}

func TestATokenForOneConversation(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	token := l.MintToken(`{"identity":"ada"}`)
	c := testkit.DialWebSocket(t, l.URL)
	session, resume := testkit.EnterConversation(t, c, testkit.ConnectPayload(token, `,"resumable":true`))
	thief := isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(token, ""), "unauthorized", policy)
	if !strings.Contains(thief, "one conversation and has been used") {
		t.Error(thief)
	}
	isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(token, `,"resumeToken":"made up"`), "unauthorized", policy)
	c.Conn.Close()
	again := testkit.DialWebSocket(t, l.URL)
	hello := testkit.ConnectPayload(token, fmt.Sprintf(`,"resumable":true,"resumeToken":%q`, resume))
	if resumed, _ := testkit.EnterConversation(t, again, hello); resumed != session {
		t.Errorf("went on with %s, want %s", resumed, session)
	}
	twice := l.MintToken(`{"once":false}`)
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(twice, ""))
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(twice, ""))
}

// A gateway that cannot start a conversation does not consume the token: its owner can retry with it, here or at
// another gateway.
func TestATokenThatBeganNothing(t *testing.T) {
	t.Parallel()
	var gate *access.Gate
	l := testkit.StartLockedGateway(t, nil, func(d *testkit.Endpoints, _ *bridge.Options) { gate = d.Access })
	hooked := testkit.StartGateway(t, func(d *testkit.Endpoints, o *bridge.Options) {
		d.Access = gate
		o.Admit = func(context.Context, string, *bridge.SessionRequest) error { // like a session webhook that does not answer
			return &bridge.Error{Code: bridge.CodeBusy, Message: "Nobody answers."}
		}
	})
	other := testkit.StartGateway(t, func(d *testkit.Endpoints, _ *bridge.Options) { d.Access = gate })
	token := l.MintToken(`{}`)
	l.Host.BeginDrain()
	for _, g := range []*testkit.Gateway{l.Gateway, hooked} {
		isRefused(t, testkit.DialWebSocket(t, g.URL), testkit.ConnectPayload(token, ""), "busy", websocket.CloseTryAgainLater)
	}
	testkit.EnterConversation(t, testkit.DialWebSocket(t, other.URL), testkit.ConnectPayload(token, ""))
	isRefused(t, testkit.DialWebSocket(t, other.URL), testkit.ConnectPayload(token, ""), "unauthorized", policy)
}

// A conversation outlives its token. With the expired token its person may resume it, but not begin another one, and
// other people may not resume it.
func TestATokenExpires(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	c := testkit.DialWebSocket(t, l.URL)
	token := l.MintToken(`{"identity":"ada","expiresIn":60}`)
	session, resume := testkit.EnterConversation(t, c, testkit.ConnectPayload(token, `,"resumable":true`))
	l.AdvanceClock(2 * time.Minute)
	c.AskText("Is anybody there?")
	c.Conn.Close()
	back := fmt.Sprintf(`,"resumable":true,"resumeToken":%q`, resume)
	for _, resume := range []string{"", `,"resumeToken":"made up"`} {
		why := isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(token, resume), "unauthorized", policy)
		if !strings.Contains(
			why,
			"expired",
		) {
			t.Errorf("refused with %s", why)
		}
	}
	eve := testkit.ConnectPayload(l.MintToken(`{"identity":"eve"}`), back)
	if other, _ := testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), eve); other == session {
		t.Error("somebody else goes on with the conversation")
	}
	for _, hers := range []string{token, l.MintToken(`{"identity":"ada"}`)} {
		same, next := testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(hers, back))
		if same != session {
			t.Error("the conversation does not go on")
		}
		back = fmt.Sprintf(`,"resumable":true,"resumeToken":%q`, next)
	}
}

func TestBadTokens(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	l := testkit.StartLockedGateway(t, nil)
	var secret []byte
	l.EditKeys(func(file map[string]any) {
		secret, _ = base64.RawURLEncoding.DecodeString(file["secret"].(string))
		testkit.SetGrants(map[string]any{"models": []string{"gemini-3*"}, "tools": []string{"find_*"}, "maxSeconds": 600})(file)
		file["issuers"] = []any{
			map[string]any{"name": "backend", "algorithm": "RS256", "key": public, "audience": "voxgate", "issuer": "us", "grant": map[string]any{}},
		}
	})
	later := jwt.NewNumericDate(l.Now().Add(time.Minute))
	good := func() jwt.MapClaims {
		return jwt.MapClaims{"iss": "voxgate", "aud": "voxgate", "key": "shop", "jti": rand.Text(), "exp": later}
	}
	with := func(name string, value any) jwt.MapClaims {
		c := good()
		c[name] = value
		if value == nil {
			delete(c, name)
		}
		return c
	}
	ours := func(c jwt.MapClaims) string { return sign(t, jwt.SigningMethodHS256, secret, c) }
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(ours(good()), ""))
	testkit.EnterConversation(
		t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(sign(t, jwt.SigningMethodRS256, rsaKey, with("iss", "us")), ""),
	)
	half := ours(good())
	for name, token := range map[string]string{
		"no token at all":             "nonsense",
		"half of one":                 half[:len(half)/2],
		"a changed one":               half[:len(half)-4] + "AAAA",
		"a long one":                  strings.Repeat("a", 9000),
		"no algorithm":                sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good()),
		"another algorithm":           sign(t, jwt.SigningMethodHS512, secret, good()),
		"another secret":              sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), good()),
		"a public key as a secret":    sign(t, jwt.SigningMethodHS256, []byte(public), with("iss", "us")),
		"an issuer for another":       sign(t, jwt.SigningMethodRS256, rsaKey, good()),
		"nobody's":                    sign(t, jwt.SigningMethodRS256, rsaKey, with("iss", "them")),
		"another audience":            ours(with("aud", "elsewhere")),
		"no audience":                 ours(with("aud", nil)),
		"no expiry":                   ours(with("exp", nil)),
		"expired":                     ours(with("exp", jwt.NewNumericDate(l.Now().Add(-time.Minute)))),
		"not yet":                     ours(with("nbf", jwt.NewNumericDate(l.Now().Add(time.Hour)))),
		"a key that there is not":     ours(with("key", "other")),
		"for one conversation, no id": ours(jwt.MapClaims{"iss": "voxgate", "aud": "voxgate", "key": "shop", "exp": later, "once": true}),
		"more models":                 ours(with("grant", map[string]any{"models": []string{"*"}})),
		"more tools":                  ours(with("grant", map[string]any{"tools": []string{"*"}})),
		"more time":                   ours(with("grant", map[string]any{"maxSeconds": 601})),
		"less than nothing":           ours(with("grant", map[string]any{"sessions": -1})),
		"a grant of another type":     ours(with("grant", "all")),
		"a server key":                l.Key,
		"an unknown server key":       "vgk_" + strings.Repeat("A", 43),
	} {
		code := "unauthorized"
		if name == "a server key" {
			code = "forbidden" // it may mint, not open conversations
		}
		if why := isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(token, ""), code, policy); strings.Contains(why, token) {
			t.Errorf("%s: it is reported again: %s", name, why)
		}
	}
}

// The limits of a grant also apply to a token without "jti", whatever the encoding of its signature.
func TestATokenWithoutAnID(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	secret := strings.Repeat("s", 32)
	l.EditKeys(func(file map[string]any) {
		file["issuers"] = []any{
			map[string]any{"name": "backend", "algorithm": "HS256", "key": secret, "audience": "voxgate", "grant": map[string]any{}},
		}
	})
	token := func(person string) string {
		return sign(t, jwt.SigningMethodHS256, []byte(secret), jwt.MapClaims{
			"aud": "voxgate", "sub": person, "exp": jwt.NewNumericDate(l.Now().Add(time.Minute)), "grant": map[string]any{"sessions": 1},
		})
	}
	hers := token("ada")
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(hers, ""))
	last := len(hers) - 1
	for _, again := range []string{hers, hers[:last] + string(hers[last]+1)} { // the last two bits belong to no byte
		why := isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(again, ""), "busy", websocket.CloseTryAgainLater)
		if !strings.Contains(why, "of this token") {
			t.Error(why)
		}
	}
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(token("bob"), ""))
}

func sign(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// If an issuer changes its key, the new key is fetched for the first token that is signed with it.
func TestTheBackendsOwnTokens(t *testing.T) {
	t.Parallel()
	type pair struct {
		id  string
		key *ecdsa.PrivateKey
	}
	newPair := func(id string) pair {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return pair{id, key}
	}
	var mu sync.Mutex
	current := newPair("first")
	jwks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		point, err := current.key.PublicKey.ECDH()
		if err != nil {
			t.Error(err)
			return
		}
		b := point.Bytes() // 4, then x and y
		coordinate := base64.RawURLEncoding.EncodeToString
		json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": current.id, "x": coordinate(b[1:33]), "y": coordinate(b[33:]),
		}}})
	}))
	defer jwks.Close()
	l := testkit.StartLockedGateway(t, nil)
	l.EditKeys(func(file map[string]any) {
		file["issuers"] = []any{map[string]any{
			"name": "auth", "algorithm": "ES256", "jwks": jwks.URL, "audience": "voxgate", "once": true, "grant": map[string]any{"maxSeconds": 60},
		}}
	})
	signed := func(p pair) string {
		token := jwt.NewWithClaims(
			jwt.SigningMethodES256,
			jwt.MapClaims{"aud": "voxgate", "sub": "ada", "jti": rand.Text(), "exp": jwt.NewNumericDate(l.Now().Add(time.Minute))},
		)
		token.Header["kid"] = p.id
		text, err := token.SignedString(p.key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := signed(current)
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(first, ""))
	isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(first, ""), "unauthorized", policy)
	isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(signed(pair{"first", newPair("").key}), ""), "unauthorized", policy)
	mu.Lock()
	current = newPair("second")
	mu.Unlock()
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(signed(current), ""))
}

// A tool of the operator runs only for callers with a grant for it, and receives their identity.
func TestAGrantHasTools(t *testing.T) {
	t.Parallel()
	who := make(chan tools.SessionInfo, 4)
	l := testkit.StartLockedGateway(t, nil, func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Tools = func() []tools.Tool {
			return []tools.Tool{{
				Declaration: tools.Declaration{Name: "find_order", Description: "d"},
				Run: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
					who <- tools.EnvOf(ctx).SessionInfo
					return json.RawMessage(`{"found":true}`), nil
				},
			}}
		}
	})
	l.EditKeys(testkit.SetGrants(map[string]any{"tools": []string{"find_*"}}))
	for grant, runs := range map[string]bool{`{}`: false, `{"tools":["find_customer"]}`: false, `{"tools":["find_order"]}`: true, ``: true} {
		c := testkit.DialWebSocket(t, l.URL)
		want := `{"identity":"ada"}` // and the maximum of the key
		if grant != "" {
			want = `{"identity":"ada","grant":` + grant + `}`
		}
		testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(want), ""))
		c.AskText("/tool find_order {}")
		if !runs {
			continue
		}
		select { // the turn may end before the tool has run
		case w := <-who:
			if w.Caller != "ada" || w.Protocol != "web" || !strings.Contains(string(w.Grant), "find_") {
				t.Errorf("grant %s: it ran for %+v", grant, w)
			}
		case <-time.After(testkit.Patience):
			t.Errorf("grant %s: it did not run", grant)
		}
	}
	if len(who) > 0 {
		t.Errorf("it ran for %+v, whose grant has no such tool", <-who)
	}
}

// The grant determines the model, whatever the client requests at first or later.
func TestAGrantHasAnAgent(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	c := testkit.DialWebSocket(t, l.URL)
	token := l.MintToken(`{"grant":{"models":["gemini-3.8*"],"agent":{"prompt":"You sell shoes.","voice":"Puck"}}}`)
	c.Send(
		"CONNECT_GEMINI",
		fmt.Sprintf(`{"token":%q,"initialConfig":{"systemInstruction":"You do homework.","generationConfig":{"temperature":0.5}}}`, token),
	)
	fixed := func(m testkit.Message) {
		t.Helper()
		config := string(m.Payload)
		if !strings.Contains(config, "sell shoes") || !strings.Contains(config, "Puck") || strings.Contains(config, "homework") ||
			!strings.Contains(config, "0.5") {
			t.Errorf("%v", config)
		}
	}
	fixed(c.AwaitEvent("SETUP_COMPLETE"))
	c.Send("UPDATE_CONFIG", `{"systemInstruction":"You do homework.","generationConfig":{"temperature":0.5}}`)
	fixed(c.AwaitEvent("SETUP_COMPLETE"))
	c.Send("UPDATE_CONFIG", `{"model":"gemini-2.5-flash-native-audio-preview-12-2025"}`)
	c.AwaitError("session_config_update_failed", "payload.model")
	c.AskText("Still there?")
	other := l.MintToken(`{"grant":{"models":["gemini-2*"]}}`)
	isRefused(
		t, testkit.DialWebSocket(t, l.URL), fmt.Sprintf(`{"token":%q,"initialConfig":{"model":"gemini-3.8-live"}}`, other), "forbidden", policy,
	)
	isRefused(
		t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{"grant":{"doors":["vox"]}}`), ""), "forbidden", policy,
	)
}

func TestAGrantHasAnEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	c := testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{"grant":{"maxSeconds":5}}`), ""))
	if m := c.AwaitEvent("GEMINI_DISCONNECTED"); !strings.Contains(string(m.Payload), "time limit") {
		t.Errorf("%v", m)
	}
}

// from returns the header of a trusted proxy for an address.
func from(address string) http.Header { return http.Header{"X-Forwarded-For": {"6.6.6.6, " + address}} }

func behindProxy(o *access.Options) { o.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// At a limit the next client gets a time to retry, and when a client leaves there is room.
func TestLimits(t *testing.T) {
	t.Parallel()
	const tryLater = websocket.CloseTryAgainLater
	for _, test := range []struct {
		name, rule string
		limits     access.Limits
		mint       string
		key        map[string]any
		other      http.Header // accepted in spite of the limit, or nil
	}{
		{name: "in all", rule: "full", limits: access.Limits{Sessions: 2}},
		{name: "of an address", rule: "your address", limits: access.Limits{SessionsPerAddress: 2}, other: from("198.51.100.8")},
		{name: "of a /64", rule: "your address", limits: access.Limits{SessionsPerAddress: 2}, other: from("2001:db8:0:1::1")},
		{name: "of a key", rule: "this service", limits: access.Limits{SessionsPerKey: 2}},
		{name: "that a key says", rule: "this service", key: map[string]any{"sessions": 2}},
		{name: "of a token", rule: "this token", mint: `{"once":false,"grant":{"sessions":2}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := testkit.StartLockedGateway(t, func(o *access.Options) { behindProxy(o); o.Limits = test.limits })
			if test.key != nil {
				l.EditKeys(testkit.EditFirstKey(func(key map[string]any) { key["sessions"] = test.key["sessions"] }))
			}
			token := ""
			if test.mint != "" {
				token = l.MintToken(test.mint)
			}
			show := func() string {
				if token != "" {
					return testkit.ConnectPayload(token, "")
				}
				return testkit.ConnectPayload(l.MintToken(`{}`), "")
			}
			addresses := []string{"198.51.100.7", "198.51.100.7", "198.51.100.7"}
			if test.name == "of a /64" {
				addresses = []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::3"}
			}
			var in []*testkit.Client
			for _, address := range addresses[:2] {
				c := testkit.DialWebSocketWith(t, l.URL, from(address))
				testkit.EnterConversation(t, c, show())
				in = append(in, c)
			}
			why := isRefused(t, testkit.DialWebSocketWith(t, l.URL, from(addresses[2])), show(), "busy", tryLater)
			if !strings.Contains(why, test.rule) || !strings.Contains(why, `"retryAfterMs":`) {
				t.Errorf("refused with %s", why)
			}
			if test.other != nil {
				testkit.EnterConversation(t, testkit.DialWebSocketWith(t, l.URL, test.other), show())
			}
			in[0].Send("DISCONNECT_GEMINI", "")
			in[0].AwaitCloseCode()
			testkit.EnterConversation(t, testkit.DialWebSocketWith(t, l.URL, from(addresses[2])), show())
		})
	}
}

func TestConversationsBeginTooFast(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, func(o *access.Options) { behindProxy(o); o.Limits = access.Limits{NewPerMinute: 2} })
	me := from("198.51.100.7")
	for range 2 {
		c := testkit.DialWebSocketWith(t, l.URL, me)
		testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{}`), ""))
		c.Send("DISCONNECT_GEMINI", "")
		c.AwaitCloseCode()
	}
	why := isRefused(
		t, testkit.DialWebSocketWith(t, l.URL, me), testkit.ConnectPayload(l.MintToken(`{}`), ""), "busy", websocket.CloseTryAgainLater,
	)
	if !regexp.MustCompile(`"retryAfter":(2\d|30)\b`).MatchString(why) { // minus the tokens of the first two
		t.Error(why)
	}
	l.AdvanceClock(31 * time.Second)
	testkit.EnterConversation(t, testkit.DialWebSocketWith(t, l.URL, me), testkit.ConnectPayload(l.MintToken(`{}`), ""))
}

// A caller that begins conversations too fast is rejected by its own limit, and does not consume shared limits.
func TestOneAddressDoesNotTakeTheRateOfAll(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, func(o *access.Options) {
		behindProxy(o)
		o.Limits = access.Limits{NewPerSecond: 3, NewPerMinute: 1}
	})
	token := l.MintToken(`{"once":false}`)
	testkit.EnterConversation(t, testkit.DialWebSocketWith(t, l.URL, from("198.51.100.7")), testkit.ConnectPayload(token, ""))
	for range 10 {
		isRefused(
			t, testkit.DialWebSocketWith(t, l.URL, from("198.51.100.7")), testkit.ConnectPayload(token, ""), "busy", websocket.CloseTryAgainLater,
		)
	}
	testkit.EnterConversation(t, testkit.DialWebSocketWith(t, l.URL, from("198.51.100.8")), testkit.ConnectPayload(token, ""))
}

// A server key can open conversations only with the privilege, whatever its form.
func TestAKeyOfTheOperatorsOwn(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	digest := sha256.Sum256([]byte("a key that somebody has thought of"))
	l.EditKeys(testkit.EditFirstKey(func(key map[string]any) { key["sha256"] = hex.EncodeToString(digest[:]) }))
	isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload("a key that somebody has thought of", ""), "forbidden", policy)
}

// Sockets without a first message count only for their own address.
func TestSocketsThatSayNothing(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, func(o *access.Options) { behindProxy(o); o.Limits = access.Limits{WaitingPerAddress: 3} })
	for range 3 {
		testkit.DialWebSocketWith(t, l.URL, from("198.51.100.7"))
	}
	_, resp, err := websocket.DefaultDialer.Dial(l.URL, from("198.51.100.7"))
	if err == nil || resp == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the fourth got %v, %v", resp, err)
	}
	testkit.EnterConversation(t, testkit.DialWebSocketWith(t, l.URL, from("198.51.100.8")), testkit.ConnectPayload(l.MintToken(`{}`), ""))
}

func TestParkedConversations(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, func(o *access.Options) { o.Limits = access.Limits{Parked: 1} })
	var tokens []string
	for range 2 {
		c := testkit.DialWebSocket(t, l.URL)
		_, resume := testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{}`), `,"resumable":true`))
		tokens = append(tokens, resume)
		c.Conn.Close()
	}
	testkit.Eventually(t, "end of the one for which there is no room", func() bool {
		logs := l.Logs.String()
		return strings.Contains(logs, "conversation parked") && strings.Contains(logs, "conversation ended")
	})
	resumed := 0
	for _, token := range tokens {
		c := testkit.DialWebSocket(t, l.URL)
		c.Send("CONNECT_GEMINI", testkit.ConnectPayload(l.MintToken(`{}`), fmt.Sprintf(`,"resumeToken":%q`, token)))
		if strings.Contains(string(c.AwaitEvent("SETUP_COMPLETE").Payload), `"resumed":true`) {
			resumed++
		}
	}
	if resumed != 1 {
		t.Errorf("%d conversations had waited", resumed)
	}
}

// A caller whose budget runs out is warned first, and then hears the sentence to its end.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for unit, most := range map[string]float64{"tokens": 250, "dollars": 0.028} { // a turn may cost 0.023
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			keepsTo(t, unit, most)
		})
	}
}

func keepsTo(t *testing.T, unit string, most float64) {
	spend := func(c *testkit.Client) {
		t.Helper()
		for range 100 {
			// fails if it has ended
			c.Conn.WriteMessage(websocket.TextMessage, testkit.EncodeMessage("SEND_MESSAGE", testkit.TextPayload("More.")))
			m, at := c.AwaitMatch(
				c.At,
				"a turn's end",
				func(m testkit.Message) bool { return m.Type == "TURN_COMPLETE" || m.Type == "GEMINI_DISCONNECTED" },
			)
			if c.At = at; m.Type == "GEMINI_DISCONNECTED" {
				if !strings.Contains(string(m.Payload), "used up") || c.CountWarnings("Of a budget of") != 1 {
					t.Errorf("%v after %d warnings", m, c.CountWarnings("Of a budget of"))
				}
				return
			}
		}
		t.Error("a hundred turns cost nothing")
	}
	l := testkit.StartLockedGateway(t, nil)
	token := l.MintToken(fmt.Sprintf(`{"once":false,"grant":{%q:%g}}`, unit, most))
	c := testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
	spend(c)
	isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(token, ""), "busy", websocket.CloseTryAgainLater)
	// another token has its own limit
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{}`), ""))

	l.EditKeys(testkit.EditFirstKey(func(key map[string]any) { key[unit+"PerDay"] = most }))
	c = testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{}`), ""))
	spend(c)
	isRefused(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{}`), ""), "busy", websocket.CloseTryAgainLater)
	l.AdvanceClock(24 * time.Hour)
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{}`), ""))

	l.EditKeys(testkit.EditFirstKey(func(key map[string]any) {
		delete(key, unit+"PerDay")
		key["perPerson"] = map[string]any{unit + "PerDay": most}
	}))
	c = testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{"identity":"ada"}`), ""))
	spend(c)
	isRefused(
		t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{"identity":"ada"}`), ""), "busy", websocket.CloseTryAgainLater,
	)
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{"identity":"bob"}`), ""))
	l.AdvanceClock(24 * time.Hour)
	testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(l.MintToken(`{"identity":"ada"}`), ""))
}

// The operator can change the keys file during conversations.
func TestTheKeysChange(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	token := l.MintToken(`{"once":false}`)
	c := testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
	if err := os.WriteFile(l.File, []byte(`{"secret":`), 0o600); err == nil {
		l.AdvanceClock(2 * time.Second)
		testkit.EnterConversation(t, testkit.DialWebSocket(t, l.URL), testkit.ConnectPayload(token, "")) // an invalid file is ignored
	}
	other, err := access.NewKey(filepath.Join(t.TempDir(), "k"), "other", []string{"sing"})
	if err == nil {
		t.Errorf("a key may sing: %s", other)
	}
	l2 := testkit.StartLockedGateway(t, nil)
	token = l2.MintToken(`{"once":false}`)
	l2.EditKeys(func(file map[string]any) { file["keys"] = []any{} })
	why := isRefused(t, testkit.DialWebSocket(t, l2.URL), testkit.ConnectPayload(token, ""), "unauthorized", policy)
	if !strings.Contains(why, "was removed") {
		t.Error(why)
	}
	c.AskText("Do you hear me?")
}

func TestBehindALogin(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, func(o *access.Options) { behindProxy(o); o.IdentityHeader = "X-Forwarded-User" })
	l.EditKeys(func(file map[string]any) { file["proxy"] = map[string]any{"grant": map[string]any{"maxSeconds": 60}} })
	testkit.EnterConversation(t, testkit.DialWebSocketWith(t, l.URL, http.Header{"X-Forwarded-User": {"ada"}}), `{}`)
	isRefused(t, testkit.DialWebSocket(t, l.URL), `{}`, "unauthorized", policy)
	twice := isRefused(
		t,
		testkit.DialWebSocketWith(t, l.URL, http.Header{"X-Forwarded-User": {"evil", "ada"}}),
		testkit.ConnectPayload(l.MintToken(`{}`), ""),
		"unauthorized",
		policy,
	)
	if !strings.Contains(twice, "more than once") { // a proxy adds its own header to the client's
		t.Error(twice)
	}
	open := testkit.StartLockedGateway(t, func(o *access.Options) { o.IdentityHeader = "X-Forwarded-User" }) // without trusted proxies
	isRefused(t, testkit.DialWebSocketWith(t, open.URL, http.Header{"X-Forwarded-User": {"ada"}}), `{}`, "unauthorized", policy)
}

func TestMinting(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	watcher, err := access.NewKey(l.File, "watcher", []string{access.MayWatch})
	if err != nil {
		t.Fatal(err)
	}
	l.EditKeys(testkit.SetGrants(map[string]any{"tools": []string{"find_*"}, "maxSeconds": 600, "dollars": 2}))
	for _, test := range []struct {
		key, body string
		status    int
		says      string
	}{
		{"", `{}`, 401, "requires a server key"},
		{"vgk_nobody", `{}`, 401, "Unknown server key"},
		{watcher, `{}`, 403, `lacks \"tokens\"`},
		{l.Key, `{`, 400, "cannot be read"},
		{l.Key, `{"grant":{"maxSecs":5}}`, 400, "maxSecs"},
		{l.Key, `{"expiresIn":100000}`, 400, "expiresIn 100000"},
		{l.Key, `{"expiresIn":-1}`, 400, "expiresIn -1"},
		{l.Key, `{"grant":{"tools":["find_order","drop_table"]}}`, 400, `grant.tools[1] \"drop_table\" is more`},
		{l.Key, `{"grant":{"maxSeconds":601}}`, 400, "grant.maxSeconds 601"},
		{l.Key, `{"grant":{"dollars":2.5}}`, 400, "grant.dollars 2.5 is more"},
		{l.Key, `{"grant":{"dollars":-1}}`, 400, "grant.dollars -1"},
		{l.Key, `{"grant":{"dollars":1.5}}`, 200, "expiresAt"},
		{l.Key, `{"grant":{"tools":["[a"]}}`, 400, `grant.tools[0]`},
		{l.Key, `{"grant":{"agent":{"prompt":"` + strings.Repeat("a", 9000) + `"}}}`, 400, "bytes"},
		{l.Key, `{"identity":"` + strings.Repeat("a", 70_000) + `"}`, 400, "too large"},
		{l.Key, `{"grant":{"tools":["find_*"]}}`, 200, "expiresAt"},
	} {
		status, header, text := l.RequestToken(test.key, test.body)
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%.60s: %d %.200s, want %d %s", test.body, status, text, test.status, test.says)
		}
		if (status == 401) != (header.Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%d with %v", status, header)
		}
	}
}

func TestBadKeysFiles(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("A", 43)
	hash := strings.Repeat("0", 64)
	key := func(fields string) string { return `{"secret":"` + secret + `","keys":[{` + fields + `}]}` }
	issuer := func(fields string) string {
		return `{"secret":"` + secret + `","issuers":[{"name":"i",` + fields + `}]}`
	}
	hashed := `"sha256":"` + hash + `"`
	for text, says := range map[string]string{
		``:                                      "unexpected end",
		`{"secret":"short"}`:                    "secret is not 32",
		`{"secret":"${NOT_THERE_AT_ALL}"}`:      "variable NOT_THERE_AT_ALL is not set",
		`{"secret":"` + secret + `","kies":[]}`: `unknown field "kies"`,

		key(`"name":"a","sha256":"00"`):                           "keys[0].sha256",
		key(`"name":"",` + hashed):                                "keys[0].name",
		key(`"name":"sip lab",` + hashed):                         "keys[0].name \"sip lab\" has a space",
		key(`"name":"a",` + hashed + `,"may":["fly"]`):            `keys[0].may has "fly"`,
		key(`"name":"a",` + hashed + `,"grant":{"models":["["]}`): "keys[0].grant.models[0]",

		issuer(`"algorithm":"RS256","jwks":"http://x"`):                                 "issuers[0]: audience is missing",
		issuer(`"algorithm":"none","audience":"a","key":"k"`):                           `issuers[0]: algorithm "none"`,
		issuer(`"algorithm":"HS256","audience":"a","key":"short"`):                      "issuers[0]: key: a shared secret",
		issuer(`"algorithm":"HS256","audience":"a","jwks":"http://x"`):                  "issuers[0]: jwks has public keys",
		issuer(`"algorithm":"RS256","audience":"a","key":"-----BEGIN PUBLIC KEY-----"`): "issuers[0]: key: ",
	} {
		file := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		gate, err := access.New(access.Options{Required: true, Keys: file, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			gate.Close()
			t.Errorf("%s is taken", text)
		} else if !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
}

// Fifty rejected clients at a limit do not affect a running conversation.
func TestStrangersAtTheLimit(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, func(o *access.Options) {
		behindProxy(o)
		o.Limits = access.Limits{Sessions: 1, NewPerSecond: -1, NewPerMinute: -1, NewPerSecondPerKey: -1}
	})
	heldUp := func(m testkit.Message) float64 { // delay that the gateway has added to the answer, in ms
		var p struct{ GatewayMs float64 }
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			t.Error(err)
		}
		return p.GatewayMs
	}
	c := testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{}`), ""))
	token := l.MintToken(`{"once":false}`)
	ctx, stop := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	var refused atomic.Int64
	for n := range 50 {
		strangers.Go(func() {
			for ctx.Err() == nil {
				conn, _, err := websocket.DefaultDialer.Dial(l.URL, from(fmt.Sprintf("198.51.100.%d", n)))
				if err != nil {
					t.Error(err)
					return
				}
				hello := testkit.EncodeMessage("CONNECT_GEMINI", testkit.ConnectPayload(token, ""))
				if err := conn.WriteMessage(websocket.TextMessage, hello); err != nil {
					t.Error(err)
				}
				for err == nil {
					_, _, err = conn.ReadMessage()
				}
				if !websocket.IsCloseError(err, websocket.CloseTryAgainLater) {
					t.Errorf("a stranger got %v", err)
				}
				refused.Add(1)
				conn.Close()
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond): // about 250 a second
				}
			}
		})
	}
	before := len(c.ReceivedVoice())
	machine := mediatest.MeasureLateness(t)
	c.SendAudio(testkit.MakeSentence(440, time.Second, 16000), 16000)
	if took := heldUp(c.AwaitEvent("TURN_LATENCY")); took > 50 && machine.CanJudge(t, 50*time.Millisecond) {
		t.Errorf("the answer was held up by %v ms", took)
	}
	c.AwaitEvent("TURN_COMPLETE")
	stop()
	strangers.Wait()
	answer := c.ReceivedVoice()[before:]
	if got := len(testkit.TrimSilence(answer)); got < bridge.VoiceRate*8/10 {
		t.Errorf("of the answer %d samples were heard", got)
	}
	if share := mediatest.ToneLevel(testkit.TrimSilence(answer), bridge.VoiceRate, 440); share < 0.3 {
		t.Errorf("%.2f of the answer is what was said", share)
	}
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitCloseCode()
	testkit.Eventually(t, "log line of the end", func() bool { return strings.Contains(l.Logs.String(), "conversation ended") })
	if logs := l.Logs.String(); !strings.Contains(logs, "underruns=0") || strings.Count(logs, "conversation ended") != 1 {
		t.Error("frames of the voice came late")
	}
	t.Logf("%d strangers were refused meanwhile", refused.Load())
	if refused.Load() < 50 {
		t.Errorf("only %d strangers came", refused.Load())
	}
}
