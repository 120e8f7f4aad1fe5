package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
)

// legacyVersion is the last version of the protocol in which a server asks the client at any time; since 2026-07-28 it answers a
// call with its questions instead. Servers of the older kind are still the most.
const legacyVersion = "2025-11-25"

// sessionHeader names the session of a request over HTTP; a server that does not know it answers 404 (Model Context Protocol,
// Transports, Session Management).
const sessionHeader = "Mcp-Session-Id"

// maxMessage bounds what the model is told of a server's own error text, in bytes.
const maxMessage = 500

// undelivered is the code of the SDK's own error for a message that did not reach the server; it has no name outside the SDK.
const undelivered = -32005

var (
	errEnded = errors.New("it has ended")
	errHung  = errors.New("it does not read its input")

	// errSpent is the end of a call that did not reach the server, because its link has ended: it can be made on another.
	errSpent = errors.New("the link has ended before the call")
)

// link is one session with the server, and the child process where there is one.
type link struct {
	server  *Server
	session *mcp.ClientSession
	send    mcp.MethodHandler // to the server
	process *process          // nil: streamable HTTP
	client  *http.Client      // nil: stdio
	since   time.Time
	ended   chan struct{} // closed when the connection is gone, or given up
	changed chan struct{} // the list of tools has changed
	work    sync.WaitGroup

	mu      sync.Mutex       // guards what follows
	calls   map[string]*call // by progress token: those that the server may be at
	freed   chan struct{}    // closed when a call has ended or was abandoned
	closing bool             // no call may begin
	gone    bool             // ended is closed
	why     error            // why it was given up
	full    bool             // more calls were abandoned than are in the books
}

func newLink(s *Server) *link {
	return &link{
		server: s, since: time.Now(),
		ended: make(chan struct{}), changed: make(chan struct{}, 1),
		calls: map[string]*call{}, freed: make(chan struct{}),
	}
}

// dial starts or reaches the server. ctx bounds that only.
func dial(ctx context.Context, s *Server, legacy bool) (*link, error) {
	l := newLink(s)
	transport, err := l.transport()
	if err != nil {
		return nil, err
	}
	return l, l.connect(ctx, transport, legacy)
}

func (l *link) transport() (mcp.Transport, error) {
	o := l.server.o
	if o.URL != "" {
		l.client = httpClient(o.URL, o.Headers)
		return &mcp.StreamableClientTransport{Endpoint: o.URL, HTTPClient: l.client}, nil
	}
	var err error
	if l.process, err = start(o); err != nil {
		return nil, err
	}
	return &watched{Transport: &mcp.IOTransport{Reader: l.process.stdout, Writer: l.process.stdin}}, nil
}

func (l *link) connect(ctx context.Context, transport mcp.Transport, legacy bool) error {
	options := &mcp.ClientSessionOptions{}
	if legacy {
		options.ProtocolVersion = legacyVersion
	}
	var err error
	if l.session, err = l.newClient().Connect(ctx, transport, options); err != nil {
		err = plain(err)
		if ended := l.release(); ended != nil {
			err = fmt.Errorf("%w (%w)", err, ended)
		}
		return fmt.Errorf("connect: %w", err)
	}
	l.work.Go(func() {
		_ = l.session.Wait()
		l.giveUp(nil)
	})
	return nil
}

func (l *link) newClient() *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "voxgate", Version: "1"}, &mcp.ClientOptions{
		Logger:       l.server.o.Logger,
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
		ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return l.ask(ctx, r.Params)
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case l.changed <- struct{}{}:
			default: // that it has changed is known
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			l.mu.Lock()
			c := l.calls[fmt.Sprint(r.Params.ProgressToken)]
			heard := c != nil && c.abandoned.IsZero()
			l.mu.Unlock()
			if heard {
				c.progress(r.Params)
			}
		},
	})
	client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		l.send = next
		return next
	})
	return client
}

// alive tells whether the connection is there, as far as is known.
func (l *link) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// giveUp takes the link for ended: nothing begins on it any more, and the keeper closes it. why is nil where the connection is gone.
func (l *link) giveUp(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveUpLocked(why)
}

func (l *link) giveUpLocked(why error) {
	l.closing = true
	if !l.gone {
		l.gone, l.why = true, why
		close(l.ended)
	}
}

// hung kills a child process that does not read, since it would not see the end of its input either.
func (l *link) hung() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing { // else the process may be gone, and its number another's
		kill(l.process.cmd)
		l.giveUpLocked(errHung)
	}
}

// close ends the session, with all calls that run in it, and the child process, and says how that ended or why it had to. It returns
// when nothing of the link is left: no process, no goroutine.
func (l *link) close() error {
	l.mu.Lock()
	l.closing = true
	for _, c := range l.calls {
		c.cancel(errEnded)
	}
	l.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = l.session.Close() // waits for the calls, and with a child that does not read for ever
	}()
	select {
	case <-closed:
	case <-time.After(grace):
	}
	err := l.release()
	<-closed
	l.work.Wait()
	return cmp.Or(l.why, err)
}

// release ends what the session was carried by, and says how the child process ended.
func (l *link) release() error {
	if l.process != nil {
		return l.process.stop()
	}
	l.client.CloseIdleConnections()
	return nil
}

// list reads the server's list of tools. It returns when ctx is done, even if the server does not read.
func (l *link) list(ctx context.Context) error {
	done := make(chan error, 1)
	l.work.Go(func() { done <- l.server.list(ctx, l.session) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if l.process != nil && l.process.stdin.stalled() >= stall {
		l.hung()
	}
	return fmt.Errorf("list tools: %w", context.Cause(ctx))
}

// failure says, for the model, why a call failed.
func (s *Server) failure(ctx context.Context, err error) error {
	var refused *jsonrpc.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tools.ErrNobody):
		return tools.ErrNobody
	case errors.Is(err, errEnded), errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF) && s.o.URL == "":
		return fmt.Errorf("the MCP server %q ended during the call", s.o.Name)
	case errors.As(err, &refused) && refused.Code != undelivered:
		return fmt.Errorf("the MCP server %q refused the call: %s", s.o.Name, tools.Cut(refused.Message, maxMessage))
	default:
		return fmt.Errorf("the MCP server %q cannot be reached: %w", s.o.Name, tools.Unaddressed(err))
	}
}

// plain takes the URL, which may hold a token, out of an error.
func plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// httpClient returns a client that sends headers along, and does not leave the host of endpoint.
func httpClient(endpoint string, headers map[string]string) *http.Client {
	return &http.Client{
		Transport: &headerTransport{http.DefaultTransport.(*http.Transport).Clone(), headers},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Scheme != via[0].URL.Scheme || r.URL.Host != via[0].URL.Host {
				return fmt.Errorf("it redirects to another host, %s", r.URL.Host)
			}
			if len(via) > 3 {
				return errors.New("it redirects more than 3 times")
			}
			return nil
		},
	}
}

type headerTransport struct {
	*http.Transport
	headers map[string]string
}

func (t *headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, _ := r.Context().Value(callKey{}).(*call)
	asked := false // it is a request of a call, and not the wish to hear the rest of an answer
	if c != nil && r.GetBody != nil {
		if body, err := r.GetBody(); err == nil {
			raw, _ := io.ReadAll(body) // of memory
			if m, err := jsonrpc.DecodeMessage(raw); err == nil {
				asked = c.written(m)
			}
		}
	}
	r = r.Clone(r.Context())
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	response, err := t.Transport.RoundTrip(r)
	switch {
	case err != nil || !asked:
	case response.StatusCode == http.StatusNotFound && r.Header.Get(sessionHeader) != "":
		c.forgotten.Store(true)
	case response.StatusCode < http.StatusMultipleChoices:
		c.accepted.Store(true)
	}
	return response, err
}
