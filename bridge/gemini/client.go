package gemini

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/websocket"
	"google.golang.org/genai"
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

// backend tells which of the two the client speaks to.
func (c *Client) backend() backend {
	if c.Vertex != nil {
		return vertexAI
	}
	return geminiAPI
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

// Setup is what a Live connection starts with.
type Setup struct {
	// Config is what ParseConfig returned. Its zero value is the default model with default settings.
	Config Config

	// Handle is the newest handle of an earlier connection of the same session, or "" for a fresh one.
	Handle string

	// History is what a fresh session is told of the conversation so far, oldest first, where the model's profile allows
	// it. It gets no answer. Roles alternate between "user" and "model".
	History []Content

	// Upgraded, if not nil, is called once the WebSocket is open and the setup is about to be sent.
	Upgraded func()
}

// Dial opens a Live connection, sends the setup and waits until the server has accepted it; then it tells a fresh session
// its history. Cancelling ctx aborts it at any point. It fails with *HandshakeError if the upgrade was refused, and with
// *CloseError if the setup was. The connection outlives ctx.
func (c *Client) Dial(ctx context.Context, s Setup) (*Conn, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	config := s.Config
	if config.setup == nil {
		var err error
		if config, err = c.ParseConfig(nil, "config"); err != nil {
			return nil, err
		}
	}
	u, err := c.endpoint("ws", "wss")
	if err != nil {
		return nil, err
	}
	model := fullName(config.Model)
	switch {
	case c.Vertex != nil:
		model = c.Vertex.fullName(config.Model)
		u.Path += "/ws/google.cloud.aiplatform." + vertexVersion + ".LlmBidiService/BidiGenerateContent"
	case c.hasToken():
		u.Path += "/ws/google.ai.generativelanguage." + alphaVersion + ".GenerativeService.BidiGenerateContentConstrained"
	default:
		u.Path += "/ws/google.ai.generativelanguage." + config.version + ".GenerativeService.BidiGenerateContent"
	}
	ws, secret, err := c.admitted(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("gemini: dial: %w", err)
	}
	if s.Upgraded != nil {
		s.Upgraded()
	}
	history := s.History
	if s.Handle != "" || !config.Profile.Seeds {
		history = nil // the session that is resumed knows it
	}
	conn := newConn(ws, secret)
	if err := conn.setup(ctx, config.setupMessage(model, s.Handle, len(history) > 0)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("gemini: setup: %w", err)
	}
	if len(history) > 0 {
		seed := ClientMessage{ClientContent: &ClientContent{Turns: history, TurnComplete: config.seedsFirst()}}
		if err := conn.Send(ctx, seed); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// admitted connects with the credentials there are, and returns those. A token that Google refuses, which it may have
// withdrawn early, is fetched anew once.
func (c *Client) admitted(ctx context.Context, u *url.URL) (*websocket.Conn, Secret, error) {
	if c.Vertex == nil {
		header := http.Header{}
		switch {
		case c.APIKey == "":
		case c.hasToken():
			header.Set("Authorization", "Token "+string(c.APIKey))
		default:
			header.Set("X-Goog-Api-Key", string(c.APIKey))
		}
		ws, err := c.upgrade(ctx, u, header, c.APIKey)
		if refused, ok := errors.AsType[*HandshakeError](err); ok && c.APIKey == "" && refused.Cause() == Auth {
			err = fmt.Errorf("%w: %w", ErrNoKey, err)
		}
		return ws, c.APIKey, err
	}
	for again := false; ; again = true {
		token, err := c.Vertex.token(ctx)
		if err != nil {
			return nil, "", err
		}
		ws, err := c.upgrade(ctx, u, http.Header{"Authorization": {"Bearer " + string(token)}}, token)
		if refused, ok := errors.AsType[*HandshakeError](err); ok && refused.Status == http.StatusUnauthorized {
			c.Vertex.drop(token)
			if !again {
				continue
			}
		}
		return ws, token, err
	}
}

// upgrade connects and performs the WebSocket handshake. Secret is what must not stand in an error.
func (c *Client) upgrade(ctx context.Context, u *url.URL, header http.Header, secret Secret) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout,
		fmt.Errorf("no answer to the upgrade within %v: %w", handshakeTimeout, context.DeadlineExceeded))
	defer cancel()

	dialer := websocket.Dialer{
		WriteBufferSize: writeBuffer,
		NetDialContext:  c.NetDial,
	}
	if c.NetDial == nil {
		dialer.NetDialContext = (&net.Dialer{Control: tuneSocket}).DialContext
		dialer.Proxy = http.ProxyFromEnvironment
	}
	// Once connected, the dialer looks at its context's deadline alone. So it gets none, and the end of ours closes
	// the connection under it.
	dial := dialer.NetDialContext
	var stop func() bool
	dialer.NetDialContext = func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		return conn, nil
	}

	ws, resp, err := dialer.DialContext(context.WithoutCancel(ctx), u.String(), header)
	if stop != nil && !stop() && err == nil {
		_ = ws.Close() // cancelled in the last moment
		err = ended(ctx)
	}
	switch {
	case err == nil:
		return ws, nil
	case errors.Is(err, websocket.ErrBadHandshake) && resp != nil:
		body, _ := io.ReadAll(resp.Body) // the dialer has read what there is, at most 1024 bytes
		return nil, &HandshakeError{Status: resp.StatusCode, Body: bodyText(string(body), secret)}
	case ctx.Err() != nil:
		return nil, ended(ctx)
	default:
		return nil, err
	}
}

// bodyText is the text of an error's body for people: one line, short, without the secret.
func bodyText(body string, secret Secret) string { return oneLine(secret.hide(body), 300) }

// REST returns the SDK's client for the REST calls of the same credentials and place. Use its REST services only; Dial is
// the way to the Live API.
func (c *Client) REST(ctx context.Context) (*genai.Client, error) {
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
	rest, err := c.REST(ctx)
	if err != nil {
		return err
	}
	_, err = rest.Models.Get(ctx, shortName(model), nil)
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
