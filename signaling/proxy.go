package signaling

import (
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/access"
)

// ProxiedHeader marks a request that another gateway has forwarded, so that it is not forwarded again.
const ProxiedHeader = access.ProxiedHeader

// NodeTimeout limits how long another gateway may take to begin its answer.
const NodeTimeout = 2 * time.Second

// NodeTransport is the HTTP transport to other gateways. It keeps no idle connections, because there are few such
// requests.
var NodeTransport http.RoundTripper = &http.Transport{
	DisableKeepAlives: true, ResponseHeaderTimeout: NodeTimeout, MaxResponseHeaderBytes: 64 << 10,
}

// ProxyTo proxies a request to another gateway. It blocks until the whole answer was sent, or the WebSocket has ended.
// It does nothing, and returns false, if the address is unknown, or if the request was proxied already. If the other
// gateway does not answer, onError must answer the request.
//
// The other gateway gets the client's identity, but not its credentials. token replaces the access token of the request
// unless it is empty.
func ProxyTo(w http.ResponseWriter, r *http.Request, node, token string, onError func(error)) (isProxied bool) {
	visitor := access.From(r.Context())
	to := visitor.NodeURL(node)
	if to == nil || r.Header.Get(ProxiedHeader) != "" {
		return false
	}
	proxy := httputil.ReverseProxy{
		Transport: NodeTransport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host // all gateways of a cluster have the same host names
			visitor.SignForward(p.Out, token)
		},
		ModifyResponse: func(answer *http.Response) error {
			for name := range w.Header() { // headers that this gateway has set itself: browsers reject duplicates
				answer.Header.Del(name)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { onError(err) },
	}
	out := NewChunkedWriter(w, chunkTimeout)
	proxy.ServeHTTP(out, r)
	out.renewDeadline() // the end of the answer may come long after its last chunk
	return true
}

// chunkTimeout limits how long a client may take to read a chunk of another gateway's answer.
const chunkTimeout = 30 * time.Second

// ChunkedWriter is an [http.ResponseWriter] for a streamed answer. It renews the write deadline with each chunk,
// because the deadline that the HTTP server sets is for the whole answer.
type ChunkedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// NewChunkedWriter returns a writer to w. The client must read each chunk within the timeout.
func NewChunkedWriter(w http.ResponseWriter, timeout time.Duration) *ChunkedWriter {
	return &ChunkedWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}
}

// Unwrap supports [http.ResponseController].
func (c *ChunkedWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Write implements io.Writer.
func (c *ChunkedWriter) Write(b []byte) (int, error) {
	c.renewDeadline()
	return c.ResponseWriter.Write(b)
}

// FlushError supports [http.ResponseController].
func (c *ChunkedWriter) FlushError() error { return c.control.Flush() }

func (c *ChunkedWriter) renewDeadline() {
	_ = c.control.SetWriteDeadline(time.Now().Add(c.timeout)) // fails only if the writer supports no deadline
}

// OwnedID returns an ID for an object of this gateway, such as a call. In a cluster the ID ends in the gateway's name,
// so that [ProxyToOwner] can find the gateway.
func OwnedID(host *bridge.Host, id string) string {
	if name := host.NodeName(); name != "" {
		id += "_" + name
	}
	return id
}

// ProxyToOwner calls [ProxyTo] for the gateway that is named in an ID (see [OwnedID]). It does nothing, and returns
// false, if that is this gateway, or a gateway that no longer exists.
func ProxyToOwner(w http.ResponseWriter, r *http.Request, host *bridge.Host, id, token string, onError func(error)) (isProxied bool) {
	name := id[strings.LastIndex(id, "_")+1:]
	if name == "" || name == host.NodeName() {
		return false
	}
	nodes, err := host.OtherNodes(r.Context())
	if err != nil {
		return false
	}
	for node := range nodes {
		if strings.HasPrefix(node, name+" ") && access.From(r.Context()).NodeURL(node) != nil {
			return ProxyTo(w, r, node, token, onError)
		}
	}
	return false
}
