package tools

import "net/http"

// maxHeader bounds the header of a response, in bytes. Real servers stay below 16 KB. Go's default of 10 MB allocates
// several times as much.
const maxHeader = 64 << 10

// NewTransport returns a transport for third-party servers, with a limit on the response header. The reader must limit
// the body.
func NewTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	return transport
}

// RefuseRedirect is the CheckRedirect of a client for one server. Following a redirect would pass keys in headers to
// another server.
func RefuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
