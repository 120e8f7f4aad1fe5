package emulator

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
)

// useFault counts an occurrence of a fault. It returns false if the fault has already occurred Fault.Times times.
func (e *Emulator) useFault(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if times := e.scenario.Faults[i].Times; times > 0 && e.faultCounts[i] >= times {
		return false
	}
	e.faultCounts[i]++
	return true
}

// applyHandshakeFaults applies the faults of OnHandshake. refused is an error response to send. drop means that the
// connection must be dropped without a response.
func (s *session) applyHandshakeFaults(ctx context.Context, r *http.Request) (refused *apiError, drop bool) {
	wait := func(end <-chan time.Time) {
		select {
		case <-end:
		case <-ctx.Done():
			refused = refusals[http.StatusServiceUnavailable]
		case <-r.Context().Done():
			drop = true
		}
	}
	for i := range s.e.scenario.Faults {
		f := &s.e.scenario.Faults[i]
		if f.On != OnHandshake || !f.isDue(s.number, 1) || refused != nil || drop || !s.e.useFault(i) {
			continue
		}
		s.report(Event{Kind: EventFault, Text: string(f.On)})
		if wait(time.After(f.After)); refused != nil || drop {
			break
		}
		if f.Stall {
			wait(nil)
		}
		if f.HTTP != 0 {
			refused = refusals[f.HTTP]
		}
		drop = drop || f.Drop
	}
	return refused, drop
}

// reachMoment applies the faults of a moment. If it returns an error, the connection must end with it.
func (s *session) reachMoment(on Moment) error {
	s.momentCounts[on]++
	for i, f := range s.e.scenario.Faults {
		if f.On != on || !f.isDue(s.number, s.momentCounts[on]) {
			continue
		}
		if f.After > 0 {
			s.after(f.After, func() error { return s.triggerFault(i) })
		} else if err := s.triggerFault(i); err != nil {
			return err
		}
	}
	return nil
}

// reachVoice applies the faults of OnAnswer that are due in a piece of voice. The piece lies between the durations
// `from` and `to`, measured in the voice that was sent in the turn. A fault is due at its After.
func (s *session) reachVoice(from, to time.Duration) error {
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
	if !s.e.useFault(i) {
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
			s.depart()
		}
		return nil
	case f.GoAway > 0:
		s.after(f.GoAway, s.expire)
		return s.sendGoAway(f.GoAway)
	default:
		return s.conn.sendRaw([]byte(f.Send))
	}
}

// drop closes the TCP connection of a request without sending a response.
func drop(w http.ResponseWriter) {
	var conn net.Conn
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}
