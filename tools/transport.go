package tools

import "net/http"

// maxHeader bounds the header of a response, in bytes. Go's default is 10 MB, for which a transport allocates several times as
// much; cookies and policies of real servers stay below 16 KB.
const maxHeader = 64 << 10

// NewTransport returns a new HTTP transport for third-party servers: like http.DefaultTransport, with a limit on the response
// header. The reader must limit the body.
func NewTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	return transport
}

// RefuseRedirect is the CheckRedirect of a client for one server: it returns the redirect as the response. If the client followed it,
// another server would get the headers of the request, including keys.
func RefuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
