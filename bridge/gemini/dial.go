package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/gorilla/websocket"
)

// Setup is what a Live connection starts with. Package setup makes it; the zero value is DefaultModel as Google has set it.
type Setup struct {
	// Object is the setup as a JSON object in the words of the Gemini API, with its name for the model. Dial puts Vertex
	// AI's name in its place there, and adds what the other fields say.
	Object json.RawMessage

	// Alpha is set if Object has fields that only an experimental version of the Gemini API knows. Vertex AI has them in
	// its one version.
	Alpha bool

	// Resumable asks for handles: without it the server gives none, and the session ends with its first connection.
	Resumable bool

	// Handle is the newest handle of an earlier connection of the same session, or "" for a fresh one.
	Handle string

	// History is what a fresh session is told of the conversation so far, oldest first; one that is resumed knows it. It
	// gets no answer. Roles alternate between "user" and "model".
	History []Content

	// Announced is set if the setup must say that History comes first: so for models that take no clientContent later.
	// Others take theirs as a turn without an end, which is how LiveKit and pydantic-ai do it.
	Announced bool

	// Upgraded, if not nil, is called once the WebSocket is open and the setup is about to be sent.
	Upgraded func()
}

// message returns the first message of a connection.
func (c *Client) message(s Setup) ([]byte, error) {
	setup := make(map[string]any)
	var model string
	if s.Object != nil {
		var fields map[string]json.RawMessage
		var named struct{ Model string }
		if json.Unmarshal(s.Object, &fields) != nil || json.Unmarshal(s.Object, &named) != nil {
			return nil, errors.New("gemini: the setup is not a JSON object, or its model not a string")
		}
		for name, value := range fields {
			setup[name] = value
		}
		model = named.Model
	}
	setup["model"] = c.fullName(model)
	switch {
	case s.Handle != "":
		setup["sessionResumption"] = map[string]string{"handle": s.Handle}
	case s.Resumable:
		setup["sessionResumption"] = struct{}{}
	}
	if len(s.History) > 0 && s.Announced {
		setup["historyConfig"] = map[string]bool{"initialHistoryInClientContent": true}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // an instruction may be half made of what that would triple
	if err := enc.Encode(map[string]any{"setup": setup}); err != nil {
		return nil, fmt.Errorf("gemini: encode the setup: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Dial opens a Live connection, sends the setup and waits until the server has accepted it; then it tells a fresh session
// its history. Cancelling ctx aborts it at any point. It fails with *HandshakeError if the upgrade was refused, and with
// *CloseError if the setup was. The connection outlives ctx.
func (c *Client) Dial(ctx context.Context, s Setup) (*Conn, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	first, err := c.message(s)
	if err != nil {
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
	case s.Alpha:
		u.Path += "/ws/google.ai.generativelanguage." + alphaVersion + ".GenerativeService.BidiGenerateContent"
	default:
		u.Path += "/ws/google.ai.generativelanguage." + stableVersion + ".GenerativeService.BidiGenerateContent"
	}
	ws, secret, err := c.admitted(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("gemini: dial: %w", err)
	}
	if s.Upgraded != nil {
		s.Upgraded()
	}
	conn := newConn(ws, secret)
	if err := conn.setup(ctx, first); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("gemini: setup: %w", err)
	}
	if len(s.History) > 0 {
		seed := ClientMessage{ClientContent: &ClientContent{Turns: s.History, TurnComplete: s.Announced}}
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

// tcpDialer makes connections on which the end of the other side is noticed within ten seconds: by the acknowledgements of
// what is sent, or of probes while nothing is.
var tcpDialer = &net.Dialer{Control: tuneSocket, KeepAliveConfig: net.KeepAliveConfig{
	Enable: true, Idle: userTimeout / 2, Interval: userTimeout / 4, Count: 2,
}}

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
		dialer.NetDialContext = tcpDialer.DialContext
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
