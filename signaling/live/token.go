package live

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/access"
	"voxgate/tools"
)

const (
	// ephemeral is the prefix of all ephemeral tokens, by which SDKs send them in another way than API keys. In the gateway's tokens
	// authPrefix follows it.
	ephemeral  = "auth_tokens/"
	authPrefix = "at_"

	// Lifetimes of a token: https://ai.google.dev/api/live#AuthToken.
	tokenLife, sessionLife, longestLife = 30 * time.Minute, time.Minute, 20 * time.Hour

	// maxToken limits a request for a token, in bytes. Most of it is the setup.
	maxToken = 256 << 10
)

// authToken is the stored data of an ephemeral token.
type authToken struct {
	Token  string      `json:"token"` // access token of the gateway; empty if none is required
	Uses   int         `json:"uses"`  // number of conversations it may start; 0 for any number
	Begins time.Time   `json:"begins"`
	Ends   time.Time   `json:"ends"`
	Setup  constraints `json:"setup"`
}

// constraints are the parts of the setup that a token prescribes.
type constraints struct {
	Given  bool     `json:"given"`
	Fields object   `json:"fields"`
	Mask   []string `json:"mask"` // paths of locked fields; if empty, all fields are locked, if there are any
}

// apply returns a client's setup with the locked fields applied, as described in https://ai.google.dev/api/live#AuthToken. Session
// resumption is never locked.
func (c *constraints) apply(config object) object {
	switch {
	case c == nil || !c.Given && len(c.Mask) == 0:
		return config
	case len(c.Mask) == 0:
		fixed := maps.Clone(c.Fields)
		if resumption := config["sessionResumption"]; resumption != nil {
			fixed["sessionResumption"] = resumption
		}
		return fixed
	}
	fixed := maps.Clone(config)
	for _, path := range c.Mask {
		lock(fixed, c.Fields, strings.Split(path, "."))
	}
	return fixed
}

// locks reports whether a field, or a part of it, is locked.
func (c *constraints) locks(field string) bool {
	return c != nil && (c.Given && len(c.Mask) == 0 ||
		slices.ContainsFunc(c.Mask, func(path string) bool { return path == field || strings.HasPrefix(path, field+".") }))
}

// lock copies the field at path from one object into another, or removes it there if from lacks it.
func lock(into, from object, path []string) {
	name := path[0]
	if len(path) == 1 {
		delete(into, name)
		if from[name] != nil {
			into[name] = from[name]
		}
		return
	}
	inner, _ := readObject(into[name], name) // a value of another type is replaced
	if inner == nil {
		inner = object{}
	}
	fixed, _ := readObject(from[name], name)
	lock(inner, fixed, path[1:])
	into[name] = tools.Encode(inner)
}

// mint handles a request for an ephemeral token: POST /v1alpha/auth_tokens.
func (d *Door) mint(w http.ResponseWriter, r *http.Request) error {
	minter, err := access.From(r.Context()).RequireMinter(r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxToken))
	if err != nil {
		return invalid("", fmt.Sprintf("The request cannot be read: it may have %d bytes.", maxToken))
	}
	now := time.Now()
	made, err := readToken(body, now)
	if err != nil {
		return err
	}
	token, err := minter.Mint(access.TokenRequest{ExpiresIn: int(max(1, made.Begins.Sub(now).Seconds())), Once: new(bool)}, doorName)
	if err != nil {
		return err
	}
	made.Token = token.Token
	secret := authPrefix + rand.Text()
	if err := d.Secrets.Bind(r.Context(), minter, secret, made, made.Ends.Sub(now)); err != nil {
		return err
	}
	answer := map[string]any{"name": ephemeral + secret, "expireTime": made.Ends.UTC(), "newSessionExpireTime": made.Begins.UTC()}
	if made.Uses > 0 {
		answer["uses"] = made.Uses
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_, _ = w.Write(tools.Encode(answer))
	return nil
}

// readToken parses a request for a token.
func readToken(body []byte, now time.Time) (made authToken, err error) {
	fields := object{}
	if len(body) > 0 {
		if fields, err = readObject(body, ""); err != nil {
			return made, err
		}
	}
	known := []string{"uses", "expireTime", "newSessionExpireTime", "bidiGenerateContentSetup", "fieldMask", "name"}
	for name := range fields {
		if !slices.Contains(known, name) { // a misspelt limit would otherwise have no effect
			return made, invalid("", fmt.Sprintf("Unknown name %q: Cannot find field.", name))
		}
	}
	made.Uses = 1
	if given := fields["uses"]; given != nil && (tools.ReadJSON(given, &made.Uses) != nil || made.Uses < 0) {
		return made, invalid("uses", "must be a number, not below 0.")
	}
	if made.Ends, err = readTime(fields, "expireTime", now, tokenLife); err != nil {
		return made, err
	}
	if made.Begins, err = readTime(fields, "newSessionExpireTime", now, sessionLife); err != nil {
		return made, err
	}
	if made.Begins.After(made.Ends) {
		made.Begins = made.Ends
	}
	if given := fields["bidiGenerateContentSetup"]; given != nil {
		made.Setup.Given = true
		if made.Setup.Fields, err = readObject(given, "bidiGenerateContentSetup"); err != nil {
			return made, err
		}
	}
	var mask string
	if given := fields["fieldMask"]; given != nil && json.Unmarshal(given, &mask) != nil {
		return made, invalid("fieldMask", `must be names with commas between them: "model,generationConfig.temperature".`)
	}
	for path := range strings.SplitSeq(mask, ",") {
		if path = tools.ToCamelCase(strings.TrimSpace(path)); path != "" {
			made.Setup.Mask = append(made.Setup.Mask, path)
		}
	}
	return made, nil
}

// readTime parses a time that must be in the future, by less than 20 hours. If the field is missing, it returns now plus usual.
func readTime(fields object, name string, now time.Time, usual time.Duration) (at time.Time, err error) {
	given := fields[name]
	if given == nil {
		return now.Add(usual), nil
	}
	if json.Unmarshal(given, &at) != nil {
		return at, invalid(name, `must be a time such as "2026-11-23T18:00:00Z".`)
	}
	if !at.After(now) || at.After(now.Add(longestLife)) {
		return at, invalid(name, "must be in the next 20 hours.")
	}
	return at, nil
}

// exchange returns the data of one of the gateway's ephemeral tokens, or nil for other tokens.
func (d *Door) exchange(ctx context.Context, token string) (*authToken, error) {
	if !strings.HasPrefix(token, authPrefix) {
		return nil, nil
	}
	found := &authToken{}
	return found, d.Secrets.LookUp(ctx, token, found)
}

func unauthorized(message string) error {
	return &bridge.Error{Code: bridge.CodeUnauthorized, Message: message}
}

// admit authorizes the client. With an ephemeral token, a new conversation consumes one use, which free returns, and every conversation,
// also a resumed one, ends when the token expires.
func (d *Door) admit(ctx context.Context, token string, bound *authToken, open *bridge.SessionRequest) (free func(), err error) {
	free = func() {}
	if bound == nil {
		return free, access.From(ctx).Authorize(open, token)
	}
	begins := open.ResumeToken == ""
	if begins && time.Now().After(bound.Begins) {
		return free, unauthorized("This ephemeral token is too old to begin a conversation with.")
	}
	if err := access.From(ctx).Authorize(open, bound.Token); err != nil {
		return free, err
	}
	grant := bridge.Grant{Tools: []string{"*"}}
	if open.Grant != nil {
		grant = *open.Grant
	}
	left := max(time.Until(bound.Ends), time.Millisecond)
	grant.MaxDuration = min(cmp.Or(grant.MaxDuration, left), left)
	open.Grant = &grant
	if !begins || bound.Uses == 0 {
		return free, nil
	}
	ok, free, err := d.Secrets.CountUse(ctx, token, rand.Text(), bound.Uses, time.Until(bound.Ends))
	if err == nil && !ok {
		err = unauthorized("This ephemeral token has been used too many times.")
	}
	return free, err
}
