package gemini

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Client knows where the Gemini API is and how to be let in. The zero value is Google's server without a key.
// Its methods may be called by any number of goroutines at once; its fields may not change meanwhile.
type Client struct {
	// APIKey is sent in the header x-goog-api-key, or not at all when it is empty. An ephemeral token, which begins with
	// "auth_tokens/", goes the way of tokens; it opens Live connections only. On Vertex AI it is not used.
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

// ready returns an error if Google would refuse us for what is not set.
func (c *Client) ready() error {
	switch {
	case c.Vertex != nil:
		return c.Vertex.check()
	case c.APIKey == "" && c.BaseURL == "":
		return fmt.Errorf("gemini: %w", ErrNoKey)
	}
	return nil
}

// fullName is what the backend calls the model that is "models/x" on the Gemini API; "" is DefaultModel. Other names with a
// slash, as "tunedModels/x" or that of a project's own model, are the same everywhere.
func (c *Client) fullName(model string) string {
	if model == "" {
		model = "models/" + DefaultModel
	}
	short, googles := strings.CutPrefix(model, "models/")
	if c.Vertex == nil || !googles {
		return model
	}
	return "projects/" + c.Vertex.Project + "/locations/" + c.Vertex.location() + "/publishers/google/models/" + short
}
