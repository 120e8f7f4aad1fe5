package gemini

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/genai"
)

// rest returns the SDK's client for REST calls with the same credentials at the same place.
func (c *Client) rest(ctx context.Context) (*genai.Client, error) {
	u, err := c.endpoint("http", "https")
	if err != nil {
		return nil, err
	}
	next := http.DefaultTransport
	if c.NetDial != nil {
		next = &http.Transport{DialContext: c.NetDial, DisableKeepAlives: true}
	}
	config := &genai.ClientConfig{
		HTTPOptions: genai.HTTPOptions{BaseURL: u.String() + "/"},
		HTTPClient: &http.Client{
			Transport: &transport{client: c, next: next},
			// A redirect would carry the key to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if c.Vertex != nil {
		if err := c.Vertex.check(); err != nil {
			return nil, err
		}
		config.Backend, config.HTTPOptions.APIVersion = genai.BackendVertexAI, vertexVersion
		config.Project, config.Location = c.Vertex.Project, c.Vertex.location()
	} else {
		// The SDK wants a key, takes one from the environment if it gets none, and prints its config into its
		// errors. So it gets a word that is no secret, and the transport does the rest.
		config.Backend, config.HTTPOptions.APIVersion, config.APIKey = genai.BackendGeminiAPI, stableVersion, "unused"
	}
	rest, err := genai.NewClient(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("gemini: rest client: %w", err)
	}
	return rest, nil
}

// transport puts the credentials into the requests of the SDK, or takes the SDK's stand-in out.
type transport struct {
	client *Client
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A refused token is forgotten and not tried again: the request may have a body
// that is gone.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Del("X-Goog-Api-Key")
	if t.client.Vertex == nil {
		if t.client.APIKey != "" {
			req.Header.Set("X-Goog-Api-Key", string(t.client.APIKey))
		}
		return t.next.RoundTrip(req)
	}
	token, err := t.client.Vertex.token(req.Context())
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.client.Vertex.drop(token)
	}
	return resp, err
}

// Check asks whether the credentials are accepted and know the model, by one REST call, on Vertex AI with a token of its
// own: an operator is told at start and not by the first caller. A refusal is a *HandshakeError. The empty model is
// DefaultModel. An ephemeral token is not for REST, so nothing is asked with it.
func (c *Client) Check(ctx context.Context, model string) error {
	if err := c.ready(); err != nil {
		return err
	}
	if c.hasToken() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if model == "" {
		model = DefaultModel
	}
	rest, err := c.rest(ctx)
	if err != nil {
		return err
	}
	_, err = rest.Models.Get(ctx, strings.TrimPrefix(model, "models/"), nil)
	if err == nil {
		return nil
	}
	if api, ok := errors.AsType[genai.APIError](err); ok {
		secret := c.APIKey
		if c.Vertex != nil {
			secret = c.Vertex.cached()
		}
		err = &HandshakeError{Status: api.Code, Body: bodyText(api.Message, secret)}
	}
	return fmt.Errorf("gemini: check model %q: %w", model, err)
}
