// Package console serves the operator of a gateway at its private address: a page that shows and controls conversations, metrics, health,
// the drain and Go's profiler. Everyone who can reach the address is accepted, but pages of other origins may not send requests.
package console

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/backend"
	"voxgate/signaling/client"
	"voxgate/web"
)

// ResponseTimeout bounds a response of the console, which may be a profile of a minute.
const ResponseTimeout = 2 * time.Minute

// Options configures a [Console].
type Options struct {
	Host        *bridge.Host
	Admission   signaling.Options // the same as for the gateway's other endpoints; Origins has no effect
	RequiresKey bool              // shows conversations only to a server key

	IsReady     func() bool // reports whether new calls are taken
	HasStore    bool        // several gateways share a Redis
	IsStoreDown func() bool // reports whether the Redis does not answer

	Metrics         prometheus.Gatherer
	ReadTodayCounts func() (begun int, dollars float64) // conversations and their cost since midnight (UTC), or since the start

	History         *History // ended conversations of this gateway
	Agents          *agents.Folder
	RecordingFolder string // folder of recordings; "": none
	CallFolder      string // folder of call files; "": none
	PageURL         string // URL of the gateway's own page

	Logger *slog.Logger
}

// Console is an http.Handler for the private address.
type Console struct {
	Options
	http.Handler
	server  *signaling.Server
	started time.Time
}

// site holds the files of the page. It is parsed once per process, because tests start a gateway a hundred times.
var site = sync.OnceValues(func() (*client.Site, error) { return client.ReadSite(nil, web.OperatorFolders()...) })

// New returns a console. The caller must close it.
func New(o Options) (*Console, error) {
	c := &Console{Options: o, started: time.Now()}
	page, err := c.newPage()
	if err != nil {
		return nil, err
	}
	c.Handler = c.newHandler(page)
	return c, nil
}

// Close ends the requests in progress.
func (c *Console) Close(ctx context.Context) error { return c.server.Close(ctx) }

// newPage returns the handler of the page and of its endpoints: those of signaling/backend, the status, and the sound
// for tickets.
func (c *Console) newPage() (http.Handler, error) {
	files, err := site()
	if err != nil {
		return nil, err
	}
	tickets, err := newListenTickets()
	if err != nil {
		return nil, err
	}
	admission := c.Admission
	admission.Origins = nil
	if !c.RequiresKey {
		admission.Access = nil
	}
	conversations := backend.Server{Host: c.Host, Logger: c.Logger}
	c.server = signaling.NewServer(admission, append(conversations.Endpoints(),
		signaling.Endpoint{Pattern: "GET /status", Handler: http.HandlerFunc(c.serveStatus)},
		signaling.Endpoint{Pattern: "GET /ended", Handler: http.HandlerFunc(c.serveHistory)},
		signaling.Endpoint{Pattern: "GET /ended/{id}/words", Handler: http.HandlerFunc(c.serveTranscript)},
		signaling.Endpoint{Pattern: "GET /ended/{id}/recordings/{number}", Handler: http.HandlerFunc(c.serveRecording)},
		signaling.Endpoint{Pattern: "GET /v1/sessions/{id}/ticket", Handler: http.HandlerFunc(tickets.issueTicket)},
		signaling.Endpoint{Pattern: "/", Handler: files.Handler(client.Status{}, nil)})...)
	mux := http.NewServeMux()
	mux.Handle("/", c.server)
	mux.Handle("GET /listen/{ticket}", tickets.redeemTicket(c.server))
	return mux, nil
}

// newHandler returns the handler of the private address. /healthz means that the process runs, /readyz that it takes
// calls. The profiler at /debug/pprof/ does not show the command line, which may hold a secret. page serves all other
// paths.
func (c *Console) newHandler(page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", c.serveReadiness)
	mux.HandleFunc("POST /v1/drain", func(w http.ResponseWriter, _ *http.Request) {
		c.Host.BeginDrain()
		access.WriteJSON(w, http.StatusOK, map[string]int{"sessions": len(c.Host.Sessions())})
	})
	mux.Handle("/", page)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case signaling.RejectUnknownHost(w, r, c.Admission.Hosts):
		case r.Method == http.MethodPost && len(r.Header.Values("Origin")) > 0:
			http.Error(w, "Web pages may not send POST requests to this address.", http.StatusForbidden)
		case isForbiddenRequest(r):
			http.Error(w, "Pages of other origins may not read this address.", http.StatusForbidden)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// serveReadiness serves GET /readyz.
func (c *Console) serveReadiness(w http.ResponseWriter, _ *http.Request) {
	switch {
	case !c.IsReady():
		http.Error(w, "not ready: no new calls are accepted", http.StatusServiceUnavailable)
	case c.IsStoreDown():
		io.WriteString(w, "degraded: Redis does not answer; calls are accepted, and limits count this gateway alone\n")
	default:
		io.WriteString(w, "ok\n")
	}
}

// isForbiddenRequest reports whether a request must be rejected because another origin's page has sent it. Such a page
// may link to the console, but must not start the profiler.
func isForbiddenRequest(r *http.Request) bool {
	profiles := strings.HasPrefix(r.URL.Path, "/debug/")
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin": // a URL that a person has typed, or one of our own pages
		return false
	case "": // not a browser, or one that reaches a remote host without TLS and therefore omits the header
		return profiles && (hasOtherHost(r, "Origin") || hasOtherHost(r, "Referer"))
	}
	leads := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return profiles || !leads
}

// hasOtherHost reports whether a header holds a URL with another host than that of the request.
func hasOtherHost(r *http.Request, header string) bool {
	text := r.Header.Get(header)
	u, err := url.Parse(text)
	return text != "" && (err != nil || !strings.EqualFold(u.Host, r.Host))
}
