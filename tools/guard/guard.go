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
)

// ErrNotPublic is why a client did not connect to an address.
var ErrNotPublic = errors.New("the address is not a public one")

// ErrNotHTTPS is why a client did not follow a URL.
var ErrNotHTTPS = errors.New("only https URLs are allowed")

// MaxRedirects is how many redirects a client follows: enough for a shortened link and a change of host.
const MaxRedirects = 5

// maxHeader bounds an answer's header, in bytes. Go's own bound is 10 MB; cookies and policies of real sites stay below 16 KB.
const maxHeader = 64 << 10

// connecting bounds the connection and the TLS handshake, each: a host that needs longer is as good as down.
const connecting = 5 * time.Second

// Options are the settings of Client.
type Options struct {
	// Timeout bounds a request with its redirects and the reading of the answer's body. 0 is 10 s.
	Timeout time.Duration

	// AllowPrivate allows all addresses, for those who trust the URLs.
	AllowPrivate bool

	// RootCAs are who may vouch for a server; nil is the system's.
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

// special are the addresses that are not the public internet's, after the IANA registries of special-purpose addresses
// (RFC 6890). Of IPv6 only what lies within 2000::/3 needs a line.
var special = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private, RFC 1918
	"100.64.0.0/10",    // shared by customers of a provider (CGNAT), RFC 6598
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // the host of a virtual machine on Azure, which tells it secrets
	"169.254.0.0/16",   // link-local, the metadata servers of clouds among them
	"172.16.0.0/12",    // private, RFC 1918
	"192.0.0.0/24",     // IETF protocol assignments
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private, RFC 1918
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/3",      // multicast, reserved and broadcast
	"2001::/23",        // IETF protocol assignments: Teredo, ORCHID, benchmarks
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4, which carries any IPv4 address
	"3fff::/20",        // documentation, RFC 9637
)

// unicast is all of IPv6 that was given to the public internet so far. Loopback, link-local and unique local addresses,
// multicast, NAT64 (64:ff9b::/96) and IPv4 in IPv6 lie outside.
var unicast = netip.MustParsePrefix("2000::/3")

// Public tells whether an address is one of the public internet. An IPv4 address in an IPv6 one is not, whatever it is.
func Public(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" || addr.Is6() && !unicast.Contains(addr) {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
