// Package guard makes HTTP clients for untrusted URLs that cannot reach the gateway's own network (SSRF protection).
package guard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// ErrNotPublic means that an address is not on the public internet.
var ErrNotPublic = errors.New("the address is not a public one")

// ErrNotHTTPS means that a URL is not https.
var ErrNotHTTPS = errors.New("only https URLs are allowed")

// MaxRedirects limits how many redirects a client follows: enough for a shortened link and a change of host.
const MaxRedirects = 5

// maxHeader bounds a response's header, in bytes. Go's default is 10 MB; cookies and policies of real sites stay below 16 KB.
const maxHeader = 64 << 10

// connectTimeout bounds connecting, and then the TLS handshake. A slower host counts as down.
const connectTimeout = 5 * time.Second

// Options configures Client.
type Options struct {
	// Timeout bounds a request with its redirects and the reading of the body. 0 means 10 s.
	Timeout time.Duration

	// AllowPrivate allows all addresses, for trusted URLs.
	AllowPrivate bool

	// RootCAs are the trusted certificate authorities (nil: the system's).
	RootCAs *x509.CertPool
}

// Client returns a client for https with public addresses only. It checks each address when dialling, so DNS rebinding
// does not help. It uses no proxy, keeps no cookies and sends no Referer.
func Client(o Options) *http.Client {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	dialer := net.Dialer{Timeout: connectTimeout}
	if !o.AllowPrivate {
		dialer.ControlContext = checkAddress
	}
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  o.Timeout,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true, // with a custom dialer, HTTP/2 is not the default
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
	}
	transport.RegisterProtocol("http", rejectHTTP{})
	return &http.Client{Transport: transport, Timeout: o.Timeout, CheckRedirect: checkRedirect}
}

// rejectHTTP is the transport for http URLs.
type rejectHTTP struct{}

func (rejectHTTP) RoundTrip(*http.Request) (*http.Response, error) { return nil, ErrNotHTTPS }

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return fmt.Errorf("more than %d redirects", MaxRedirects)
	}
	r.Header.Del("Referer")
	return nil
}

// checkAddress is called with the resolved address before connecting to it.
func checkAddress(_ context.Context, _, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	if !IsPublic(addr.Addr()) {
		return ErrNotPublic
	}
	return nil
}

// public rejects addresses outside the public internet, by the IANA registries of special-purpose addresses. Of IPv6 it
// allows 2000::/3 without Teredo, ORCHID and 6to4. It also rejects Azure's host of a virtual machine, which hands out
// secrets.
var public = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

// IsPublic reports whether an address is on the public internet. An IPv4 address mapped into IPv6 never is.
func IsPublic(addr netip.Addr) bool { return addr.IsValid() && public.SafeAddr(addr) == nil }
