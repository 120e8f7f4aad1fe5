// Package signaling contains the parts that all endpoints share. Endpoints connect clients with the gateway.
//
// [Server] checks host and origin of requests, and ends all connections at the shutdown. [ServeSocket] runs a call over
// a WebSocket: it reads with size and rate limits, writes, pings, sends the close frame, and waits for its goroutines.
// So endpoints need not start goroutines of their own. [PeerRegistry] runs WebRTC calls that begin with one HTTP
// request. The package's example is a complete endpoint. Each endpoint is in a subfolder, and does not depend on other
// endpoints.
package signaling

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/internal/crash"
	"voxgate/signaling/access"
	"voxgate/signaling/client/protocol"
	"voxgate/tools"
)

// Options configure a [Server].
type Options struct {
	Origins []Origin // origins whose pages may connect, in addition to the gateway's own pages
	Hosts   []string // names of this gateway as returned by ParseHost, in addition to localhost and addresses
	Access  *access.Gate
	// OnRefused is called with the name of a rule when a host or an origin was rejected. It must not block, and may be
	// nil.
	OnRefused func(rule string)
	Logger    *slog.Logger
}

// Endpoint is a path with its handlers.
type Endpoint struct {
	Pattern string       // in the syntax of [http.ServeMux]
	Handler http.Handler // for requests other than WebSockets; nil means only Socket is served
	Socket  http.Handler // for WebSockets at the same path; nil means none are accepted

	// Public allows requests from pages of any origin, for example requests for the web page. Pages of other origins
	// cannot read the answers. WebSockets are never public.
	Public bool
}

// NewHandler returns a handler that calls serve. If serve returns an error, the handler logs it and calls refuse, which
// answers the request in the format of the protocol.
func NewHandler(log *slog.Logger, protocol string, serve func(http.ResponseWriter, *http.Request) error, refuse func(http.ResponseWriter,
	error),
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			why := tools.Truncate(err.Error(), 300) // it may repeat untrusted input
			access.From(r.Context()).LogLimited(log, "request refused", "door", protocol, "request", r.Pattern, "err", why)
			refuse(w, err)
		}
	})
}

// Server is the http.Handler of all endpoints. To stop it, end the conversations first, and then call Close.
type Server struct {
	options Options
	mux     *http.ServeMux

	mu     sync.Mutex
	closed bool
	conns  map[*openConn]struct{} // WebSockets, and calls that outlive a request
	empty  chan struct{}          // closed when conns becomes empty; nil unless Close waits for that
}

// openConn is an open connection of a client to an endpoint, or a call that outlives its request.
type openConn struct {
	label  string // the endpoint's pattern and the client's address
	cancel context.CancelFunc
}

// NewServer returns a server with these endpoints.
func NewServer(o Options, endpoints ...Endpoint) *Server {
	s := &Server{options: o, mux: http.NewServeMux(), conns: map[*openConn]struct{}{}}
	for _, d := range endpoints {
		s.mux.Handle(d.Pattern, s.wrapEndpoint(d))
	}
	return s
}

// bodyTimeout limits the time for reading a request's body. Without it, a client that never sends its body would keep a
// connection occupied. In this time, 64 KiB arrive at 105 kbit/s. Package geminirest accepts longer bodies, and sets
// its own deadline.
const bodyTimeout = 5 * time.Second

// setBodyDeadline sets a read deadline for the body of a request, and clears it when the whole body was read. The
// deadline must be cleared because the answer may take longer: net/http reads from the connection during the answer,
// and cancels the request if that fails.
func setBodyDeadline(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(bodyTimeout)) == nil {
		r.Body = &deadlineBody{r.Body, c}
	}
}

// deadlineBody is a request's body that clears the read deadline at its end.
type deadlineBody struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (b *deadlineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setBodyDeadline(w, r)
	r = r.WithContext(s.options.Access.WithClient(r))
	if RejectUnknownHost(w, r, s.options.Hosts) {
		s.reportRefused("host")
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the web page sets its own
	w.Header().Set("Vary", "Origin")
	w.Header().Set("Cache-Control", "no-store") // answers are personal; the web page sets its own rules
	if r.TLS != nil {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000") // a year, as hstspreload.org asks for
	}
	if origin := r.Header.Get("Origin"); origin != "" && isAllowedOrigin(r, s.options.Origins) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" { // a preflight (Fetch, 3.2.2)
			w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE, OPTIONS")
			w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			w.Header().Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	s.normalizePath(r)
	s.mux.ServeHTTP(w, r)
}

var slashes = regexp.MustCompile(`//+`)

// normalizePath changes the path of a request. It removes doubled slashes, because Google's SDKs write them. It removes
// a final slash if only the path without the slash is served. It does not redirect, because many clients do not follow
// redirects.
func (s *Server) normalizePath(r *http.Request) {
	r.URL.Path, r.URL.RawPath = slashes.ReplaceAllString(r.URL.Path, "/"), slashes.ReplaceAllString(r.URL.RawPath, "/")
	if len(r.URL.Path) < 2 || !strings.HasSuffix(r.URL.Path, "/") || !s.isCatchAll(r) {
		return
	}
	path, raw := r.URL.Path, r.URL.RawPath
	r.URL.Path, r.URL.RawPath = strings.TrimSuffix(path, "/"), strings.TrimSuffix(raw, "/")
	if s.isCatchAll(r) {
		r.URL.Path, r.URL.RawPath = path, raw
	}
}

// isCatchAll reports whether a request matches no pattern, or only a pattern that ends in a wildcard.
func (s *Server) isCatchAll(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	return pattern == "" || strings.HasSuffix(pattern, "/") || strings.HasSuffix(pattern, "...}")
}

// wrapEndpoint returns an endpoint's handler with the checks that apply to all endpoints. The endpoint itself must
// authorize the client with [access.Client.Authorize].
func (s *Server) wrapEndpoint(d Endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, public := d.Handler, d.Public
		from := r.RemoteAddr
		if address := access.From(r.Context()).Address(); address.IsValid() {
			from = address.String()
		}
		entered := requestEntry{s, d.Pattern + " from " + from}
		r = r.WithContext(context.WithValue(r.Context(), requestEntryKey{}, entered))
		if websocket.IsWebSocketUpgrade(r) {
			handler, public = d.Socket, false
		}
		allowed := isAllowedOrigin(r, s.options.Origins)
		switch {
		case handler == nil && d.Handler == nil:
			http.Error(w, "This address is for WebSockets.", http.StatusUpgradeRequired)
		case handler == nil:
			http.NotFound(w, r)
		case !allowed && !public:
			s.options.Logger.Warn("origin refused", "origin", protocol.ClipText(r.Header.Get("Origin")), "remote", r.RemoteAddr)
			s.reportRefused("origin")
			http.Error(w, "Pages from this origin may not connect; VOXGATE_ORIGINS lists those that may.", http.StatusForbidden)
		case !websocket.IsWebSocketUpgrade(r): // not tracked: http.Server.Shutdown waits for plain requests
			r.Body = access.From(r.Context()).CountedBody(r)
			defer r.Body.Close()
			s.serveHandler(w, r, handler)
		default:
			ctx, leave := entered.trackConn(r.Context())
			if leave == nil {
				http.Error(w, "The gateway is shutting down.", http.StatusServiceUnavailable)
				return
			}
			defer leave()
			s.serveHandler(w, r.WithContext(ctx), handler)
		}
	})
}

// serveHandler calls a handler. If the handler panics, the client gets status 500. If the answer has already begun, an
// error text is appended to it instead.
func (s *Server) serveHandler(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	crash.Run(s.options.Logger, "request", func(error) {
		http.Error(w, "An internal error of the gateway.", http.StatusInternalServerError)
	}, func() { handler.ServeHTTP(w, r) })
}

func (s *Server) reportRefused(rule string) {
	if f := s.options.OnRefused; f != nil {
		f(rule)
	}
}

// requestEntryKey is the context key of the [requestEntry].
type requestEntryKey struct{}

// requestEntry is the server and the endpoint of a request.
type requestEntry struct {
	server *Server
	label  string // same as openConn.label
}

// loggerOf returns the logger of the server that serves the request of ctx, or nil.
func loggerOf(ctx context.Context) *slog.Logger {
	e, ok := ctx.Value(requestEntryKey{}).(requestEntry)
	if !ok {
		return nil
	}
	return e.server.options.Logger
}

// OutliveRequest returns a context for work that continues after the request of ctx, such as a call. The context ends
// when the server is closed, and Close then waits until leave is called. leave is nil if the server is being closed, or
// if ctx does not belong to a request of a [Server].
func OutliveRequest(ctx context.Context) (outliving context.Context, leave func()) {
	e, ok := ctx.Value(requestEntryKey{}).(requestEntry)
	if !ok {
		return ctx, nil
	}
	return e.trackConn(context.WithoutCancel(ctx))
}

// IsStopping reports whether the server that serves the request of ctx is being closed. If so, this is probably why a
// conversation has just ended.
func IsStopping(ctx context.Context) bool {
	e, ok := ctx.Value(requestEntryKey{}).(requestEntry)
	if !ok {
		return false
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	return e.server.closed
}

// trackConn registers a connection. When the server is closed, Close ends the connection's context, and waits until
// leave is called. If Close has already been called, leave is nil.
func (e requestEntry) trackConn(parent context.Context) (ctx context.Context, leave func()) {
	s := e.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return parent, nil
	}
	ctx, cancel := context.WithCancel(parent)
	v := &openConn{e.label, cancel}
	s.conns[v] = struct{}{}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, v)
		if len(s.conns) == 0 && s.empty != nil {
			close(s.empty)
			s.empty = nil
		}
	}
}

// Close ends the open connections, and blocks until they have ended or ctx is done. The error names the connections
// that have not ended.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for v := range s.conns {
		v.cancel()
	}
	empty := make(chan struct{})
	if len(s.conns) == 0 {
		close(empty)
	} else {
		s.empty = empty
	}
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	for v := range s.conns {
		left = append(left, v.label)
	}
	slices.Sort(left)
	return fmt.Errorf("connections not ended: %s", strings.Join(left, ", "))
}
