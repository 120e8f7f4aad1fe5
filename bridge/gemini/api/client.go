// Package api implements access to Google's API apart from the Live connection itself: the URLs of the Gemini API and Vertex
// AI, their model names, and the gateway's credentials.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// DefaultModel is the model that is used if a client names none. See
// https://ai.google.dev/gemini-api/docs/models/gemini-3.8-live.
const DefaultModel = "gemini-3.8-live"

const (
	// googleURL is the server of the Gemini API.
	googleURL = "https://generativelanguage.googleapis.com"

	// stableVersion is the version of the Gemini API that is used unless the setup has experimental fields: see
	// LiveURL.
	stableVersion = "v1beta"

	// alphaVersion is the version with the experimental fields. Ephemeral tokens also need it: Google's Go SDK refuses
	// them with any other version.
	alphaVersion = "v1alpha"

	// vertexVersion is the version of Vertex AI that Google's SDKs use. It also has the experimental fields. Vertex AI
	// returns 404 for v1alpha (livekit/agents #4362).
	vertexVersion = "v1beta1"
)

// Errors about the gateway's credentials.
var (
	// ErrNoKey reports that Google requires a key and none is set. Errors wrap it.
	ErrNoKey = errors.New("no API key is set")

	// ErrNoProject reports that Vertex AI is configured without a project.
	ErrNoProject = errors.New("Vertex AI needs a project")

	// ErrToken reports that REST calls are not possible with an ephemeral token:
	// https://ai.google.dev/gemini-api/docs/ephemeral-tokens.
	ErrToken = errors.New("the key is an ephemeral token, which opens Live connections only; REST wants an API key")

	// ErrCredentials reports that Google Cloud credentials were not found or not accepted. Errors wrap it.
	ErrCredentials = errors.New("the Google Cloud credentials cannot be used")
)

// Client holds the address of Google's API and the gateway's credentials. The zero value stands for Google's server,
// without a key. It is safe for concurrent use as long as its fields do not change.
type Client struct {
	// APIKey is the API key, sent in the header x-goog-api-key, or "". It may be an ephemeral token ("auth_tokens/…"),
	// which works only for Live connections. Vertex AI does not use it.
	APIKey Secret

	// Vertex, if not nil, selects the models of Vertex AI instead of the Gemini API.
	Vertex *Vertex

	// BaseURL is the server's URL, with the scheme http, https, ws or wss and an optional path. "" means Google's
	// server. The scheme is adapted: ws or wss for Live connections, http or https for REST calls.
	BaseURL string

	// NetDial opens TCP connections. Nil means a net.Dialer and the proxy from the environment.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// tokenPrefix is the prefix of ephemeral tokens: https://ai.google.dev/gemini-api/docs/ephemeral-tokens.
const tokenPrefix = "auth_tokens/"

func (c *Client) hasEphemeralToken() bool {
	return c.Vertex == nil && strings.HasPrefix(string(c.APIKey), tokenPrefix)
}

// baseURL returns the base URL without a trailing slash. It replaces the scheme: http or ws by plainScheme, https or
// wss by secureScheme.
func (c *Client) baseURL(plainScheme, secureScheme string) (*url.URL, error) {
	base := c.BaseURL
	switch {
	case base != "":
	case c.Vertex != nil:
		base = c.Vertex.url()
	default:
		base = googleURL
	}
	// The error of url.Parse is not returned, because it contains the URL, which may contain a password.
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil {
		return nil, errors.New("gemini: the base URL cannot be parsed")
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "ws":
		u.Scheme = plainScheme
	case "https", "wss":
		u.Scheme = secureScheme
	default:
		return nil, errors.New("gemini: the base URL must begin with http, https, ws or wss")
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("gemini: the base URL must be scheme, host and path, nothing else")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// LiveURL returns the URL of the Live API. It fails if a required setting is missing. isAlpha selects the experimental
// version of the Gemini API.
func (c *Client) LiveURL(isAlpha bool) (*url.URL, error) {
	if err := c.checkSettings(); err != nil {
		return nil, err
	}
	u, err := c.baseURL("ws", "wss")
	if err != nil {
		return nil, err
	}
	switch {
	case c.Vertex != nil:
		u.Path += "/ws/google.cloud.aiplatform." + vertexVersion + ".LlmBidiService/BidiGenerateContent"
	case c.hasEphemeralToken():
		u.Path += "/ws/google.ai.generativelanguage." + alphaVersion + ".GenerativeService.BidiGenerateContentConstrained"
	case isAlpha:
		u.Path += "/ws/google.ai.generativelanguage." + alphaVersion + ".GenerativeService.BidiGenerateContent"
	default:
		u.Path += "/ws/google.ai.generativelanguage." + stableVersion + ".GenerativeService.BidiGenerateContent"
	}
	return u, nil
}

// checkSettings returns an error if a required setting is missing or invalid.
func (c *Client) checkSettings() error {
	switch {
	case c.Vertex != nil:
		return c.Vertex.check()
	case c.APIKey == "" && c.BaseURL == "":
		return fmt.Errorf("gemini: %w", ErrNoKey)
	}
	return nil
}

// FullName converts the name of a model in the Gemini API, such as "models/x", to the backend's name. "" means
// DefaultModel. Names without "models/", such as "tunedModels/x", are not changed.
func (c *Client) FullName(model string) string {
	if model == "" {
		model = "models/" + DefaultModel
	}
	short, googles := strings.CutPrefix(model, "models/")
	if c.Vertex == nil || !googles {
		return model
	}
	return "projects/" + c.Vertex.Project + "/locations/" + c.Vertex.location() + "/publishers/google/models/" + short
}

// Credentials returns the headers that authenticate a request, and the secret that they contain. Without a key, the
// headers are empty and the secret is "".
func (c *Client) Credentials(ctx context.Context) (http.Header, Secret, error) {
	switch {
	case c.Vertex != nil:
		token, err := c.Vertex.fetchTokenIfStale(ctx)
		if err != nil {
			return nil, "", err
		}
		return http.Header{"Authorization": {"Bearer " + string(token)}}, token, nil
	case c.APIKey == "":
		return http.Header{}, "", nil
	case c.hasEphemeralToken():
		return http.Header{"Authorization": {"Token " + string(c.APIKey)}}, c.APIKey, nil
	default:
		return http.Header{"X-Goog-Api-Key": {string(c.APIKey)}}, c.APIKey, nil
	}
}

// HandleRefusal reports whether to retry a request that was refused with an HTTP status: only if Vertex AI has refused
// the access token. It then discards that token.
func (c *Client) HandleRefusal(secret Secret, status int) (shouldRetry bool) {
	if c.Vertex == nil || status != http.StatusUnauthorized {
		return false
	}
	// Google may revoke tokens before they expire. The retry then fetches a new token.
	c.Vertex.discardToken(secret)
	return true
}

// Request builds a request to the REST API, which calls a method of a model, such as "generateContent". Without a
// model, it requests the list of models. With an ephemeral token it returns [ErrToken].
//
// The caller must pass the status of a refusal to [Client.HandleRefusal], and must keep the secret out of logs and
// responses.
func (c *Client) Request(ctx context.Context, httpMethod, model, method, query string, body io.Reader) (*http.Request, Secret, error) {
	path := "/" + stableVersion + "/models"
	switch {
	case c.Vertex != nil && model != "":
		path = "/" + vertexVersion + "/" + c.FullName("models/"+model)
	case c.Vertex != nil:
		path = "/" + vertexVersion + "/publishers/google/models"
	case model != "":
		path += "/" + model
	}
	if method != "" {
		path += ":" + method
	}
	if err := c.checkSettings(); err != nil {
		return nil, "", err
	}
	if c.hasEphemeralToken() {
		return nil, "", ErrToken
	}
	u, err := c.baseURL("http", "https")
	if err != nil {
		return nil, "", err
	}
	u.Path += path
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, httpMethod, u.String(), body)
	if err != nil {
		return nil, "", err
	}
	var secret Secret
	r.Header, secret, err = c.Credentials(ctx)
	return r, secret, err
}
