package emulator

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// refusals are Google's answers to a handshake, by status.
var refusals = map[int]*apiError{
	http.StatusUnauthorized:       {http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential."},
	http.StatusForbidden:          {http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission."},
	http.StatusTooManyRequests:    {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", quotaExceeded},
	http.StatusServiceUnavailable: {http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable."},
}

const (
	quotaExceeded   = "You exceeded your current quota, please check your plan and billing details."
	deadlineExpired = "Deadline expired before operation could complete."
	notEnabled      = "Operation is not implemented, or supported, or enabled."
	notFound        = "BidiGenerateContent session not found"
)

// due reports whether a fault means this time of a moment on this connection.
func (f *Fault) due(connection, nth int) bool {
	return (f.Connections == nil || slices.Contains(f.Connections, connection)) && (f.Nth == 0 || f.Nth == nth)
}

// spend counts a fault that is about to strike, and reports whether it may do so once more.
func (e *Emulator) spend(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if times := e.scenario.Faults[i].Times; times > 0 && e.struck[i] >= times {
		return false
	}
	e.struck[i]++
	return true
}

// handshake lets faults act on the upgrade. It returns what it is refused with, and whether the connection is to be
// dropped instead.
func (s *session) handshake(ctx context.Context, r *http.Request) (refused *apiError, drop bool) {
	wait := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			refused = refusals[http.StatusServiceUnavailable]
		case <-r.Context().Done():
			drop = true
		}
	}
	for i := range s.e.scenario.Faults {
		f := &s.e.scenario.Faults[i]
		if f.On != OnHandshake || !f.due(s.number, 1) || refused != nil || drop || !s.e.spend(i) {
			continue
		}
		s.tell(Event{What: Faulted, Text: string(f.On)})
		if wait(f.After); refused != nil || drop {
			break
		}
		if wait(f.Stall); f.HTTP != 0 {
			refused = refusals[f.HTTP]
		}
		drop = drop || f.Drop || f.Close == websocket.CloseAbnormalClosure
	}
	return refused, drop
}

// moment is where faults strike. Its error ends the connection.
func (s *session) moment(on Moment) error {
	s.seen[on]++
	for i, f := range s.e.scenario.Faults {
		if f.On != on || !f.due(s.number, s.seen[on]) {
			continue
		}
		if f.After > 0 {
			s.agenda.add(f.After, func() error { return s.strike(i) })
		} else if err := s.strike(i); err != nil {
			return err
		}
	}
	return nil
}

// passage is a moment whose faults come after an amount of audio, which has gone from one duration to another. Nth is
// counted by the caller.
func (s *session) passage(on Moment, from, to time.Duration) error {
	for i, f := range s.e.scenario.Faults {
		if f.On != on || f.After < from || f.After >= to || !f.due(s.number, s.seen[on]) {
			continue
		}
		if err := s.strike(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) strike(i int) error {
	f := &s.e.scenario.Faults[i]
	if !s.e.spend(i) {
		return nil
	}
	s.tell(Event{What: Faulted, Text: string(f.On)})
	s.e.log.Info("fault", "on", f.On, "connection", s.number)
	switch {
	case f.Close != 0:
		return newClosing(f.Close, f.Reason)
	case f.Drop:
		return newClosing(websocket.CloseAbnormalClosure, "")
	case f.DropMidFrame:
		return s.dropMidFrame()
	case f.Stall > 0:
		s.stall(f.Stall, f.Deaf)
		return nil
	default:
		return s.write([]byte(f.Send))
	}
}

// dropMidFrame sends half of a frame of voice. Nothing else is being written but control frames, and each of them is one
// write.
func (s *session) dropMidFrame() error {
	payload := encode(object{"serverContent": object{"modelTurn": object{"parts": []object{
		audioPart(make([]int16, 960)), // 40 ms, the shortest that Google sends
	}}}})
	// RFC 6455, 5.2: final binary frame, no mask, length in the next two bytes.
	frame := append([]byte{0x82, 126, byte(len(payload) >> 8), byte(len(payload))}, payload...)
	raw := s.ws.NetConn()
	_ = raw.SetWriteDeadline(time.Now().Add(patience))
	_, _ = raw.Write(frame[:len(frame)/2])
	return newClosing(websocket.CloseAbnormalClosure, "")
}

// stall has nothing sent for d, and with deaf nothing read.
func (s *session) stall(d time.Duration, deaf bool) {
	s.stalled, s.stallEnd = d, time.Now().Add(min(d, year))
	if deaf && s.ear.Load() == nil {
		ear := make(chan struct{})
		s.ear.Store(&ear)
		s.depart()
	}
	if d != Forever {
		s.agenda.add(d, s.recover)
	}
}

// year stands for Forever where a time must be calculated.
const year = 365 * 24 * time.Hour

// recover ends a stall: what waited is sent.
func (s *session) recover() error {
	if s.stalled == 0 || time.Now().Before(s.stallEnd) {
		return nil // another stall has begun meanwhile
	}
	s.stalled = 0
	if ear := s.ear.Swap(nil); ear != nil {
		close(*ear)
	}
	held := s.held
	s.held = nil
	for _, message := range held {
		if err := s.send(message); err != nil {
			return err
		}
	}
	return nil
}

// distort puts into a message what a client must bear.
func (sc *Scenario) distort(message object) object {
	if !sc.UnknownFields && !sc.Int64Strings {
		return message
	}
	dec := json.NewDecoder(strings.NewReader(string(encode(message))))
	dec.UseNumber()
	var tree object
	if err := dec.Decode(&tree); err != nil {
		panic("emulator: distort " + err.Error()) // it was encoded just now
	}
	return sc.distortTree(tree).(object)
}

func (sc *Scenario) distortTree(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if name != "args" { // they are the application's
				v[name] = sc.distortTree(field)
			}
		}
		if sc.UnknownFields {
			v["fieldOfTheFuture"] = object{"list": []any{1, nil, "x"}, "empty": object{}}
		}
	case []any:
		for i, element := range v {
			v[i] = sc.distortTree(element)
		}
	case json.Number:
		if _, err := v.Int64(); err == nil && sc.Int64Strings {
			return v.String()
		}
	}
	return value
}

// drop ends the TCP connection of a request without an answer.
func drop(w http.ResponseWriter) {
	var conn net.Conn
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}
