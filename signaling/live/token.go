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
	// ephemeral begins the names of Google's ephemeral tokens, and authPrefix goes on where the gateway has minted one. SDKs send what
	// begins so in another way than a key.
	ephemeral  = "auth_tokens/"
	authPrefix = "at_"

	// The times of a token: https://ai.google.dev/api/live#AuthToken.
	tokenLife, sessionLife, longestLife = 30 * time.Minute, time.Minute, 20 * time.Hour

	// maxToken bounds a request for a token, in bytes: most of it is the setup.
	maxToken = 256 << 10
)

// authToken is what an ephemeral token is bound to. The store has it.
type authToken struct {
	Token  string      `json:"token"` // of the gateway's; empty: none is needed
	Uses   int         `json:"uses"`  // how many conversations may begin with it; 0: any number
	Begins time.Time   `json:"begins"`
	Ends   time.Time   `json:"ends"`
	Setup  constraints `json:"setup"`
}

// constraints are what a token says of the setup.
type constraints struct {
	Given  bool     `json:"given"`
	Fields object   `json:"fields"`
	Mask   []string `json:"mask"` // paths of fields that are locked; none: all, if there are fields
}

// apply is a client's setup with what is locked in it: https://ai.google.dev/api/live#AuthToken says how the two go together. How a
// conversation is resumed is the client's affair.
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

// locks reports whether a field, or a part of it, is not the client's to change.
func (c *constraints) locks(field string) bool {
	return c != nil && (c.Given && len(c.Mask) == 0 ||
		slices.ContainsFunc(c.Mask, func(path string) bool { return path == field || strings.HasPrefix(path, field+".") }))
}

// lock puts the field at a path of one object into another: none where there is none.
func lock(into, from object, path []string) {
	name := path[0]
	if len(path) == 1 {
		delete(into, name)
		if from[name] != nil {
			into[name] = from[name]
		}
		return
	}
	inner, _ := readObject(into[name], name) // what is no object gives way
	if inner == nil {
		inner = object{}
	}
	fixed, _ := readObject(from[name], name)
	lock(inner, fixed, path[1:])
	into[name] = tools.Encode(inner)
}

// mint answers a request for an ephemeral token: POST /v1alpha/auth_tokens.
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

// readToken reads what is asked for.
func readToken(body []byte, now time.Time) (made authToken, err error) {
	fields := object{}
	if len(body) > 0 {
		if fields, err = readObject(body, ""); err != nil {
			return made, err
		}
	}
	known := []string{"uses", "expireTime", "newSessionExpireTime", "bidiGenerateContentSetup", "fieldMask", "name"}
	for name := range fields {
		if !slices.Contains(known, name) { // a limit that was misspelt would be none
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

// readTime reads a time that must be ahead, by less than 20 hours. Without one it is usual from now.
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

// exchange finds what an ephemeral token of the gateway's is bound to. Another token is its own; nil.
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

// admit lets in the holder of an ephemeral token: a new conversation is one of its uses, and each ends when the token does. free gives the
// use back.
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
