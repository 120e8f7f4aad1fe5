package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
)

const (
	// legacyVersion is the last protocol version in which a server may ask the client at any time. Since version
	// 2026-07-28, a server sends its questions as the response to a call.
	legacyVersion = "2025-11-25"

	// grace limits how long a child may take to end after its stdin is closed. The same limit applies after SIGTERM.
	// The protocol only asks for "a reasonable time".
	grace = 2 * time.Second

	// maxUnanswered is the number of consecutive calls that a server may leave unanswered before its link is ended.
	maxUnanswered = 16

	// relistPause is the minimum time between two reads of the list of tools. It is needed because some servers
	// announce a change whenever the list is read.
	relistPause = 5 * time.Second
)

var (
	errEnded       = errors.New("it has ended")
	errUnanswered  = fmt.Errorf("it has not answered %d calls in a row", maxUnanswered)
	errFailed      = errors.New("its connection has failed (details omitted because they contain the URL)")
	errUnknownCall = errors.New("only servers of protocol 2026-07-28 or later may ask: this question does not say which call it belongs to")

	// errLinkEnded means that a call did not start, because its link has ended. The call can be made again on another
	// link.
	errLinkEnded = errors.New("the link has ended before the call")
)

// link is one session with the server. If the server is a child process, the link includes that process.
type link struct {
	server    *Server
	session   *mcp.ClientSession
	process   *exec.Cmd // child process; nil for streamable HTTP
	stderr    *lines    // logs the stderr of the process
	noiseLog  *lines    // lines of its stdout that are not messages
	startTime time.Time
	endedCh   chan struct{} // closed when no call may start any more
	closed    chan struct{} // closed when everything of the link has ended
	changed   chan struct{} // the list of tools has changed
	work      sync.WaitGroup

	mu         sync.Mutex                 // guards the following fields
	endErr     error                      // why it has ended (nil: it has not)
	calls      map[string]context.Context // running calls by progress token, for their progress
	unanswered int                        // number of calls in a row that were cancelled or timed out
}

// askingKey is the context key of a lock that belongs to a call. The lock ensures that the user gets only one question
// at a time.
type askingKey struct{}

func newLink(s *Server) *link {
	return &link{
		server: s, startTime: time.Now(),
		endedCh: make(chan struct{}), closed: make(chan struct{}), changed: make(chan struct{}, 1),
		calls: map[string]context.Context{},
	}
}

// dial starts the server, or connects to it. ctx bounds only this. The caller must call serve afterwards.
func dial(ctx context.Context, s *Server, isLegacy bool) (*link, error) {
	l := newLink(s)
	if s.options.URL != "" {
		client := newHTTPClient(s.options.Headers, l.callContext)
		err := l.connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.options.URL, HTTPClient: client}, isLegacy)
		if err != nil {
			client.CloseIdleConnections()
		}
		return l, err
	}
	cmd := exec.Command(s.options.Command[0], s.options.Command[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range s.options.Env {
		cmd.Env = append(cmd.Env, name+"="+value) // of several values with one name, the last counts
	}
	l.process, l.stderr, l.noiseLog = cmd, &lines{log: s.options.Logger, stream: "stderr"}, &lines{log: s.options.Logger, stream: "stdout"}
	cmd.Stderr = l.stderr
	cmd.WaitDelay = grace // limits Wait if a descendant holds stderr open
	setOwnGroup(cmd)
	return l, l.connect(ctx, &commandTransport{cmd, l.noiseLog}, isLegacy)
}

func (l *link) connect(ctx context.Context, transport mcp.Transport, isLegacy bool) error {
	options := &mcp.ClientSessionOptions{}
	if isLegacy {
		options.ProtocolVersion = legacyVersion
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "voxgate", Version: "1"}, &mcp.ClientOptions{
		Logger:             l.server.options.Logger,
		Capabilities:       &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
		ElicitationHandler: answerElicitation,
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case l.changed <- struct{}{}:
			default: // a change is already pending
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			l.mu.Lock()
			call, ok := l.calls[fmt.Sprint(r.Params.ProgressToken)]
			l.mu.Unlock()
			if ok {
				tools.ReportProgress(call, encodeProgress(r.Params))
			}
		},
	})
	var err error
	if l.session, err = client.Connect(ctx, transport, options); err != nil {
		err = l.server.withoutURL(err)
		if l.process != nil {
			if l.process.Process == nil { // the child process was not started
				return err
			}
			killGroup(l.process) // ends its descendants
			if state := l.process.ProcessState; state != nil && !state.Success() {
				err = fmt.Errorf("%w (%v)", err, state)
			}
		}
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// serve serves the link until it has ended. Then it ends the processes and goroutines that belong to the link.
func (l *link) serve() {
	defer close(l.closed)
	closed := make(chan error, 1)
	go func() { closed <- l.session.Wait() }()
	changed := l.changed
	var later <-chan time.Time // fires when the list may be read again after a change
	for l.isAlive() {
		select {
		case <-l.endedCh:
		case <-l.server.lifetime.Done():
			l.endLink(errEnded)
		case err := <-closed:
			closed <- err
			l.endLink(cmp.Or(l.server.withoutURL(err), errEnded))
		case <-changed:
			l.refetchTools()
			changed, later = nil, time.After(relistPause)
		case <-later:
			changed = l.changed
		}
	}
	// The session's Close waits for pending writes. These never end if the child does not read, so the child is killed
	// then.
	timer := time.AfterFunc(2*grace, func() {
		if l.process != nil {
			killGroup(l.process)
		}
	})
	_ = l.session.Close()
	timer.Stop()
	<-closed
	if l.process != nil {
		killGroup(l.process) // ends its descendants
	}
	l.work.Wait()
	if l.stderr != nil {
		l.stderr.flushRest()
		l.noiseLog.flushRest()
	}
	if l.server.lifetime.Err() == nil {
		l.server.recordEnd(l.endErr, time.Since(l.startTime))
		l.server.options.Logger.Warn("MCP server ended, restarting at the next call", "err", l.endErr)
	}
}

// isAlive reports whether calls may start.
func (l *link) isAlive() bool {
	select {
	case <-l.endedCh:
		return false
	default:
		return true
	}
}

// endLink ends the link: no more calls start on it, and serve closes it.
func (l *link) endLink(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endErr == nil {
		l.endErr = reason
		close(l.endedCh)
	}
}

// fetchTools reads the server's list of tools. If ctx is done or the link has ended, it returns even if the server does
// not read the request.
func (l *link) fetchTools(ctx context.Context) error {
	done := make(chan error, 1)
	l.work.Go(func() { done <- l.server.fetchTools(ctx, l.session) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("list tools: %w", context.Cause(ctx))
	case <-l.endedCh:
		return fmt.Errorf("list tools: %w", l.endErr)
	}
}

// refetchTools reads the list of tools after the server has announced a change.
func (l *link) refetchTools() {
	s := l.server
	limited, cancel := context.WithTimeout(s.lifetime, startTimeout)
	defer cancel()
	err := l.fetchTools(limited)
	if err == nil {
		err = s.checkConfiguredTools()
	}
	if err != nil {
		s.options.Logger.Warn("reading changed MCP tools failed", "err", err)
		return
	}
	s.options.Logger.Info("MCP tools changed, new conversations use them", "tools", len(s.Tools()))
}

// callTool runs a tool. If ctx is done, it returns even if the server does not answer.
func (l *link) callTool(ctx context.Context, name string, args json.RawMessage) (*mcp.CallToolResult, error) {
	token := strconv.FormatInt(l.server.serial.Add(1), 10)
	limited, cancel := context.WithCancelCause(ctx)
	if err := l.addCall(limited, token); err != nil {
		cancel(nil)
		return nil, err
	}
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	type returned struct {
		result *mcp.CallToolResult
		err    error
	}
	done := make(chan returned, 1)
	go func() { // in its own goroutine: the SDK's write to a pipe ignores the context
		defer l.work.Done()
		result, err := l.session.CallTool(context.WithValue(limited, askingKey{}, &sync.Mutex{}), &mcp.CallToolParams{
			Meta: mcp.Meta{"progressToken": token, "voxgate/session": tools.EnvOf(ctx).SessionInfo}, Name: name, Arguments: args,
		})
		done <- returned{result, err}
	}()
	var r returned
	select {
	case r = <-done:
	case <-l.endedCh:
		select {
		case r = <-done:
		case <-time.After(grace / 20): // a response may be arriving
			cancel(errEnded)
			r.err = errEnded
		}
	case <-ctx.Done():
		r.err = context.Cause(ctx)
	}
	if r.err != nil && ctx.Err() != nil { // the SDK may notice the end of ctx first, but its error lacks the cause
		r.err = context.Cause(ctx)
	}
	cancel(nil)
	l.removeCall(ctx, token)
	if errors.Is(r.err, mcp.ErrSessionMissing) { // the server has lost the session, for example by a restart
		l.endLink(r.err)
	}
	return r.result, r.err
}

// callContext returns the context of the running call with this progress token, or nil.
func (l *link) callContext(token string) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[token]
}

// addCall registers a running call.
func (l *link) addCall(ctx context.Context, token string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endErr != nil {
		return errLinkEnded
	}
	l.calls[token] = ctx
	l.work.Add(1)
	return nil
}

// removeCall unregisters a call that has ended, or that was abandoned because ctx is done. If the server has left too
// many calls unanswered, it ends the link.
func (l *link) removeCall(ctx context.Context, token string) {
	l.mu.Lock()
	delete(l.calls, token)
	if l.unanswered++; ctx.Err() == nil {
		l.unanswered = 0
	}
	hangs := len(l.calls) == 0 && l.unanswered >= maxUnanswered
	l.mu.Unlock()
	if hangs {
		l.endLink(errUnanswered)
	}
}

// answerElicitation asks the user a question of the server. Since protocol 2026-07-28 the server sends a question in
// response to a call. In earlier versions it does not say to which call a question belongs. Such a question is refused,
// because the wrong user could get it.
func answerElicitation(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	asking, ok := ctx.Value(askingKey{}).(*sync.Mutex)
	if !ok {
		return nil, errUnknownCall
	}
	asking.Lock()
	defer asking.Unlock()
	return elicit(ctx, r.Params)
}

// withoutURL removes the URL from an error, because the URL may contain a token. If the SDK has converted the error to
// text, withoutURL replaces it by errFailed.
func (s *Server) withoutURL(err error) error {
	var wrapped *url.Error
	switch {
	case errors.As(err, &wrapped):
		return wrapped.Err
	case err != nil && s.options.URL != "" && strings.Contains(err.Error(), "://"):
		return errFailed
	}
	return err
}

// setOwnGroup makes a process the leader of a new process group. killGroup ends that group.
func setOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
func killGroup(cmd *exec.Cmd)   { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// newHTTPClient returns a client that adds headers to requests. It follows only redirects within the same host.
func newHTTPClient(headers map[string]string, callOf func(token string) context.Context) *http.Client {
	return &http.Client{
		Transport: &headerTransport{tools.NewTransport(), headers, callOf},
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
	callOf  func(token string) context.Context // returns nil for an unknown token
}

func (t *headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	answer, err := t.Transport.RoundTrip(r)
	if err == nil {
		boundBody(answer, t.callOf(progressToken(r)))
	}
	return answer, err
}
