package tools

import "net/http"

// maxHeader bounds the header of an answer, in bytes. Go's own bound is 10 MB, of which a transport makes several times as much; cookies
// and policies of real servers stay below 16 KB.
const maxHeader = 64 << 10

// NewTransport returns an HTTP transport of its own for a server that others run: http.DefaultTransport's, with a bound on the header of
// an answer. The reader bounds the body.
func NewTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	return transport
}

// RefuseRedirect is the CheckRedirect of a client for one server: the redirect itself is the answer. Another server would get the headers
// of a request, with the keys in them.
func RefuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
