package backend

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
)

// maxList limits the list of conversations that another gateway sends, in bytes. It is enough for about 20,000
// conversations.
const maxList = 4 << 20

// proxyToOwner proxies a request to the gateway that owns the conversation. It returns false if no other gateway is known to
// own it.
func (srv *Server) proxyToOwner(w http.ResponseWriter, r *http.Request) (isProxied bool) {
	return signaling.ProxyTo(w, r, srv.Host.FindNode(r.Context(), r.PathValue("id")), "", func(err error) {
		srv.Logger.Warn("another gateway does not answer", "err", err)
		writeNotFound(w)
	})
}

// listOtherNodes returns the conversations of the other gateways. unansweredCount is that of [AskOtherNodes].
func (srv *Server) listOtherNodes(r *http.Request) (list []sessionInfo, unansweredCount int) {
	if r.Header.Get(signaling.ProxiedHeader) != "" {
		return nil, 0
	}
	answers, unansweredCount := AskOtherNodes[struct{ Sessions []sessionInfo }](srv.Host, r, r.URL.Path)
	for node, answer := range answers {
		for _, s := range answer.Sessions {
			s.Node = node
			list = append(list, s)
		}
	}
	return list, unansweredCount
}

// AskOtherNodes sends a GET request to all other gateways, on behalf of the client that has sent r. The keys of answers
// are the names of the gateways. unansweredCount is the number of gateways that did not answer, or 1 if the store does
// not list the gateways.
//
// It blocks for [signaling.NodeTimeout] and one call of the store at most. If r comes from another gateway, it does
// nothing.
func AskOtherNodes[T any](host *bridge.Host, r *http.Request, path string) (answers map[string]T, unansweredCount int) {
	if r.Header.Get(signaling.ProxiedHeader) != "" {
		return nil, 0
	}
	nodes, err := host.OtherNodes(r.Context())
	if err != nil {
		return nil, 1
	}
	answers = map[string]T{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for node := range nodes {
		wg.Go(func() {
			answer, err := askNode[T](r, access.From(r.Context()).NodeURL(node), path)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				unansweredCount++
				return
			}
			name, _, _ := strings.Cut(node, " ")
			answers[name] = answer
		})
	}
	wg.Wait()
	return answers, unansweredCount
}

var errNoURL = errors.New("the URL of the gateway is unknown")

// errNotAnswered means that a gateway has refused the request, for example because it runs an earlier version.
var errNotAnswered = errors.New("the gateway refuses")

// askNode sends a GET request to the gateway with this URL, on behalf of the client that has sent r. It decodes the
// JSON answer.
func askNode[T any](r *http.Request, nodeURL *url.URL, path string) (body T, err error) {
	if nodeURL == nil {
		return body, errNoURL
	}
	ctx, cancel := context.WithTimeout(r.Context(), signaling.NodeTimeout)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, nodeURL.JoinPath(path).String(), nil)
	if err != nil {
		return body, err
	}
	ask.Header, ask.Host = r.Header.Clone(), r.Host
	access.From(r.Context()).SignForward(ask, "")
	answer, err := signaling.NodeTransport.RoundTrip(ask)
	if err != nil {
		return body, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return body, errNotAnswered
	}
	err = json.NewDecoder(http.MaxBytesReader(nil, answer.Body, maxList)).Decode(&body)
	return body, err
}
