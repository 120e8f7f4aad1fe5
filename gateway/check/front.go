package check

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

func (c *checkRun) tlsConfig() *tls.Config { return &tls.Config{RootCAs: c.Roots} }

// checkCertificate checks the TLS handshake and the certificate.
func (c *checkRun) checkCertificate(ctx context.Context, address string) bool {
	config := c.tlsConfig()
	config.ServerName, config.NextProtos = c.base.Hostname(), []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return c.fail("TLS", err.Error(), cmp.Or(suggestTLSRemedy(err), "See docs/network.md#tls."))
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	leaf := state.PeerCertificates[0]
	remaining := time.Until(leaf.NotAfter)
	if state.NegotiatedProtocol != "" && state.NegotiatedProtocol != "http/1.1" {
		c.fail("ALPN", "the server chose "+state.NegotiatedProtocol, "WebSockets need HTTP/1.1 here: let the proxy offer it beside h2.")
	}
	if remaining < expiryWarning {
		return c.fail("TLS", fmt.Sprintf("the certificate ends in %.0f days", remaining.Hours()/24),
			"Is it renewed? docs/network.md#tls says how.") || true
	}
	return c.pass("TLS", "%s, the certificate is good for %.0f days", tls.VersionName(state.Version), remaining.Hours()/24)
}

// suggestTLSRemedy returns the fix for an error of a certificate, or "" for other errors.
func suggestTLSRemedy(err error) string {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, isHost := errors.AsType[x509.HostnameError](err)
	_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, isPlain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case isInvalid && invalid.Reason == x509.Expired:
		return "Renew the certificate. The gateway reads its files again by itself once they have changed."
	case isHost:
		return "Get a certificate for this name, or use the name that it is for."
	case isUnknown:
		return "Serve the whole chain (fullchain.pem and not cert.pem), from an authority that browsers know."
	case isPlain:
		return "The port speaks no TLS. Set VOXGATE_TLS_CERT and VOXGATE_TLS_KEY, or use http:// where a proxy ends TLS elsewhere."
	}
	return ""
}

// openSession opens a conversation as a client does, or returns nil.
func (c *checkRun) openSession(ctx context.Context) *socket {
	began := time.Now()
	s, err := c.dialWebSocket(ctx, "")
	if err != nil {
		c.fail("WebSocket", err.Error(), suggestUpgradeRemedy(err))
		return nil
	}
	upgraded := time.Since(began)
	if err := c.beginSession(ctx, s, ""); err != nil {
		s.close()
		c.fail("conversation", err.Error(), suggestSessionRemedy(err))
		return nil
	}
	began = time.Now()
	if err := s.request("PING", "PONG", stepTimeout); err != nil {
		s.close()
		c.fail("WebSocket", "a PING has no answer: "+err.Error(),
			"A proxy holds messages back: proxy_buffering off; and proxy_http_version 1.1;")
		return nil
	}
	c.pass("WebSocket", "open after %v, a message there and back takes %v; %s answers", upgraded.Round(time.Millisecond),
		time.Since(began).Round(10*time.Microsecond), s.backend)
	return s
}

// beginSession opens or resumes a conversation on a socket. With a server key it mints a token first.
func (c *checkRun) beginSession(ctx context.Context, s *socket, resume string) (err error) {
	token := c.Token
	if c.Key != "" {
		if token, err = c.mintToken(ctx); err != nil {
			return err
		}
	}
	return s.beginSession(token, resume)
}

// keyError means that the server key could not mint a token.
type keyError struct{ reason string }

func (e *keyError) Error() string { return "the server key mints no token: " + e.reason }

// mintToken mints a token with the server key.
func (c *checkRun) mintToken(ctx context.Context) (token string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.String()+"/v1/tokens",
		strings.NewReader(`{"identity":"gateway check"}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	res, err := c.client.Do(req)
	if err != nil {
		return "", &keyError{err.Error()}
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var minted struct{ Token string }
	if json.Unmarshal(body, &minted) != nil || minted.Token == "" {
		return "", &keyError{res.Status + ": " + firstLine(body)}
	}
	return minted.Token, nil
}

// upgradeError reports that the server sent an HTTP response instead of upgrading to a WebSocket.
type upgradeError struct {
	status int
	body   string
}

func (e *upgradeError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.status, http.StatusText(e.status), e.body)
}

func suggestUpgradeRemedy(err error) string {
	refused, ok := errors.AsType[*upgradeError](err)
	switch {
	case !ok:
		return "A proxy ends the connection: it must speak HTTP/1.1 to the gateway and pass WebSockets on."
	case refused.status == http.StatusForbidden:
		return "Add the page's origin to VOXGATE_ORIGINS."
	case refused.status == http.StatusTooManyRequests:
		return "A limit is reached (docs/access.md#limits). Behind a proxy, VOXGATE_TRUSTED_PROXIES must name it, or all people are one address."
	}
	return "A proxy does not pass WebSockets on. nginx: proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; " +
		"proxy_http_version 1.1; Apache: ProxyPass with upgrade=websocket."
}

// setupError means that the gateway refused the conversation.
type setupError struct{ code, message string }

func (e *setupError) Error() string { return e.message + " (" + e.code + ")" }

func suggestSessionRemedy(err error) string {
	refused, ok := errors.AsType[*setupError](err)
	_, unminted := errors.AsType[*keyError](err)
	switch {
	case unminted:
		return "It must stand in the file that VOXGATE_KEYS names, and its \"may\" must have \"tokens\" (docs/access.md)."
	case !ok && isTimeout(err):
		return "Nothing came back: a proxy holds messages back (proxy_buffering off;), or Google does not answer (see the gateway's log)."
	case !ok:
		return "The connection ended. The gateway's log says why, if it was the gateway."
	case strings.Contains(refused.code, "token") || refused.code == "unauthorized":
		return "Set VOXGATE_CHECK_TOKEN to a token of your backend, or VOXGATE_CHECK_KEY to a server key that may mint tokens."
	}
	return "PROTOCOL.md#errors explains the code; see also the gateway's log."
}

// checkOrigin connects with the origin of one of the operator's pages.
func (c *checkRun) checkOrigin(ctx context.Context, origin string) {
	s, err := c.dialWebSocket(ctx, origin)
	if err != nil {
		c.fail("origin "+origin, err.Error(), suggestUpgradeRemedy(err))
		return
	}
	s.close()
	c.pass("origin "+origin, "may connect")
}

// checkIdleSocket keeps a second socket open for Stay, to detect proxies that close it. The gateway pings on it every 5
// s.
func (c *checkRun) checkIdleSocket(ctx context.Context) {
	s, err := c.dialWebSocket(ctx, "")
	if err != nil {
		c.fail("long connections", err.Error(), suggestUpgradeRemedy(err))
		return
	}
	defer s.close()
	if err := c.beginSession(ctx, s, ""); err != nil {
		mend := suggestSessionRemedy(err)
		if c.Token != "" {
			mend = "A token may be for one conversation, and this is the second: use VOXGATE_CHECK_KEY, or --stay 0."
		}
		c.fail("long connections", err.Error(), mend)
		return
	}
	began := time.Now()
	err = s.waitFor(c.Stay, func(message) bool { return false })
	if isTimeout(err) {
		c.pass("long connections", "one lasts %v", c.Stay)
		return
	}
	c.fail("long connections", fmt.Sprintf("cut after %v: %v", time.Since(began).Round(time.Second), err),
		"A proxy cuts connections: proxy_read_timeout and proxy_send_timeout 1h; "+
			"(HAProxy: timeout tunnel 1h; a load balancer: its idle time-out).")
}

// message is a message of the client protocol.
type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// socket is a WebSocket of a client.
type socket struct {
	conn    *websocket.Conn
	token   string // with which its conversation was opened
	backend string
	ice     []iceServer
	resume  string
	resumed bool
}

// iceServer is a STUN or TURN server that the gateway announces to clients.
type iceServer struct {
	URLs                 []string
	Username, Credential string
}

// dialWebSocket opens the WebSocket.
func (c *checkRun) dialWebSocket(ctx context.Context, origin string) (*socket, error) {
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	u := *c.base
	u.Scheme, u.Path = strings.Replace(u.Scheme, "http", "ws", 1), u.Path+"/ws"
	dialer := websocket.Dialer{TLSClientConfig: c.tlsConfig(), HandshakeTimeout: stepTimeout, Proxy: http.ProxyFromEnvironment}
	conn, res, err := dialer.DialContext(ctx, u.String(), header)
	if err != nil {
		if res != nil {
			body, _ := io.ReadAll(res.Body) // the dialer has read at most 1 KiB of it
			return nil, &upgradeError{res.StatusCode, firstLine(body)}
		}
		return nil, err
	}
	return &socket{conn: conn}, nil
}

func (s *socket) close() {
	goodbye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = s.conn.WriteControl(websocket.CloseMessage, goodbye, time.Now().Add(time.Second))
	_ = s.conn.Close()
}

func (s *socket) send(kind string, payload any) error {
	encoded, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(stepTimeout))
	return s.conn.WriteJSON(message{kind, encoded})
}

// waitFor reads messages until done returns true. After a timeout, which is a net.Error, the socket cannot be used any more.
func (s *socket) waitFor(most time.Duration, done func(message) bool) error {
	_ = s.conn.SetReadDeadline(time.Now().Add(most))
	for {
		_, data, err := s.conn.ReadMessage()
		if err != nil {
			return err
		}
		var m message
		if json.Unmarshal(bytes.TrimSpace(data), &m) == nil && done(m) {
			return nil
		}
	}
}

func (s *socket) request(question, answer string, most time.Duration) error {
	if err := s.send(question, nil); err != nil {
		return err
	}
	return s.waitFor(most, func(m message) bool { return m.Type == answer })
}

// beginSession opens a conversation, or resumes one.
func (s *socket) beginSession(token, resume string) error {
	s.token = token
	hello := map[string]any{"initialConfig": map[string]any{}, "resumable": true}
	if token != "" {
		hello["token"] = token
	}
	if resume != "" {
		hello["resumeToken"] = resume
	}
	if err := s.send("CONNECT_GEMINI", hello); err != nil {
		return err
	}
	var refused error
	err := s.waitFor(stepTimeout, func(m message) bool {
		var p struct {
			Success, Resumed     bool
			ResumeToken, Backend string
			ICEServers           []iceServer
			Reason, Message      string
			Details              struct{ Code string }
			Error                struct {
				Message string
				Details struct{ Code string }
			}
		}
		_ = json.Unmarshal(m.Payload, &p)
		switch m.Type {
		case "GEMINI_CONNECTED":
			s.ice = p.ICEServers
		case "GEMINI_ERROR":
			refused = &setupError{p.Details.Code, p.Message}
		case "GEMINI_DISCONNECTED":
			if refused == nil {
				refused = &setupError{"ended", p.Reason}
			}
			return true
		case "SETUP_COMPLETE":
			if refused = nil; !p.Success {
				refused = &setupError{p.Error.Details.Code, p.Error.Message}
			}
			s.resume, s.resumed, s.backend = p.ResumeToken, p.Resumed, p.Backend
			return true
		}
		return false
	})
	if refused != nil {
		return refused
	}
	return err
}
