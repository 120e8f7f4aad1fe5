package backend

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"voxgate/signaling"
	"voxgate/signaling/access"
)

// maxList limits the list of another gateway, in bytes: about 20,000 conversations.
const maxList = 4 << 20

// proxyToOwner proxies a request to the gateway that owns the conversation. It returns false if no other gateway is known to
// own it.
func (d *Server) proxyToOwner(w http.ResponseWriter, r *http.Request) bool {
	return signaling.ProxyTo(w, r, d.Host.FindNode(r.Context(), r.PathValue("id")), "", func(err error) {
		d.Logger.Warn("another gateway does not answer", "err", err)
		writeNotFound(w)
	})
}

// listOtherNodes returns the conversations of the other gateways, and the number of gateways that did not answer.
func (d *Server) listOtherNodes(r *http.Request) (list []sessionInfo, silent int) {
	if r.Header.Get(signaling.ProxiedHeader) != "" {
		return nil, 0
	}
	nodes, err := d.Host.OtherNodes(r.Context())
	if err != nil {
		return nil, 1
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for node := range nodes {
		wg.Go(func() {
			others, err := fetchList(r, access.From(r.Context()).NodeURL(node))
			mu.Lock()
			defer mu.Unlock()
			if list = append(list, others...); err != nil {
				silent++
			}
		})
	}
	wg.Wait()
	return list, silent
}

var errNoURL = errors.New("the URL of the gateway is unknown")

// fetchList requests the conversations of a gateway.
func fetchList(r *http.Request, at *url.URL) ([]sessionInfo, error) {
	if at == nil {
		return nil, errNoURL
	}
	ctx, cancel := context.WithTimeout(r.Context(), signaling.NodeTimeout)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, at.JoinPath(r.URL.Path).String(), nil)
	if err != nil {
		return nil, err
	}
	ask.Header, ask.Host = r.Header.Clone(), r.Host
	access.From(r.Context()).SignForward(ask, "")
	answer, err := signaling.NodeTransport.RoundTrip(ask)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body struct{ Sessions []sessionInfo }
	err = json.NewDecoder(http.MaxBytesReader(nil, answer.Body, maxList)).Decode(&body)
	return body.Sessions, err
}
