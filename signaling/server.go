// Package signaling is how people and their programs reach the gateway: what all front doors share.
//
// [Server] checks who may come in, and ends all visits. [ServeSocket] runs a call over a WebSocket: it reads with
// limits and at a pace, writes, pings, says goodbye, and waits for what it has started, so that a door starts no
// goroutine. [Peers] run WebRTC calls that begin with one HTTP request. The example is a whole door. Each door is a
// folder of this one; none knows another.
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

	"voxgate/crash"
	"voxgate/signaling/access"
	"voxgate/signaling/protocol"
	"voxgate/tools"
)

// Options make a [Server].
type Options struct {
	Origins []Origin // whose pages may connect, besides our own
	Hosts   []string // names that we are reached by, besides localhost and addresses, as ParseHost returns them
	Access  *access.Gate
	// Refused learns of a host or an origin that was refused, by the name of the rule; nil: not needed. It must not
	// block.
	Refused func(rule string)
	Logger  *slog.Logger
}

// Door is a front door, and where it is.
type Door struct {
	Pattern string       // of [http.ServeMux]
	Handler http.Handler // of requests; nil: there is only Socket
	Socket  http.Handler // of WebSockets at the same place; nil: there are none

	// Public has the requests of anybody served, as the page is: pages of other origins that are not on the list may
	// send them, and cannot read the answer. WebSockets are never public.
	Public bool
}

// Answering is the handler of requests that a door serves. What serve refuses is logged, and refuse answers it in the door's own words.
func Answering(log *slog.Logger, door string, serve func(http.ResponseWriter, *http.Request) error, refuse func(http.ResponseWriter, error),
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			why := tools.Truncate(err.Error(), 300) // it may repeat what a stranger has sent
			access.From(r.Context()).LogRefusal(log, "request refused", "door", door, "request", r.Pattern, "err", why)
			refuse(w, err)
		}
	})
}

// Server is the way to all doors: an http.Handler. Shut the conversations down first, then Close it.
type Server struct {
	options Options
	mux     *http.ServeMux

	mu     sync.Mutex
	closed bool
	visits map[*visit]struct{} // WebSockets, and what outlives a request
	empty  chan struct{}       // closed when there is none; nil: not awaited
}

// visit is a client at a door.
type visit struct {
	at     string // the door's pattern and the visitor's address
	cancel context.CancelFunc
}

// NewServer returns a server with these doors.
func NewServer(o Options, doors ...Door) *Server {
	s := &Server{options: o, mux: http.NewServeMux(), visits: map[*visit]struct{}{}}
	for _, d := range doors {
		s.mux.Handle(d.Pattern, s.enter(d))
	}
	return s
}

// bodyTimeout is how long the body of a request may take: one that never comes costs a connection, and the goroutine
// that would read or discard it. The longest that a door takes, 64 KiB, comes in time at 105 kbit/s.
const bodyTimeout = 5 * time.Second

// hurry gives the body of a request a deadline, which ends with it: an answer may take longer, and http.Server ends a
// request whose connection cannot be read any more.
func hurry(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(bodyTimeout)) == nil {
		r.Body = &hurried{r.Body, c}
	}
}

// hurried is a body with a deadline.
type hurried struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (b *hurried) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hurry(w, r)
	r = r.WithContext(s.options.Access.Visit(r))
	if RefuseHost(w, r, s.options.Hosts) {
		s.refused("host")
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the page has one of its own
	w.Header().Set("Vary", "Origin")
	w.Header().Set("Cache-Control", "no-store") // answers are somebody's; the page has rules of its own
	if r.TLS != nil {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000") // a year, as hstspreload.org asks for
	}
	if origin := r.Header.Get("Origin"); origin != "" && allowedOrigin(r, s.options.Origins) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" { // a preflight (Fetch, 3.2.2)
			w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE, OPTIONS")
			w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			w.Header().Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	s.tidy(r)
	s.mux.ServeHTTP(w, r)
}

var slashes = regexp.MustCompile(`//+`)

// tidy makes of a request's path the one that is served: without doubled slashes, which Google's SDKs write, and without one at the end,
// where only that is served. Neither WebSocket clients nor most that post an offer follow a redirect.
func (s *Server) tidy(r *http.Request) {
	r.URL.Path, r.URL.RawPath = slashes.ReplaceAllString(r.URL.Path, "/"), slashes.ReplaceAllString(r.URL.RawPath, "/")
	if len(r.URL.Path) < 2 || !strings.HasSuffix(r.URL.Path, "/") || !s.isServedByRest(r) {
		return
	}
	path, raw := r.URL.Path, r.URL.RawPath
	r.URL.Path, r.URL.RawPath = strings.TrimSuffix(path, "/"), strings.TrimSuffix(raw, "/")
	if s.isServedByRest(r) {
		r.URL.Path, r.URL.RawPath = path, raw
	}
}

// isServedByRest reports whether a request has no door of its own, but at most one that takes whatever is left.
func (s *Server) isServedByRest(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	return pattern == "" || strings.HasSuffix(pattern, "/") || strings.HasSuffix(pattern, "...}")
}

// enter is a door with everything that stands before it. A door asks who may talk, and how much, by
// [access.Visitor.Authorize].
func (s *Server) enter(d Door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, public := d.Handler, d.Public
		from := r.RemoteAddr
		if address := access.From(r.Context()).Address(); address.IsValid() {
			from = address.String()
		}
		entered := entrance{s, d.Pattern + " from " + from}
		r = r.WithContext(context.WithValue(r.Context(), entranceKey{}, entered))
		if websocket.IsWebSocketUpgrade(r) {
			handler, public = d.Socket, false
		}
		allowed := allowedOrigin(r, s.options.Origins)
		switch {
		case handler == nil && d.Handler == nil:
			http.Error(w, "This address is for WebSockets.", http.StatusUpgradeRequired)
		case handler == nil:
			http.NotFound(w, r)
		case !allowed && !public:
			s.options.Logger.Warn("origin refused", "origin", protocol.Clip(r.Header.Get("Origin")), "remote", r.RemoteAddr)
			s.refused("origin")
			http.Error(w, "Pages from this origin may not connect; VOXGATE_ORIGINS lists those that may.", http.StatusForbidden)
		case !websocket.IsWebSocketUpgrade(r): // http.Server.Shutdown waits for these
			r.Body = access.From(r.Context()).Body(r)
			defer r.Body.Close()
			s.serveHandler(w, r, handler)
		default:
			ctx, leave := entered.visit(r.Context())
			if leave == nil {
				http.Error(w, "The gateway is shutting down.", http.StatusServiceUnavailable)
				return
			}
			defer leave()
			s.serveHandler(w, r.WithContext(ctx), handler)
		}
	})
}

// serveHandler has a handler serve a request. A panic in it is answered with 500, or ends an answer that has begun.
func (s *Server) serveHandler(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	crash.Run(s.options.Logger, "request", func(error) {
		http.Error(w, "An internal error of the gateway.", http.StatusInternalServerError)
	}, func() { handler.ServeHTTP(w, r) })
}

func (s *Server) refused(rule string) {
	if f := s.options.Refused; f != nil {
		f(rule)
	}
}

// entranceKey is where a request's context has its [entrance].
type entranceKey struct{}

// entrance is where a request has come in.
type entrance struct {
	server *Server
	at     string // as in [callerConn]
}

// loggerOf returns the logger of the server that the request of ctx has come to; nil: there is none.
func loggerOf(ctx context.Context) *slog.Logger {
	e, ok := ctx.Value(entranceKey{}).(entrance)
	if !ok {
		return nil
	}
	return e.server.options.Logger
}

// Outlive returns a context for what goes on when the request of ctx is over, such as a call that it began. It ends
// with the server, which waits until leave is called; nil: the gateway is shutting down.
func Outlive(ctx context.Context) (outliving context.Context, leave func()) {
	e, ok := ctx.Value(entranceKey{}).(entrance)
	if !ok {
		return ctx, nil
	}
	return e.visit(context.WithoutCancel(ctx))
}

// Stopping reports whether the server that the request of ctx has come to is being closed: what has ended just now has
// probably ended because of it.
func Stopping(ctx context.Context) bool {
	e, ok := ctx.Value(entranceKey{}).(entrance)
	if !ok {
		return false
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	return e.server.closed
}

// visit counts a visit and gives it a context that ends with the server. After Close leave is nil.
func (e entrance) visit(parent context.Context) (ctx context.Context, leave func()) {
	s := e.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return parent, nil
	}
	ctx, cancel := context.WithCancel(parent)
	v := &visit{e.at, cancel}
	s.visits[v] = struct{}{}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.visits, v)
		if len(s.visits) == 0 && s.empty != nil {
			close(s.empty)
			s.empty = nil
		}
	}
}

// Close ends the visits that are left, and waits for them until ctx is done: the error names those that have not ended
// by then.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for v := range s.visits {
		v.cancel()
	}
	empty := make(chan struct{})
	if len(s.visits) == 0 {
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
	for v := range s.visits {
		left = append(left, v.at)
	}
	slices.Sort(left)
	return fmt.Errorf("visits that do not end: %s", strings.Join(left, ", "))
}
