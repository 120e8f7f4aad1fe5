package sip

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

// leg is what calls have in common, whichever way their messages and their sound travel.
type leg struct {
	agent  *phone.Agent
	log    *slog.Logger
	dialog *dialog
	party  phone.Party

	begun  chan struct{} // closed when the conversation has
	ended  chan struct{} // closed with the first reason for the end
	digits chan byte     // that were pressed
	acked  chan []byte   // the body of an ACK; it has room for one
	fresh  chan struct{} // the session timer was refreshed; it has room for one

	refreshing sync.WaitGroup // requests of ours, which the end waits for

	mu      sync.Mutex
	reason  error           // why it has ended
	session *bridge.Session // nil: the conversation has not begun
	timer   refresh
}

func newLeg(agent *phone.Agent) leg {
	return leg{agent: agent, begun: make(chan struct{}), ended: make(chan struct{}), digits: make(chan byte, 32), acked: make(chan []byte, 1), fresh: make(chan struct{}, 1)}
}

// end ends the call, for the first reason that is given.
func (l *leg) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == nil {
		l.reason = reason
		close(l.ended)
	}
}

func (l *leg) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// during returns a context that is done with parent, and when the call ends, for its reason.
func (l *leg) during(parent context.Context) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	go func() {
		select {
		case <-l.ended:
			cancel(l.why())
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// begin notes that the conversation has begun.
func (l *leg) begin(s *bridge.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = s
	close(l.begun)
}

// greet has the model begin, if it shall.
func (l *leg) greet(s *bridge.Session) error {
	if greeting := l.agent.Begin(); greeting != "" {
		return s.Do(bridge.Respond{Instruction: greeting})
	}
	return nil
}

// hangUp tells the other side of the end, if it is not what has ended the call.
func (l *leg) hangUp(err error) error {
	l.refreshing.Wait()
	why := l.why()
	if why != nil {
		err = why
	}
	if !errors.Is(why, errHungUp) && !errors.Is(why, errCancelled) {
		l.dialog.bye(reasonHeader(err))
	}
	return err
}

var (
	errSilence   = errors.New("no packet has come for too long")
	errRefresh   = errors.New("the session timer was not refreshed")
	errLostACK   = errors.New("our answer was not acknowledged")
	errCancelled = errors.New("the caller has given up")
)

// keepAlive refreshes the session timer, or ends a call that the peer has not refreshed.
func (l *leg) keepAlive(timer refresh, now time.Time, refreshed *time.Time) error {
	switch waited := now.Sub(*refreshed); {
	case timer.every == 0:
	case timer.ours && waited > timer.every/2:
		*refreshed = now
		l.refreshing.Go(func() { l.sendRefresh(timer) })
	case !timer.ours && waited > timer.due():
		return errRefresh
	}
	return nil
}

// sendRefresh says that we are still here (RFC 4028, section 7.4; RFC 3311).
func (l *leg) sendRefresh(timer refresh) {
	ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
	defer cancel()
	res, err := l.dialog.send(ctx, l.dialog.request(sip.UPDATE, sip.NewHeader("Supported", "timer"), timer.header(true)))
	if err != nil || res.StatusCode == 408 || res.StatusCode == 481 {
		l.end(errRefresh)
	}
}

// press takes a digit; nobody presses faster than they are taken.
func (l *leg) press(digit byte) {
	select {
	case l.digits <- digit:
	default:
	}
}

// withTimer says which methods and extensions are served, and what was agreed about the session timer.
func (l *leg) withTimer(res *sip.Response, methods, extensions string) *sip.Response {
	res.AppendHeader(sip.NewHeader("Allow", methods))
	res.AppendHeader(sip.NewHeader("Supported", extensions))
	if l.timer.every > 0 {
		res.AppendHeader(l.timer.header(false))
		if !l.timer.ours {
			res.AppendHeader(sip.NewHeader("Require", "timer"))
		}
	}
	return res
}

// renewed notes that the peer is still there.
func (l *leg) renewed() {
	select {
	case l.fresh <- struct{}{}:
	default:
	}
}

// info takes a digit (RFC 6086 names no package for it, but telephones send it so), and returns the answer.
func (l *leg) info(req *sip.Request) *sip.Response {
	kind := ""
	if h := req.ContentType(); h != nil {
		kind = h.Value()
	}
	digit, ok := readInfo(kind, string(req.Body()))
	if !ok && len(req.Body()) > 0 {
		return l.dialog.respond(req, 415, "Unsupported Media Type")
	}
	if ok {
		l.press(digit)
	}
	return l.dialog.respond(req, 200, "OK")
}

// digitGap is how long nothing is pressed until what was pressed is one number.
const digitGap = 2 * time.Second

// maxPressed bounds a number.
const maxPressed = 64

// collector makes one text of digits.
type collector struct {
	text string
	at   time.Time // of the newest
}

// add takes a digit. # ends a number.
func (c *collector) add(digit byte, now time.Time) (text string, over bool) {
	c.text += string(digit)
	c.at = now
	if digit == '#' || len(c.text) >= maxPressed {
		text, c.text = c.text, ""
		return text, true
	}
	return "", false
}

// due returns the number that is over because nothing more comes.
func (c *collector) due(now time.Time) (text string, over bool) {
	if c.text == "" || now.Sub(c.at) < digitGap {
		return "", false
	}
	text, c.text = c.text, ""
	return text, true
}

// typed tells the model what was pressed.
func (l *leg) typed(s *bridge.Session, digits string) {
	l.log.Info("keys pressed", "count", len(digits))
	if err := s.Do(phone.Pressed(digits)); err != nil {
		l.log.Warn("keys lost", "err", err)
	}
}

// endCall is the tool that hangs up.
func (l *leg) endCall() tools.Tool {
	return tools.Tool{
		Declaration: tools.Declaration{
			Name: "end_call", Title: "Hanging up…",
			Description: "Ends this telephone call when all that you say has been heard. Say goodbye first.",
		},
		Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			if err := l.conversation().Do(bridge.EndAfterSpeaking{}); err != nil {
				return nil, err
			}
			return json.RawMessage(`{"output":"The call ends when you have finished speaking."}`), nil
		},
	}
}

// reasonHeader is why we end a call, for the other side's log (RFC 3326).
func reasonHeader(err error) string {
	cause := 16 // Q.850: normal call clearing
	text := bridge.Reason(err)
	switch {
	case errors.Is(err, errSilence), errors.Is(err, errRefresh):
		cause, text = 102, err.Error() // recovery on timer expiry
	case errors.Is(err, bridge.ErrReplaced):
		text = "Replaced"
	case text != "":
		cause = 41 // temporary failure
		var limit bridge.Limit
		if errors.As(err, &limit) {
			cause = 31 // normal, unspecified
		}
	}
	return fmt.Sprintf("Q.850;cause=%d;text=%q", cause, cmp.Or(tools.Cut(text, 100), "Normal call clearing"))
}
