// Package check checks a gateway from the network of its users: names, certificates, proxies, ports, TURN relays,
// and a conversation that is disconnected and resumed. For each failed check it names the setting, or the line of a
// proxy's configuration, that fixes it.
package check

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Result is the result of one check.
type Result struct {
	Check  string `json:"check"`
	Passed bool   `json:"well"`
	Found  string `json:"found"`
	Remedy string `json:"mend,omitempty"` // how to fix it, if the check failed
}

// Options select the gateway and the checks.
type Options struct {
	// URL is the address of the gateway: https://voice.example.com, or the wss: URL of its WebSocket.
	URL string

	// Token is the access token, if the gateway requires one.
	Token string
	// Key is a server key, with which the checks mint a token for each conversation.
	Key string

	// Origins are the origins of the operator's pages. The gateway must accept each of them.
	Origins []string

	// Private is the URL of the private listener. If empty, it is not checked.
	Private string

	// SIP lists the SIP URIs at which the gateway receives telephone calls.
	SIP []string

	// Stay is the time for which an idle socket is kept open, to detect proxies that close it. 0 skips the check.
	Stay time.Duration

	// Talk is the time for which the quality of the voice over WebRTC is measured.
	Talk time.Duration

	// From reports whether WebRTC may use an address of this machine. Nil allows all.
	From func(net.IP) bool

	// Roots holds the trusted certificate authorities. Nil trusts the authorities of this machine.
	Roots *x509.CertPool

	// Done, if not nil, is called with each result in turn, never concurrently.
	Done func(Result)
}

// checkRun holds the state of one run of all checks.
type checkRun struct {
	Options

	base      *url.URL // root of the gateway, over http or https: Options.URL without /ws
	addresses []string // IP addresses of the host in base
	client    *http.Client

	mu    sync.Mutex // guards lines, and is held during calls of Done, so that these do not overlap
	lines []Result
}

const (
	// stepTimeout bounds each network operation.
	stepTimeout = 10 * time.Second

	// expiryWarning is the minimum time until a certificate expires; with less, its check fails. Let's Encrypt's
	// certificates are usually renewed 30 days before they expire.
	expiryWarning = 14 * 24 * time.Hour

	// maxSkew is the greatest accepted difference between the clocks. Tokens and TURN credentials carry times, so they fail if clocks differ
	// more.
	maxSkew = 30 * time.Second
)

// CheckGateway runs all checks and returns their results in order. It blocks for about 30 s plus o.Stay. It returns an
// error only if o.URL is invalid.
func CheckGateway(ctx context.Context, o Options) ([]Result, error) {
	base, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	c := &checkRun{Options: o, base: base}
	if !c.checkDNS(ctx) || !c.checkTCP(ctx) || !c.checkHTTP(ctx) {
		return c.lines, nil
	}
	c.checkPrivateListener(ctx)
	for _, uri := range c.SIP {
		c.checkSIP(ctx, uri)
	}
	s := c.openSession(ctx)
	if s == nil {
		return c.lines, nil
	}
	defer s.close()
	for _, origin := range c.Origins {
		c.checkOrigin(ctx, origin)
	}
	var beside sync.WaitGroup
	if c.Stay > 0 {
		beside.Go(func() { c.checkIdleSocket(ctx) })
	}
	c.checkWebRTC(ctx, s)
	beside.Wait()
	return c.lines, nil
}

// parseURL parses the gateway's address: a host, or a URL with http, https, ws or wss.
func parseURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is not the URL of a gateway", text)
	}
	switch u.Scheme {
	case "ws", "http":
		u.Scheme = "http"
	case "wss", "https":
		u.Scheme = "https"
	default:
		return nil, fmt.Errorf("%q: the scheme must be https, wss, http or ws", text)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/ws")
	return u, nil
}

func (c *checkRun) addResult(l Result) (passed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, l)
	if c.Done != nil {
		c.Done(l)
	}
	return l.Passed
}

// addPassed adds the result of a check that has passed. It returns true.
func (c *checkRun) addPassed(name, format string, args ...any) (passed bool) {
	return c.addResult(Result{Check: name, Passed: true, Found: fmt.Sprintf(format, args...)})
}

// addFailed adds the result of a check that has failed. It returns false.
func (c *checkRun) addFailed(name, found, remedy string) (passed bool) {
	return c.addResult(Result{Check: name, Found: found, Remedy: remedy})
}

func (c *checkRun) portNumber() string {
	if p := c.base.Port(); p != "" {
		return p
	}
	if c.base.Scheme == "https" {
		return "443"
	}
	return "80"
}

// checkDNS resolves the gateway's host name.
func (c *checkRun) checkDNS(ctx context.Context) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, c.base.Hostname())
	if err != nil {
		return c.addFailed("name", err.Error(), "Add an A or AAAA record for "+c.base.Hostname()+" that points at the gateway or its proxy.")
	}
	c.addresses = addresses
	return c.addPassed("name", "%s is %s", c.base.Hostname(), strings.Join(addresses, ", "))
}

// checkTCP connects by TCP, and by TLS if the URL has https.
func (c *checkRun) checkTCP(ctx context.Context) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	address := net.JoinHostPort(c.base.Hostname(), c.portNumber())
	began := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return c.addFailed("TCP", err.Error(), "Nothing answers there. Let TCP port "+c.portNumber()+
			" through the firewall, and have the gateway (VOXGATE_ADDR) or its proxy listen on it.")
	}
	conn.Close()
	c.addPassed("TCP", "port %s answers after %v", c.portNumber(), time.Since(began).Round(time.Millisecond))
	c.client = &http.Client{
		Timeout:       stepTimeout,
		Transport:     &http.Transport{TLSClientConfig: c.tlsConfig(), Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if c.base.Scheme != "https" {
		if ip := net.ParseIP(c.base.Hostname()); c.base.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			c.addFailed("TLS", "the URL is not https", "Browsers give a page the microphone only on https and on localhost: docs/network.md#tls.")
		}
		return true
	}
	return c.checkCertificate(ctx, address)
}

// checkHTTP requests the page of the gateway by the host name in the URL, which the gateway may refuse.
func (c *checkRun) checkHTTP(ctx context.Context) (ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.String()+"/", nil)
	if err != nil {
		return c.addFailed("HTTP", err.Error(), "")
	}
	sentAt := time.Now()
	res, err := c.client.Do(req)
	if err != nil {
		return c.addFailed("HTTP", err.Error(),
			"Something listens there that does not speak HTTP. Is this the gateway's port, and is the scheme right?")
	}
	defer res.Body.Close()
	took := time.Since(sentAt)
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	switch {
	case res.StatusCode == http.StatusMisdirectedRequest:
		return c.addFailed("host", "the gateway does not answer to "+c.base.Hostname(),
			"Add it to VOXGATE_HOSTS. A proxy must pass it on: proxy_set_header Host $host;")
	case res.StatusCode == http.StatusBadGateway, res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusGatewayTimeout:
		return c.addFailed("HTTP", res.Status,
			"A proxy answers, and does not reach the gateway: look at the address that it passes requests on to.")
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return c.addFailed("HTTP", res.Status+" to "+res.Header.Get("Location"), "Check the address that it leads to.")
	case res.StatusCode != http.StatusOK:
		return c.addFailed("HTTP", res.Status+": "+firstLine(body), "This is not the gateway's page. Does the proxy pass this path on to it?")
	}
	c.addPassed("HTTP", "the page answers after %v", took.Round(time.Millisecond))
	c.checkClock(res.Header.Get("Date"), sentAt.Add(took/2))
	return true
}

// checkClock compares the server's clock with ours. It cannot tell which of the two clocks is wrong.
func (c *checkRun) checkClock(date string, now time.Time) {
	serverTime, err := http.ParseTime(date)
	if err != nil {
		return // the response has no Date header
	}
	if skew := serverTime.Sub(now).Round(time.Second); skew.Abs() > maxSkew {
		c.addFailed("clock", fmt.Sprintf("the server's clock differs by %v from ours", skew),
			"Tokens and TURN credentials carry times. Set both machines' clocks by NTP (timedatectl set-ntp true).")
	} else {
		c.addPassed("clock", "within %v of ours", maxSkew)
	}
}

// checkPrivateListener reads the gateway's status from the private listener.
func (c *checkRun) checkPrivateListener(ctx context.Context) {
	if c.Private == "" {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Private, "/")+"/status", nil)
	if err != nil {
		c.addFailed("private listener", err.Error(), "")
		return
	}
	res, err := c.client.Do(req)
	if err != nil {
		c.addFailed("private listener", err.Error(), "Is it VOXGATE_PRIVATE_ADDR, and reachable from here?")
		return
	}
	defer res.Body.Close()
	var status struct {
		Backend, Redis string
		Ready          bool
		Unrecorded     float64
		Agents         []struct{ Name, Problem string }
	}
	if res.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&status) != nil {
		c.addFailed("private listener", res.Status,
			"Is it the private address (VOXGATE_PRIVATE_ADDR) of a gateway? A name must stand in VOXGATE_HOSTS.")
		return
	}
	c.addPassed("private listener", "ready: %t, the model is %s", status.Ready, status.Backend)
	if status.Backend == "emulator" {
		c.addFailed("model", "the built-in emulator answers", "Set GEMINI_API_KEY (docs/settings.md#gemini).")
	}
	if status.Redis == "down" {
		c.addFailed("Redis", "the gateway does not reach it", "Look at VOXGATE_REDIS, and whether the server answers (redis-cli ping).")
	}
	if status.Unrecorded > 0 {
		c.addFailed("recordings", fmt.Sprintf("the disk has refused %g", status.Unrecorded), "Is the disk of VOXGATE_RECORDINGS full?")
	}
	for _, a := range status.Agents {
		if a.Problem != "" {
			c.addFailed("agent "+a.Name, a.Problem, "gateway check-config says the same before a start.")
		}
	}
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	line = strings.TrimSuffix(line, "\r")
	if len(line) > 120 {
		line = line[:120] + "…"
	}
	return line
}

// isTimeout reports whether err is a timeout.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
