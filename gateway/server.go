package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// headerTimeout bounds the reading of a request's headers, so that slow senders cannot hold connections.
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

// closeAfterChunks closes a connection after a request with a chunked body (RFC 9112, section 6.1). This prevents
// request smuggling by a proxy that uses a Content-Length, which net/http drops silently.
func closeAfterChunks(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
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

// loggingListener logs failures of Accept, such as too many open files. net/http retries them silently while callers
// wait.
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
