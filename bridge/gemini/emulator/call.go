package emulator

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/emulator/live"
)

// call is a function call of the model whose response is still missing.
type call struct {
	id, name string
	args     json.RawMessage
	blocking bool
	isGuided bool // the call was made by the guide (guide.go), which comments on its result
}

// isBlocked reports whether the model waits for the result of a call, and therefore does not speak.
func (s *session) isBlocked() bool {
	for _, c := range s.calls {
		if c.blocking {
			return true
		}
	}
	return false
}

func newCallID() string { return "function-call-" + strings.ToLower(rand.Text()[:16]) }

// sendCalls sends function calls to the client.
func (s *session) sendCalls(calls []*call) error {
	var list []live.Object
	for _, c := range calls {
		s.calls[c.id] = c
		list = append(list, live.Object{"id": c.id, "name": c.name, "args": c.args})
		s.report(Event{Kind: EventToolCall, ID: c.id, Name: c.name, Text: string(c.args)})
	}
	s.lastCall = time.Now()
	if err := s.announceNoHandle(); err != nil {
		return err
	}
	if err := s.conn.send(live.Object{"toolCall": live.Object{"functionCalls": list}}); err != nil {
		return err
	}
	if !s.setup.HandlesAfterTurns || s.e.scenario.Handles != "" {
		if err := s.sendHandleAfterChange(); err != nil { // the new handle covers the calls
			return err
		}
	}
	return s.reachMoment(OnToolCall)
}

// ignoresAudio reports whether the model ignores audio because it waits for the result of a call.
func (s *session) ignoresAudio() bool { return s.setup.Blocks && s.isBlocked() }

// cancelCalls cancels the pending calls for which shouldCancel returns true.
func (s *session) cancelCalls(shouldCancel func(*call) bool) error {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.calls)) {
		if shouldCancel(s.calls[id]) {
			ids = append(ids, id)
			delete(s.calls, id)
		}
	}
	if ids == nil {
		return nil
	}
	return s.conn.send(live.Object{"toolCallCancellation": live.Object{"ids": ids}})
}

// handleToolResponse handles the results of calls. Like Google, it ignores results of unknown calls.
func (s *session) handleToolResponse(responses []live.FunctionResponse) error {
	if err := s.reachMoment(OnToolResponse); err != nil {
		return err
	}
	for _, r := range responses {
		if err := s.setup.CheckResponse(r); err != nil {
			return err
		}
		c := s.calls[r.ID]
		early := c != nil && s.setup.AnswersAfterTurn && !c.blocking && s.turn != nil && slices.Contains(s.turn.calls, c)
		s.report(Event{Kind: EventToolResponse, ID: r.ID, Name: r.Name, Text: string(r.Response), Ignored: c == nil || early})
		if c == nil || early {
			continue
		}
		if err := s.handleCallResult(c, r); err != nil {
			return err
		}
	}
	return nil
}

// endCallingTurn ends the turn that has waited for the result of a call. On the Gemini API, a blocking model speaks the
// answer within the turn of the call, so the emulator does not send turnComplete between call and answer.
func (s *session) endCallingTurn() error {
	if s.endpoint.Vertex || !s.setup.Blocks {
		return s.endTurn()
	}
	s.turn = nil
	s.timer.Stop()
	return nil
}

// handleCallResult handles the result of a call.
func (s *session) handleCallResult(c *call, r live.FunctionResponse) error {
	var response map[string]any
	if err := json.Unmarshal(r.Response, &response); err != nil {
		response = nil // an unreadable response counts as empty
	}
	if len(response) == 0 && !r.WillContinue {
		// Like gemini-3.8-live, the emulator does not accept {} as a result, and calls again.
		delete(s.calls, c.id)
		again := *c
		again.id = newCallID()
		return s.sendCalls([]*call{&again})
	}
	if !r.WillContinue {
		delete(s.calls, c.id)
	}
	s.addHistory("tool", string(r.Response))
	if r.WillContinue && c.blocking {
		return nil // the model waits for the final result of the call
	}
	text, transcript := plainWords(response), fmt.Sprintf("The tool %s says: %s", c.name, r.Response)
	if c.name == "take_photo" && response["photo"] != nil {
		// A newcomer comes here by a button of the page, and need not read JSON.
		text, transcript = "I have seen your photo.", "I have seen your photo."
	}
	if r.Scheduling == "SILENT" && !c.blocking {
		return nil
	}
	if c.isGuided {
		if status, _ := response["status"].(string); r.WillContinue && status != "" && !isQuestionPending(status) {
			return nil // no comment, because the app would be ready before it was spoken
		}
		if text = commentOnResult(c.name, response, isGerman(s.userSentences()...)); text == "" {
			return nil
		}
		transcript = text
	}
	if r.Scheduling == "INTERRUPT" && !c.blocking && s.turn != nil {
		if err := s.interrupt(); err != nil {
			return err
		}
	}
	if c.blocking && s.turn != nil && !s.isBlocked() {
		if err := s.endCallingTurn(); err != nil {
			return err
		}
	}
	return s.speak(text, transcript, true)
}
