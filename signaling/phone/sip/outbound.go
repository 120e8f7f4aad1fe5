package sip

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/signaling/phone/sip/ua"
)

// dialUntilRinging dials a call that is in the registry. It blocks until the phone rings or the call fails. After that
// the call runs in the background.
func (s *Server) dialUntilRinging(ctx context.Context, r *outboundCall) error {
	if err := s.checkDial(r.dial); err != nil {
		return err
	}
	repeatable := r.dial.IdempotencyKey != "" // kept in a variable, because the registry clears r.dial when the call has ended
	var agent *agents.Agent
	var err error
	var supervised *call
	if r.dial.Supervise == "" {
		agent, err = s.resolveAgent(r.dial.Agent, r.dial.Variables)
	} else if supervised, err = s.findSupervised(r.dial.Supervise); err == nil {
		agent = supervised.agent
	}
	if err != nil {
		return err
	}
	c, err := s.newOutgoing(ctx, r, agent)
	if err != nil {
		return err
	}
	if supervised != nil {
		c.superviseCall(supervised)
	}
	rings := make(chan error, 1)
	if err := s.startCall(c, func(err error) { phone.TrySend(rings, err) }); err != nil {
		return err
	}
	select {
	case err := <-rings:
		return err
	case <-ctx.Done():
		if !repeatable { // with an idempotency key, the backend can repeat its request and get this call
			c.End(ua.ErrCancelled)
		}
		return ctx.Err()
	}
}

// startCall starts an outgoing call in the background. The call is released when it ends. If startCall returns an
// error, the call is released already. onRinging is the onProgress of [call.runOutgoing].
func (s *Server) startCall(c *call, onRinging func(error)) error {
	if s.beginCall(c) != nil {
		s.releaseUnstartedCall(c)
		return bridge.ErrShutdown
	}
	r := c.outbound
	s.registry.setCall(r, c, c.ID())
	from, to := r.dial.From, r.dial.To
	s.running.Go(func() {
		c.logBegin(from, to)
		s.runCall(c, func() error {
			err := c.runOutgoing(onRinging)
			s.registry.setEnded(r, err, c.EndReason())
			return err
		})
	})
	return nil
}

// releaseUnstartedCall releases an outgoing call that was not started.
func (s *Server) releaseUnstartedCall(c *call) {
	c.audio.ClosePort()
	s.phones.Release(c.Call)
}

// checkDial returns an error if the requested call is not allowed.
func (s *Server) checkDial(what Dial) error {
	t := s.config.findTrunk(what.Trunk)
	wrong := func(code bridge.Code, field, format string, args ...any) error {
		return &bridge.Error{Code: code, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
	}
	switch {
	case t == nil || t.Outbound == nil:
		return wrong(bridge.CodeBadMessage, "trunk", "%q takes no outgoing calls.", phone.SanitizeField(what.Trunk))
	case !phone.Number(what.To).Matches(t.Outbound.To) || ua.HasURIDelimiters(what.To):
		return wrong(bridge.CodeForbidden, "to", "%q may not be called by this trunk.", phone.SanitizeField(what.To))
	case what.From != "" && !phone.Number(what.From).Matches(t.Outbound.Callers) || ua.HasURIDelimiters(what.From):
		return wrong(bridge.CodeForbidden, "from",
			"%q is not an allowed caller ID of this trunk; outbound.callers lists them.", phone.SanitizeField(what.From))
	case what.Machine != nil && len(what.Machine.Say) > maxSay:
		return wrong(bridge.CodeBadMessage, "machine.say", "%d bytes are more than %d.", len(what.Machine.Say), maxSay)
	case what.Supervise != "" && (what.Machine != nil || what.Variables != nil || what.Agent.Name != "" || what.Agent.Agent != nil):
		return wrong(bridge.CodeBadMessage, "supervise", "no agent talks to a supervisor: leave out agent, variables and machine.")
	case what.RingSeconds < 0 || what.RingSeconds > maxRingSeconds:
		return wrong(bridge.CodeBadMessage, "ringSeconds", "%d is not within 1 to %d.", what.RingSeconds, maxRingSeconds)
	case !s.host.IsReady():
		return bridge.ErrShutdown
	}
	if name := badHeader(what.Headers); name != "" {
		return wrong(bridge.CodeBadMessage, "headers",
			"%q: only X- headers and User-to-User may be sent, %d at most, of one line of %d bytes each.", name, maxHeaders, maxHeader)
	}
	return nil
}

// newOutgoing returns an outgoing call that counts against the limits of its trunk and has a media port. It is not dialled yet.
func (s *Server) newOutgoing(ctx context.Context, r *outboundCall, agent *agents.Agent) (*call, error) {
	what := r.dial
	signals, err := s.phones.NewCall(ctx, what.Trunk, what.To, what.From)
	if err != nil {
		return nil, err
	}
	if rule := signals.Reserve(""); rule != "" {
		return nil, &bridge.Error{Code: bridge.CodeBusy, Message: "There are too many " + rule + ".", Retry: 10 * time.Second}
	}
	party := phone.Party{Number: phone.Number(what.To), IsOutbound: true}
	party.Attributes.Add("call-id", signals.ID())
	c := s.newCall(signals, agent, party)
	c.outbound, c.screen = r, newCallScreen(what.Machine)
	if err := c.audio.OpenPort(); err != nil {
		s.phones.Release(signals)
		return nil, err
	}
	return c, nil
}

const (
	maxHeaders = 16
	maxHeader  = 256  // bytes of one value
	maxSay     = 1000 // bytes of the message for an answering machine
)

var headerName = regexp.MustCompile(`^(?i:x-[a-z0-9-]{1,60}|user-to-user)$`)

// badHeader returns the name of a header whose name or value is not allowed, or "".
func badHeader(headers map[string]string) string {
	for name, value := range headers {
		if !headerName.MatchString(name) || len(value) > maxHeader || len(headers) > maxHeaders ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return name
		}
	}
	return ""
}
