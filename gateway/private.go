package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"time"

	"voxgate/signaling"
	"voxgate/signaling/access"
)

// privateTimeout bounds a response of the private listener, which may be a profile of a minute.
const privateTimeout = 2 * time.Minute

// health holds the state of the gateway that the operator can read, and the commands that the operator can give.
type health struct {
	ready    func() bool
	degraded func() bool // reports that the shared store does not answer
	leave    func()      // begins the drain: takes no more calls, and moves calls to other gateways; does not block
	running  func() int
	page     string // the URL of the gateway's page
}

// servePrivate serves the operator at addr until stop is called: /metrics, /healthz (the process runs), /readyz (it takes calls),
// POST /v1/drain, Go's profiler at /debug/pprof/ (without the command line, which may hold a secret), and page for everything else.
// Every client that reaches addr is accepted, by an address or one of hosts. Pages in a browser cannot POST, and pages of other origins
// can only link to it, see isForeignRequest.
func servePrivate(addr string, hosts []string, metrics, page http.Handler, h health) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, fmt.Errorf("listen for the operator at VOXGATE_PRIVATE_ADDR: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case !h.ready():
			http.Error(w, "not ready: no new calls are accepted", http.StatusServiceUnavailable)
		case h.degraded():
			io.WriteString(w, "degraded: Redis does not answer; calls are accepted, and limits count this gateway alone\n")
		default:
			io.WriteString(w, "ok\n")
		}
	})
	mux.HandleFunc("POST /v1/drain", func(w http.ResponseWriter, _ *http.Request) {
		h.leave()
		access.WriteJSON(w, http.StatusOK, map[string]int{"sessions": h.running()})
	})
	mux.Handle("/", page)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case signaling.RejectUnknownHost(w, r, hosts):
		case r.Method == http.MethodPost && len(r.Header.Values("Origin")) > 0:
			http.Error(w, "Web pages may not send POST requests to this address.", http.StatusForbidden)
		case isForeignRequest(r):
			http.Error(w, "Pages of other origins may not read this address.", http.StatusForbidden)
		default:
			mux.ServeHTTP(w, r)
		}
	})
	server := &http.Server{
		Handler: closeAfterChunks(guarded), ReadHeaderTimeout: headerTimeout, WriteTimeout: privateTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(listener)
	}()
	return "http://" + listener.Addr().String(), func() {
		server.Close()
		<-done
	}, nil
}

// isForeignRequest reports whether a page of another origin sends a request that it may not send. It may link to pages, except to the
// profiler's. It could not read any response, but could keep the profiler busy.
func isForeignRequest(r *http.Request) bool {
	profiles := strings.HasPrefix(r.URL.Path, "/debug/")
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin": // typed by a person, or a page of ours
		return false
	case "": // not a browser, or a browser that reaches a remote host without TLS, where it does not send the header
		return profiles && (namesOtherHost(r, "Origin") || namesOtherHost(r, "Referer"))
	}
	leads := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return profiles || !leads
}

// namesOtherHost reports whether a header holds a URL with another host than that of the request.
func namesOtherHost(r *http.Request, header string) bool {
	text := r.Header.Get(header)
	u, err := url.Parse(text)
	return text != "" && (err != nil || !strings.EqualFold(u.Host, r.Host))
}
