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
	// pageTimeout bounds the sending of a page. It does not apply to WebSockets, which have their own deadlines.
	pageTimeout = 30 * time.Second
	// maxHeader bounds a request's headers, in bytes. Browsers send far less.
	maxHeader = 16 << 10
	// checkTimeout bounds the check of Gemini at the start.
	checkTimeout = 10 * time.Second
)

// newServer returns an HTTP server for the endpoints.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: closeAfterChunkedBody(handler), ReadHeaderTimeout: headerTimeout, WriteTimeout: pageTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// closeAfterChunkedBody closes a connection after a request with a chunked body (RFC 9112, section 6.1). It prevents
// request smuggling: if the request also has a Content-Length, net/http ignores that silently, but a proxy may rely on
// it.
func closeAfterChunkedBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// serveInBackground serves at a listener until stop is called.
func serveInBackground(listener net.Listener, server *http.Server) (stop func()) {
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

// acceptWarningInterval is the minimum time between two logged failures of Accept. Without it, the log would get ten
// lines a second, because Accept is retried that often.
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
