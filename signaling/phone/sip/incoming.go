package sip

import (
	"time"

	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/signaling/phone/sip/ua"
)

// serveCall runs an incoming call to its end, unless the call is refused.
func (s *Server) serveCall(signals *ua.Call) {
	c, refused := s.admitCall(signals)
	if refused != nil {
		signals.Refuse(refused)
		s.phones.Release(signals)
		return
	}
	s.runCall(c, c.runIncoming)
}

// admitCall counts a call against the limits of its trunk, assigns an agent and a media port to it, and adds it to the
// table of calls. If that fails, it returns a refusal.
func (s *Server) admitCall(signals *ua.Call) (*call, *ua.Refusal) {
	party := signals.Party()
	agent := phone.FindAgent(s.agents, protocolName, party.Called)
	if agent == nil {
		return nil, &ua.Refusal{Code: 404, Reason: "Not Found", Rule: "no agent: for " + phone.SanitizeField(party.Called)}
	}
	if !s.host.IsReady() {
		return nil, refusalFor(bridge.ErrShutdown)
	}
	c := s.newCall(signals, agent, party)
	var refused *ua.Refusal
	if c.replaces, refused = s.awaitReplacedCall(signals); refused != nil {
		return nil, refused
	}
	if offer := signals.Offer(); offer != nil {
		if err := c.audio.ApplyOffer(offer); err != nil {
			return nil, ua.NotAcceptable(err)
		}
	}
	if rule := c.Reserve(party.Number.Key()); rule != "" {
		return nil, busyRefusal(rule)
	}
	if err := c.audio.OpenPort(); err != nil {
		return nil, busyRefusal("no port: " + err.Error())
	}
	if err := s.beginCall(c); err != nil {
		c.audio.ClosePort()
		return nil, refusalFor(bridge.ErrShutdown)
	}
	return c, nil
}

// busyRefusal returns a refusal with status 503, for a limit that may be free again soon. The rule names the limit.
func busyRefusal(rule string) *ua.Refusal {
	return (&ua.Refusal{Code: 503, Reason: "Service Unavailable", Rule: rule}).WithHeader("Retry-After", "10")
}

// awaitReplacedCall returns the call that an INVITE is to replace (RFC 3891), or nil for a new call. A trunk may
// replace only its own calls. If the call to replace has no conversation yet, awaitReplacedCall blocks until it has
// one, for at most [Options.Timeout].
func (s *Server) awaitReplacedCall(signals *ua.Call) (*call, *ua.Refusal) {
	replaced, earlyOnly, refused := s.phones.FindReplaced(signals)
	if replaced == nil {
		return nil, refused
	}
	old := s.calls.find(replaced)
	if old == nil {
		return nil, &ua.Refusal{Code: 481, Reason: "Call/Transaction Does Not Exist", Rule: "replaces: there is no such call"}
	}
	select {
	case <-old.sessionStarted:
	case <-old.Ending():
		return nil, &ua.Refusal{Code: 603, Reason: "Decline", Rule: "replaces: the call has ended"} // RFC 3891, section 3
	case <-time.After(s.timeout):
		return nil, &ua.Refusal{Code: 481, Reason: "Call/Transaction Does Not Exist", Rule: "replaces: the call has no conversation"}
	}
	if old.isBridged() || isClosed(old.conversation().Done()) {
		return nil, &ua.Refusal{Code: 603, Reason: "Decline", Rule: "replaces: the call was handed over"}
	}
	if earlyOnly {
		return nil, &ua.Refusal{Code: 486, Reason: "Busy Here", Rule: "replaces: the call was answered"}
	}
	return old, nil
}
