package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genai"

	"voxgate/bridge/gemini/wire"
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
	header, secret, err := t.client.Credentials(req.Context())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Del("X-Goog-Api-Key")
	maps.Copy(req.Header, header)
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		t.client.Refused(secret, resp.StatusCode)
	}
	return resp, err
}

// checkTimeout bounds Check: Google answers within a second, and an operator waits at the start.
const checkTimeout = 10 * time.Second

// Check asks whether the credentials are accepted and know the model, by one REST call, on Vertex AI with a token of its
// own: an operator is told at start and not by the first caller. A refusal is a *wire.HandshakeError. The empty model is
// DefaultModel. An ephemeral token is not for REST, so nothing is asked with it.
func (c *Client) Check(ctx context.Context, model string) error {
	if err := c.ready(); err != nil {
		return err
	}
	if c.hasToken() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
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
	if refused, ok := errors.AsType[genai.APIError](err); ok {
		secret := c.APIKey
		if c.Vertex != nil {
			secret = c.Vertex.cached()
		}
		err = &wire.HandshakeError{Status: refused.Code, Body: wire.OneLine(secret.Hide(refused.Message), wire.MaxReason)}
	}
	return fmt.Errorf("gemini: check model %q: %w", model, err)
}
