// Package deployment looks at a gateway from where its users are: names, certificates, proxies, ports, relays, and a conversation that is
// cut and goes on. Of each thing that does not work it says which setting, or which line of a proxy, mends it.
package deployment

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

// Line is what one check has found.
type Line struct {
	Check string `json:"check"`
	Well  bool   `json:"well"`
	Found string `json:"found"`
	Mend  string `json:"mend,omitempty"` // what to do, if it is not well
}

// Options say what to look at.
type Options struct {
	// URL is the gateway's: https://voice.example.com, or the wss: of its WebSocket.
	URL string

	// Token lets the check in where the gateway wants one. Key is a server key that mints one for each conversation.
	Token, Key string

	// Origins are those of the operator's pages, each of which must be let in.
	Origins []string

	// Private is the URL of the private listener; empty: it is not looked at.
	Private string

	// SIP are the addresses of the gateway's telephone lines, as SIP URIs.
	SIP []string

	// Stay is how long a second socket is held, to find out whether a proxy cuts it; 0: it is not.
	Stay time.Duration

	// Talk is how long WebRTC is listened to.
	Talk time.Duration

	// From says which of this machine's addresses WebRTC may use; nil: all.
	From func(net.IP) bool

	// Roots are the authorities of its certificate; nil: those of this machine.
	Roots *x509.CertPool

	// Done, if not nil, gets each line as soon as it is found, one at a time.
	Done func(Line)
}

// check is one run.
type check struct {
	Options

	base      *url.URL // http or https, with the path of the WebSocket's folder
	addresses []string // of its host
	client    *http.Client

	mu    sync.Mutex // guards lines, and Done
	lines []Line
}

const (
	// stepTimeout bounds what answers at once where it works.
	stepTimeout = 10 * time.Second

	// soon is when a certificate ends soon. Let's Encrypt's are renewed 30 days before.
	soon = 14 * 24 * time.Hour

	// maxSkew is how far clocks may be apart: tokens and TURN credentials carry times.
	maxSkew = 30 * time.Second
)

// Check looks at a gateway, and returns a line for each thing, in the order of finding out. It blocks until all is found, about 30 s and
// Stay at most. An error means that there is nothing to look at.
func Check(ctx context.Context, o Options) ([]Line, error) {
	base, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	c := &check{Options: o, base: base}
	if !c.resolves(ctx) || !c.connects(ctx) || !c.answers(ctx) {
		return c.lines, nil
	}
	c.private(ctx)
	for _, uri := range c.SIP {
		c.sip(ctx, uri)
	}
	s := c.admitted(ctx)
	if s == nil {
		return c.lines, nil
	}
	defer func() { s.close() }()
	for _, origin := range c.Origins {
		c.origin(ctx, origin)
	}
	var beside sync.WaitGroup
	if c.Stay > 0 {
		beside.Go(func() { c.stays(ctx) })
	}
	s = c.talks(ctx, s)
	beside.Wait()
	return c.lines, nil
}

// parseURL takes the gateway's address in any of its forms.
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

func (c *check) add(l Line) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, l)
	if c.Done != nil {
		c.Done(l)
	}
	return l.Well
}

func (c *check) well(name, format string, args ...any) bool {
	return c.add(Line{Check: name, Well: true, Found: fmt.Sprintf(format, args...)})
}

func (c *check) wrong(name, found, mend string) bool {
	return c.add(Line{Check: name, Found: found, Mend: mend})
}

func (c *check) port() string {
	if p := c.base.Port(); p != "" {
		return p
	}
	if c.base.Scheme == "https" {
		return "443"
	}
	return "80"
}

func (c *check) resolves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, c.base.Hostname())
	if err != nil {
		return c.wrong("name", err.Error(), "Add an A or AAAA record for "+c.base.Hostname()+" that points at the gateway or its proxy.")
	}
	c.addresses = addresses
	return c.well("name", "%s is %s", c.base.Hostname(), strings.Join(addresses, ", "))
}

// connects opens TCP, and TLS where the URL says so.
func (c *check) connects(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	address := net.JoinHostPort(c.base.Hostname(), c.port())
	began := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return c.wrong("TCP", err.Error(), "Nothing answers there. Let TCP port "+c.port()+
			" through the firewall, and have the gateway (VOXGATE_ADDR) or its proxy listen on it.")
	}
	conn.Close()
	c.well("TCP", "port %s answers after %v", c.port(), time.Since(began).Round(time.Millisecond))
	c.client = &http.Client{
		Timeout:       stepTimeout,
		Transport:     &http.Transport{TLSClientConfig: c.tls(), Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if c.base.Scheme != "https" {
		if ip := net.ParseIP(c.base.Hostname()); c.base.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			c.wrong("TLS", "there is none", "Browsers give a page the microphone on https and on localhost alone: docs/network.md#tls.")
		}
		return true
	}
	return c.certificate(ctx, address)
}

// answers asks for the page, by the name in the URL.
func (c *check) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.String()+"/", nil)
	if err != nil {
		return c.wrong("HTTP", err.Error(), "")
	}
	asked := time.Now()
	res, err := c.client.Do(req)
	if err != nil {
		return c.wrong("HTTP", err.Error(),
			"Something listens there that does not speak HTTP. Is this the gateway's port, and is the scheme right?")
	}
	defer res.Body.Close()
	took := time.Since(asked)
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	switch {
	case res.StatusCode == http.StatusMisdirectedRequest:
		return c.wrong("host", "the gateway does not answer to "+c.base.Hostname(),
			"Add it to VOXGATE_HOSTS. A proxy must pass it on: proxy_set_header Host $host;")
	case res.StatusCode == http.StatusBadGateway, res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusGatewayTimeout:
		return c.wrong("HTTP", res.Status, "A proxy answers, and does not reach the gateway: look at the address that it passes requests on to.")
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return c.wrong("HTTP", res.Status+" to "+res.Header.Get("Location"), "Check the address that it leads to.")
	case res.StatusCode != http.StatusOK:
		return c.wrong("HTTP", res.Status+": "+firstLine(body), "This is not the gateway's page. Does the proxy pass this path on to it?")
	}
	c.well("HTTP", "the page answers after %v", took.Round(time.Millisecond))
	c.clock(res.Header.Get("Date"), asked.Add(took/2))
	return true
}

// clock compares the server's with ours. Which of the two is wrong it cannot say.
func (c *check) clock(date string, now time.Time) {
	theirs, err := http.ParseTime(date)
	if err != nil {
		return // there is none
	}
	if skew := theirs.Sub(now).Round(time.Second); skew.Abs() > maxSkew {
		c.wrong("clock", fmt.Sprintf("theirs is %v off ours", skew),
			"Tokens and TURN credentials carry times. Set both machines' clocks by NTP (timedatectl set-ntp true).")
	} else {
		c.well("clock", "within %v of ours", maxSkew)
	}
}

// private asks the private listener.
func (c *check) private(ctx context.Context) {
	if c.Private == "" {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Private, "/")+"/status", nil)
	if err != nil {
		c.wrong("private listener", err.Error(), "")
		return
	}
	res, err := c.client.Do(req)
	if err != nil {
		c.wrong("private listener", err.Error(), "Is it VOXGATE_PRIVATE_ADDR, and reachable from here?")
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
		c.wrong("private listener", res.Status,
			"Is it the private address (VOXGATE_PRIVATE_ADDR) of a gateway? A name must stand in VOXGATE_HOSTS.")
		return
	}
	c.well("private listener", "ready: %t, the model is %s", status.Ready, status.Backend)
	if status.Backend == "emulator" {
		c.wrong("model", "the built-in emulator answers", "Set GEMINI_API_KEY (docs/settings.md#gemini).")
	}
	if status.Redis == "down" {
		c.wrong("Redis", "the gateway does not reach it", "Look at VOXGATE_REDIS, and whether the server answers (redis-cli ping).")
	}
	if status.Unrecorded > 0 {
		c.wrong("recordings", fmt.Sprintf("the disk has refused %g", status.Unrecorded), "Is the disk of VOXGATE_RECORDINGS full?")
	}
	for _, a := range status.Agents {
		if a.Problem != "" {
			c.wrong("agent "+a.Name, a.Problem, "gateway check-config says the same before a start.")
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

// isTimeout reports whether something took too long.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
