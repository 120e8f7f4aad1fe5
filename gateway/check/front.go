package check

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"voxgate/client"
)

func (c *checkRun) tlsConfig() *tls.Config { return &tls.Config{RootCAs: c.Roots} }

// checkCertificate checks the TLS handshake and the certificate.
func (c *checkRun) checkCertificate(ctx context.Context, address string) (ok bool) {
	config := c.tlsConfig()
	config.ServerName, config.NextProtos = c.base.Hostname(), []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return c.addFailed("TLS", err.Error(), cmp.Or(suggestTLSRemedy(err), "See docs/network.md#tls."))
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	leaf := state.PeerCertificates[0]
	remaining := time.Until(leaf.NotAfter)
	if state.NegotiatedProtocol != "" && state.NegotiatedProtocol != "http/1.1" {
		c.addFailed("ALPN", "the server chose "+state.NegotiatedProtocol, "WebSockets need HTTP/1.1 here: let the proxy offer it beside h2.")
	}
	if remaining < expiryWarning {
		return c.addFailed("TLS", fmt.Sprintf("the certificate ends in %.0f days", remaining.Hours()/24),
			"Is it renewed? docs/network.md#tls says how.") || true
	}
	return c.addPassed("TLS", "%s, the certificate is good for %.0f days", tls.VersionName(state.Version), remaining.Hours()/24)
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

// openSession opens a conversation as a client does, and reports the result of this check. It returns nil if the
// conversation cannot be opened.
func (c *checkRun) openSession(ctx context.Context) *conversation {
	began := time.Now()
	s, err := c.dial(ctx)
	if err != nil {
		if refused, ok := errors.AsType[*client.UpgradeError](err); ok {
			c.addFailed("WebSocket", refused.Error(), suggestUpgradeRemedy(err))
		} else {
			c.addFailed("conversation", err.Error(), suggestSessionRemedy(err))
		}
		return nil
	}
	opened := time.Since(began)
	began = time.Now()
	err = s.Send(ctx, "PING", nil)
	if err == nil {
		err = s.awaitEvent(stepTimeout, func(e client.Event) bool { raw, ok := e.(client.Raw); return ok && raw.Type == "PONG" })
	}
	if err != nil {
		s.close()
		c.addFailed("WebSocket", "a PING has no answer: "+err.Error(),
			"A proxy holds messages back: proxy_buffering off; and proxy_http_version 1.1;")
		return nil
	}
	c.addPassed("WebSocket", "a conversation opens within %v, a message there and back takes %v; %s answers", opened.Round(time.Millisecond),
		time.Since(began).Round(10*time.Microsecond), s.Setup().Backend)
	return s
}

// conversation is a conversation with the gateway. Its events are read all the time, because the client answers pings only while
// they are read.
type conversation struct {
	*client.Conversation
	events  chan client.Event // closed at its end
	servers []client.ICEServer
	cut     func() // closes the newest TCP connection without a close frame
}

// dial opens a conversation. With a server key it mints a token first.
func (c *checkRun) dial(ctx context.Context) (*conversation, error) {
	token := c.Token
	if c.Key != "" {
		var err error
		if token, err = c.mintToken(ctx); err != nil {
			return nil, err
		}
	}
	u := *c.base
	u.Scheme, u.Path = strings.Replace(u.Scheme, "http", "ws", 1), u.Path+"/ws"
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var conn atomic.Pointer[net.Conn]
	opened, err := client.Dial(ctx, client.Options{
		URL: u.String(), TLS: c.tlsConfig(),
		Token: func(context.Context) (string, error) { return token, nil },
		NetDial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				conn.Store(&c)
			}
			return c, err
		},
	})
	if err != nil {
		return nil, err
	}
	s := &conversation{Conversation: opened, events: make(chan client.Event, 1024)}
	s.cut = func() { _ = (*conn.Load()).Close() }
	if first, ok := (<-opened.Events()).(client.Connected); ok {
		s.servers = first.Servers
	}
	go func() {
		defer close(s.events)
		for e := range opened.Events() {
			select {
			case s.events <- e:
			default: // dropped, because the check does not read them fast enough
			}
		}
	}()
	return s, nil
}

func (c *conversation) close() { _ = c.Close() }

// awaitEvent reads events until isDone returns true, or until the timeout. A lost connection is an error, unless isDone
// returns true for that event.
func (c *conversation) awaitEvent(timeout time.Duration, isDone func(client.Event) bool) error {
	expired := time.After(timeout)
	for {
		select {
		case e, ok := <-c.events:
			loss, isLost := e.(client.ConnectionLost)
			switch {
			case !ok:
				return fmt.Errorf("the conversation has ended: %w", cmp.Or(c.Err(), client.ErrEnded))
			case isDone(e):
				return nil
			case isLost:
				return loss.Err
			}
		case <-expired:
			return context.DeadlineExceeded
		}
	}
}

// keyError means that the server key could not mint a token.
type keyError struct{ reason string }

func (e *keyError) Error() string { return "the server key mints no token: " + e.reason }

func isKeyError(err error) bool {
	_, ok := errors.AsType[*keyError](err)
	return ok
}

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

func suggestUpgradeRemedy(err error) string {
	refused, ok := errors.AsType[*client.UpgradeError](err)
	switch {
	case !ok, refused.Status == 0:
		return "A proxy ends the connection: it must speak HTTP/1.1 to the gateway and pass WebSockets on."
	case refused.Status == http.StatusForbidden:
		return "Add the page's origin to VOXGATE_ORIGINS."
	case refused.Status == http.StatusTooManyRequests:
		return "A limit is reached (docs/access.md#limits). Behind a proxy, VOXGATE_TRUSTED_PROXIES must name it, or all people are one address."
	}
	return "A proxy does not pass WebSockets on. nginx: proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; " +
		"proxy_http_version 1.1; Apache: ProxyPass with upgrade=websocket."
}

func suggestSessionRemedy(err error) string {
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case isKeyError(err):
		return "It must stand in the file that VOXGATE_KEYS names, and its \"may\" must have \"tokens\" (docs/access.md)."
	case !ok && isTimeout(err):
		return "Nothing came back: a proxy holds messages back (proxy_buffering off;), or Google does not answer (see the gateway's log)."
	case !ok:
		return "The connection ended. The gateway's log says why, if it was the gateway."
	case strings.Contains(refused.Code, "token") || refused.Code == "unauthorized":
		return "Set VOXGATE_CHECK_TOKEN to a token of your backend, or VOXGATE_CHECK_KEY to a server key that may mint tokens."
	}
	return "PROTOCOL.md#errors explains the code; see also the gateway's log."
}

// checkOrigin requests a WebSocket with the origin of one of the operator's pages. It only tests whether the gateway
// accepts the origin, and opens no conversation.
func (c *checkRun) checkOrigin(ctx context.Context, origin string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.String()+"/ws", nil)
	if err != nil {
		c.addFailed("origin "+origin, err.Error(), "")
		return
	}
	for name, value := range map[string]string{
		"Origin": origin, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": base64.StdEncoding.EncodeToString([]byte(rand.Text()[:16])),
	} {
		req.Header.Set(name, value)
	}
	res, err := c.client.Do(req)
	if err == nil {
		defer res.Body.Close()
	}
	if err == nil && res.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		err = &client.UpgradeError{Status: res.StatusCode, Body: firstLine(body)}
	}
	if err != nil {
		c.addFailed("origin "+origin, err.Error(), suggestUpgradeRemedy(err))
		return
	}
	c.addPassed("origin "+origin, "may connect")
}

// checkIdleSocket keeps a second socket open for Stay, to detect proxies that close it. The gateway sends a ping over
// it every 5 s.
func (c *checkRun) checkIdleSocket(ctx context.Context) {
	s, err := c.dial(ctx)
	if err != nil {
		mend := suggestSessionRemedy(err)
		if c.Token != "" {
			mend = "A token may be for one conversation, and this is the second: use VOXGATE_CHECK_KEY, or --stay 0."
		}
		c.addFailed("long connections", err.Error(), mend)
		return
	}
	defer s.close()
	began := time.Now()
	err = s.awaitEvent(c.Stay, func(client.Event) bool { return false })
	if isTimeout(err) {
		c.addPassed("long connections", "one lasts %v", c.Stay)
		return
	}
	c.addFailed("long connections", fmt.Sprintf("cut after %v: %v", time.Since(began).Round(time.Second), err),
		"A proxy cuts connections: proxy_read_timeout and proxy_send_timeout 1h; "+
			"(HAProxy: timeout tunnel 1h; a load balancer: its idle time-out).")
}
