// Package signaling is how a person reaches the gateway: the page, who may connect, and the call, which speaks the JSON
// protocol over WebSocket and data channel and decides who plays the voice. PROTOCOL.md describes it for client authors.
package signaling

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling/protocol"
	"voxgate/signaling/rtc"
)

// ICEServer is a STUN or TURN server that clients are told of, in the form of RTCIceServer (W3C WebRTC section 4.2.4).
type ICEServer struct {
	URLs       []string `json:"urls"`
	Username   string   `json:"username,omitempty"`
	Credential string   `json:"credential,omitempty"`
}

// Options make a [Server].
type Options struct {
	Host        *bridge.Host
	RTC         *rtc.API
	Page        fs.FS        // what is served to browsers
	ICEServers  []ICEServer  // told to clients
	Origins     []string     // whose pages may connect, besides our own; "https://example.com"
	Hosts       []string     // names that we are reached by, besides localhost and addresses
	Canvas      http.Handler // what a canvas loads, below /canvas/; nil: nothing
	OpusDecoder opus.DecoderChoice
	Logger      *slog.Logger
}

// Server is the front door for browsers and apps: an http.Handler. Shutdown the host first, then Close the server.
type Server struct {
	options  Options
	host     *bridge.Host
	pages    http.Handler
	upgrader websocket.Upgrader

	mu     sync.Mutex
	closed bool
	nextID int
	live   map[int]context.CancelFunc // of the calls
	calls  sync.WaitGroup
}

// csp is the page's Content-Security-Policy: nothing but our own files, and no markup made of strings.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"media-src 'self' blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// NewServer returns a server without calls.
func NewServer(o Options) *Server {
	if o.ICEServers == nil {
		o.ICEServers = []ICEServer{}
	}
	return &Server{
		options: o, host: o.Host, pages: http.FileServerFS(o.Page), live: map[int]context.CancelFunc{},
		upgrader: websocket.Upgrader{
			HandshakeTimeout: writeTimeout, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10, WriteBufferPool: &sync.Pool{},
			CheckOrigin: func(*http.Request) bool { return true }, // ServeHTTP has
		},
	}
}

// ServeHTTP serves the page, the state, and the WebSocket at / and /ws.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.knownHost(r.Host) {
		http.Error(w, "This gateway is not known by that name; VOXGATE_HOSTS lists the names it answers to.", http.StatusMisdirectedRequest)
		return
	}
	if websocket.IsWebSocketUpgrade(r) {
		s.serveSocket(w, r)
		return
	}
	if s.options.Canvas != nil && strings.HasPrefix(r.URL.Path, "/canvas/") { // it has a policy of its own
		s.options.Canvas.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", csp)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Permissions-Policy", "microphone=(self), camera=(self)")
	h.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "Only GET is served here.", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/status":
		h.Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]string{"backend": s.host.Backend()})
	case "/ws":
		http.Error(w, "This address is for WebSockets.", http.StatusUpgradeRequired)
	default:
		s.pages.ServeHTTP(w, r)
	}
}

// serveSocket runs one call. It returns when the call is over, which may be long after the socket is.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" && r.URL.Path != "/ws" {
		http.NotFound(w, r)
		return
	}
	if !s.allowedOrigin(r) {
		s.options.Logger.Warn("origin refused", "origin", protocol.Clip(r.Header.Get("Origin")), "remote", r.RemoteAddr)
		http.Error(w, "Pages from this origin may not connect; VOXGATE_ORIGINS lists those that may.", http.StatusForbidden)
		return
	}
	ctx, leave := s.enter(r.Context())
	if leave == nil {
		http.Error(w, "The gateway is shutting down.", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	conn, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	c := &call{
		server: s, log: s.options.Logger.With("remote", conn.RemoteAddr().String()), out: newOutbox(),
		posts: make(chan func(), 64), done: make(chan struct{}), socket: newSocketLine(conn),
		offers: rate.NewLimiter(offerRate, offerBurst),
	}
	c.run(ctx)
}

// enter counts a call and gives it a context that ends with the server. After Close leave is nil.
func (s *Server) enter(parent context.Context) (ctx context.Context, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return parent, nil
	}
	ctx, cancel := context.WithCancel(parent)
	s.nextID++
	id := s.nextID
	s.live[id] = cancel
	s.calls.Add(1)
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.live, id)
		s.mu.Unlock()
		s.calls.Done()
	}
}

// Close ends the calls that are left and waits for all.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, cancel := range s.live {
		cancel()
	}
	s.mu.Unlock()
	s.calls.Wait()
}

// knownHost guards against DNS rebinding: a stranger's name that resolves to us is not ours. An address cannot be
// rebound, so any is good.
func (s *Server) knownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "localhost" || net.ParseIP(host) != nil ||
		slices.ContainsFunc(s.options.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// allowedOrigin tells whether the page that wants a socket is our own or on the list. Who sends no Origin is not a
// browser, so there is no other page's user to protect.
func (s *Server) allowedOrigin(r *http.Request) bool {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return true
	}
	if len(values) > 1 {
		return false
	}
	origin, err := url.Parse(values[0])
	if err != nil || origin.Host == "" {
		return false
	}
	return strings.EqualFold(origin.Host, r.Host) ||
		slices.ContainsFunc(s.options.Origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), values[0]) })
}
