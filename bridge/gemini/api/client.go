// Package api is Google's API around the Live connection: its addresses on the Gemini API and on Vertex AI, the names
// of the models there, and our credentials.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// DefaultModel is used where no model is named. See https://ai.google.dev/gemini-api/docs/models/gemini-3.8-live.
const DefaultModel = "gemini-3.8-live"

const (
	// googleURL is where the Gemini API lives.
	googleURL = "https://generativelanguage.googleapis.com"

	// stableVersion carries every field but those for which Live is asked for alpha.
	stableVersion = "v1beta"

	// alphaVersion has those, and is the one version on which all of Google's SDKs and pages agree for ephemeral tokens;
	// the Go SDK refuses to use them on another.
	alphaVersion = "v1alpha"

	// vertexVersion is the version of Vertex AI that all of Google's SDKs use by default, and the one that has the
	// fields of alphaVersion: v1alpha is answered with 404 there (livekit/agents #4362).
	vertexVersion = "v1beta1"
)

// Errors about our credentials.
var (
	// ErrNoKey is in the error if Google wants a key and there is none.
	ErrNoKey = errors.New("no API key is set")

	// ErrNoProject means that Vertex AI is to be used and no project is named.
	ErrNoProject = errors.New("Vertex AI needs a project")

	// ErrToken means a REST call with an ephemeral token, which opens Live connections only:
	// https://ai.google.dev/gemini-api/docs/ephemeral-tokens.
	ErrToken = errors.New("the key is an ephemeral token, which opens Live connections only; REST wants an API key")

	// ErrCredentials is in the error if Google Cloud's credentials were not found or not accepted.
	ErrCredentials = errors.New("the Google Cloud credentials cannot be used")
)

// Client knows the address of the Gemini API and our credentials for it. The zero value is Google's server without a
// key. Any number of goroutines may call its methods at once; its fields must not change meanwhile.
type Client struct {
	// APIKey is sent in the header x-goog-api-key, or not at all when it is empty. An ephemeral token, which begins with
	// "auth_tokens/", is sent as a token; it opens Live connections only. On Vertex AI it is not used.
	APIKey Secret

	// Vertex, if not nil, has the models of Vertex AI in place of those of the Gemini API.
	Vertex *Vertex

	// BaseURL is "" for Google's own server, else http, https, ws or wss with an optional path prefix. Live
	// connections use ws for http and wss for https, REST calls the reverse.
	BaseURL string

	// NetDial opens the TCP connections. Nil means a net.Dialer, and the proxy that the environment names.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// tokenPrefix is how the names of ephemeral tokens begin: https://ai.google.dev/gemini-api/docs/ephemeral-tokens.
const tokenPrefix = "auth_tokens/"

func (c *Client) hasToken() bool {
	return c.Vertex == nil && strings.HasPrefix(string(c.APIKey), tokenPrefix)
}

// endpoint returns the base URL without a trailing slash, its scheme being secure or plain.
func (c *Client) endpoint(plain, secure string) (*url.URL, error) {
	base := c.BaseURL
	switch {
	case base != "":
	case c.Vertex != nil:
		base = c.Vertex.url()
	default:
		base = googleURL
	}
	// url.Parse puts the URL into its error, and a URL may hold a password.
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil {
		return nil, errors.New("gemini: the base URL cannot be parsed")
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "ws":
		u.Scheme = plain
	case "https", "wss":
		u.Scheme = secure
	default:
		return nil, errors.New("gemini: the base URL must begin with http, https, ws or wss")
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("gemini: the base URL must be scheme, host and path, nothing else")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// Live is the URL of the Live API, or an error if a setting is missing without which Google would refuse us. Alpha asks
// for the experimental version of the Gemini API; Vertex AI has all of that in its one version.
func (c *Client) Live(alpha bool) (*url.URL, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	u, err := c.endpoint("ws", "wss")
	if err != nil {
		return nil, err
	}
	switch {
	case c.Vertex != nil:
		u.Path += "/ws/google.cloud.aiplatform." + vertexVersion + ".LlmBidiService/BidiGenerateContent"
	case c.hasToken():
		u.Path += "/ws/google.ai.generativelanguage." + alphaVersion + ".GenerativeService.BidiGenerateContentConstrained"
	case alpha:
		u.Path += "/ws/google.ai.generativelanguage." + alphaVersion + ".GenerativeService.BidiGenerateContent"
	default:
		u.Path += "/ws/google.ai.generativelanguage." + stableVersion + ".GenerativeService.BidiGenerateContent"
	}
	return u, nil
}

// ready returns an error if a setting is missing without which Google would refuse us.
func (c *Client) ready() error {
	switch {
	case c.Vertex != nil:
		return c.Vertex.check()
	case c.APIKey == "" && c.BaseURL == "":
		return fmt.Errorf("gemini: %w", ErrNoKey)
	}
	return nil
}

// FullName is what the backend calls the model that is "models/x" on the Gemini API; "" is DefaultModel. Other names with a
// slash, as "tunedModels/x" or that of a project's own model, are the same everywhere.
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

// Credentials are the headers that let a request in, and the secret that stands in them, "" if there is none.
func (c *Client) Credentials(ctx context.Context) (http.Header, Secret, error) {
	switch {
	case c.Vertex != nil:
		token, err := c.Vertex.token(ctx)
		if err != nil {
			return nil, "", err
		}
		return http.Header{"Authorization": {"Bearer " + string(token)}}, token, nil
	case c.APIKey == "":
		return http.Header{}, "", nil
	case c.hasToken():
		return http.Header{"Authorization": {"Token " + string(c.APIKey)}}, c.APIKey, nil
	default:
		return http.Header{"X-Goog-Api-Key": {string(c.APIKey)}}, c.APIKey, nil
	}
}

// Refused reports whether to retry a request that was refused with this HTTP status. On Vertex AI it discards a token that was
// answered with 401, because Google may revoke tokens before they expire; the retry fetches a new one.
func (c *Client) Refused(secret Secret, status int) (retry bool) {
	if c.Vertex == nil || status != http.StatusUnauthorized {
		return false
	}
	c.Vertex.drop(secret)
	return true
}

// Request is a call of the REST API: a method of a model, such as "generateContent", or with neither the list of
// models. The sender must report a refusal to [Client.FieldsRejected], and keep the secret out of logs and answers. An
// ephemeral token is not for REST: [ErrToken].
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
	return c.request(ctx, httpMethod, path, query, body)
}

// ChatRequest is a call of Google's chat completions in OpenAI's words (https://ai.google.dev/gemini-api/docs/openai, and for Vertex AI
// https://cloud.google.com/vertex-ai/generative-ai/docs/start/openai). The rules of Request hold for it.
func (c *Client) ChatRequest(ctx context.Context) (*http.Request, Secret, error) {
	path := "/" + stableVersion + "/openai/chat/completions"
	if c.Vertex != nil {
		path = "/" + vertexVersion + "/projects/" + c.Vertex.Project + "/locations/" + c.Vertex.location() + "/endpoints/openapi/chat/completions"
	}
	r, secret, err := c.request(ctx, http.MethodPost, path, "", nil)
	if err == nil && secret != "" {
		r.Header = http.Header{"Authorization": {"Bearer " + string(secret)}}
	}
	return r, secret, err
}

func (c *Client) request(ctx context.Context, httpMethod, path, query string, body io.Reader) (*http.Request, Secret, error) {
	if err := c.ready(); err != nil {
		return nil, "", err
	}
	if c.hasToken() {
		return nil, "", ErrToken
	}
	u, err := c.endpoint("http", "https")
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

// checkTimeout bounds Check: Google answers within a second, and an operator waits at the start.
const checkTimeout = 10 * time.Second

// Check asks whether the credentials are accepted and know the model, by one REST call, on Vertex AI with a token of
// its own: an operator learns of a mistake at the start and not from the first caller. A refusal is a
// *wire.HandshakeError. The empty model is DefaultModel. An ephemeral token is not for REST, so Check does nothing with
// it.
func (c *Client) Check(ctx context.Context, model string) error {
	if err := c.ready(); err != nil {
		return err
	}
	if c.hasToken() {
		return nil
	}
	u, err := c.endpoint("http", "https")
	if err != nil {
		return err
	}
	model = strings.TrimPrefix(cmp.Or(model, DefaultModel), "models/")
	if c.Vertex != nil {
		u.Path += "/" + vertexVersion + "/publishers/google/models/" + model
	} else {
		u.Path += "/" + stableVersion + "/models/" + model
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := c.get(ctx, u.String()); err != nil {
		return fmt.Errorf("gemini: check model %q: %w", model, err)
	}
	return nil
}

// get requests a URL of the REST API and discards the answer.
func (c *Client) get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	var secret Secret
	if req.Header, secret, err = c.Credentials(ctx); err != nil {
		return err
	}
	transport := tools.NewTransport()
	transport.DisableKeepAlives = true
	if c.NetDial != nil {
		transport.DialContext, transport.Proxy = c.NetDial, nil
	}
	client := &http.Client{Transport: transport, CheckRedirect: tools.RefuseRedirect}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode == http.StatusOK {
		return err
	}
	c.Refused(secret, resp.StatusCode)
	said := string(body)
	var answer struct{ Error struct{ Message string } }
	if json.Unmarshal(body, &answer) == nil {
		said = cmp.Or(answer.Error.Message, said)
	}
	return &wire.HandshakeError{Status: resp.StatusCode, Body: wire.OneLine(secret.Hide(said), wire.MaxReason)}
}

// maxAnswer is far above the kilobyte in which Google describes a model.
const maxAnswer = 64 << 10
