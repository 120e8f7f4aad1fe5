package signaling

import (
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/access"
)

// Passed marks a request that comes from another gateway: it is answered here, or not at all.
const Passed = access.Passed

// BetweenTimeout is how long another gateway may take to begin its answer.
const BetweenTimeout = 2 * time.Second

// Between is the HTTP transport to other gateways. There are few such requests, so no connection is kept.
var Between http.RoundTripper = &http.Transport{
	DisableKeepAlives: true, ResponseHeaderTimeout: BetweenTimeout, MaxResponseHeaderBytes: 64 << 10,
}

// Pass has another gateway answer a request, and reports false if it is not known where that is, or the request was
// passed on already. It blocks until the answer, or a WebSocket, has ended. failed answers if the other gateway does
// not. What the client has shown stays here: the other gateway learns who asks. token is what the door has exchanged
// it for; empty: what came with the request counts.
func Pass(w http.ResponseWriter, r *http.Request, node, token string, failed func(error)) bool {
	visitor := access.From(r.Context())
	to := visitor.NodeURL(node)
	if to == nil || r.Header.Get(Passed) != "" {
		return false
	}
	proxy := httputil.ReverseProxy{
		Transport: Between,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host // they have the same names
			visitor.Pass(p.Out, token)
		},
		ModifyResponse: func(answer *http.Response) error {
			for name := range w.Header() { // what stands before every door: twice, browsers refuse it
				answer.Header.Del(name)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed(err) },
	}
	out := NewPieces(w, pieceTime)
	proxy.ServeHTTP(out, r)
	out.renew() // before the end of an answer there may have been nothing for long
	return true
}

// pieceTime is how long a client may take to read a piece of another gateway's answer.
const pieceTime = 30 * time.Second

// Pieces is a [http.ResponseWriter] for an answer that goes on: its client has so long to read each piece. The server's own deadline is
// for a whole answer.
type Pieces struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
}

// NewPieces gives the client of w so long to read each piece.
func NewPieces(w http.ResponseWriter, within time.Duration) *Pieces {
	return &Pieces{ResponseWriter: w, control: http.NewResponseController(w), within: within}
}

// Unwrap is for [http.ResponseController].
func (p *Pieces) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements io.Writer.
func (p *Pieces) Write(b []byte) (int, error) {
	p.renew()
	return p.ResponseWriter.Write(b)
}

// FlushError is for [http.ResponseController].
func (p *Pieces) FlushError() error { return p.control.Flush() }

func (p *Pieces) renew() {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.within)) // fails where none is needed
}

// NodeID is an id that ends in the name of this gateway, if there are others, so that [PassByID] finds it.
func NodeID(host *bridge.Host, id string) string {
	if name := host.NodeName(); name != "" {
		id += "_" + name
	}
	return id
}

// PassByID is [Pass] to the gateway that an id of [NodeID] names. It reports false, too, if that is this one, or is
// gone.
func PassByID(w http.ResponseWriter, r *http.Request, host *bridge.Host, id, token string, failed func(error)) bool {
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
			return Pass(w, r, node, token, failed)
		}
	}
	return false
}
