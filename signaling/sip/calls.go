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
	maxHeader          = 256      // bytes of a value
	maxSay             = 1000     // bytes of a message for a machine
	maxDial            = 64 << 10 // bytes of a request to make a call
	// maxOutboundCalls is how many ended outgoing calls are remembered; the oldest is forgotten first.
	maxOutboundCalls = 1000
)

// Dial is a call that we make.
type Dial struct {
	To          string            `json:"to"`          // a number
	Trunk       string            `json:"trunk"`       // that takes it
	From        string            `json:"from"`        // the number that is shown, one of the trunk's outbound.callers; empty: outbound.from
	RingSeconds int               `json:"ringSeconds"` // how long it may ring, 180 at most; 0: 60
	Headers     map[string]string `json:"headers"`     // of the INVITE: X-…, User-to-User
	Agent       agents.Choice     `json:"agent"`       // who talks
	Variables   map[string]string `json:"variables"`   // for its prompt
	Machine     *Machine          `json:"machine"`     // the call listens before it speaks; nil: it does not
	Supervise   string            `json:"supervise"`   // the conversation that they hear and may take over; empty: the agent talks to them
	// IdempotencyKey names the request: a second one of the same server key gets the call of the first.
	IdempotencyKey string `json:"idempotencyKey"`
}

// The states of a call that we make. The last five are ends.
const (
	StateDialling = "dialling"
	StateRinging  = "ringing"
	StateAnswered = "answered"
	StateEnded    = "ended" // it was answered before
	StateBusy     = "busy"
	StateNoAnswer = "no-answer"
	StateCanceled = "canceled" // by the backend, before it was answered
	StateFailed   = "failed"
)

// CallStatus says where a call that we make stands.
type CallStatus struct {
	ID         string `json:"id"` // its Call-ID
	Trunk      string `json:"trunk"`
	To         string `json:"to"`
	State      string `json:"state"`
	SIP        int    `json:"sip,omitempty"`        // the status by which it was refused
	RetryAfter int    `json:"retryAfter,omitempty"` // seconds that the other side wants to be left alone, of one that was refused
	Reason     string `json:"reason,omitempty"`     // why it has ended, with what the other side's header Reason says
	AnsweredBy string `json:"answeredBy,omitempty"` // "person", "machine", "menu", "fax" or "silence", of a call that listens first
	HungUpBy   string `json:"hungUpBy,omitempty"`   // "them" or "us", of one that was answered
	Session    string `json:"sessionId,omitempty"`  // its conversation
	Change     int    `json:"change"`               // counts the changes of the status: reports may overtake each other

	StartedAt  time.Time  `json:"startedAt"`
	AnsweredAt *time.Time `json:"answeredAt,omitempty"`
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	Seconds    float64    `json:"seconds,omitempty"` // from the answer to the end
}

// outboundCall is what is known of a call that we make.
type outboundCall struct {
	key  string // the server key that wants it
	dial Dial
	menu phone.Menu

	placed chan struct{} // closed when it is known whether there is a call
	call   *call         // nil: there is none
	status CallStatus
}

func newOutboundCall(key string, what Dial) *outboundCall {
	return &outboundCall{
		key: key, dial: what, placed: make(chan struct{}),
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

// callRegistry has the calls that we make, in the order in which they began.
type callRegistry struct {
	tell func(CallStatus) // nil: nobody wants to know

	mu   sync.Mutex
	list []*outboundCall
}

// addCall makes a record; fresh is false if there is one of the same key and idempotency key already.
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

// dropCall forgets a call that was not made, so that it can be tried again.
func (l *callRegistry) dropCall(r *outboundCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.call == nil {
		l.list = slices.DeleteFunc(l.list, func(o *outboundCall) bool { return o == r })
		close(r.placed)
	}
}

// setCall gives a record its call.
func (l *callRegistry) setCall(r *outboundCall, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.call, r.status.ID = c, c.dialog.callID
	close(r.placed)
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

// currentStatus is the status, with its conversation. Needs the register's mu.
func (r *outboundCall) currentStatus() CallStatus {
	if s := r.call.conversation(); s != nil {
		r.status.Session = s.ID()
	}
	return r.status
}

// setState notes that a call has come further.
func (l *callRegistry) setState(c *call, state string) {
	l.changeStatus(c, func(s *CallStatus) {
		s.State = state
		if state == StateAnswered {
			now := time.Now().UTC()
			s.AnsweredAt = &now
		}
	})
}

// setEnded notes how a call has ended.
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
		c.outbound.dial = Dial{IdempotencyKey: c.outbound.dial.IdempotencyKey} // nobody needs the prompt any more
	})
}

// colleagueError is why a colleague did not take a call.
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

// endReasonText is why a call has ended, for the backend.
func endReasonText(err error) string {
	reason := bridge.Reason(err)
	if reason != "" && bridge.AsError(err).Code == bridge.CodeUnknown { // it is this door's own
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

// badHeader names a header that may not be sent.
func badHeader(headers map[string]string) string {
	for name, value := range headers {
		if !headerName.MatchString(name) || len(value) > maxHeader || len(headers) > maxHeaders ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return name
		}
	}
	return ""
}

// Endpoints are the addresses of calls that we make, for clients with a server key that may, and of telephones in pages.
func (d *Door) Endpoints() []signaling.Endpoint {
	return []signaling.Endpoint{
		{Pattern: "POST /v1/calls", Handler: requireKey(d.serveDial)},
		{Pattern: "GET /v1/calls/{id}", Handler: requireKey(d.withCall(d.serveStatus))},
		{Pattern: "DELETE /v1/calls/{id}", Handler: requireKey(d.withCall(d.serveHangUp))},
		{Pattern: "/sip", Socket: d.Pages()},
	}
}

// requireKey lets in a client with a server key that may call.
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

// withCall finds the call of a request among those of the key.
func (d *Door) withCall(serve func(http.ResponseWriter, *call, CallStatus)) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, key string) {
		c, status, ok := d.outboundCalls.findCall(key, r.PathValue("id"))
		if !ok {
			access.WriteNotFound(w, "There is no call of this id.")
			return
		}
		serve(w, c, status)
	}
}

func (d *Door) serveStatus(w http.ResponseWriter, _ *call, status CallStatus) {
	access.WriteJSON(w, http.StatusOK, status)
}

var errByBackend = errors.New("the backend has ended the call")

// serveHangUp hangs up, or gives up a call that still rings.
func (d *Door) serveHangUp(w http.ResponseWriter, c *call, _ CallStatus) {
	c.endCall(errByBackend)
	w.WriteHeader(http.StatusNoContent)
}

// serveDial makes a call, and answers when it rings.
func (d *Door) serveDial(w http.ResponseWriter, r *http.Request, key string) {
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
	var own *bridge.Error
	switch {
	case err != nil && id != "" && !errors.As(err, &own) && !errors.Is(err, bridge.ErrShutdown) && r.Context().Err() == nil:
		answerRefused(w, id, err)
	case err != nil:
		d.log.Warn("call not made", "key", key, "trunk", phone.ClipField(what.Trunk), "to", phone.ClipField(what.To), "err", err)
		access.WriteError(w, err)
	default:
		access.WriteJSON(w, http.StatusOK, map[string]string{"id": id})
	}
}

// answerRefused says that a call was made and not answered: it was refused, or nobody was reached.
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

// Call makes a call for a server key. It returns when it rings there, or cannot be made; the call goes on by itself.
func (d *Door) Call(ctx context.Context, key string, what Dial) (id string, err error) {
	what.To, what.From = plainNumber(what.To), plainNumber(what.From)
	r, fresh := d.outboundCalls.addCall(key, what)
	if fresh {
		err = d.placeCall(ctx, r)
		d.outboundCalls.dropCall(r)
	}
	select {
	case <-r.placed:
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

// plainNumber is a number of a backend in our spelling. A SIP URI stays as it is.
func plainNumber(text string) string {
	if scheme, _, ok := strings.Cut(strings.ToLower(text), ":"); ok && (scheme == "sip" || scheme == "sips") {
		return text
	}
	return string(phone.ParseNumber(text))
}
