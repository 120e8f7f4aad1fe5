package access_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/signaling/access"
)

// newGate returns a gate that requires tokens, and a key that mints.
func newGate(t testing.TB) (*access.Gate, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(file, "shop", []string{access.MayMint})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := access.New(access.Options{
		Required: true, Keys: file, Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	return gate, key
}

// mint sends a body and returns the minted token, or "" if it was rejected.
func mint(t *testing.T, gate *access.Gate, key, body string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/tokens", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	ctx := gate.WithClient(r)
	w := httptest.NewRecorder()
	gate.ServeHTTP(w, r.WithContext(ctx))
	var answer struct {
		Token string
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%d %q: %v", w.Code, w.Body, err)
	}
	if (w.Code == http.StatusOK) != (answer.Token != "") ||
		w.Code != http.StatusOK && (w.Code != http.StatusBadRequest || answer.Error.Message == "") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return answer.Token
}

// FuzzToken sends arbitrary tokens, in a header and in the first message. None is accepted.
func FuzzToken(f *testing.F) {
	gate, key := newGate(f)
	for _, seed := range []string{
		"", ".", "a.b.c", key, "vgk_x",
		"eyJhbGciOiJub25lIn0.eyJpc3MiOiJ2b3hnYXRlIiwiYXVkIjoidm94Z2F0ZSIsImV4cCI6OTk5OTk5OTk5OX0.",
		"eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJ2b3hnYXRlIiwiYXVkIjpbInZveGdhdGUiXSwiZXhwIjoxZTk5LCJncmFudCI6e319.AAAA",
	} {
		f.Add("Bearer "+seed, seed)
	}
	f.Fuzz(func(t *testing.T, header, first string) {
		r := httptest.NewRequest(http.MethodGet, "/ws", nil)
		r.Header.Set("Authorization", header)
		r.Header.Set("Sec-WebSocket-Protocol", "voxgate, voxgate.token."+header)
		v := access.From(gate.WithClient(r))
		err := v.Authorize(&bridge.SessionRequest{Origin: bridge.Origin{Protocol: "web"}}, first)
		var refused *bridge.Error
		if !errors.As(err, &refused) || refused.Message == "" || access.RefusalStatusOrZero(refused) == 0 {
			t.Fatalf("let in, or refused without a word: %v", err)
		}
	})
}

// FuzzMint requests arbitrary tokens. A minted token opens a conversation.
func FuzzMint(f *testing.F) {
	gate, key := newGate(f)
	for _, seed := range []string{
		`{}`, ``, `{"identity":"ada","expiresIn":60,"once":true}`, `{"expiresIn":-1}`, `{"expiresIn":1e9}`,
		`{"grant":{"models":["a*","[","\\"],"tools":["*"],"doors":["web"]}}`,
		`{"grant":{"maxSeconds":5,"sessions":1,"tokens":100,"agent":{"prompt":"x","voice":"Puck"}}}`, `{"grant":{"sessions":-1}}`,
		`{"unknown":1}`, `{"identity":"\ud800"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		token := mint(t, gate, key, body)
		if token == "" {
			return
		}
		v := access.From(gate.WithClient(httptest.NewRequest(http.MethodGet, "/ws", nil)))
		err := v.Authorize(&bridge.SessionRequest{Origin: bridge.Origin{Protocol: "web"}}, token)
		var refused *bridge.Error
		if err != nil && (!errors.As(err, &refused) || refused.Code != bridge.CodeForbidden) { // a grant for other protocols
			t.Fatalf("%q made a token that is refused: %v", body, err)
		}
	})
}

// Proxies write the client's address in several forms.
func TestForwarded(t *testing.T) {
	gate, _ := newGate(t)
	for forwarded, want := range map[string]string{
		"203.0.113.10": "203.0.113.10", "203.0.113.10:1234": "203.0.113.10", "[2001:db9::1]:443": "2001:db9::1", "[2001:db9::1]": "2001:db9::1",
		"2001:db9::1": "2001:db9::1", "6.6.6.6, 203.0.113.10:1 ,192.0.2.9:443": "203.0.113.10", "unknown": "192.0.2.1", "": "192.0.2.1",
		"::ffff:203.0.113.10": "203.0.113.10", "203.0.113.10:": "192.0.2.1", "[": "192.0.2.1",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "192.0.2.1:1234"
		r.Header.Set("X-Forwarded-For", forwarded)
		if got := access.From(gate.WithClient(r)).Address(); got.String() != want {
			t.Errorf("%q: %v", forwarded, got)
		}
	}
}

// FuzzForwarded sends arbitrary forwarding headers. They count only from a trusted proxy.
func FuzzForwarded(f *testing.F) {
	gate, _ := newGate(f)
	for _, seed := range []string{
		"", "198.51.100.7", "6.6.6.6, 198.51.100.7", "198.51.100.7, 192.0.2.9", "unknown", "[::1]:80", "::ffff:192.0.2.1", "2001:db8::1%lo",
		strings.Repeat("192.0.2.1,", 100), ",,,",
	} {
		f.Add(seed, "192.0.2.1:1234")
		f.Add(seed, "198.51.100.1:1234")
		f.Add(seed, "[2001:db8::5]:1234")
	}
	f.Fuzz(func(t *testing.T, forwarded, remote string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		r.Header["X-Forwarded-For"] = []string{forwarded}
		v := access.From(gate.WithClient(r))
		got := v.Address()
		from, err := netip.ParseAddrPort(remote)
		if err != nil {
			if got.IsValid() {
				t.Fatalf("%q is at %v", remote, got)
			}
			return
		}
		own := from.Addr().Unmap()
		if proxy := netip.MustParsePrefix("192.0.2.0/24").Contains(own) || netip.MustParsePrefix("2001:db8::/32").Contains(own); !proxy &&
			got != own {
			t.Fatalf("%q, who says %q, is at %v", remote, forwarded, got)
		}
	})
}
