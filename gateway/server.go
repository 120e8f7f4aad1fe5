package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"voxgate/gateway/console"
	"voxgate/signaling"

	"golang.org/x/time/rate"
)

const (
	// headerTimeout bounds the reading of a request's headers, against slow senders.
	headerTimeout = 5 * time.Second
	// pageTimeout bounds the sending of a page. WebSockets have their own deadlines after the upgrade.
	pageTimeout = 30 * time.Second
	// maxHeader bounds a request's headers in bytes, far above what browsers send.
	maxHeader = 16 << 10
	// checkTimeout bounds the check of Gemini at the start.
	checkTimeout = 10 * time.Second
)

// newServer returns an HTTP server for the endpoints.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: closeAfterChunks(handler), ReadHeaderTimeout: headerTimeout, WriteTimeout: pageTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// closeAfterChunks closes a connection after a request with a chunked body, against request smuggling. Such a request may also have had a
// Content-Length, which net/http drops silently and a proxy may have used: the rest of the body would be read as the next request. RFC
// 9112 section 6.1 requires the connection to be closed.
func closeAfterChunks(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// openServer opens the HTTP server of the page's port, with all endpoints.
func (g *gateway) openServer(context.Context) (end func(context.Context) error, err error) {
	endpoints := signaling.NewServer(g.admission(), g.endpoints...)
	g.server = newServer(endpoints, g.log)
	return func(ctx context.Context) error { return errors.Join(endpoints.Close(ctx), g.server.Shutdown(ctx)) }, nil
}

// openREST serves the REST API alone at an address of its own, if one is configured.
func (g *gateway) openREST(context.Context) (end func(context.Context) error, err error) {
	if g.settings.restAddr == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", g.settings.restAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for REST at VOXGATE_REST_ADDR: %w", err)
	}
	endpoints := signaling.NewServer(g.admission(), g.models.Endpoints()...)
	stop := serveAt(logAcceptErrors(listener, g.log), newServer(endpoints, g.log))
	g.log.Info("REST", "at", "http://"+listener.Addr().String()+"/v1beta/models")
	return func(ctx context.Context) error {
		defer stop()
		return endpoints.Close(ctx)
	}, nil
}

// openPrivate serves the operator's console at the private address, if one is configured.
func (g *gateway) openPrivate(ctx context.Context) (end func(context.Context) error, err error) {
	if g.settings.privateAddr == "" {
		return nil, nil
	}
	g.telemetry.WatchHost(g.host, g.store.IsDown)
	// Without keys, an address that only this machine reaches shows conversations to everybody there.
	at, _, err := net.SplitHostPort(g.settings.privateAddr)
	requiresKey := err != nil || !isLoopback(at) || g.settings.access.Keys != ""
	page, err := console.New(console.Options{
		Host: g.host, Admission: g.admission(), RequiresKey: requiresKey,
		IsReady:  func() bool { return ctx.Err() == nil && g.host.IsReady() },
		HasStore: g.settings.redis != "", IsStoreDown: g.store.IsDown,
		Metrics: g.telemetry.Metrics(), CountToday: g.telemetry.CountToday,
		Agents: g.agents, RecordingFolder: g.settings.recordings, CallFolder: g.settings.calls,
		PageURL: g.pageURL(), Logger: g.log,
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", g.settings.privateAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the operator at VOXGATE_PRIVATE_ADDR: %w", err)
	}
	server := newServer(page, g.log)
	server.WriteTimeout = console.ResponseTimeout
	stop := serveAt(listener, server)
	g.log.Info("private", "at", "http://"+listener.Addr().String())
	return func(ctx context.Context) error {
		defer stop()
		return page.Close(ctx)
	}, nil
}

// serveAt serves at a listener until stop is called.
func serveAt(listener net.Listener, server *http.Server) (stop func()) {
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(listener) })
	return func() {
		server.Close()
		serving.Wait()
	}
}

// loggingListener logs failures of Accept, such as too many open files, which net/http retries silently while callers wait.
type loggingListener struct {
	net.Listener
	log    *slog.Logger
	failed rate.Sometimes
}

// acceptWarningInterval is the least time between two logged failures of Accept, which is retried ten times a second.
const acceptWarningInterval = 10 * time.Second

func logAcceptErrors(l net.Listener, log *slog.Logger) net.Listener {
	return &loggingListener{l, log, rate.Sometimes{Interval: acceptWarningInterval}}
}

func (l *loggingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.failed.Do(func() { l.log.Error("accept failed", "at", l.Addr(), "err", err) })
	}
	return conn, err
}
