package access

import (
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

// A gateway accepts no URL without a signature of the shared secret, and forwards the identity of a client but not
// its credentials.
func TestBetweenGateways(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.json")
	operator, err := NewKey(keys, "operator", []string{MayWatchAll, MayMint})
	if err != nil {
		t.Fatal(err)
	}
	var ahead time.Duration
	gateOf := func(secret string) *Gate {
		fleet, err := NewClusterKey(secret)
		if err != nil {
			t.Fatal(err)
		}
		g, err := New(Options{
			Required: true, Keys: keys, ClusterKey: fleet, Logger: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return time.Now().Add(ahead) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		return g
	}
	a, b, alone := gateOf("a secret of these gateways"), gateOf("a secret of these gateways"), gateOf("")
	node := a.options.ClusterKey.SignNode("ABC", "http://10.0.0.1:3001")
	for said, want := range map[string]string{
		node: "http://10.0.0.1:3001", strings.Replace(node, "10.0.0.1", "10.0.0.2", 1): "", "ABC http://10.0.0.1:3001": "",
		"zzz http://evil:1 AAAA": "", "ABC": "", "": "",
		gateOf("another secret of others").options.ClusterKey.SignNode("ABC", "http://10.0.0.1:3001"): "",
		b.options.ClusterKey.SignNode("ABC", ""):                                                      "",
	} {
		got := ""
		if u := b.options.ClusterKey.nodeURL(said); u != nil {
			got = u.String()
		}
		if got != want || alone.options.ClusterKey.nodeURL(said) != nil {
			t.Errorf("%q is at %q", said, got)
		}
	}
	minted, err := a.keys.mintToken("operator", TokenRequest{Identity: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	hers := bridge.Origin{Protocol: "openai", Key: "operator", Identity: "ada"}
	for _, shown := range []struct {
		token         string
		acts, watches bool
	}{{operator, true, true}, {minted.Token, true, false}, {"", false, false}, {"vgk_unknown", false, false}} {
		r := httptest.NewRequest("DELETE", "/v1/sessions/x", nil)
		r.Header.Set("Authorization", "Bearer "+shown.token)
		r.Header.Set("X-Goog-Api-Key", shown.token)
		r.Header.Set("Sec-Websocket-Protocol", "realtime, voxgate.token."+shown.token+", openai-insecure-api-key."+shown.token)
		visitor := From(a.WithClient(r))
		visitor.SignForward(r, "")
		for name, values := range r.Header {
			if text := strings.Join(values, ","); shown.token != "" && strings.Contains(text, shown.token) {
				t.Errorf("%s goes on: %s", name, text)
			}
		}
		there := func(g *Gate, path string) (acts, watches bool) {
			to := httptest.NewRequest("DELETE", path, nil)
			to.Header = r.Header
			v := From(g.WithClient(to))
			_, err := v.RequireWatcher()
			return v.AuthorizeControl(hers, "") == nil, err == nil
		}
		if acts, watches := there(b, "/v1/sessions/x"); acts != shown.acts || watches != shown.watches {
			t.Errorf("%.10q acts %v, watches %v", shown.token, acts, watches)
		}
		for _, g := range []*Gate{alone, gateOf("another secret of others")} {
			if acts, watches := there(g, "/v1/sessions/x"); acts || watches {
				t.Errorf("%.10q is believed by a gateway with another secret", shown.token)
			}
		}
		if acts, watches := there(b, "/v1/sessions/y"); acts || watches {
			t.Errorf("%.10q is let in to another conversation", shown.token)
		}
		ahead = time.Minute
		if acts, watches := there(b, "/v1/sessions/x"); acts || watches {
			t.Errorf("%.10q is let in a minute later", shown.token)
		}
		ahead = 0
	}
}
