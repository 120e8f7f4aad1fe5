package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genai"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// noKey is a placeholder for the API key, because the SDK refuses to work without a key. sdkTransport replaces it by
// the real key.
const noKey = "not-a-key"

const (
	// maxRefusal limits how much of an error response is read, in bytes.
	maxRefusal = 64 << 10

	// maxDescription limits the description of a model, in bytes. Google sends about a kilobyte.
	maxDescription = 64 << 10

	// checkTimeout limits Check. Google responds within a second, and an operator waits for Check during startup.
	checkTimeout = 10 * time.Second
)

// SDK returns Google's Go SDK, for everything except Live connections. It sends its requests through base. maxResponse
// limits a response, or an event of a stream, in bytes. With an ephemeral token, SDK returns [ErrToken].
//
// The SDK itself gets no credentials, because some of its errors would contain them. The transport adds them to each
// request. If a request is refused, the error wraps a [*wire.HandshakeError] without secrets.
func (c *Client) SDK(base http.RoundTripper, maxResponse int) (*genai.Client, error) {
	if err := c.checkSettings(); err != nil {
		return nil, err
	}
	if c.hasEphemeralToken() {
		return nil, ErrToken
	}
	u, err := c.baseURL("http", "https")
	if err != nil {
		return nil, err
	}
	config := &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: noKey,
		HTTPClient:  &http.Client{Transport: &sdkTransport{base, c, maxResponse}},
		HTTPOptions: genai.HTTPOptions{BaseURL: u.String(), APIVersion: stableVersion},
	}
	if c.Vertex != nil {
		config.Backend, config.APIKey, config.HTTPOptions.APIVersion = genai.BackendVertexAI, "", vertexVersion
		config.Project, config.Location = c.Vertex.Project, c.Vertex.location()
	}
	return genai.NewClient(context.Background(), config)
}

// sdkTransport sends the requests of the SDK, with the gateway's credentials.
type sdkTransport struct {
	base        http.RoundTripper
	client      *Client
	maxResponse int
}

// RoundTrip implements [http.RoundTripper]. It returns an error for any status other than 200: the SDK would discard
// the response header and put secrets into errors, and a redirect would send the credentials to another server.
func (t *sdkTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	header, secret, err := t.client.Credentials(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Del("X-Goog-Api-Key")
	maps.Copy(r.Header, header)
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		resp.Body = &limitedBody{ReadCloser: resp.Body, limit: t.maxResponse, isStream: r.URL.Query().Get("alt") == "sse"}
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	t.client.HandleRefusal(secret, resp.StatusCode)
	var answer struct{ Error struct{ Message string } }
	_ = json.Unmarshal(body, &answer) // if this fails, the whole body is the message
	message := cmp.Or(answer.Error.Message, string(body))
	return nil, &wire.HandshakeError{
		Status: resp.StatusCode, Body: wire.OneLine(secret.Hide(message), wire.MaxReason),
		Retry: wire.RetryAfter(resp.Header, string(body)),
	}
}

// limitedBody is a response body whose Read fails when the body, or an event in it, is too long.
type limitedBody struct {
	io.ReadCloser
	limit    int // limit of the response or event, in bytes
	isStream bool
	size     int // bytes read so far of the response, or of the event
}

// Read implements [io.Reader]. It overlooks the end of an event if two reads split it, and then counts the next event
// as a part of this one. This is harmless, because the limit is many times the length of an event.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += n
	if b.isStream {
		if i := max(bytes.LastIndex(p[:n], []byte("\n\n")), bytes.LastIndex(p[:n], []byte("\r\n\r\n"))); i >= 0 {
			b.size = n - i
		}
	}
	if b.size > b.limit {
		return 0, fmt.Errorf("the answer has more than %d bytes", b.limit)
	}
	return n, err
}

// Check tests with one REST call whether the credentials are accepted and the model exists. An empty model means
// DefaultModel. If the call is refused, the error is a *wire.HandshakeError. Ephemeral tokens are not checked, because
// REST rejects them.
func (c *Client) Check(ctx context.Context, model string) error {
	transport := tools.NewTransport()
	transport.DisableKeepAlives = true
	if c.NetDial != nil {
		transport.DialContext, transport.Proxy = c.NetDial, nil
	}
	sdk, err := c.SDK(transport, maxDescription)
	switch {
	case errors.Is(err, ErrToken):
		return nil
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	model = strings.TrimPrefix(cmp.Or(model, DefaultModel), "models/")
	_, err = sdk.Models.Get(ctx, model, nil)
	if refused, ok := errors.AsType[*wire.HandshakeError](err); ok {
		err = refused // without the text that the SDK adds
	}
	if err != nil {
		return fmt.Errorf("gemini: check model %q: %w", model, err)
	}
	return nil
}
