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

// privateTimeout bounds an answer of the private listener: a profile of a minute is one.
const privateTimeout = 2 * time.Minute

// health is what the operator may ask the gateway, and order it to do.
type health struct {
	ready    func() bool
	degraded func() bool // the store of all gateways does not answer
	leave    func()      // takes no more calls, and sends those that can to other gateways
	running  func() int
	page     string // the URL of the gateway's page
}

// servePrivate answers the operator at addr until stop is called: metrics at /metrics, whether the process lives at /healthz, whether
// it takes calls at /readyz, how to have it take none any more at /v1/drain, and Go's profiler at /debug/pprof/, without the command
// line, which may hold a secret. Everything else is for page. Whoever reaches addr may ask, by an address or by one of hosts, but no
// page in a browser may POST anything, and pages of other origins may only lead there, see isForeignRequest.
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
			http.Error(w, "no new calls are taken", http.StatusServiceUnavailable)
		case h.degraded():
			io.WriteString(w, "degraded: Redis does not answer; calls are taken, and limits count here alone\n")
		default:
			io.WriteString(w, "ok\n")
		}
	})
	mux.HandleFunc("POST /v1/drain", func(w http.ResponseWriter, _ *http.Request) {
		h.leave()
		access.Answer(w, http.StatusOK, map[string]int{"sessions": h.running()})
	})
	mux.Handle("/", page)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case signaling.RefuseHost(w, r, hosts):
		case r.Method == http.MethodPost && len(r.Header.Values("Origin")) > 0:
			http.Error(w, "Pages may not order anything here.", http.StatusForbidden)
		case isForeignRequest(r):
			http.Error(w, "Pages of other origins may not ask here.", http.StatusForbidden)
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

// isForeignRequest reports whether a page of another origin sends a request. It could not read the answer, but have the profiler work for
// ever. It may only lead a person to what is not of the profiler, as a link does.
func isForeignRequest(r *http.Request) bool {
	profiles := strings.HasPrefix(r.URL.Path, "/debug/")
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin": // typed by a person, or a page of ours
		return false
	case "": // no browser; or one that asks a host which is neither local nor has TLS, where it does not say
		return profiles && (namesOtherHost(r, "Origin") || namesOtherHost(r, "Referer"))
	}
	leads := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return profiles || !leads
}

// namesOtherHost reports whether a header has a URL of another host than the one that is asked.
func namesOtherHost(r *http.Request, header string) bool {
	text := r.Header.Get(header)
	u, err := url.Parse(text)
	return text != "" && (err != nil || !strings.EqualFold(u.Host, r.Host))
}
