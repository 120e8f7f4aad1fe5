package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"voxgate/tools/guard"
)

const (
	// A conversation rarely calls more than a few tools at once; more connections than these wait, and a slow endpoint cannot
	// use up the gateway's sockets.
	connsPerHost     = 64
	idleConnsPerHost = 8

	// longest is no limit in practice: the call's own time is.
	longest = 24 * time.Hour
)

// Pool keeps the connections of the webhooks that share it.
type Pool struct {
	own     *http.Client // to the addresses the operator wrote
	public  *http.Client // to where they redirect
	private *http.Client // the same, where private addresses are allowed
}

// NewPool returns a pool that trusts the certificate authorities in roots; nil: those of the system.
func NewPool(roots *x509.CertPool) *Pool {
	own := http.DefaultTransport.(*http.Transport).Clone()
	own.MaxConnsPerHost, own.MaxIdleConnsPerHost = connsPerHost, idleConnsPerHost
	own.TLSClientConfig = &tls.Config{RootCAs: roots}
	p := &Pool{
		own:     &http.Client{Transport: own},
		public:  guard.Client(guard.Options{Timeout: longest, RootCAs: roots}),
		private: guard.Client(guard.Options{Timeout: longest, RootCAs: roots, AllowPrivate: true}),
	}
	for _, c := range p.all() {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // post follows them
	}
	return p
}

// Close ends the connections that are idle. Calls that run end with their contexts.
func (p *Pool) Close() {
	for _, c := range p.all() {
		c.CloseIdleConnections()
	}
}

func (p *Pool) all() []*http.Client { return []*http.Client{p.own, p.public, p.private} }
