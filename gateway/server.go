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
	// headerTimeout bounds a request's headers: a slow sender costs a connection.
	headerTimeout = 5 * time.Second
	// pageTimeout bounds the sending of a page; a WebSocket has its own deadlines from its upgrade on.
	pageTimeout = 30 * time.Second
	// maxHeader is far above what a browser sends.
	maxHeader = 16 << 10
	// checkTimeout bounds the question to Google at the start.
	checkTimeout = 10 * time.Second
)

// newServer serves the doors.
func newServer(doors http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: closeAfterChunks(doors), ReadHeaderTimeout: headerTimeout, WriteTimeout: pageTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// closeAfterChunks ends a connection after a request whose body comes in chunks. Such a request may have had a Content-Length, too, which
// net/http removes without a trace, and a proxy before us may have gone by that: what it took for the rest of the body would be the next
// request here. RFC 9112 section 6.1 wants the connection closed.
func closeAfterChunks(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// serveUntil serves until ctx is done or the server fails. Meanwhile it checks what the first caller would find out.
func serveUntil(ctx context.Context, server *http.Server, at net.Listener, check func(context.Context)) (err error) {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(at) }()
	debug.FreeOSMemory() // the start takes several times what is kept of it: the page's scripts are parsed and joined
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

// heardListener logs that connections cannot be accepted, as when too many files are open: the callers wait, and nobody else says so.
type heardListener struct {
	net.Listener
	log    *slog.Logger
	failed rate.Sometimes
}

// acceptWarning is how often it is logged: a listener that fails is asked again ten times a second.
const acceptWarning = 10 * time.Second

func heard(l net.Listener, log *slog.Logger) net.Listener {
	return &heardListener{l, log, rate.Sometimes{Interval: acceptWarning}}
}

func (l *heardListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.failed.Do(func() { l.log.Error("a connection cannot be accepted", "at", l.Addr(), "err", err) })
	}
	return conn, err
}
