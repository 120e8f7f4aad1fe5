package sip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/tools"
)

// call is one phone call, incoming or outgoing, of a trunk. It implements bridge.Caller.
type call struct {
	server    *Server
	trunk     *trunkState
	agent     *agents.Agent
	party     phone.Party
	open      bridge.SessionRequest // the caller's identity and limits
	outbound  *outboundCall         // nil for an incoming call
	startedAt time.Time
	log       *slog.Logger
	dialog    *dialog
	line      *currentCall
	media     *sipmedia.Audio
	screen    *callScreen // does nothing without answering-machine detection

	release    func() // gives back what the call has reserved, such as its port and its share of the limits
	keypad     *phone.Keypad
	acked      chan []byte   // bodies of ACKs to our newest response; room for one
	awaitedACK atomic.Uint32 // CSeq of the expected ACK; 0 if none is expected
	stages
	transferState
	liveness
	earlySDP  earlyAnswers // early answers to our INVITE; used only by the goroutine that dials
	lookupErr error        // error of looking up the trunk's servers, if none was found

	replaces *call         // the call whose conversation this one continues; may be nil
	changing chan struct{} // a lock: holds one value while the agreement is being negotiated, as from the first INVITE to its answer

	mu       sync.Mutex
	reason   error           // why the call ended
	session  *bridge.Session // nil until the conversation begins
	timer    sessionTimer
	reliable reliable
}

// stages are the steps of a call. Each channel is closed once, when the call reaches that step.
type stages struct {
	sessionStarted chan struct{} // the conversation has begun
	modelSpoke     chan struct{} // the model has begun to speak
	answerAcked    chan struct{} // the response to the INVITE was acknowledged
	bridged        chan struct{} // the caller was put through to another person
	endRequested   chan struct{} // the call has a reason to end
	released       chan struct{} // everything of the call is released
}

// liveness is the state of a call's session timer.
type liveness struct {
	fresh      chan struct{} // signals that the timer was refreshed; room for one
	alive      refreshTimes  // used only by the goroutine that watches the call: during its conversation, then its bridge
	refreshing sync.WaitGroup
}

// newCall makes a call without a dialog and without media.
func newCall(d *Server, agent *agents.Agent) *call {
	newStage := func() chan struct{} { return make(chan struct{}) }
	c := &call{
		server: d, agent: agent, log: d.log, line: &currentCall{}, screen: &callScreen{}, keypad: phone.NewKeypad(), acked: make(chan []byte, 1),
		stages:        stages{newStage(), newStage(), newStage(), newStage(), newStage(), newStage()},
		transferState: transferState{joining: make(chan *call)}, liveness: liveness{fresh: make(chan struct{}, 1)},
		startedAt: time.Now(), changing: make(chan struct{}, 1), reliable: reliable{acked: make(chan []byte, 1)},
	}
	c.changing <- struct{}{}
	c.line.Store(c)
	return c
}

// logBegin logs both parties of a call, and the local port of its media.
func (c *call) logBegin(from, to string) {
	c.log.Info("call", "from", phone.ClipField(from), "to", phone.ClipField(to), "sound", c.media.Port())
}

// endCall ends the call. The first reason counts.
func (c *call) endCall(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == nil {
		c.reason = reason
		close(c.endRequested)
	}
}

func (c *call) endReason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// withCallContext returns a context that is cancelled with parent, or when the call ends, with its reason as the cause.
func (c *call) withCallContext(parent context.Context) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	go func() {
		select {
		case <-c.endRequested:
			cancel(c.endReason())
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// runConversation runs the conversation of a call. It blocks until that is over.
func (c *call) runConversation() error {
	ctx, cancel := c.withCallContext(context.Background())
	defer cancel(nil)
	open := c.open
	phone.ConfigureSession(&open, c.agent, c.party)
	open.Tools = c.tools()
	if c.replaces != nil {
		open.Replaces = c.replaces.conversation()
	}
	return c.server.host.Serve(ctx, c, open)
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	took := c.attachSession(s)
	stop, err := c.media.StartConversation(conversationAudio{c, s})
	defer stop()
	if err != nil {
		return err
	}
	c.mu.Lock()
	timer := c.timer
	c.mu.Unlock()
	decisions := c.awaitDecision()
	stopKeys := func() {}
	if c.consultation == nil {
		stopKeys = c.startKeypad(ctx)
	}
	defer stopKeys()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	c.startTimer()
	if c.screen.isActive() {
		c.screen.startClock()
	} else if err := c.greetCaller(s, took); err != nil { // early media carries the greeting, too
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case c.partner = <-c.joining:
			close(c.bridged)
			stopKeys()
			stop()
			return c.monitorBridge(ctx, s)
		case err := <-decisions.reported:
			return err
		case key := <-decisions.keys:
			c.consultation.handleKey(key)
		case <-decisions.silence:
			return errColleagueSilent
		case by := <-c.screen.outcome:
			if err := c.handleAnsweredBy(s, by); err != nil {
				return err
			}
		case <-c.screen.doubt:
			if err := s.Do(bridge.Prompt{Instruction: amdQuestion}); err != nil {
				return err
			}
		case <-c.screen.ready:
			if err := c.leaveMessage(s); err != nil {
				return err
			}
		case <-c.fresh:
			c.alive.refreshed = time.Now()
		case now := <-tick.C:
			c.screen.checkTimeouts(now)
			if err := cmp.Or(c.media.CheckSilence(now), c.keepAlive(timer, now)); err != nil {
				return err
			}
		}
	}
}

// conversationAudio connects the audio of a call to its conversation.
type conversationAudio struct {
	call *call
	*bridge.Session
}

// NewMicrophone implements [Conversation]. Secret keys are filtered, and answering-machine detection listens.
func (a conversationAudio) NewMicrophone(rate int) (media.Sink, error) {
	mic, err := a.Session.NewMicrophone(rate)
	if err != nil {
		return nil, err
	}
	return a.call.screen.wrapSink(a.call.keypad.FilterSecret(mic)), nil
}

// AttachOutput implements [Conversation].
func (a conversationAudio) AttachOutput(out media.Output) { a.call.screen.attachOutput(a.Session, out) }

// Pause implements [Conversation].
func (a conversationAudio) Pause(on bool) error { return a.Do(bridge.Pause{On: on}) }

// The audio of a call has the rate of the model's voice.
var _ = [1]int{}[bridge.VoiceRate-sipmedia.VoiceRate]

// startKeypad passes pressed keys to the model until stop is called.
func (c *call) startKeypad(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var typing sync.WaitGroup
	typing.Go(func() {
		crash.Run(c.log, "keypad", c.endCall, func() { c.keypad.Run(ctx, c.log, c.agent.Keys, c.sendKeys) })
	})
	return func() {
		cancel()
		typing.Wait()
	}
}

// sendKeys passes pressed keys to the model, unless the caller is waiting for a transfer, or AMD has not decided yet.
func (c *call) sendKeys(command bridge.Command) error {
	if c.media.HasHoldMusic() || c.screen.isActive() && !c.screen.open.Load() {
		return nil
	}
	return c.conversation().Do(command)
}

// attachSession stores the session of a call, and reports whether it was taken over from another call.
func (c *call) attachSession(s *bridge.Session) (took bool) {
	took = c.replaces != nil && s == c.replaces.conversation()
	if took {
		c.line, c.agent = c.replaces.line, c.replaces.agent
		c.keypad.InheritSecret(c.replaces.keypad)
	}
	c.line.Store(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
	close(c.sessionStarted)
	return took
}

// greetCaller makes the model speak first, if it is to greet, or tells it that another call has taken over the conversation.
func (c *call) greetCaller(s *bridge.Session, took bool) error {
	if took {
		c.log.Info("call replaced", "was", c.replaces.dialog.callID)
		return s.Do(transferMessage(c.party))
	}
	return s.Greet()
}

// hangUp sends a BYE, unless the other side has ended the call. It returns why the call ended: the first reason, or err.
func (c *call) hangUp(err error) error {
	c.refreshing.Wait()
	why := c.endReason()
	if why != nil {
		err = why
	}
	if !errors.Is(why, errHungUp) && !errors.Is(why, errCancelled) {
		c.dialog.sendBye(reasonHeader(err))
	}
	return err
}

var (
	errRefresh   = errors.New("the session timer was not refreshed")
	errNoACK     = errors.New("our answer was not acknowledged")
	errCancelled = errors.New("the caller has given up")
	errChanging  = errors.New("the other side is changing what was agreed")
)

// refreshTimes holds the times of the last refresh of the session timer, and of our last attempt.
type refreshTimes struct{ refreshed, tried time.Time }

// startTimer starts the session timer, unless it is running.
func (c *call) startTimer() {
	if c.alive.refreshed.IsZero() {
		c.alive.refreshed = time.Now()
	}
}

// refreshPause is the time between two attempts to refresh the session timer. The shortest timer leaves room for two.
const refreshPause = 10 * time.Second

// keepAlive refreshes the session timer in the background if that is due. It returns an error if the call was not refreshed in time.
func (c *call) keepAlive(timer sessionTimer, now time.Time) error {
	waited := now.Sub(c.alive.refreshed)
	switch {
	case timer.every == 0:
	case waited > timer.expiresAfter():
		return errRefresh
	case timer.isRefresher && waited > timer.every/2 && now.Sub(c.alive.tried) > refreshPause:
		c.alive.tried = now
		c.refreshing.Go(func() {
			crash.Run(c.log, "sip call", c.endCall, func() { c.sendRefresh(timer) })
		})
	}
	return nil
}

// sendRefresh refreshes the session timer (RFC 4028, section 7.4). It tries again as the other side demands: with a longer interval
// (section 7.4), or later (RFC 3261, section 14.1; RFC 3311, section 5.2).
func (c *call) sendRefresh(timer sessionTimer) {
	ctx, cancel := context.WithTimeout(context.Background(), refreshPause)
	defer cancel()
	ctx, end := c.withCallContext(ctx)
	defer end(nil)
	for {
		res, err := c.refreshOnce(ctx, timer)
		if err != nil {
			if ctx.Err() == nil || c.endReason() == nil {
				c.log.Warn("session timer not refreshed", "err", err)
			}
			return
		}
		wait := time.Duration(0)
		least, _ := strconv.Atoi(headerText(res, "Min-SE"))
		switch interval := time.Duration(least) * time.Second; {
		case res.IsSuccess():
			c.noteRefresh()
			return
		case res.StatusCode == 408, res.StatusCode == 481:
			c.endCall(errRefresh)
			return
		case res.StatusCode == 422 && interval > timer.every && interval <= maxSessionInterval:
			timer.every = interval
			c.mu.Lock()
			c.timer.every = interval
			c.mu.Unlock()
		case res.StatusCode == 491:
			wait = 2100*time.Millisecond + rand.N(1900*time.Millisecond)
			if c.outbound == nil { // the other side chose the Call-ID
				wait = rand.N(2000 * time.Millisecond)
			}
		case retryAfter(res) > 0 && retryAfter(res) < refreshPause:
			wait = retryAfter(res)
		default:
			c.log.Warn("session timer not refreshed", "status", res.StatusCode, "reason", phone.ClipField(res.Reason))
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// refreshOnce refreshes by UPDATE (RFC 3311), or by INVITE if the peer does not support UPDATE.
func (c *call) refreshOnce(ctx context.Context, timer sessionTimer) (res *sip.Response, err error) {
	headers := []sip.Header{sip.NewHeader("Supported", "timer"), timer.header(true)}
	c.mu.Lock()
	invites := c.timer.invites
	c.mu.Unlock()
	if !invites {
		res, err = c.dialog.send(ctx, c.dialog.newRequest(sip.UPDATE, headers...))
		invites = err == nil && (res.StatusCode == 405 || res.StatusCode == 501)
	}
	if invites {
		c.mu.Lock()
		c.timer.invites = true
		c.mu.Unlock()
		res, err = c.sendReinvite(ctx, headers)
	}
	return res, err
}

// sendReinvite offers the current agreement again.
func (c *call) sendReinvite(ctx context.Context, headers []sip.Header) (*sip.Response, error) {
	select {
	case c.changing <- struct{}{}:
		defer func() { <-c.changing }()
	default:
		return nil, errChanging
	}
	req := c.dialog.newRequest(sip.INVITE, append(headers, sip.NewHeader("Allow", allowed))...)
	setBody(req, "application/sdp", c.media.LocalDescription())
	res, err := c.dialog.send(ctx, req)
	if err != nil || !res.IsSuccess() {
		return res, err
	}
	c.dialog.setTarget(res.Contact())
	if err := c.dialog.sendAck(res.CSeq().SeqNo); err != nil {
		return nil, err
	}
	answer := sessionIn(res)
	if answer == nil { // the agreement is unchanged
		return res, nil
	}
	return res, c.media.ApplyAnswer(answer)
}

// withTimer adds the supported methods and extensions to a response, and the agreed session timer.
func (c *call) withTimer(res *sip.Response) *sip.Response {
	res.AppendHeader(sip.NewHeader("Allow", allowed))
	res.AppendHeader(sip.NewHeader("Supported", extensions))
	if c.timer.every > 0 {
		res.AppendHeader(c.timer.header(false))
		if !c.timer.isRefresher {
			res.AppendHeader(sip.NewHeader("Require", "timer"))
		}
	}
	return res
}

// noteRefresh notes that the peer is still there.
func (c *call) noteRefresh() { trySend(c.fresh, struct{}{}) }

// handleInfo accepts a DTMF digit, and returns the response. No INFO package of RFC 6086 exists for digits, but phones send them so.
func (c *call) handleInfo(req *sip.Request) *sip.Response {
	part, refused := findBody(req, typeDTMFRelay, typeDTMF)
	if part != nil {
		digit, ok := sipmedia.ParseInfoDigit(part.kind, string(part.data))
		if ok {
			c.keypad.PushKey(digit)
		} else {
			refused = &refusal{code: 415, reason: "Unsupported Media Type"}
		}
	}
	if refused != nil {
		res := c.dialog.buildResponse(req, refused.code, refused.reason)
		for _, h := range refused.headers {
			res.AppendHeader(h)
		}
		return res
	}
	return c.dialog.buildResponse(req, 200, "OK")
}

// Notify implements bridge.Caller. A phone receives only audio, so most events are ignored.
func (c *call) Notify(e bridge.Event) {
	c.consultation.handleEvent(e.Body)
	c.menu().HandleEvent(e.Body)
	switch b := e.Body.(type) {
	case bridge.Speaking:
		c.screen.noteSpeech()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !isClosed(c.modelSpoke) {
			close(c.modelSpoke)
		}
	case bridge.TurnComplete:
		if c.screen.saying.Load() {
			c.endCall(errMessage)
		}
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// reasonHeader returns the Reason header of our BYE, for the other side's log (RFC 3326).
func reasonHeader(err error) string {
	cause := 16 // Q.850: normal call clearing
	text := bridge.Reason(err)
	switch {
	case errors.Is(err, sipmedia.ErrSilence), errors.Is(err, errRefresh):
		cause, text = 102, err.Error() // recovery on timer expiry
	case errors.Is(err, errMachine), errors.Is(err, errMessage), errors.Is(err, errTransferred), errors.Is(err, errPartner),
		errors.Is(err, errNotTaken), errors.Is(err, errSessionOver):
		text = err.Error()
	case errors.Is(err, bridge.ErrReplaced):
		text = "Replaced"
	case text != "":
		cause = 41 // temporary failure
		var limit bridge.Limit
		if errors.As(err, &limit) {
			cause = 31 // normal, unspecified
		}
	}
	return fmt.Sprintf("Q.850;cause=%d;text=%q", cause, cmp.Or(tools.Truncate(text, 100), "Normal call clearing"))
}
