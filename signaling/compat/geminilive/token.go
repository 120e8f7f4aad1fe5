package geminilive

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
	// ephemeralPrefix begins all ephemeral tokens. SDKs recognize the tokens by this prefix, because they send them in
	// another way than API keys.
	ephemeralPrefix = "auth_tokens/"
	// authPrefix follows ephemeralPrefix in the tokens that this gateway creates.
	authPrefix = "at_"

	// Validity of ephemeral tokens: Google's defaults and limit (https://ai.google.dev/api/live#AuthToken).
	tokenLifetime = 30 * time.Minute // default validity of a token
	startWindow   = time.Minute      // default time in which a token may begin a conversation
	maxLifetime   = 20 * time.Hour   // upper limit of both

	// maxToken limits a request for a token, in bytes. Most of it is the setup.
	maxToken = 256 << 10
)

// authToken is the stored data of an ephemeral token.
type authToken struct {
	Token         string      `json:"token"` // access token of the gateway; empty if none is required
	MaxUses       int         `json:"uses"`  // number of conversations that the token may start; 0 for any number
	StartDeadline time.Time   `json:"begins"`
	ExpiresAt     time.Time   `json:"ends"`
	Setup         constraints `json:"setup"`
}

// constraints are the parts of the setup that a token prescribes.
type constraints struct {
	HasSetup bool     `json:"value"`
	Fields   object   `json:"fields"`
	Mask     []string `json:"mask"` // paths of locked fields; if it is empty and there is a setup, all fields are locked
}

// applyTo returns a client's setup in which the locked fields have the values of the token
// (https://ai.google.dev/api/live#AuthToken). If the token locks all fields, only the client's sessionResumption is
// kept.
func (c *constraints) applyTo(config object) object {
	switch {
	case c == nil || !c.HasSetup && len(c.Mask) == 0:
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
		copyField(fixed, c.Fields, strings.Split(path, "."))
	}
	return fixed
}

// isLocked reports whether a field, or a part of it, is locked.
func (c *constraints) isLocked(field string) bool {
	return c != nil && (c.HasSetup && len(c.Mask) == 0 ||
		slices.ContainsFunc(c.Mask, func(path string) bool { return path == field || strings.HasPrefix(path, field+".") }))
}

// copyField copies the field at a path from the source object to the target object. If the source lacks the field,
// copyField removes it from the target.
func copyField(target, source object, path []string) {
	name := path[0]
	if len(path) == 1 {
		delete(target, name)
		if source[name] != nil {
			target[name] = source[name]
		}
		return
	}
	child, _ := parseCamelObject(target[name], name) // a value that is not an object is replaced
	if child == nil {
		child = object{}
	}
	fixed, _ := parseCamelObject(source[name], name)
	copyField(child, fixed, path[1:])
	target[name] = tools.EncodeOrEmpty(child)
}

// serveTokenRequest handles a request for an ephemeral token: POST /v1alpha/auth_tokens.
func (srv *Server) serveTokenRequest(w http.ResponseWriter, r *http.Request) error {
	minter, err := access.From(r.Context()).RequireMinter(r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxToken))
	if err != nil {
		return badMessage("", fmt.Sprintf("The request cannot be read, or has more than %d bytes.", maxToken))
	}
	now := time.Now()
	data, err := parseTokenRequest(body, now)
	if err != nil {
		return err
	}
	expiresIn := int(max(1, data.StartDeadline.Sub(now).Seconds()))
	token, err := minter.Mint(access.TokenRequest{ExpiresIn: expiresIn, Once: new(bool)}, protocolName)
	if err != nil {
		return err
	}
	data.Token = token.Token
	secret := authPrefix + rand.Text()
	if err := srv.Secrets.Bind(r.Context(), minter, secret, data, data.ExpiresAt.Sub(now)); err != nil {
		return err
	}
	answer := map[string]any{
		"name": ephemeralPrefix + secret, "expireTime": data.ExpiresAt.UTC(), "newSessionExpireTime": data.StartDeadline.UTC(),
	}
	if data.MaxUses > 0 {
		answer["uses"] = data.MaxUses
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_, _ = w.Write(tools.EncodeOrEmpty(answer))
	return nil
}

// parseTokenRequest parses a request for a token.
func parseTokenRequest(body []byte, now time.Time) (data authToken, err error) {
	fields := object{}
	if len(body) > 0 {
		if fields, err = parseCamelObject(body, ""); err != nil {
			return data, err
		}
	}
	fieldNames := []string{"uses", "expireTime", "newSessionExpireTime", "bidiGenerateContentSetup", "fieldMask", "name"}
	for name := range fields {
		if !slices.Contains(fieldNames, name) { // ignoring an unknown field would ignore a misspelt limit
			return data, badMessage("", fmt.Sprintf("Unknown name %q: Cannot find field.", name))
		}
	}
	data.MaxUses = 1
	if value := fields["uses"]; value != nil && (tools.ReadLenientJSON(value, &data.MaxUses) != nil || data.MaxUses < 0) {
		return data, badMessage("uses", "must be a number that is not negative.")
	}
	if data.ExpiresAt, err = parseTime(fields, "expireTime", now, tokenLifetime); err != nil {
		return data, err
	}
	if data.StartDeadline, err = parseTime(fields, "newSessionExpireTime", now, startWindow); err != nil {
		return data, err
	}
	if data.StartDeadline.After(data.ExpiresAt) {
		data.StartDeadline = data.ExpiresAt
	}
	if value := fields["bidiGenerateContentSetup"]; value != nil {
		data.Setup.HasSetup = true
		if data.Setup.Fields, err = parseCamelObject(value, "bidiGenerateContentSetup"); err != nil {
			return data, err
		}
	}
	var mask string
	if value := fields["fieldMask"]; value != nil && json.Unmarshal(value, &mask) != nil {
		return data, badMessage("fieldMask", `must be names separated by commas: "model,generationConfig.temperature".`)
	}
	for path := range strings.SplitSeq(mask, ",") {
		if path = tools.ToCamelCase(strings.TrimSpace(path)); path != "" {
			data.Setup.Mask = append(data.Setup.Mask, path)
		}
	}
	return data, nil
}

// parseTime parses a time that must be in the future, by less than 20 hours. If the field is missing, it returns the time
// now + defaultLifetime.
func parseTime(fields object, name string, now time.Time, defaultLifetime time.Duration) (at time.Time, err error) {
	value := fields[name]
	if value == nil {
		return now.Add(defaultLifetime), nil
	}
	if json.Unmarshal(value, &at) != nil {
		return at, badMessage(name, `must be a time such as "2026-11-23T18:00:00Z".`)
	}
	if !at.After(now) || at.After(now.Add(maxLifetime)) {
		return at, badMessage(name, "must be in the next 20 hours.")
	}
	return at, nil
}

// lookUpToken returns the data of one of the gateway's ephemeral tokens, or nil for other tokens.
func (srv *Server) lookUpToken(ctx context.Context, token string) (*authToken, error) {
	if !strings.HasPrefix(token, authPrefix) {
		return nil, nil
	}
	data := &authToken{}
	return data, srv.Secrets.LookUp(ctx, token, data)
}

func newUnauthorizedError(message string) error {
	return &bridge.Error{Code: bridge.CodeUnauthorized, Message: message}
}

// authorizeSession authorizes the client. If the client begins a new conversation with an ephemeral token, that counts
// as one use of the token. releaseUse takes this use back.
func (srv *Server) authorizeSession(
	ctx context.Context, token string, bound *authToken, open *bridge.SessionRequest,
) (releaseUse func(), err error) {
	releaseUse = func() {}
	if bound == nil {
		return releaseUse, access.From(ctx).Authorize(open, token)
	}
	isNew := open.ResumeToken == ""
	if isNew && time.Now().After(bound.StartDeadline) {
		return releaseUse, newUnauthorizedError("This ephemeral token can no longer begin a conversation: its newSessionExpireTime has passed.")
	}
	if err := access.From(ctx).Authorize(open, bound.Token); err != nil {
		return releaseUse, err
	}
	grant := bridge.Grant{Tools: []string{"*"}}
	if open.Grant != nil {
		grant = *open.Grant
	}
	// Every conversation ends when the token expires, including one that the token only resumes.
	remaining := max(time.Until(bound.ExpiresAt), time.Millisecond)
	grant.MaxDuration = min(cmp.Or(grant.MaxDuration, remaining), remaining)
	open.Grant = &grant
	if !isNew || bound.MaxUses == 0 {
		return releaseUse, nil
	}
	ok, releaseUse, err := srv.Secrets.CountUse(ctx, token, rand.Text(), bound.MaxUses, time.Until(bound.ExpiresAt))
	if err == nil && !ok {
		err = newUnauthorizedError("This ephemeral token has been used too many times.")
	}
	return releaseUse, err
}
