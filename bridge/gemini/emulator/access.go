package emulator

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// apiError is an error as Google's REST API words it.
type apiError struct {
	code    int
	status  string
	message string
}

func (e *apiError) write(w http.ResponseWriter) {
	writeJSON(w, e.code, map[string]any{"error": map[string]any{
		"code": e.code, "message": e.message, "status": e.status, "details": []any{},
	}})
}

// admit checks the credentials of a request in all the places where clients put them. It returns the ephemeral token
// of a constrained one.
func (e *Emulator) admit(r *http.Request, to endpoint) (*token, *apiError) {
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
		return nil, &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."}
	case strings.HasPrefix(access, "invalid"), strings.HasPrefix(access, "expired"), to.vertex && bearer == "":
		return nil, refusals[http.StatusUnauthorized]
	case !to.constrained:
		return nil, nil
	}
	t := e.tokens.find(access)
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

// token is an ephemeral token: https://ai.google.dev/gemini-api/docs/ephemeral-tokens.
type token struct {
	name       string
	uses       int       // left; guarded by the store's mu
	unlimited  bool      // uses was 0
	newSession time.Time // no new session after this
	expires    time.Time
	setup      map[string]any // in place of the client's, nil for none
	mask       []string       // the fields of setup that are locked; empty means all
}

type tokenStore struct {
	mu     sync.Mutex
	tokens map[string]*token
}

// maxTokens bounds the store of a long-running emulator.
const maxTokens = 4096

// mint makes a token from the body of a request.
func (s *tokenStore) mint(body []byte) (map[string]any, *apiError) {
	tree, err := check(body, "AuthToken", "auth_token")
	if err != nil {
		return nil, &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", err.Error()}
	}
	var ask struct {
		Uses                     *int
		ExpireTime               time.Time
		NewSessionExpireTime     time.Time
		BidiGenerateContentSetup map[string]any
		FieldMask                string
	}
	if err := remarshal(tree, &ask); err != nil {
		return nil, &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", "Request contains an invalid argument."}
	}
	now := time.Now()
	t := &token{
		name: "auth_tokens/" + strings.ToLower(rand.Text()), uses: 1,
		newSession: now.Add(time.Minute), expires: now.Add(30 * time.Minute),
		setup: ask.BidiGenerateContentSetup,
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
	for field := range strings.SplitSeq(ask.FieldMask, ",") {
		if field != "" {
			t.mask = append(t.mask, camelPath(field))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil || len(s.tokens) >= maxTokens {
		s.tokens = make(map[string]*token)
	}
	s.tokens[t.name] = t
	return map[string]any{"name": t.name}, nil
}

// find returns a token that has not expired, or nil.
func (s *tokenStore) find(name string) *token {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[name]
	if t == nil || time.Now().After(t.expires) {
		return nil
	}
	return t
}

// spend counts one use for a new session and reports whether there was one left. Resuming is no use.
func (s *tokenStore) spend(t *token, resumed bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resumed {
		return true
	}
	if time.Now().After(t.newSession) || t.uses <= 0 && !t.unlimited {
		return false
	}
	t.uses--
	return true
}

// lock applies the token's setup to the client's.
func (t *token) lock(client map[string]any) map[string]any {
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

// remarshal moves a JSON tree into a Go value.
func remarshal(tree, into any) error {
	data, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
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
