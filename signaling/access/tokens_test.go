package access_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/agents"
	"voxgate/signaling/access"
)

// A token is not minted for unknown protocols and agents: its client would be rejected later.
func TestTokensForWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	key := must(access.NewKey(file, "shop", []string{access.MayMint}))
	gate := must(access.New(access.Options{
		Required: true, Keys: file, Agents: agents.New(&agents.Agent{Name: "desk"}), Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(gate.Close)
	for body, want := range map[string]string{
		`{"grant":{"doors":["web"]}}`: "", `{"grant":{"doors":["*"]}}`: "", `{"grant":{"doors":["wh?p"],"agents":["d*"]}}`: "",
		`{"grant":{"agent":"desk"}}`: "", `{"grant":{"agent":{"prompt":"Hi."}}}`: "", `{}`: "",
		`{"grant":{"doors":["page"]}}`:           `grant.doors[0]: \"page\" is none of live, openai`,
		`{"grant":{"doors":["web","tel*ony "]}}`: `grant.doors[1]`,
		`{"grant":{"agent":"dsek"}}`:             `grant.agent: unknown agent \"dsek\"`,
		`{"grant":{"agents":["desk","x*"]}}`:     `grant.agents[1]: unknown agent \"x*\"`,
		`{"grant":{"maxSeconds":"60"}}`:          `grant.maxSeconds`,
		`{"grant":{"seconds":60}}`:               `seconds`,
		`{"grant":7}`:                            `grant`,
		`[]`:                                     ``,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/tokens", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		gate.ServeHTTP(w, r.WithContext(gate.WithClient(r)))
		bad := want != "" || body == `[]`
		if (w.Code != http.StatusOK) != bad || !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "Go ") {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}
