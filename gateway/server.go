package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

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

// serveUntil serves until ctx is done or the server fails. check runs at the same time, for checkTimeout at most.
func serveUntil(ctx context.Context, server *http.Server, at net.Listener, check func(context.Context)) (err error) {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(at) }()
	debug.FreeOSMemory() // parsing and bundling the page's scripts takes several times the memory that stays in use
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	var checks sync.WaitGroup
	checks.Go(func() { check(checking) })
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	checks.Wait()
	return err
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
