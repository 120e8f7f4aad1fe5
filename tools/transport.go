package tools

import "net/http"

// maxHeader bounds the header of a response, in bytes. The headers of real servers stay below 16 KB. With Go's default
// of 10 MB, a server could make the gateway allocate several times as much.
const maxHeader = 64 << 10

// NewTransport returns a transport for third-party servers, with a limit on the response header. It does not limit the
// body; the reader of the body must.
func NewTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	return transport
}

// RefuseRedirect is the CheckRedirect function of clients for a single server. It refuses redirects, because following
// one would pass the keys in headers to another server.
func RefuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
