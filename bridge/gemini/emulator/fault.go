package emulator

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
)

// countFault counts an occurrence of a fault, unless the fault has already occurred Fault.Times times.
func (e *Emulator) countFault(i int) (mayOccur bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if times := e.scenario.Faults[i].Times; times > 0 && e.faultCounts[i] >= times {
		return false
	}
	e.faultCounts[i]++
	return true
}

// applyHandshakeFaults applies the faults of OnHandshake. refused is an error response to send. mustDrop means that the
// connection must be dropped without a response. It blocks for the delays of the faults.
func (s *session) applyHandshakeFaults(ctx context.Context, r *http.Request) (refused *apiError, mustDrop bool) {
	wait := func(end <-chan time.Time) {
		select {
		case <-end:
		case <-ctx.Done():
			refused = refusals[http.StatusServiceUnavailable]
		case <-r.Context().Done():
			mustDrop = true
		}
	}
	for i := range s.e.scenario.Faults {
		f := &s.e.scenario.Faults[i]
		if f.On != OnHandshake || !f.isDue(s.number, 1) || refused != nil || mustDrop || !s.e.countFault(i) {
			continue
		}
		s.report(Event{Kind: EventFault, Text: string(f.On)})
		if wait(time.After(f.After)); refused != nil || mustDrop {
			break
		}
		if f.Stall {
			wait(nil)
		}
		if f.HTTP != 0 {
			refused = refusals[f.HTTP]
		}
		mustDrop = mustDrop || f.Drop
	}
	return refused, mustDrop
}

// reachMoment applies the faults of a moment. If it returns an error, the connection must end with it.
func (s *session) reachMoment(moment Moment) error {
	s.momentCounts[moment]++
	for i, f := range s.e.scenario.Faults {
		if f.On != moment || !f.isDue(s.number, s.momentCounts[moment]) {
			continue
		}
		if f.After > 0 {
			s.callAfter(f.After, func() error { return s.triggerFault(i) })
		} else if err := s.triggerFault(i); err != nil {
			return err
		}
	}
	return nil
}

// applyVoiceFaults applies the faults of OnAnswer that are due while a piece of voice is sent. `from` and `to` are the
// lengths of the turn's voice before and after the piece. A fault is due if its After lies between them.
func (s *session) applyVoiceFaults(from, to time.Duration) error {
	for i, f := range s.e.scenario.Faults {
		if f.On != OnAnswer || f.After < from || f.After >= to || !f.isDue(s.number, s.momentCounts[OnAnswer]) {
			continue
		}
		if err := s.triggerFault(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) triggerFault(i int) error {
	f := &s.e.scenario.Faults[i]
	if !s.e.countFault(i) {
		return nil
	}
	s.report(Event{Kind: EventFault, Text: string(f.On)})
	s.e.log.Info("fault", "on", f.On, "connection", s.number)
	return s.applyFault(f)
}

// applyFault performs the action of a fault. If it returns an error, the connection must end with it.
func (s *session) applyFault(f *Fault) error {
	switch {
	case f.Close != 0:
		return live.NewClosing(f.Close, f.Reason)
	case f.Drop:
		return live.NewClosing(websocket.CloseAbnormalClosure, "")
	case f.Stall:
		s.conn.isSilent = true
		if f.Deaf {
			s.conn.isDeaf.Store(true)
			s.releaseConversation()
		}
		return nil
	case f.GoAway > 0:
		s.callAfter(f.GoAway, s.expire)
		return s.sendGoAway(f.GoAway)
	default:
		return s.conn.sendRaw([]byte(f.Send))
	}
}

// dropConnection closes the TCP connection of a request without sending a response.
func dropConnection(w http.ResponseWriter) {
	var conn net.Conn
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}
