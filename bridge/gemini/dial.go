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
	"sync/atomic"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
)

// Setup configures a Live connection. Package liveconfig builds it. The zero value is a setup for api.DefaultModel with
// Google's defaults.
type Setup struct {
	// Object is the setup as a JSON object in the form of the Gemini API. On Vertex AI, Dial replaces the model's name.
	// Dial also adds the fields below.
	Object json.RawMessage

	// Alpha is set if Object has experimental fields of the Gemini API (v1alpha). Vertex AI has only one version, which
	// supports them.
	Alpha bool

	// Resumable requests resumption handles. Without handles, the session ends with its first connection.
	Resumable bool

	// Handle is the newest handle of the session from an earlier connection, or "" for a new session.
	Handle string

	// History is the conversation so far, oldest first, for a new session. The model does not respond to it. Roles
	// alternate between "user" and "model".
	History []wire.Content

	// AnnounceHistory is set if the model accepts History only when the setup announces it. To other models, History is
	// sent as an incomplete turn, as LiveKit and pydantic-ai do.
	AnnounceHistory bool

	// IsTextModel is set if the model is not a Live model. [Dial] does not support such a model.
	IsTextModel bool
	// OnLateTokens is called with those tokens of a text model that no message has reported. It is called before Close
	// returns.
	OnLateTokens func(wire.Tokens)

	// OnUpgrade, if not nil, is called when the WebSocket is open, before the setup is sent.
	OnUpgrade func()

	// Trace, if not nil, is called with each message, from the goroutine that sends or receives it. It must not keep
	// the frame.
	Trace func(sent bool, frame []byte)
}

// encode returns the setup message, which is the first message of a connection.
func (s Setup) encode(client *api.Client) ([]byte, error) {
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
	setup["model"] = client.FullName(model)
	if s.Handle != "" || s.Resumable {
		resumption := make(map[string]any)
		if s.Handle != "" {
			resumption["handle"] = s.Handle
		}
		if client.Vertex != nil { // only on Vertex AI, because the Gemini API rejects the field
			resumption["transparent"] = true
		}
		setup["sessionResumption"] = resumption
	}
	if len(s.History) > 0 && s.AnnounceHistory {
		setup["historyConfig"] = map[string]bool{"initialHistoryInClientContent": true}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // escaping would triple the many HTML characters of some instructions
	if err := enc.Encode(map[string]any{"setup": setup}); err != nil {
		return nil, fmt.Errorf("gemini: encode the setup: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Dial opens a Live connection, and blocks until the server has accepted the setup. It then sends the history. When ctx
// is done, dialling is aborted, but an open connection is not closed.
//
// The error is a *wire.HandshakeError if the upgrade was refused, and a *wire.CloseError if the setup was refused.
func Dial(ctx context.Context, client *api.Client, s Setup) (*Conn, error) {
	u, err := client.LiveURL(s.Alpha)
	if err != nil {
		return nil, err
	}
	first, err := s.encode(client)
	if err != nil {
		return nil, err
	}
	ws, secret, err := connect(ctx, client, u)
	if err != nil {
		return nil, fmt.Errorf("gemini: dial: %w", err)
	}
	if s.OnUpgrade != nil {
		s.OnUpgrade()
	}
	conn := newConn(ws, secret)
	conn.trace = s.Trace
	if err := conn.performSetup(ctx, first); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("gemini: setup: %w", err)
	}
	if len(s.History) > 0 {
		seed := wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: s.History, TurnComplete: s.AnnounceHistory}}
		if err := conn.Send(ctx, seed); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// connect opens the WebSocket with the current credentials, and returns their secret. If they are refused and new credentials
// can be fetched, it retries once.
func connect(ctx context.Context, client *api.Client, u *url.URL) (*websocket.Conn, api.Secret, error) {
	for again := false; ; again = true {
		header, secret, err := client.Credentials(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = contextError(ctx)
			}
			return nil, "", err
		}
		ws, err := upgrade(ctx, client, u, header, secret)
		if refusal, ok := errors.AsType[*wire.HandshakeError](err); ok {
			if client.HandleRefusal(secret, refusal.Status) && !again {
				continue
			}
			if secret == "" && refusal.Cause() == wire.Auth {
				err = fmt.Errorf("%w: %w", api.ErrNoKey, err)
			}
		}
		return ws, secret, err
	}
}

// tcpDialer makes connections that detect the loss of the peer within ten seconds: they fail if the peer does not
// acknowledge data or keep-alive probes.
var tcpDialer = &net.Dialer{Control: tuneSocket, KeepAliveConfig: net.KeepAliveConfig{
	Enable: true, Idle: userTimeout / 2, Interval: userTimeout / 4, Count: 2,
}}

// maxHandshake limits the bytes that the server may send before the WebSocket is open: its certificates and the
// response header. The limit is needed because the dialer keeps all of them in memory.
const maxHandshake = 256 << 10

// handshakeConn is a connection that fails if the server sends more than maxHandshake bytes before isUpgraded is set.
type handshakeConn struct {
	net.Conn
	isUpgraded atomic.Bool
	size       int // number of bytes read before isUpgraded is set; used only by the dialer
}

// Read implements [net.Conn].
func (c *handshakeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isUpgraded.Load() {
		return n, err
	}
	if c.size += n; c.size > maxHandshake {
		return 0, fmt.Errorf("the answer to the upgrade has more than %d bytes", maxHandshake)
	}
	return n, err
}

// upgrade connects and performs the WebSocket handshake. It removes the secret from errors.
func upgrade(ctx context.Context, client *api.Client, u *url.URL, header http.Header, secret api.Secret) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout,
		fmt.Errorf("no answer to the upgrade within %v: %w", handshakeTimeout, context.DeadlineExceeded))
	defer cancel()

	dialer := websocket.Dialer{
		WriteBufferSize: writeBuffer,
		NetDialContext:  client.NetDial,
	}
	if client.NetDial == nil {
		dialer.NetDialContext = tcpDialer.DialContext
		dialer.Proxy = http.ProxyFromEnvironment
	}
	// The dialer ignores ctx as soon as the TCP connection is open. So this function closes the connection when ctx is
	// done.
	dial := dialer.NetDialContext
	var stop func() bool
	var bounded *handshakeConn
	dialer.NetDialContext = func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		bounded = &handshakeConn{Conn: conn}
		return bounded, nil
	}

	ws, resp, err := dialer.DialContext(context.WithoutCancel(ctx), u.String(), header)
	if stop != nil && !stop() && err == nil {
		_ = ws.Close() // ctx was cancelled at the last moment
		err = contextError(ctx)
	}
	switch {
	case err == nil:
		bounded.isUpgraded.Store(true)
		return ws, nil
	case errors.Is(err, websocket.ErrBadHandshake) && resp != nil:
		body, _ := io.ReadAll(resp.Body) // the dialer has read at most 1024 bytes
		return nil, &wire.HandshakeError{
			Status: resp.StatusCode, Body: wire.OneLine(secret.Hide(string(body)), wire.MaxReason),
			Retry: wire.RetryAfter(resp.Header, string(body)),
		}
	case ctx.Err() != nil:
		return nil, contextError(ctx)
	default:
		return nil, err
	}
}
