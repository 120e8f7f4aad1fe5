package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
)

const (
	// stall is how long the pipe to a child must not have moved before a call whose time is over means that the child hangs. A child
	// that reads, however slowly, takes something within it.
	stall = time.Second

	// maxAbandoned is how many calls that the server does not answer are kept in the books of a link.
	maxAbandoned = 16

	// maxOverdue is how long calls that wait for their turn wait for an abandoned one. It leaves them a third of their usual time.
	maxOverdue = 20 * time.Second
)

var errUnanswered = errors.New("it does not answer calls that were cancelled or ran out of time")

// call is a tool that runs. Its methods may be called from any goroutine.
type call struct {
	ask      func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)
	progress func(*mcp.ProgressNotificationParams)
	cancel   context.CancelCauseFunc // of the request
	sent     chan struct{}           // closed when the request has been written, or over HTTP when it is about to be
	answered chan struct{}           // closed when the request has ended
	id       any                     // of the request; set before sent is closed
	once     sync.Once

	// Over HTTP, what the server has said to a request of the call: that it takes it (200), from when on it may have been run, or that
	// it does not know the session (404).
	accepted, forgotten atomic.Bool

	abandoned time.Time // guarded by link.mu; zero: somebody waits for it
}

type callKey struct{}

// fate makes ErrSessionMissing of the failure of a call that the server has refused because it has forgotten the session, and of no
// other. The SDK ends the session for that, and the call may be told of the end alone; and it says the same where the server has
// forgotten the session while it was at the call.
func (c *call) fate(err error) error {
	ended := errors.Is(err, errEnded) || errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing)
	switch {
	case !ended:
		return err
	case c.accepted.Load():
		return errEnded
	case c.forgotten.Load():
		return mcp.ErrSessionMissing
	}
	return err
}

// written notes that the call's request was sent, and its number. It returns false if m is something else.
func (c *call) written(m jsonrpc.Message) bool {
	r, ok := m.(*jsonrpc.Request)
	if ok = ok && r.IsCall(); ok {
		c.once.Do(func() { // the newest protocol makes several requests of a call; nobody needs to know of the others
			c.id = r.ID.Raw()
			close(c.sent)
		})
	}
	return ok
}

// watched is a transport that sees which requests have been written.
type watched struct{ mcp.Transport }

func (t *watched) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := t.Transport.Connect(ctx)
	return &watchedConnection{connection}, err
}

type watchedConnection struct{ mcp.Connection }

func (w *watchedConnection) Write(ctx context.Context, m jsonrpc.Message) error {
	err := w.Connection.Write(ctx, m)
	if c, ok := ctx.Value(callKey{}).(*call); ok && err == nil {
		c.written(m)
	}
	return err
}

// legacy tells whether the server speaks a protocol in which its questions do not say whose they are.
func (l *link) legacy() bool {
	return l.session.InitializeResult().ProtocolVersion <= legacyVersion
}

// call runs a tool, and returns when ctx is done, whatever the server does.
//
// The server may be at the call for longer: it need not care for being cancelled. In the protocols whose questions do not say whose
// they are, the request therefore stays open, and the call in the books of the link, until the server has answered it.
func (l *link) call(ctx context.Context, name string, args json.RawMessage) (*mcp.CallToolResult, error) {
	token := strconv.FormatInt(l.server.serial.Add(1), 10)
	lifetime := ctx
	if l.legacy() {
		lifetime = context.WithoutCancel(ctx)
	}
	lifetime, cancel := context.WithCancelCause(lifetime)
	c := newCall(ctx, cancel)
	if err := l.enter(ctx, token, c); err != nil {
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
	go func() { // its own: the SDK's write to a pipe knows no context
		defer l.work.Done()
		defer cancel(nil)
		result, err := l.session.CallTool(context.WithValue(lifetime, callKey{}, c), &mcp.CallToolParams{
			Meta: mcp.Meta{"progressToken": token, "voxgate/session": tools.EnvOf(ctx).Who()}, Name: name, Arguments: args,
		})
		if err != nil && lifetime.Err() != nil {
			err = context.Cause(lifetime)
		}
		l.leave(token, c)
		done <- returned{result, l.undelivered(c, c.fate(err))}
	}()
	select {
	case r := <-done:
		return r.result, r.err
	case <-ctx.Done():
		l.abandon(ctx, token, c)
		return nil, context.Cause(ctx)
	}
}

// newCall makes a call that asks and tells the person of ctx, as long as ctx lasts.
func newCall(ctx context.Context, cancel context.CancelCauseFunc) *call {
	var asking sync.Mutex // a server may have several questions; a person is asked one at a time
	return &call{
		cancel: cancel, sent: make(chan struct{}), answered: make(chan struct{}),
		ask: func(asked context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			asking.Lock()
			defer asking.Unlock()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(asked, cancel)() // the server may take its question back
			return elicit(ctx, p)
		},
		progress: func(p *mcp.ProgressNotificationParams) { tools.Progress(ctx, progress(p)) },
	}
}

// undelivered makes errSpent of the failure of a call that the server has not got, because the link has ended.
func (l *link) undelivered(c *call, err error) error {
	select {
	case <-c.sent:
		return err
	default:
	}
	if errors.Is(err, mcp.ErrConnectionClosed) {
		l.giveUp(nil) // it will be gone in a moment
	}
	if err != nil && !l.alive() {
		return errSpent
	}
	return err
}

// enter waits for the call's turn, where they have to take turns.
func (l *link) enter(ctx context.Context, token string, c *call) error {
	for ctx.Err() == nil {
		l.mu.Lock()
		entered, wait := l.admit(token, c)
		freed, closing := l.freed, l.closing
		l.mu.Unlock()
		if entered {
			return nil
		}
		if closing {
			return errSpent
		}
		var overdue <-chan time.Time // never
		if wait > 0 {
			overdue = time.After(wait)
		}
		select {
		case <-freed:
		case <-overdue:
		case <-l.ended:
			return errSpent
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// admit enters a call whose turn it is, or says for how long it waits at most for an abandoned one; 0: as long as it takes. It is
// called locked. A link on which only abandoned calls are left, and too many or for too long, is given up.
func (l *link) admit(token string, c *call) (entered bool, wait time.Duration) {
	asks := l.server.asks.Load()
	running, abandoned, oldest := l.count()
	switch {
	case l.closing:
		return false, 0
	case running == 0 && (l.tooMany(abandoned, oldest) || asks && oldest >= maxOverdue):
		l.giveUpLocked(errUnanswered)
		return false, 0
	case asks && running > 0:
		return false, 0
	case asks && abandoned > 0:
		return false, maxOverdue - oldest
	}
	l.calls[token] = c
	l.work.Add(1)
	return true, 0
}

// count counts the calls that somebody waits for and the abandoned ones, and says how long the oldest of these is abandoned. It is
// called locked.
func (l *link) count() (running, abandoned int, oldest time.Duration) {
	for _, c := range l.calls {
		if c.abandoned.IsZero() {
			running++
		} else {
			abandoned++
			oldest = max(oldest, time.Since(c.abandoned))
		}
	}
	return running, abandoned, oldest
}

// tooMany tells whether too many calls are or were abandoned. Many that end at once are not too many if the server answers them then.
func (l *link) tooMany(abandoned int, oldest time.Duration) bool {
	return l.full || abandoned >= maxAbandoned && oldest >= stall
}

// leave takes a call that has ended out of the books.
func (l *link) leave(token string, c *call) {
	close(c.answered)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, token)
	close(l.freed)
	l.freed = make(chan struct{})
}

// abandon notes that nobody waits for the call any more, because ctx is done.
func (l *link) abandon(ctx context.Context, token string, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing || l.calls[token] != c {
		return
	}
	if _, abandoned, oldest := l.count(); l.tooMany(abandoned, oldest) {
		l.full = true
		c.cancel(context.Cause(ctx)) // the books need no more: while the link is full, nobody is asked
	}
	c.abandoned = time.Now()
	close(l.freed)
	l.freed = make(chan struct{})
	late := errors.Is(context.Cause(ctx), tools.ErrTimeout) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	l.work.Go(func() { l.follow(c, late) })
}

// follow tells the server that the call is cancelled. A child that has not even taken the call in its time (late), and takes nothing
// else either, hangs.
func (l *link) follow(c *call, late bool) {
	for {
		var look <-chan time.Time // never
		if late && l.process != nil {
			stalled := l.process.stdin.stalled()
			if stalled >= stall {
				select {
				case <-c.sent:
				default:
					l.hung()
					return
				}
			}
			look = time.After(max(stall-stalled, stall/10))
		}
		select {
		case <-c.answered:
			return
		case <-look:
			continue
		case <-c.sent:
		}
		break
	}
	if l.legacy() { // in the newer ones the SDK does it
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_, _ = l.send(ctx, "notifications/cancelled", &mcp.ClientRequest[*mcp.CancelledParams]{
			Session: l.session, Params: &mcp.CancelledParams{RequestID: c.id},
		})
	}
}

// ask answers a question of the server.
//
// Since protocol 2026-07-28 a question is the answer to a call, and the SDK asks with the call's context. Before, nothing in a
// question tells whose it is: many conversations share the session, and one person must never be asked for another. So it is
// answered only while the server is at a single call, and somebody waits for that; and a server that was seen to ask gets its calls
// one after the other from then on. A call that was cancelled or ran out of time counts until the server has answered it; where that
// takes longer than maxOverdue while others wait, or where there are too many, the link is closed and a new one made. What this cannot
// know is a question for a call that the server has answered already, which the protocol does not allow. A session for each
// conversation would need no turns, but a child process for each, and would part state that the server keeps.
func (l *link) ask(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		l.server.asks.Store(true)
		l.mu.Lock()
		open, full := slices.Collect(maps.Values(l.calls)), l.full
		abandoned := len(open) == 1 && !open[0].abandoned.IsZero()
		l.mu.Unlock()
		switch {
		case len(open) > 1 || full:
			return nil, errors.New("several calls are running and it cannot be told whose question this is; they run one by one from now on")
		case len(open) == 0 || abandoned:
			return nil, errors.New("nobody waits for a call any more, so there is nobody to ask")
		}
		c = open[0]
	}
	return c.ask(ctx, p)
}
