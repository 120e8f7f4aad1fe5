package openai

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"voxgate/agents"
	"voxgate/signaling/access"
	"voxgate/tools"
)

const (
	// secretPrefix is the prefix of client secrets.
	secretPrefix = "ek_"
	// secretSeconds is the default time in which a client secret may begin conversations. A request may choose a time
	// from minSecretSeconds to maxSecretSeconds:
	// https://platform.openai.com/docs/api-reference/realtime-sessions/create-realtime-client-secret.
	secretSeconds, minSecretSeconds, maxSecretSeconds = 600, 10, 7200 // seconds
)

// boundToken is the data that belongs to a client secret. It is in the store, so that a page may use any gateway that
// shares the store.
type boundToken struct {
	Session *session `json:"session"`
	Token   string   `json:"token"` // access token of the gateway; empty if none is required
}

// identityHeader is OpenAI's header in which a backend identifies its user.
const identityHeader = "OpenAI-Safety-Identifier"

// lifetime is the time for which a secret is valid. A request may set it (expires_after).
type lifetime struct {
	Anchor  string `json:"anchor"`
	Seconds int    `json:"seconds"`
}

// createClientSecret creates a client secret for a page, bound to a session.
func (srv *Server) createClientSecret(w http.ResponseWriter, r *http.Request) error {
	var secretRequest struct {
		ExpiresAfter lifetime        `json:"expires_after"`
		Session      json.RawMessage `json:"session"`
	}
	if err := rejectBeta(r); err != nil {
		return err
	}
	minter, raw, err := readSecretRequest(w, r, &secretRequest)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(raw, &fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "expires_after" && name != "session" {
			return newError("unknown_parameter", clip(name), "Unknown parameter: '%s'. Put the fields of a session into session.", clip(name))
		}
	}
	value, expires, made, err := srv.createBoundSecret(r, minter, secretRequest.ExpiresAfter, secretRequest.Session)
	if err == nil {
		access.WriteJSON(w, http.StatusOK, object{"value": value, "expires_at": expires, "session": made})
	}
	return err
}

// readSecretRequest decodes the body of a request for a secret into the variable to which target points. raw is the
// body, and is nil if the request has none. It returns an error if the client may not mint tokens.
func readSecretRequest(w http.ResponseWriter, r *http.Request, target any) (minter access.Minter, raw json.RawMessage, err error) {
	if minter, err = access.From(r.Context()).RequireMinter(tokenOf(r)); err != nil || r.ContentLength == 0 {
		return minter, nil, err
	}
	if raw, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return minter, nil, toBodyError(err)
	}
	raw = tools.TrimBOM(raw)
	return minter, raw, toBodyError(json.Unmarshal(raw, target))
}

// createBoundSecret creates a secret that is bound to a session. expiresAt is a Unix time in seconds.
func (srv *Server) createBoundSecret(
	r *http.Request, minter access.Minter, expiry lifetime, sessionJSON json.RawMessage,
) (value string, expiresAt int64, bound *session, err error) {
	life := cmp.Or(expiry.Seconds, secretSeconds)
	if life < minSecretSeconds || life > maxSecretSeconds {
		return "", 0, nil, invalidValue("expires_after.seconds", "must be between 10 and 7200.")
	}
	s := newSession(newID("sess"), "")
	if sessionJSON != nil {
		if s, err = s.withChange(sessionJSON); err != nil {
			return "", 0, nil, err
		}
	}
	if err := s.checkModel("session.model"); err != nil {
		return "", 0, nil, err
	}
	if name, _, err := parsePrompt(s.Prompt); err != nil || name != "" && srv.Agents.Find(name, protocolName) == nil {
		return "", 0, nil, cmp.Or(err, agents.NewUnknownAgentError(name))
	}
	token, err := minter.Mint(access.TokenRequest{Identity: r.Header.Get(identityHeader), ExpiresIn: life, Once: new(bool)}, protocolName)
	if err != nil {
		return "", 0, nil, err
	}
	value, lasts := newID("ek"), time.Duration(life)*time.Second
	expiresAt = time.Now().Add(lasts).Unix()
	if err := srv.Secrets.Bind(r.Context(), minter, value, boundToken{&s, token.Token}, lasts); err != nil {
		return "", 0, nil, err
	}
	named := s
	named.Model = cmp.Or(s.Model, defaultModel) // without a model in the session, the page may choose one
	return value, expiresAt, &named, nil
}
