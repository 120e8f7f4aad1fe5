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
	"voxgate/bridge/textmodel"
	"voxgate/signaling"
	"voxgate/signaling/access"
)

const (
	// idleTimeout limits how long a socket may be idle between two conversations.
	idleTimeout = 30 * time.Second

	// errorRate (per second) and errorBurst (at once) limit the number of errors that a client receives about its own messages.
	errorRate  = 5
	errorBurst = 50
)

// clientConn is one WebSocket.
type clientConn struct {
	*signaling.Socket
	server   *Server
	log      *slog.Logger
	messages <-chan signaling.Message

	session atomic.Pointer[bridge.Session] // the current session, or nil

	// Only the goroutine of run uses the following fields.
	errorLimiter   *rate.Limiter // limits the errors about the client's own messages
	token          string        // token of the newest start message that had one
	soundErrorSent bool          // the error about early sound was already sent
}

// frame is a parsed frame of the client.
type frame struct {
	sound   []byte // content of a binary frame
	message clientMessage
	err     error // why the frame is invalid
}

// onRoundTrip records the round-trip time. It does not block.
func (cc *clientConn) onRoundTrip(d time.Duration) {
	if s := cc.session.Load(); s != nil {
		s.SetRoundTrip(d)
	}
}

// readFrame reads one frame. It returns an error if the frame is longer than PROTOCOL.md allows. It is used as
// [signaling.SocketOptions].Read.
func readFrame(from io.Reader, text bool) ([]byte, error) {
	if !text {
		return signaling.ReadLimited(from, maxSound)
	}
	data, err := signaling.ReadLimited(from, maxText)
	if errors.Is(err, signaling.ErrTooLong) {
		err = &bridge.Error{Code: codeTooLarge, Message: fmt.Sprintf("A text frame may have at most %d bytes.", maxText)}
	}
	return data, err
}

// parseFrame parses a received message.
func (cc *clientConn) parseFrame(m signaling.Message) (f frame) {
	switch {
	case m.Text && m.Err == nil:
		began := time.Now()
		f.message, f.err = parseMessage(m.Data)
		cc.ChargeTime(time.Since(began))
	case m.Text:
		f.err = m.Err
	case m.Err != nil:
		f.err = &bridge.Error{
			Code:    bridge.CodeInvalidAudioFormat,
			Message: fmt.Sprintf("A binary frame must hold 16-bit samples, in at most %d bytes.", maxSound),
		}
	default:
		f.sound = m.Data
	}
	return f
}

// sendMessage queues a message for the client. It does not block.
func (cc *clientConn) sendMessage(m serverMessage) { cc.PutText(encodeMessage(m)) }

// sendError sends the client an error about its own message, within the rate limit.
func (cc *clientConn) sendError(err error) {
	if err != nil && cc.errorLimiter.Allow() {
		cc.sendMessage(newErrorFrame(err))
	}
}

func (cc *clientConn) sendWarning(format string, args ...any) {
	cc.sendMessage(logFrame{Level: "warn", Message: fmt.Sprintf(format, args...)})
}

var errSocketLost = errors.New("the socket is lost")

// run serves conversations one after the other. It returns the reason for closing the socket.
func (cc *clientConn) run(ctx context.Context) error {
	for first := true; ; first = false {
		start, err := cc.awaitStart(ctx, first)
		if err == nil {
			err = cc.serveConversation(ctx, start)
		}
		if cc.reportEnd(err) {
			return err
		}
	}
}

// awaitStart waits for the next start message, for idleTimeout at most. If isFirst is set, it sets no timeout, because
// the socket itself limits the wait for the first message.
func (cc *clientConn) awaitStart(ctx context.Context, isFirst bool) (clientMessage, error) {
	var idleTimer <-chan time.Time
	if !isFirst {
		idleTimer = time.After(idleTimeout)
	}
	for {
		select {
		case m, ok := <-cc.messages:
			f := cc.parseFrame(m)
			switch {
			case !ok && isFirst:
				return clientMessage{}, signaling.ErrNoFirstMessage
			case !ok:
				return clientMessage{}, errSocketLost
			case f.err == nil && f.message.Type == typeStart:
				cc.MarkOpened()
				return f.message, nil
			case f.err != nil:
				cc.sendError(f.err)
			case f.sound == nil:
				cc.sendError(&bridge.Error{Code: codeNotStarted, Message: "No conversation is running: send start first."})
			case !cc.soundErrorSent:
				cc.soundErrorSent = true
				cc.sendError(&bridge.Error{Code: codeNotStarted, Message: "No conversation is running for this sound: send start first."})
			}
		case <-idleTimer:
			return clientMessage{}, signaling.ErrNoFirstMessage
		case <-ctx.Done():
			return clientMessage{}, context.Cause(ctx)
		}
	}
}

// serveConversation authenticates the client and serves a conversation until it ends or the socket is lost.
func (cc *clientConn) serveConversation(ctx context.Context, start clientMessage) error {
	open := bridge.SessionRequest{
		Origin: bridge.Origin{Protocol: protocolName, ShowsQuestions: start.Questions}, Resumable: start.Resume.isRequested,
		ResumeToken: start.Resume.token,
	}
	cc.token = cmp.Or(start.Token, cc.token)
	if err := access.From(ctx).Authorize(&open, cc.token); err != nil {
		return err
	}
	if open.Account == nil {
		open.Account = bridge.Unlimited
	}
	theme := cmp.Or(start.Theme, defaultTheme)
	if themeVoices[theme] == "" {
		cc.sendWarning("The theme %.40q is unknown; %s is used instead.", theme, defaultTheme)
		theme = defaultTheme
	}
	open.Agent = open.FixedAgent().MergeOver(bridge.Agent{
		Model: start.Model, Voice: themeVoices[theme], Language: start.Language, Prompt: buildInstruction(theme, start.ProjectContext),
	})
	if model := strings.TrimPrefix(open.Agent.Model, "models/"); !bridge.IsLiveModel(model) && cc.server.CheckModel != nil {
		if err := cc.server.CheckModel(ctx, model); err != nil {
			return err
		}
	}
	open.Dial = textmodel.NewDialer(
		func(ctx context.Context, model string, request json.RawMessage, piece func(json.RawMessage) error) (int, error) {
			// The cost is not charged to the client's account here, because the session charges the returned tokens to
			// it.
			cost, err := cc.server.Generate(ctx, bridge.Unlimited, model, request, piece)
			return cost.Tokens, err
		}).Dial
	a := cc.server.newAssistant(cc, theme, start, open)
	defer a.detachClient(cc)
	return cc.runSession(ctx, open, a)
}

// reportEnd reports the end of a conversation to the client. mustClose is true if the socket must be closed, too.
func (cc *clientConn) reportEnd(err error) (mustClose bool) {
	var limit bridge.Limit
	switch {
	case err == nil, errors.Is(err, errSocketLost), errors.Is(err, bridge.ErrLeft), errors.Is(err, signaling.ErrSlow), // the client has left
		errors.Is(err, signaling.ErrNoFirstMessage):
	case errors.Is(err, bridge.ErrGoodbye):
		cc.sendMessage(sessionEnd{Reason: endUser})
		return false
	case errors.Is(err, bridge.ErrTimeLimit):
		cc.sendMessage(sessionEnd{endTimeout, err.Error()})
		return false
	case errors.As(err, &limit):
		cc.sendMessage(sessionEnd{endError, limit.Error()})
	case errors.Is(err, bridge.ErrReplaced):
		cc.sendMessage(sessionEnd{endError, "Another connection has taken over this conversation."})
	case errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		cc.sendMessage(sessionEnd{endError, "The gateway is shutting down."})
	default:
		e := newErrorFrame(err)
		cc.log.Info("conversation refused or failed", "code", e.Code, "err", err)
		cc.sendMessage(e)
		cc.sendMessage(sessionEnd{endError, e.Message})
	}
	return true
}
