package ua

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// Media negotiates the media of a call. Its error texts are sent to the peer, for its operator to read.
type Media interface {
	// ApplyOffer applies an offer of the peer, the first one or a later one. An error rejects it.
	ApplyOffer(sdp []byte) error
	// ApplyAnswer applies the peer's answer to our offer.
	ApplyAnswer(sdp []byte) error
	// LocalDescription returns our answer to the newest offer, or our own offer if the peer has sent none.
	LocalDescription() []byte
	// BuildReoffer returns our offer for a re-INVITE or UPDATE, which repeats the current agreement.
	BuildReoffer() []byte
}

// Call is the signalling of one phone call, incoming or outgoing, of a trunk.
type Call struct {
	Log *slog.Logger
	// Media must be set before the call is answered or dialled.
	Media Media
	// OnDigit receives the digit of an INFO request, by the type and text of its body. It returns false if the body is malformed.
	OnDigit func(kind, body string) bool

	core   *core
	trunk  *trunkState
	dialog *dialog
	tx     sip.ServerTransaction // of the INVITE; nil for an outgoing call
	party  phone.Party           // the caller; zero for an outgoing call

	acked      chan []byte   // bodies of ACKs to our newest response; room for one
	awaitedACK atomic.Uint32 // CSeq of the expected ACK; 0 if none is expected
	isAnswered atomic.Bool   // our answer to an incoming call was acknowledged
	stages
	liveness
	earlySDP  earlyAnswers  // early answers to our INVITE; used only by the goroutine that dials
	lookupErr error         // error of looking up the trunk's servers, if none was found
	answer    *sip.Response // the answer to our INVITE
	changing  chan struct{} // a lock: full while the agreement is being negotiated, for example from the first INVITE to its answer

	mu          sync.Mutex
	reason      error // why the call ended
	timer       sessionTimer
	reliable    reliable
	referStatus chan int // receives the final status of a REFER; nil without one
	reserved    *string  // the caller whose limit the call counts against; nil if the call counts against no limit
}

// stages are the steps of a call. Each channel is closed once, when the call reaches that step.
type stages struct {
	ending   chan struct{} // the call has a reason to end
	released chan struct{} // all resources of the call are released
}

// liveness is the state of a call's session timer.
type liveness struct {
	refreshed  time.Time // time of the last refresh; needs the call's mu
	tried      time.Time // time of our last attempt; used only by the goroutine that calls KeepAlive
	refreshing sync.WaitGroup
}

// reliable is the state of a reliable provisional response (RFC 3262).
type reliable struct {
	invite string // the CSeq of its INVITE: "1 INVITE"
	number uint32 // RSeq of the response; 0 without one
	acked  chan []byte
}

// maxForks bounds the phones of a forked call that send early answers.
const maxForks = 16

// earlyAnswers holds the session descriptions of provisional responses by their sender's tag. A forked call has
// several.
type earlyAnswers map[string][]byte

func (e *earlyAnswers) addAnswer(res *sip.Response) {
	if answer := sessionIn(res); answer != nil && len(*e) < maxForks {
		if *e == nil {
			*e = earlyAnswers{}
		}
		(*e)[tagOf(res)] = answer
	}
}

// answerFor returns the early answer from the sender of a response, or nil.
func (e earlyAnswers) answerFor(res *sip.Response) []byte { return e[tagOf(res)] }

func newCall(core *core, t *trunkState, dialog *dialog, log *slog.Logger) *Call {
	c := &Call{
		Log: log.With("trunk", t.Name, "sip", dialog.callID), core: core, trunk: t, dialog: dialog, acked: make(chan []byte, 1),
		stages:   stages{make(chan struct{}), make(chan struct{})},
		changing: make(chan struct{}, 1), reliable: reliable{acked: make(chan []byte, 1)},
	}
	dialog.log = c.Log
	c.changing <- struct{}{}
	return c
}

// ID returns the Call-ID.
func (c *Call) ID() string { return c.dialog.callID }

// Trunk returns the name of the call's trunk.
func (c *Call) Trunk() string { return c.trunk.Name }

// Party returns the caller of an incoming call, and the called number.
func (c *Call) Party() phone.Party { return c.party }

// Offer returns the session description of the caller, or nil.
func (c *Call) Offer() []byte { return sessionIn(c.dialog.invite) }

// MediaAddr returns our address for the media of the call.
func (c *Call) MediaAddr() netip.Addr { return c.core.local.address(c.dialog.peerAddr()) }

// Reserve counts the call against the limits of its trunk, and of caller unless that is "". It returns the name of the
// limit that refuses the call, or "".
func (c *Call) Reserve(caller string) (rule string) {
	if rule = c.core.gate.countCall(c.trunk, caller); rule == "" {
		c.reserved = &caller
	}
	return rule
}

// release gives back what the call has reserved.
func (c *Call) release() {
	if c.reserved != nil {
		c.core.gate.releaseCall(c.trunk, *c.reserved)
	}
	close(c.released)
}

// Ending is closed when the call has a reason to end.
func (c *Call) Ending() <-chan struct{} { return c.ending }

// Released is closed when all resources of the call are released.
func (c *Call) Released() <-chan struct{} { return c.released }

// End ends the call. If it is called again, the first reason stays.
func (c *Call) End(reason error) {
	if c.setReason(reason) {
		close(c.ending)
	}
}

// setReason sets the reason for the end of the call. It returns false if there is one already.
func (c *Call) setReason(reason error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != nil {
		return false
	}
	c.reason = reason
	return true
}

// EndReason returns the reason for the end of the call, or nil.
func (c *Call) EndReason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// Context returns a context derived from parent. The end of the call cancels it, with the reason as its cause.
func (c *Call) Context(parent context.Context) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	go func() {
		select {
		case <-c.ending:
			cancel(c.EndReason())
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// HangUp sends a BYE with a Reason header, unless the other side has ended the call. It returns the reason of an ended
// call, else err.
func (c *Call) HangUp(err error, header func(reason error) string) error {
	c.refreshing.Wait()
	why := c.EndReason()
	if why != nil {
		err = why
	}
	if !errors.Is(why, ErrHungUp) && !errors.Is(why, ErrCancelled) {
		c.dialog.sendBye(header(err))
	}
	return err
}

// respond sends the response r to a request of the call.
func (c *Call) respond(tx sip.ServerTransaction, req *sip.Request, r *Refusal) {
	res := c.dialog.buildResponse(req, r.Code, r.Reason)
	for _, h := range r.headers {
		res.AppendHeader(h)
	}
	_ = tx.Respond(res)
}

// Respond sends the response r to the INVITE.
func (c *Call) Respond(r *Refusal) { c.respond(c.tx, c.dialog.invite, r) }

// Refuse refuses the call, and counts and logs that.
func (c *Call) Refuse(r *Refusal) {
	name, _, _ := strings.Cut(r.Rule, ": ")
	c.core.refusals.count("sip " + name)
	c.Log.Warn("call refused", "rule", phone.ClipField(r.Rule), "from", c.dialog.invite.Source())
	c.Respond(r)
}

// allowed lists the supported methods.
const allowed = "INVITE, ACK, PRACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, NOTIFY"

// extensions lists the supported extensions for incoming calls.
const extensions = "timer, 100rel, replaces"
