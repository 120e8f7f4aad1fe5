package vox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
)

const (
	// another limits the idle time of a socket between two conversations.
	another = 30 * time.Second

	// complaints and complaintsAtOnce limit the errors per second that a client receives about its own messages.
	complaints       = 5
	complaintsAtOnce = 50
)

// visit is one WebSocket.
type visit struct {
	*signaling.Socket
	door *Door
	log  *slog.Logger
	in   <-chan signaling.Message

	session atomic.Pointer[bridge.Session] // the current session, or nil

	// The following fields are used by run.
	wrong  *rate.Limiter // of complaints
	token  string        // of the newest start message with a token
	silent bool          // the error about early sound was already sent
}

// frame is a parsed frame of the client.
type frame struct {
	sound   []byte // content of a binary frame
	message clientMessage
	err     error // why the frame is invalid
}

// onRoundTrip records the round-trip time. It does not block.
func (v *visit) onRoundTrip(d time.Duration) {
	if s := v.session.Load(); s != nil {
		s.SetRoundTrip(d)
	}
}

// readFrame is [signaling.SocketOptions].Read.
func readFrame(from io.Reader, text bool) ([]byte, error) {
	if !text {
		return signaling.ReadLimited(from, maxSound)
	}
	data, err := signaling.ReadLimited(from, maxText)
	if errors.Is(err, signaling.ErrTooLong) {
		err = &bridge.Error{Code: codeTooLarge, Message: fmt.Sprintf("A text frame may have %d bytes.", maxText)}
	}
	return data, err
}

// frame parses a received message.
func (v *visit) frame(m signaling.Message) (f frame) {
	switch {
	case m.Text && m.Err == nil:
		began := time.Now()
		f.message, f.err = parse(m.Data)
		v.ChargeTime(time.Since(began))
	case m.Text:
		f.err = m.Err
	case m.Err != nil:
		f.err = &bridge.Error{
			Code:    bridge.CodeInvalidAudioFormat,
			Message: fmt.Sprintf("A binary frame is sound of 16 bits: %d bytes at most.", maxSound),
		}
	default:
		f.sound = m.Data
	}
	return f
}

// put queues a message for the client. It does not block.
func (v *visit) put(m serverMessage) { v.PutText(encode(m)) }

// complain sends the client an error about its own message, within the rate limit.
func (v *visit) complain(err error) {
	if err != nil && v.wrong.Allow() {
		v.put(errorOf(err))
	}
}

func (v *visit) warn(format string, args ...any) {
	v.put(logFrame{Level: "warn", Message: fmt.Sprintf(format, args...)})
}

var errLost = errors.New("the socket is lost")

// run serves conversations one after the other. It returns the reason for closing the socket.
func (v *visit) run(ctx context.Context) error {
	for first := true; ; first = false {
		start, err := v.start(ctx, first)
		if err == nil {
			err = v.converse(ctx, start)
		}
		if v.conclude(err) {
			return err
		}
	}
}

// start waits for the next start message. The wait for the first one is limited by the socket itself.
func (v *visit) start(ctx context.Context, first bool) (clientMessage, error) {
	var late <-chan time.Time
	if !first {
		late = time.After(another)
	}
	for {
		select {
		case m, ok := <-v.in:
			f := v.frame(m)
			switch {
			case !ok && first:
				return clientMessage{}, signaling.ErrNoFirstMessage
			case !ok:
				return clientMessage{}, errLost
			case f.err == nil && f.message.Type == typeStart:
				v.MarkOpened()
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
			return clientMessage{}, signaling.ErrNoFirstMessage
		case <-ctx.Done():
			return clientMessage{}, context.Cause(ctx)
		}
	}
}

// converse authenticates the client and serves a conversation until it ends or the socket is lost.
func (v *visit) converse(ctx context.Context, start clientMessage) error {
	open := bridge.SessionRequest{
		Origin: bridge.Origin{Protocol: doorName, ShowsQuestions: start.Questions}, Resumable: start.Resume.wanted,
		ResumeToken: start.Resume.token,
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
	open.Agent = open.FixedAgent().MergeOver(bridge.Agent{
		Model: start.Model, Voice: voices[theme], Prompt: instruction(theme, start.ProjectContext),
	})
	if model := strings.TrimPrefix(open.Agent.Model, "models/"); !bridge.IsLiveModel(model) && v.door.Known != nil {
		if err := v.door.Known(ctx, model); err != nil {
			return err
		}
	}
	open.Generate = func(ctx context.Context, model string, request json.RawMessage, piece func(json.RawMessage) error) (int, error) {
		cost, err := v.door.Generate(ctx, bridge.Unlimited, model, request, piece) // the conversation itself pays, with the returned tokens
		return cost.Tokens, err
	}
	a := v.door.newAssistant(v, theme, start, open)
	defer a.leave(v)
	return v.carry(ctx, open, a)
}

// conclude reports the end of a conversation to the client. over reports whether the socket must be closed, too.
func (v *visit) conclude(err error) (over bool) {
	var limit bridge.Limit
	switch {
	case err == nil, errors.Is(err, errLost), errors.Is(err, bridge.ErrLeft), errors.Is(err, signaling.ErrSlow), // the client has left
		errors.Is(err, signaling.ErrNoFirstMessage):
	case errors.Is(err, bridge.ErrGoodbye):
		v.put(sessionEnd{Reason: endUser})
		return false
	case errors.Is(err, bridge.ErrTimeLimit):
		v.put(sessionEnd{endTimeout, err.Error()})
		return false
	case errors.As(err, &limit):
		v.put(sessionEnd{endError, limit.Error()})
	case errors.Is(err, bridge.ErrReplaced):
		v.put(sessionEnd{endError, "Another connection goes on with this conversation."})
	case errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		v.put(sessionEnd{endError, "The gateway is shutting down."})
	default:
		e := errorOf(err)
		v.log.Info("conversation refused or failed", "code", e.Code, "err", err)
		v.put(e)
		v.put(sessionEnd{endError, e.Message})
	}
	return true
}
