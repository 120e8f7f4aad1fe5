package emulator

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// call is a function call that was not answered yet.
type call struct {
	id, name string
	args     json.RawMessage
	blocking bool
}

type functionResponse struct {
	ID, Name     string
	Response     json.RawMessage
	Scheduling   string
	WillContinue bool
}

// blocked reports whether the model waits for a result and says nothing before.
func (s *session) blocked() bool {
	for _, c := range s.calls {
		if c.blocking {
			return true
		}
	}
	return false
}

func newCallID() string { return "function-call-" + strings.ToLower(rand.Text()[:16]) }

// sendCalls asks the client for results.
func (s *session) sendCalls(calls []*call) error {
	var list []object
	for _, c := range calls {
		s.calls[c.id] = c
		list = append(list, object{"id": c.id, "name": c.name, "args": c.args})
		s.tell(Event{What: Called, ID: c.id, Name: c.name, Text: string(c.args)})
	}
	s.asked = time.Now()
	if err := s.withhold(); err != nil {
		return err
	}
	if err := s.send(object{"toolCall": object{"functionCalls": list}}); err != nil {
		return err
	}
	if err := s.changed(); err != nil { // a session resumed from here knows of the call
		return err
	}
	return s.moment(OnToolCall)
}

// waits reports whether the model hears nothing before its call is answered.
func (s *session) waits() bool { return s.setup.profile.blocks && s.blocked() }

// cancelCalls takes back the calls that the model waits for. The others go on while people talk.
func (s *session) cancelCalls() error {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.calls)) {
		if s.calls[id].blocking {
			ids = append(ids, id)
			delete(s.calls, id)
		}
	}
	if ids == nil {
		return nil
	}
	return s.send(object{"toolCallCancellation": object{"ids": ids}})
}

// toolResponse takes results. Those of unknown calls are ignored, as Google does.
func (s *session) toolResponse(responses []functionResponse) error {
	if err := s.moment(OnToolResponse); err != nil {
		return err
	}
	for _, r := range responses {
		switch {
		case r.Scheduling != "" && s.setup.profile.noScheduling:
			return invalid("Function response scheduling is not supported for this model.")
		case r.WillContinue && s.endpoint.vertex:
			return newClosing(closeInvalid, "")
		}
		c := s.calls[r.ID]
		s.tell(Event{What: Answered, ID: r.ID, Name: r.Name, Text: string(r.Response), Ignored: c == nil})
		if c == nil {
			continue
		}
		if err := s.result(c, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) result(c *call, r functionResponse) error {
	var response map[string]any
	if err := json.Unmarshal(r.Response, &response); err != nil {
		response = nil // there is none
	}
	if len(response) == 0 && !r.WillContinue {
		// gemini-3.8-live does not take {} for an answer and asks again.
		delete(s.calls, c.id)
		return s.sendCalls([]*call{{id: newCallID(), name: c.name, args: c.args, blocking: c.blocking}})
	}
	if !r.WillContinue {
		delete(s.calls, c.id)
	}
	s.remember("tool", string(r.Response))
	if r.Scheduling == "SILENT" && !c.blocking {
		return nil
	}
	if r.Scheduling == "INTERRUPT" && !c.blocking && s.turn != nil {
		if err := s.interrupt(); err != nil {
			return err
		}
	}
	if c.blocking && s.turn != nil && !s.blocked() {
		if err := s.endTurn(); err != nil { // the empty end of the turn that asked
			return err
		}
	}
	return s.speak(plainText(response), fmt.Sprintf("The tool %s says: %s", c.name, r.Response), true)
}

// plainText is what of a result can be said: its values in the order of their names.
func plainText(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, plainText(v[name]))
		}
		return strings.Join(texts, ", ")
	case []any:
		var texts []string
		for _, element := range v {
			texts = append(texts, plainText(element))
		}
		return strings.Join(texts, ", ")
	default:
		return fmt.Sprint(v)
	}
}
