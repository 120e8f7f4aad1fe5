package emulator

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"voxgate/bridge/gemini/emulator/live"
)

// admit checks the credentials of a request in all the places where clients put them. It returns the ephemeral token
// of a constrained one.
func (a *restAPI) admit(r *http.Request, to live.Endpoint) (*ephemeralToken, *apiError) {
	key := cmp.Or(r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key"))
	bearer := authorization(r, "Bearer ")
	access := cmp.Or(r.URL.Query().Get("access_token"), authorization(r, "Token "), bearer)
	for _, secret := range []string{key, access} {
		switch {
		case strings.HasPrefix(secret, "forbidden"):
			return nil, refusals[http.StatusForbidden]
		case strings.HasPrefix(secret, "exhausted"):
			return nil, refusals[http.StatusTooManyRequests]
		}
	}
	switch {
	case strings.HasPrefix(key, "invalid"):
		return nil, badRequest("API key not valid. Please pass a valid API key.")
	case strings.HasPrefix(access, "invalid"), strings.HasPrefix(access, "expired"), to.Vertex && bearer == "":
		return nil, refusals[http.StatusUnauthorized]
	case !to.Constrained:
		return nil, nil
	}
	t := a.tokens.find(access)
	if t == nil {
		return nil, refusals[http.StatusUnauthorized]
	}
	return t, nil
}

// authorization returns the credentials of an Authorization header of this scheme, or "".
func authorization(r *http.Request, scheme string) string {
	value, ok := strings.CutPrefix(r.Header.Get("Authorization"), scheme)
	if !ok {
		return ""
	}
	return value
}

// ephemeralToken is an ephemeral token: https://ai.google.dev/gemini-api/docs/ephemeral-tokens.
type ephemeralToken struct {
	name       string
	unlimited  bool      // uses was 0
	newSession time.Time // no new session after this
	expires    time.Time
	setup      map[string]any // in place of the client's, nil for none
	mask       []string       // the fields of setup that are locked; empty means all

	mu   sync.Mutex
	uses int // left
}

type tokenStore struct {
	mu     sync.Mutex
	tokens map[string]*ephemeralToken
}

// mostTokens bounds the store of a long-running emulator.
const mostTokens = 4096

// mint makes a token from the body of a request.
func (s *tokenStore) mint(body []byte) (map[string]any, *apiError) {
	ask, err := live.ParseTokenRequest(body)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	now := time.Now()
	t := &ephemeralToken{
		name: "auth_tokens/" + strings.ToLower(rand.Text()), uses: 1,
		newSession: now.Add(time.Minute), expires: now.Add(30 * time.Minute),
		setup: ask.Setup, mask: ask.Locked,
	}
	if ask.Uses != nil {
		t.uses, t.unlimited = *ask.Uses, *ask.Uses == 0
	}
	if !ask.ExpireTime.IsZero() {
		t.expires = ask.ExpireTime
	}
	if !ask.NewSessionExpireTime.IsZero() {
		t.newSession = ask.NewSessionExpireTime
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil || len(s.tokens) >= mostTokens {
		s.tokens = make(map[string]*ephemeralToken)
	}
	s.tokens[t.name] = t
	return map[string]any{"name": t.name}, nil
}

// find returns a token that has not expired, or nil.
func (s *tokenStore) find(name string) *ephemeralToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[name]
	if t == nil || time.Now().After(t.expires) {
		return nil
	}
	return t
}

// spend counts one use for a new session and reports whether there was one left. Resuming is no use.
func (t *ephemeralToken) spend(resumed bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if resumed {
		return true
	}
	if time.Now().After(t.newSession) || t.uses <= 0 && !t.unlimited {
		return false
	}
	t.uses--
	return true
}

// lock applies the token's setup to the client's, a tree of live.ParseSetup, and returns it.
func (t *ephemeralToken) lock(client map[string]any) map[string]any {
	if t.setup == nil {
		return client
	}
	if len(t.mask) == 0 {
		locked := cloneTree(t.setup).(map[string]any)
		if locked["sessionResumption"] == nil && client["sessionResumption"] != nil {
			locked["sessionResumption"] = client["sessionResumption"] // the handle is the client's alone to know
		}
		return locked
	}
	for _, path := range t.mask {
		copyField(client, t.setup, strings.Split(path, "."))
	}
	return client
}

// copyField copies the field at path from one object to another.
func copyField(to, from map[string]any, path []string) {
	value, ok := from[path[0]]
	if !ok {
		return
	}
	deeper, isObject := value.(map[string]any)
	if len(path) == 1 || !isObject {
		to[path[0]] = value
		return
	}
	into, _ := to[path[0]].(map[string]any)
	if into == nil {
		into = make(map[string]any)
		to[path[0]] = into
	}
	copyField(into, deeper, path[1:])
}

func cloneTree(tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			out[name] = cloneTree(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = cloneTree(value)
		}
		return out
	default:
		return tree
	}
}
