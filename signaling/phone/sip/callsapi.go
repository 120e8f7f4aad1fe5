package sip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

const (
	defaultRingSeconds = 60  // seconds
	maxRingSeconds     = 180 // seconds; carriers give up after two to three minutes
	maxHeaders         = 16
	maxHeader          = 256      // bytes of one value
	maxSay             = 1000     // bytes of the message for an answering machine
	maxDial            = 64 << 10 // bytes of the request body
	// maxOutboundCalls bounds the remembered outgoing calls: a new one replaces the oldest that has ended.
	maxOutboundCalls = 1000
)

// Dial is the request for an outgoing call.
type Dial struct {
	To          string            `json:"to"`          // the number to call
	Trunk       string            `json:"trunk"`       // name of the trunk to use
	From        string            `json:"from"`        // caller ID, one of the trunk's outbound.callers; default outbound.from
	RingSeconds int               `json:"ringSeconds"` // limit on ringing, at most 180; default 60
	Headers     map[string]string `json:"headers"`     // of the INVITE: X-…, User-to-User
	Agent       agents.Choice     `json:"agent"`       // the agent that talks
	Variables   map[string]string `json:"variables"`   // values for the agent's prompt
	Machine     *Machine          `json:"machine"`     // settings of answering-machine detection; nil disables it
	Supervise   string            `json:"supervise"`   // conversation to listen to and maybe take over; if empty, the agent talks
	// IdempotencyKey identifies the request: a repeated one with the same server key returns the first call.
	IdempotencyKey string `json:"idempotencyKey"`
}

// The states of an outgoing call. The last five are final.
const (
	StateDialling = "dialling"
	StateRinging  = "ringing"
	StateAnswered = "answered"
	StateEnded    = "ended" // after it was answered
	StateBusy     = "busy"
	StateNoAnswer = "no-answer"
	StateCanceled = "canceled" // by the backend, before it was answered
	StateFailed   = "failed"
)

// CallStatus is the status of an outgoing call.
type CallStatus struct {
	ID         string `json:"id"` // its Call-ID
	Trunk      string `json:"trunk"`
	To         string `json:"to"`
	State      string `json:"state"`                // one of the State constants
	SIP        int    `json:"sip,omitempty"`        // status code of the refusal
	RetryAfter int    `json:"retryAfter,omitempty"` // seconds, as demanded by a refusal
	Reason     string `json:"reason,omitempty"`     // why the call ended, with the text of the other side's Reason header
	AnsweredBy string `json:"answeredBy,omitempty"` // with AMD: "person", "machine", "menu", "fax" or "silence"
	HungUpBy   string `json:"hungUpBy,omitempty"`   // "them" or "us", if the call was answered
	Session    string `json:"sessionId,omitempty"`  // ID of its session
	Change     int    `json:"change"`               // counts the changes of the status, since reports may arrive out of order

	StartedAt  time.Time  `json:"startedAt"`
	AnsweredAt *time.Time `json:"answeredAt,omitempty"`
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	Seconds    float64    `json:"seconds,omitempty"` // from the answer to the end
}

// outboundCall is the entry of an outgoing call in the registry.
type outboundCall struct {
	key  string // the server key that requested it
	dial Dial
	menu phone.Menu

	ready  chan struct{} // closed once call is set, or dialling has failed
	call   *call         // nil until placed, and if dialling failed
	status CallStatus
}

func newOutboundCall(key string, what Dial) *outboundCall {
	return &outboundCall{
		key: key, dial: what, ready: make(chan struct{}),
		status: CallStatus{Trunk: what.Trunk, To: what.To, State: StateDialling, StartedAt: time.Now().UTC()},
	}
}

func (r *outboundCall) ringTimeout() time.Duration {
	seconds := r.dial.RingSeconds
	if seconds == 0 {
		seconds = defaultRingSeconds
	}
	return time.Duration(seconds) * time.Second
}

// callRegistry holds the outgoing calls, in the order in which they began.
type callRegistry struct {
	tell func(CallStatus) // receives each change of status; may be nil

	mu   sync.Mutex
	list []*outboundCall
}

// addCall adds an entry, or returns the existing one with the same key and idempotency key; then fresh is false.
func (l *callRegistry) addCall(key string, what Dial) (r *outboundCall, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if what.IdempotencyKey != "" {
		for _, r := range l.list {
			if r.key == key && r.dial.IdempotencyKey == what.IdempotencyKey {
				return r, false
			}
		}
	}
	r = newOutboundCall(key, what)
	if len(l.list) >= maxOutboundCalls {
		over := slices.IndexFunc(l.list, func(r *outboundCall) bool { return r.status.EndedAt != nil })
		if over >= 0 {
			l.list = slices.Delete(l.list, over, over+1)
		}
	}
	l.list = append(l.list, r)
	return r, true
}

// dropCall removes the entry of a call that was not placed, so that it can be tried again.
func (l *callRegistry) dropCall(r *outboundCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.call == nil {
		l.list = slices.DeleteFunc(l.list, func(o *outboundCall) bool { return o == r })
		close(r.ready)
	}
}

// setCall sets the call of an entry.
func (l *callRegistry) setCall(r *outboundCall, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.call, r.status.ID = c, c.dialog.callID
	close(r.ready)
}

// findCall returns a call of a server key.
func (l *callRegistry) findCall(key, id string) (*call, CallStatus, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.list {
		if r.key == key && r.status.ID == id {
			return r.call, r.currentStatus(), true
		}
	}
	return nil, CallStatus{}, false
}

// currentStatus returns the status, with the session ID. Needs the registry's mu.
func (r *outboundCall) currentStatus() CallStatus {
	if s := r.call.conversation(); s != nil {
		r.status.Session = s.ID()
	}
	return r.status
}

// setState sets the state of a call that has progressed.
func (l *callRegistry) setState(c *call, state string) {
	l.changeStatus(c, func(s *CallStatus) {
		s.State = state
		if state == StateAnswered {
			now := time.Now().UTC()
			s.AnsweredAt = &now
		}
	})
}

// setEnded sets the final status of a call.
func (l *callRegistry) setEnded(c *call, err error) {
	l.changeStatus(c, func(s *CallStatus) {
		now := time.Now().UTC()
		s.EndedAt, s.Reason = &now, endReasonText(err)
		var refused *RefusedError
		switch {
		case s.State == StateAnswered:
			s.State, s.HungUpBy = StateEnded, "us"
			s.Seconds = now.Sub(*s.AnsweredAt).Round(time.Millisecond).Seconds()
			if errors.Is(err, errHungUp) {
				s.HungUpBy = "them"
			}
		case errors.Is(c.endReason(), errNoAnswer):
			s.State, s.Reason = StateNoAnswer, errNoAnswer.Error()
		case errors.Is(c.endReason(), errCancelled), errors.Is(c.endReason(), errByBackend):
			s.State, s.Reason = StateCanceled, c.endReason().Error()
		case errors.As(err, &refused):
			s.State, s.SIP, s.Reason, s.RetryAfter = StateFailed, refused.Status, refused.Reason, int(refused.RetryAfter.Seconds())
			switch refused.Status {
			case 486, 600: // Busy Here, Busy Everywhere
				s.State = StateBusy
			case 408, 480: // Request Timeout, Temporarily Unavailable
				s.State = StateNoAnswer
			}
		default:
			s.State = StateFailed
		}
		c.outbound.dial = Dial{IdempotencyKey: c.outbound.dial.IdempotencyKey} // drop the prompt, it is not needed any more
	})
}

// colleagueError returns the reason why a colleague did not take a call.
func (l *callRegistry) colleagueError(c *call) error {
	why := c.endReason()
	l.mu.Lock()
	defer l.mu.Unlock()
	status := c.outbound.status
	switch {
	case errors.Is(why, errHungUp):
		return errors.New("the colleague has hung up")
	case errors.Is(why, errNoAnswer):
		return errors.New("the colleague was not reached: " + why.Error())
	case why != nil:
		return why
	case status.State == StateEnded:
		return errors.New(status.Reason)
	}
	return fmt.Errorf("the colleague was not reached: %s: %s", status.State, status.Reason)
}

// endReasonText returns the reason for the end of a call, for the backend.
func endReasonText(err error) string {
	reason := bridge.Reason(err)
	if reason != "" && bridge.AsError(err).Code == bridge.CodeUnknown { // an error of this package
		return err.Error()
	}
	return reason
}

func (l *callRegistry) changeStatus(c *call, f func(*CallStatus)) {
	l.mu.Lock()
	f(&c.outbound.status)
	c.outbound.status.Change++
	status := c.outbound.currentStatus()
	l.mu.Unlock()
	if l.tell != nil {
		l.tell(status)
	}
}

var headerName = regexp.MustCompile(`^(?i:x-[a-z0-9-]{1,60}|user-to-user)$`)

// badHeader returns the name of a header that is not allowed, or "".
func badHeader(headers map[string]string) string {
	for name, value := range headers {
		if !headerName.MatchString(name) || len(value) > maxHeader || len(headers) > maxHeaders ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return name
		}
	}
	return ""
}

// Endpoints returns the HTTP endpoints for outgoing calls, which need a server key.
func (d *Server) Endpoints() []signaling.Endpoint {
	return []signaling.Endpoint{
		{Pattern: "POST /v1/calls", Handler: requireKey(d.serveDial)},
		{Pattern: "GET /v1/calls/{id}", Handler: requireKey(d.withCall(d.serveStatus))},
		{Pattern: "DELETE /v1/calls/{id}", Handler: requireKey(d.withCall(d.serveHangUp))},
	}
}

// requireKey admits clients whose server key may make calls.
func requireKey(serve func(w http.ResponseWriter, r *http.Request, key string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := access.From(r.Context()).RequireKey(access.MayCall)
		if err != nil {
			access.WriteError(w, err)
			return
		}
		serve(w, r, key)
	})
}

// withCall finds the call of a request among the calls of the key.
func (d *Server) withCall(serve func(http.ResponseWriter, *call, CallStatus)) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, key string) {
		c, status, ok := d.outboundCalls.findCall(key, r.PathValue("id"))
		if !ok {
			access.WriteNotFound(w, "There is no call of this id.")
			return
		}
		serve(w, c, status)
	}
}

func (d *Server) serveStatus(w http.ResponseWriter, _ *call, status CallStatus) {
	access.WriteJSON(w, http.StatusOK, status)
}

var errByBackend = errors.New("the backend has ended the call")

// serveHangUp ends a call, or cancels it while it rings.
func (d *Server) serveHangUp(w http.ResponseWriter, c *call, _ CallStatus) {
	c.endCall(errByBackend)
	w.WriteHeader(http.StatusNoContent)
}

// serveDial makes a call. It responds when the phone rings, or the call has failed.
func (d *Server) serveDial(w http.ResponseWriter, r *http.Request, key string) {
	var what Dial
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDial))
	if err == nil {
		err = tools.ReadStrictJSON(body, &what)
	}
	if err != nil {
		err = &bridge.Error{Code: bridge.CodeBadMessage, Message: "The body is no call: " + err.Error()}
	}
	if err == nil && what.Supervise != "" {
		err = d.maySupervise(r, what.Supervise)
	}
	var id string
	if err == nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxRingSeconds*time.Second + byeTimeout))
		id, err = d.Call(r.Context(), key, what)
	}
	var bridgeErr *bridge.Error
	switch {
	case err != nil && id != "" && !errors.As(err, &bridgeErr) && !errors.Is(err, bridge.ErrShutdown) && r.Context().Err() == nil:
		answerRefused(w, id, err)
	case err != nil:
		d.log.Warn("call not made", "key", key, "trunk", phone.ClipField(what.Trunk), "to", phone.ClipField(what.To), "err", err)
		access.WriteError(w, err)
	default:
		access.WriteJSON(w, http.StatusOK, map[string]string{"id": id})
	}
}

// answerRefused responds that the call was placed but not answered.
func answerRefused(w http.ResponseWriter, id string, err error) {
	why := map[string]any{"code": "not_answered", "message": err.Error()}
	var refused *RefusedError
	if errors.As(err, &refused) {
		why["sip"] = refused.Status
		if seconds := int(refused.RetryAfter.Seconds()); seconds > 0 {
			why["retryAfter"] = seconds
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
	}
	access.WriteJSON(w, http.StatusConflict, map[string]any{"id": id, "error": why})
}

// Call makes a call for a server key. It blocks until the phone rings or the call fails; after that the call runs in the background.
func (d *Server) Call(ctx context.Context, key string, what Dial) (id string, err error) {
	what.To, what.From = plainNumber(what.To), plainNumber(what.From)
	r, fresh := d.outboundCalls.addCall(key, what)
	if fresh {
		err = d.placeCall(ctx, r)
		d.outboundCalls.dropCall(r)
	}
	select {
	case <-r.ready:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	d.outboundCalls.mu.Lock()
	id, made := r.status.ID, r.call != nil
	d.outboundCalls.mu.Unlock()
	if !fresh && !made { // the first request has failed
		return d.Call(ctx, key, what)
	}
	return id, err
}

// plainNumber normalizes a number from a backend. A SIP URI is returned unchanged.
func plainNumber(text string) string {
	if scheme, _, ok := strings.Cut(strings.ToLower(text), ":"); ok && (scheme == "sip" || scheme == "sips") {
		return text
	}
	return string(phone.ParseNumber(text))
}
