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

// MaxRedirects limits how many redirects a client follows. It is enough for a shortened link and a change of host.
const MaxRedirects = 5

// maxHeader bounds a response's header, in bytes. Go's default is 10 MB, but the headers of real sites, with cookies
// and policies, stay below 16 KB.
const maxHeader = 64 << 10

// connectTimeout bounds the time to connect, and then the time for the TLS handshake. A slower host is treated as down.
const connectTimeout = 5 * time.Second

// Options configures NewClient.
type Options struct {
	// Timeout bounds a request, including its redirects and reading the body. 0 means 10 s.
	Timeout time.Duration

	// AllowPrivate allows all addresses, for trusted URLs.
	AllowPrivate bool

	// RootCAs contains the trusted certificate authorities. nil means those of the system.
	RootCAs *x509.CertPool
}

// NewClient returns a client that accepts only https URLs and connects only to public addresses. It checks each address
// when it connects, so DNS rebinding cannot circumvent the check. It uses no proxy, keeps no cookies and sends no
// Referer.
func NewClient(o Options) *http.Client {
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
		return fmt.Errorf("parse address %s: %w", address, err)
	}
	if !IsPublic(addr.Addr()) {
		return ErrNotPublic
	}
	return nil
}

// public rejects addresses outside the public internet. It follows the IANA registries of special-purpose addresses.
// From IPv6 it allows only 2000::/3, without Teredo, ORCHID and 6to4. It also rejects 168.63.129.16, an Azure address
// from which a virtual machine gets secrets.
var public = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

// IsPublic reports whether an address is on the public internet. It returns false for every IPv4 address that is mapped
// into IPv6.
func IsPublic(addr netip.Addr) bool { return addr.IsValid() && public.SafeAddr(addr) == nil }
