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

// Media negotiates the media of a call by offer and answer (SDP). Its error texts are sent to the peer, for the peer's
// operator.
type Media interface {
	// ApplyOffer applies the first or a later offer of the peer. If it fails, the offer is rejected.
	ApplyOffer(sdp []byte) error
	// ApplyAnswer applies the peer's answer to our offer.
	ApplyAnswer(sdp []byte) error
	// LocalDescription returns our answer to the newest offer, or our own offer if the peer has sent none.
	LocalDescription() []byte
	// BuildReoffer returns our offer for the response to a re-INVITE that has no offer. It repeats what is agreed.
	BuildReoffer() []byte
}

// Call is the signalling of an incoming or outgoing phone call of a trunk.
type Call struct {
	Log *slog.Logger
	// Media must be set before the call is answered or dialled.
	Media Media
	// OnDigit is called with the DTMF digit in an INFO request: kind is the content type, and body the text. It returns
	// false if the body is malformed.
	OnDigit func(kind, body string) bool

	core   *core
	trunk  *trunkState
	dialog *dialog
	tx     sip.ServerTransaction // transaction of the INVITE; nil for an outgoing call
	party  phone.Party           // the caller; zero for an outgoing call

	acked      chan []byte   // receives the body of the ACK of our newest response; room for one
	awaitedACK atomic.Uint32 // CSeq of the expected ACK; 0 if none is expected
	isAnswered atomic.Bool   // our answer to an incoming call was acknowledged
	stages
	liveness
	earlySDP  earlyAnswers  // answers in provisional responses to our INVITE; used only by the goroutine that dials
	lookupErr error         // error of looking up the trunk's servers; nil if a server was found
	answer    *sip.Response // the successful final response to our INVITE
	changing  chan struct{} // a lock: holds one value while media are negotiated, for example from the first INVITE to its answer

	mu          sync.Mutex
	reason      error // why the call ended
	timer       sessionTimer
	reliable    reliable
	referStatus chan int // receives the final status of a REFER; nil without one
	reserved    *string  // the caller whose limit the call counts against; nil if the call counts against no limit
}

// stages holds a channel for each step of a call. Each channel is closed when the call reaches its step.
type stages struct {
	ending   chan struct{} // the call has a reason to end
	released chan struct{} // all resources of the call are released
}

// liveness is the state of a call's session timer.
type liveness struct {
	refreshed  time.Time // time of the last refresh; guarded by the call's mu
	tried      time.Time // time of our last attempt to refresh; used only by the goroutine that calls KeepAlive
	refreshing sync.WaitGroup
}

// reliable is the state of a reliable provisional response (RFC 3262).
type reliable struct {
	invite string // CSeq of the INVITE that the response belongs to: "1 INVITE"
	number uint32 // RSeq of the newest reliable response; 0 before the first
	acked  chan []byte
}

// maxForks limits how many phones of a forked call may have their early answers stored.
const maxForks = 16

// earlyAnswers maps the tag of a phone to the session description in its provisional response. A forked call has
// several phones.
type earlyAnswers map[string][]byte

func (e *earlyAnswers) addAnswer(res *sip.Response) {
	if answer := findSDP(res); answer != nil && len(*e) < maxForks {
		if *e == nil {
			*e = earlyAnswers{}
		}
		(*e)[toTag(res)] = answer
	}
}

// answerFor returns the early answer of the phone that sent res, or nil.
func (e earlyAnswers) answerFor(res *sip.Response) []byte { return e[toTag(res)] }

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
func (c *Call) Offer() []byte { return findSDP(c.dialog.invite) }

// MediaAddr returns our address for the media of the call.
func (c *Call) MediaAddr() netip.Addr { return c.core.local.address(c.dialog.peerAddr()) }

// Reserve counts the call towards the limits of its trunk and, unless caller is "", of the caller. If a limit is
// reached, it returns the name of that limit, otherwise "".
func (c *Call) Reserve(caller string) (exceededLimit string) {
	if exceededLimit = c.core.gate.countCall(c.trunk, caller); exceededLimit == "" {
		c.reserved = &caller
	}
	return exceededLimit
}

// release stops counting the call against its limits, and closes Released.
func (c *Call) release() {
	if c.reserved != nil {
		c.core.gate.releaseCall(c.trunk, *c.reserved)
	}
	close(c.released)
}

// Ending returns a channel that is closed when the call has a reason to end.
func (c *Call) Ending() <-chan struct{} { return c.ending }

// Released returns a channel that is closed when all resources of the call are released.
func (c *Call) Released() <-chan struct{} { return c.released }

// End gives the call a reason to end, which closes the channel of Ending. Only the first reason counts.
func (c *Call) End(reason error) {
	if c.setReason(reason) {
		close(c.ending)
	}
}

// setReason sets the reason for the end of the call, unless there is one already.
func (c *Call) setReason(reason error) (isFirst bool) {
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

// Context returns a context derived from parent. It is cancelled when the call ends, with [Call.EndReason] as the
// cause.
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

// HangUp sends a BYE with a Reason header, unless the other side has ended the call. It returns the reason for which
// the call ended, or err if it has none. reasonHeader returns the header's value. HangUp blocks until a refresh in
// progress has ended and the BYE is answered.
func (c *Call) HangUp(err error, reasonHeader func(reason error) string) error {
	c.refreshing.Wait()
	why := c.EndReason()
	if why != nil {
		err = why
	}
	if !errors.Is(why, ErrHungUp) && !errors.Is(why, ErrCancelled) {
		c.dialog.sendBye(reasonHeader(err))
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

// Refuse refuses the call. The refusal is counted and logged.
func (c *Call) Refuse(r *Refusal) {
	name, _, _ := strings.Cut(r.Rule, ": ")
	c.core.refusals.count("sip " + name)
	c.Log.Warn("call refused", "rule", phone.SanitizeField(r.Rule), "from", c.dialog.invite.Source())
	c.Respond(r)
}

// allowed lists the supported methods.
const allowed = "INVITE, ACK, PRACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, NOTIFY"

// extensions lists the supported extensions for incoming calls.
const extensions = "timer, 100rel, replaces"
