// Package guard makes HTTP clients for addresses that strangers name: whatever they name, the gateway's own network is out of
// reach.
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

// ErrNotPublic is why a client did not connect to an address.
var ErrNotPublic = errors.New("the address is not a public one")

// ErrNotHTTPS is why a client did not follow a URL.
var ErrNotHTTPS = errors.New("only https URLs are allowed")

// MaxRedirects is how many redirects a client follows: enough for a shortened link and a change of host.
const MaxRedirects = 5

// maxHeader bounds an answer's header, in bytes. Go's own bound is 10 MB; cookies and policies of real sites stay below 16 KB.
const maxHeader = 64 << 10

// connecting bounds the connection and the TLS handshake, each: a host that takes longer counts as down.
const connecting = 5 * time.Second

// Options are the settings of Client.
type Options struct {
	// Timeout bounds a request with its redirects and the reading of the answer's body. 0 is 10 s.
	Timeout time.Duration

	// AllowPrivate allows all addresses, where the URLs are trusted.
	AllowPrivate bool

	// RootCAs are the authorities that may vouch for a server; nil: the system's.
	RootCAs *x509.CertPool
}

// Client returns a client that speaks https with public addresses only, at every redirect as well. The address is checked when
// it is dialled, after the names were resolved, so a name that resolves to another address the second time gains nothing. It
// takes no proxy from the environment, keeps no cookies and sends no Referer.
func Client(o Options) *http.Client {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	dialer := net.Dialer{Timeout: connecting}
	if !o.AllowPrivate {
		dialer.ControlContext = control
	}
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    connecting,
		ResponseHeaderTimeout:  o.Timeout,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true, // a transport with its own dialer does not by itself
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
	}
	transport.RegisterProtocol("http", refuse{})
	return &http.Client{Transport: transport, Timeout: o.Timeout, CheckRedirect: redirect}
}

// refuse is the transport for http URLs.
type refuse struct{}

func (refuse) RoundTrip(*http.Request) (*http.Response, error) { return nil, ErrNotHTTPS }

func redirect(r *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return fmt.Errorf("more than %d redirects", MaxRedirects)
	}
	r.Header.Del("Referer")
	return nil
}

// control is called with the very address that is about to be connected to.
func control(_ context.Context, _, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	if !Public(addr.Addr()) {
		return ErrNotPublic
	}
	return nil
}

// public knows the addresses that are not the public internet's, by the IANA registries of special-purpose addresses: private and
// link-local ones, loopback, CGNAT, documentation, multicast; of IPv6 all outside of 2000::/3 (with it IPv4 in IPv6 and NAT64), and in
// there Teredo, ORCHID and 6to4. Beside them, the host of a virtual machine on Azure, from which it gets secrets.
var public = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

// Public reports whether an address is one of the public internet. An IPv4 address in an IPv6 one is not, whatever it is.
func Public(addr netip.Addr) bool { return addr.IsValid() && public.SafeAddr(addr) == nil }
