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
	// APIKey is sent in the header x-goog-api-key, or not at all when it is empty.
	APIKey Secret

	// BaseURL is "" for Google's own server, else http, https, ws or wss with an optional path prefix. Live
	// connections use ws for http and wss for https, REST calls the reverse.
	BaseURL string

	// NetDial opens the TCP connections. Nil means a net.Dialer, and the proxy that the environment names.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// endpoint returns the base URL without a trailing slash, its scheme being secure or plain.
func (c *Client) endpoint(plain, secure string) (*url.URL, error) {
	base := c.BaseURL
	if base == "" {
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

// Setup is what a Live connection starts with.
type Setup struct {
	// Config is what ParseConfig returned. Its zero value is the default model with default settings.
	Config Config

	// Handle is the newest handle of an earlier connection of the same session, or "" for a fresh one.
	Handle string
}

// Dial opens a Live connection, sends the setup and waits until the server has accepted it. Cancelling ctx aborts it
// at any point. It fails with *HandshakeError if the upgrade was refused, and with *CloseError if the setup was.
// The connection outlives ctx.
func (c *Client) Dial(ctx context.Context, s Setup) (*Conn, error) {
	config, err := s.Config.orDefault()
	if err != nil {
		return nil, err
	}
	u, err := c.endpoint("ws", "wss")
	if err != nil {
		return nil, err
	}
	u.Path += "/ws/google.ai.generativelanguage." + config.version + ".GenerativeService.BidiGenerateContent"
	ws, err := c.upgrade(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("gemini: dial: %w", err)
	}
	conn := newConn(ws, c.APIKey)
	if err := conn.setup(ctx, config.setupMessage(s.Handle)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("gemini: setup: %w", err)
	}
	return conn, nil
}

// upgrade connects and performs the WebSocket handshake.
func (c *Client) upgrade(ctx context.Context, u *url.URL) (*websocket.Conn, error) {
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

	header := http.Header{}
	if c.APIKey != "" {
		header.Set("X-Goog-Api-Key", string(c.APIKey))
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
		return nil, &HandshakeError{Status: resp.StatusCode, Body: c.bodyText(string(body))}
	case ctx.Err() != nil:
		return nil, ended(ctx)
	default:
		return nil, err
	}
}

// bodyText is the text of an error's body for people: one line, short, without the key.
func (c *Client) bodyText(body string) string { return oneLine(c.APIKey.hide(body), 300) }

// REST returns the SDK's client for the REST calls of the same key and place. Use its REST services only; Dial is
// the way to the Live API.
func (c *Client) REST(ctx context.Context) (*genai.Client, error) {
	u, err := c.endpoint("http", "https")
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport
	if c.NetDial != nil {
		transport = &http.Transport{DialContext: c.NetDial, DisableKeepAlives: true}
	}
	rest, err := genai.NewClient(ctx, &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI,
		// The SDK wants a key, takes one from the environment if it gets none, and prints its config into its
		// errors. So it gets a word that is no secret, and keyTransport does the rest.
		APIKey:      "unused",
		HTTPOptions: genai.HTTPOptions{BaseURL: u.String() + "/", APIVersion: stableVersion},
		HTTPClient: &http.Client{
			Transport: &keyTransport{key: c.APIKey, next: transport},
			// A redirect would carry the key to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("gemini: rest client: %w", err)
	}
	return rest, nil
}

// keyTransport puts the key into the requests of the SDK, or takes the SDK's stand-in out.
type keyTransport struct {
	key  Secret
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *keyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Del("X-Goog-Api-Key")
	if t.key != "" {
		req.Header.Set("X-Goog-Api-Key", string(t.key))
	}
	return t.next.RoundTrip(req)
}

// Check asks whether the key is accepted and knows the model, by one REST call: an operator is told at start and not
// by the first caller. A refusal is a *HandshakeError. The empty model is DefaultModel.
func (c *Client) Check(ctx context.Context, model string) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if model == "" {
		model = DefaultModel
	}
	rest, err := c.REST(ctx)
	if err != nil {
		return err
	}
	_, err = rest.Models.Get(ctx, strings.TrimPrefix(model, "models/"), nil)
	if err == nil {
		return nil
	}
	if api, ok := errors.AsType[genai.APIError](err); ok {
		err = &HandshakeError{Status: api.Code, Body: c.bodyText(api.Message)}
	}
	return fmt.Errorf("gemini: check model %q: %w", model, err)
}
