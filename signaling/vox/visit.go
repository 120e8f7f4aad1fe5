package vox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
)

const (
	// another is how long a socket may stay without a conversation after one.
	another = 30 * time.Second

	// complaints and complaintsAtOnce bound how many errors a second a client is told of its own messages.
	complaints       = 5
	complaintsAtOnce = 50
)

// visit is one socket.
type visit struct {
	door   *Door
	line   *signaling.Line
	log    *slog.Logger
	out    *signaling.Outbox[outgoing]
	frames chan frame // that have come; closed when the socket is lost

	session atomic.Pointer[bridge.Session] // that it carries; nil: none

	// Owned by run.
	wrong  *rate.Limiter // of complaints
	token  string        // of the newest start that had one
	silent bool          // it was told that sound has come too early
}

// frame is what the client has sent.
type frame struct {
	sound   []byte // of a binary frame
	message clientMessage
	err     error // it cannot be used
}

// outgoing is a frame to the client.
type outgoing struct {
	data       []byte
	voice      *voice // of a binary frame
	generation uint32 // of it
}

func newVisit(d *Door) *visit {
	return &visit{
		door: d, out: signaling.NewOutbox[outgoing](), frames: make(chan frame, 8), wrong: rate.NewLimiter(complaints, complaintsAtOnce),
	}
}

// onRoundTrip does not block.
func (v *visit) onRoundTrip(d time.Duration) {
	if s := v.session.Load(); s != nil {
		s.RoundTrip(d)
	}
}

// read takes what comes by the socket until it is lost, or nobody wants it any more.
func (v *visit) read(gone <-chan struct{}) {
	defer close(v.frames)
	for {
		f, err := v.next()
		if err != nil {
			return
		}
		if f.message.Type == typeStart && f.err == nil {
			v.line.Opened()
		}
		select {
		case v.frames <- f:
		case <-gone:
			return
		}
	}
}

// next is the next frame. The error is that of the socket.
func (v *visit) next() (f frame, err error) {
	from, text, err := v.line.Next()
	if err != nil {
		return f, err
	}
	limit := maxSound
	if text {
		limit = maxText
	}
	data, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	switch {
	case err != nil:
	case text && len(data) > limit:
		f.err = &bridge.Error{Code: codeTooLarge, Message: fmt.Sprintf("A text frame may have %d bytes.", limit)}
	case text:
		began := time.Now()
		f.message, f.err = parse(data)
		v.line.Spent(time.Since(began))
	case len(data) > limit || len(data)%2 != 0:
		f.err = &bridge.Error{
			Code:    bridge.CodeInvalidAudioFormat,
			Message: fmt.Sprintf("A binary frame is sound of 16 bits: an even number of bytes, %d at most.", limit),
		}
	default:
		f.sound = data
	}
	return f, err
}

// put queues a message for the client. It does not block.
func (v *visit) put(m serverMessage) {
	text := encode(m)
	v.out.Put(outgoing{data: text}, len(text))
}

// write sends what was queued, but no voice that was cut off since.
func (v *visit) write(_ context.Context, o outgoing) error {
	if o.voice != nil && o.generation < o.voice.void.Load() {
		return nil
	}
	return v.line.Write(o.data, o.voice == nil)
}

// complain tells the client what is wrong with something that it has sent, if it has not sent too much of that.
func (v *visit) complain(err error) {
	if err != nil && v.wrong.Allow() {
		v.put(errorOf(err))
	}
}

func (v *visit) warn(format string, args ...any) {
	v.put(logFrame{Level: "warn", Message: fmt.Sprintf(format, args...)})
}

var (
	errNoStart = errors.New("no start came in time")
	errLost    = errors.New("the socket is lost")
)

// run serves one conversation after the other, and returns how the socket is to be closed.
func (v *visit) run(ctx context.Context) (code int, reason string) {
	for first := true; ; first = false {
		start, err := v.start(ctx, first)
		if err == nil {
			err = v.converse(ctx, start)
		}
		if code, reason, over := v.conclude(err); over {
			return code, reason
		}
	}
}

// start waits for the next conversation. For the first one the line itself does not wait for long.
func (v *visit) start(ctx context.Context, first bool) (clientMessage, error) {
	var late <-chan time.Time
	if !first {
		timer := time.NewTimer(another)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case f, ok := <-v.frames:
			switch {
			case !ok && first:
				return clientMessage{}, errNoStart
			case !ok:
				return clientMessage{}, errLost
			case f.err == nil && f.message.Type == typeStart:
				return f.message, nil
			case f.err != nil:
				v.complain(f.err)
			case f.sound == nil:
				v.complain(&bridge.Error{Code: codeNotStarted, Message: "There is no conversation: a start must be first."})
			case !v.silent:
				v.silent = true
				v.complain(&bridge.Error{Code: codeNotStarted, Message: "There is no conversation that the sound could be for: a start must be first."})
			}
		case <-late:
			return clientMessage{}, errNoStart
		case <-ctx.Done():
			return clientMessage{}, context.Cause(ctx)
		}
	}
}

// converse lets the client in, and carries a conversation until it has ended or the socket is lost.
func (v *visit) converse(ctx context.Context, start clientMessage) error {
	open := bridge.Open{
		Origin: bridge.Origin{Door: doorName, Asks: start.Questions}, Resumable: start.Resume.wanted, ResumeToken: start.Resume.token,
	}
	v.token = cmp.Or(start.Token, v.token)
	if err := access.From(ctx).Authorize(&open, v.token); err != nil {
		return err
	}
	if open.Account == nil {
		open.Account = bridge.Unlimited
	}
	theme := cmp.Or(start.Theme, defaultTheme)
	if voices[theme] == "" {
		v.warn("There is no theme %.40q; it is %s.", theme, defaultTheme)
		theme = defaultTheme
	}
	open.Agent = bridge.Agent{Model: start.Model, Voice: voices[theme], Prompt: instruction(theme, start.ProjectContext)}
	if g := open.Grant; g != nil {
		open.Agent = g.Agent.Over(open.Agent)
	}
	a := v.door.newAssistant(v, theme, start, open)
	defer a.leave(v)
	if bridge.Talks(open.Agent.Model) {
		return v.live(ctx, open, a)
	}
	if start.Resume.wanted {
		v.warn("Typed talk cannot be resumed: it ends with its socket.")
	}
	open.Agent.Model = strings.TrimPrefix(open.Agent.Model, "models/")
	return v.typed(ctx, open, a)
}

// conclude tells the client of the end of a conversation, and whether it is that of the socket, too.
func (v *visit) conclude(err error) (code int, reason string, over bool) {
	code, reason = signaling.Goodbye(err)
	var limit bridge.Limit
	switch {
	case err == nil, errors.Is(err, errLost), errors.Is(err, bridge.ErrLeft), errors.Is(err, signaling.ErrSlow): // nobody is there
		return code, reason, true
	case errors.Is(err, errNoStart):
		return websocket.ClosePolicyViolation, err.Error(), true
	case errors.Is(err, bridge.ErrGoodbye):
		v.put(sessionEnd{Reason: endUser})
		return 0, "", false
	case errors.Is(err, bridge.ErrTimeLimit):
		v.put(sessionEnd{endTimeout, err.Error()})
		return 0, "", false
	case errors.As(err, &limit):
		v.put(sessionEnd{endError, limit.Error()})
	case errors.Is(err, bridge.ErrReplaced):
		v.put(sessionEnd{endError, "Another connection goes on with this conversation."})
	case code == websocket.CloseGoingAway:
		v.put(sessionEnd{endError, "The gateway is shutting down."})
	default:
		e := errorOf(err)
		v.log.Info("conversation refused or failed", "code", e.Code, "err", err)
		v.put(e)
		v.put(sessionEnd{endError, e.Message})
	}
	return code, reason, true
}
