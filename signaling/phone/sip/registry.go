package sip

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/signaling/phone/sip/ua"
)

const (
	defaultRingSeconds = 60  // seconds
	maxRingSeconds     = 180 // seconds; carriers give up after two to three minutes
	// maxOutboundCalls limits the outgoing calls that the registry keeps. When it is reached, a new call replaces the
	// oldest call that has ended.
	maxOutboundCalls = 1000
)

// Dial is the request for an outgoing call.
type Dial struct {
	To          string            `json:"to"`          // the number to call
	Trunk       string            `json:"trunk"`       // name of the trunk to use
	From        string            `json:"from"`        // caller ID, one of the trunk's outbound.callers; default outbound.from
	RingSeconds int               `json:"ringSeconds"` // limit on ringing, at most 180; default 60
	Headers     map[string]string `json:"headers"`     // headers for the INVITE: X-… and User-to-User
	Agent       agents.Choice     `json:"agent"`       // the agent that talks
	Variables   map[string]string `json:"variables"`   // values for the agent's prompt
	Machine     *Machine          `json:"machine"`     // settings of answering-machine detection; nil disables it
	Supervise   string            `json:"supervise"`   // session that the called supervisor may listen to and take over
	// IdempotencyKey identifies the request. A repeated request with the same key and server key returns the first
	// call.
	IdempotencyKey string `json:"idempotencyKey"`
}

// The states of an outgoing call. The last five are final.
const (
	StateDialling = "dialling"
	StateRinging  = "ringing"
	StateAnswered = "answered"
	StateEnded    = "ended" // the call was answered, and has ended
	StateBusy     = "busy"
	StateNoAnswer = "no-answer"
	StateCanceled = "canceled" // ended by the backend before it was answered
	StateFailed   = "failed"
)

// CallStatus is the status of an outgoing call.
type CallStatus struct {
	ID         string `json:"id"` // Call-ID of the call
	Trunk      string `json:"trunk"`
	To         string `json:"to"`
	State      string `json:"state"`                // one of the State constants
	SIP        int    `json:"sip,omitempty"`        // SIP status code of the refusal
	RetryAfter int    `json:"retryAfter,omitempty"` // seconds, as demanded by a refusal
	Reason     string `json:"reason,omitempty"`     // why the call ended, with the text of the other side's Reason header
	AnsweredBy string `json:"answeredBy,omitempty"` // result of AMD: "person", "machine", "menu", "fax" or "silence"
	HungUpBy   string `json:"hungUpBy,omitempty"`   // "them" or "us", if the call was answered
	Session    string `json:"sessionId,omitempty"`  // ID of the call's session
	Change     int    `json:"change"`               // number of this change of the status, because reports may arrive out of order

	StartedAt  time.Time  `json:"startedAt"`
	AnsweredAt *time.Time `json:"answeredAt,omitempty"`
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	Seconds    float64    `json:"seconds,omitempty"` // time from the answer to the end of the call
}

// outboundCall is the entry of an outgoing call in the registry.
type outboundCall struct {
	key  string // the server key that requested it
	dial Dial
	menu phone.Menu

	ready  chan struct{} // closed when call is set, or when placing the call has failed
	call   placedCall    // nil until the call is placed; stays nil if that fails
	status CallStatus
}

// placedCall is the part of [call] that the registry needs.
type placedCall interface {
	End(reason error)
	sessionID() string // empty before the conversation begins
}

func newOutboundCall(key string, what Dial) *outboundCall {
	return &outboundCall{
		key: key, dial: what, ready: make(chan struct{}),
		status: CallStatus{Trunk: what.Trunk, To: what.To, State: StateDialling, StartedAt: time.Now().UTC()},
	}
}

func (o *outboundCall) ringTimeout() time.Duration {
	seconds := o.dial.RingSeconds
	if seconds == 0 {
		seconds = defaultRingSeconds
	}
	return time.Duration(seconds) * time.Second
}

// callRegistry holds the outgoing calls, in the order in which they began.
type callRegistry struct {
	onStatus func(CallStatus) // receives each change of status; may be nil

	mu   sync.Mutex
	list []*outboundCall
}

// addCall adds an entry. If the server key has an entry with this idempotency key, addCall returns that entry, and
// isNew is false.
func (cr *callRegistry) addCall(key string, what Dial) (r *outboundCall, isNew bool) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if what.IdempotencyKey != "" {
		for _, r := range cr.list {
			if r.key == key && r.dial.IdempotencyKey == what.IdempotencyKey {
				return r, false
			}
		}
	}
	r = newOutboundCall(key, what)
	if len(cr.list) >= maxOutboundCalls {
		over := slices.IndexFunc(cr.list, func(r *outboundCall) bool { return r.status.EndedAt != nil })
		if over >= 0 {
			cr.list = slices.Delete(cr.list, over, over+1)
		}
	}
	cr.list = append(cr.list, r)
	return r, true
}

// dropCall removes the entry of a call that could not be placed, so that the request can be repeated. It does nothing
// for a call that was placed.
func (cr *callRegistry) dropCall(r *outboundCall) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if r.call == nil {
		cr.list = slices.DeleteFunc(cr.list, func(o *outboundCall) bool { return o == r })
		close(r.ready)
	}
}

// setCall sets the call of an entry, and its Call-ID.
func (cr *callRegistry) setCall(r *outboundCall, c placedCall, id string) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	r.call, r.status.ID = c, id
	close(r.ready)
}

// findCall returns the call with an id, and its status. It returns false if this server key has made no such call.
func (cr *callRegistry) findCall(key, id string) (c placedCall, status CallStatus, ok bool) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	for _, r := range cr.list {
		if r.key == key && r.status.ID == id {
			return r.call, r.updateStatus(), true
		}
	}
	return nil, CallStatus{}, false
}

// updateStatus copies the session ID of the call into its status, and returns the status. The caller must hold the
// registry's mu.
func (o *outboundCall) updateStatus() CallStatus {
	o.status.Session = o.call.sessionID()
	return o.status
}

// setState sets the state of a call that has not ended.
func (cr *callRegistry) setState(r *outboundCall, state string) {
	cr.changeStatus(r, func(s *CallStatus) {
		s.State = state
		if state == StateAnswered {
			now := time.Now().UTC()
			s.AnsweredAt = &now
		}
	})
}

// setEnded sets the final status of a call. err is the error with which the call ended. If the call was ended on
// purpose, reason says why; otherwise it is nil.
func (cr *callRegistry) setEnded(r *outboundCall, err, reason error) {
	cr.changeStatus(r, func(s *CallStatus) {
		now := time.Now().UTC()
		s.EndedAt, s.Reason = &now, endReasonText(err)
		var refused *ua.RefusedError
		switch {
		case s.State == StateAnswered:
			s.State, s.HungUpBy = StateEnded, "us"
			s.Seconds = now.Sub(*s.AnsweredAt).Round(time.Millisecond).Seconds()
			if errors.Is(err, ua.ErrHungUp) {
				s.HungUpBy = "them"
			}
		case errors.Is(reason, ua.ErrNoAnswer):
			s.State, s.Reason = StateNoAnswer, ua.ErrNoAnswer.Error()
		case errors.Is(reason, ua.ErrCancelled), errors.Is(reason, errByBackend):
			s.State, s.Reason = StateCanceled, reason.Error()
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
		r.dial = Dial{IdempotencyKey: r.dial.IdempotencyKey} // releases the prompt, which is not needed any more
	})
}

// newColleagueError returns the error that tells the model why a colleague did not take over a caller. why is the
// reason for which the call to the colleague was ended, or nil.
func (cr *callRegistry) newColleagueError(r *outboundCall, why error) error {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	status := r.status
	switch {
	case errors.Is(why, ua.ErrHungUp):
		return errors.New("the colleague has hung up")
	case errors.Is(why, ua.ErrNoAnswer):
		return errors.New("the colleague was not reached: " + why.Error())
	case why != nil:
		return why
	case status.State == StateEnded:
		return errors.New(status.Reason)
	}
	return fmt.Errorf("the colleague was not reached: %s: %s", status.State, status.Reason)
}

// endReasonText returns the reason for the end of a call, as a text for the backend.
func endReasonText(err error) string {
	reason := bridge.DescribeEnd(err)
	if reason != "" && bridge.AsError(err).Code == bridge.CodeUnknown { // the error is from this package, not from bridge
		return err.Error()
	}
	return reason
}

func (cr *callRegistry) changeStatus(r *outboundCall, f func(*CallStatus)) {
	cr.mu.Lock()
	f(&r.status)
	r.status.Change++
	status := r.updateStatus()
	cr.mu.Unlock()
	if cr.onStatus != nil {
		cr.onStatus(status)
	}
}
