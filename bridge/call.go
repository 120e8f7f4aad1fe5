package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/tools"
)

// maxCalls bounds the tool calls of one conversation that run at the same time.
const maxCalls = 16

// openCall is a tool call without an answer.
type openCall struct {
	call     tools.Call
	cancel   context.CancelCauseFunc
	reply    chan json.RawMessage // the client's answer; room for one
	answered bool                 // there was one; guarded by Session.mu
	tick     int                  // when it came: an older handle does not know of it
}

// result is a tool's answer on its way to the model.
type result struct {
	call     *openCall
	response json.RawMessage
	late     bool // the call was cancelled
	timedOut bool
}

// answered is a call with its answer, kept until a handle knows of both.
type answered struct {
	call     tools.Call
	response json.RawMessage
	came     int       // ticks
	sent     int       //
	at       time.Time // when it was sent
	spoken   bool      // the model has gone on to speak: the person knows of it
	orphaned time.Time // when a session took over that never saw the call; zero: none has
}

const (
	// maxAnswers bounds the answers that are kept.
	maxAnswers = 2 * maxCalls

	// sameCall is how long after such a session took over the same question gets the same answer: it asks again what the
	// one before has asked, and a tool that sends a message must not send it twice.
	sameCall = 30 * time.Second

	// underWay is how long an answer may take to Gemini. A handle that comes sooner may have been given before it.
	underWay = time.Second

	// blockingTimeout is how long a tool may take that the model waits for: it hears nothing meanwhile, and
	// gemini-3.1-flash-live cancels the call after some 12 s (livekit/agents PR 5556).
	blockingTimeout = 10 * time.Second
)

// onToolCalls starts what the model asks for. Each call is answered once, whatever happens.
func (s *Session) onToolCalls(ctx context.Context, wanted []gemini.FunctionCall) {
	s.ticks++
	s.dirty = s.ticks
	s.up.Acted()
	var asked []tools.Call
	for _, f := range wanted {
		call := tools.Call{ID: f.ID, Name: f.Name, Args: f.Args}
		s.mu.Lock()
		running := len(s.calls)
		_, again := s.calls[call.ID]
		s.mu.Unlock()
		switch {
		case again: // the one that runs will answer for both
			s.log.Warn("tool call repeated", "tool", f.Name)
		case !slices.Contains(s.config.FunctionNames, f.Name):
			s.respond(call, s.ticks, tools.Respond(nil, fmt.Errorf("there is no tool %q here", f.Name)).Response)
			s.fail(CodeToolNotFound, fmt.Sprintf("Gemini called %q, which the configuration does not declare.", f.Name))
		case running >= maxCalls:
			s.respond(call, s.ticks, tools.Respond(nil, errors.New("too many calls are running")).Response)
			s.fail(CodeStreamLimitExceeded, fmt.Sprintf("Gemini called %q while %d calls were running; it was told so.", f.Name, maxCalls))
		default:
			if response := s.first(call); response != nil {
				s.log.Info("tool call asked again by a new session", "tool", f.Name)
				s.respond(call, s.ticks, response)
				continue
			}
			s.start(ctx, call)
			asked = append(asked, call)
		}
	}
	s.gate()
	if len(asked) > 0 {
		s.notify(ToolCall{asked})
	} else if !s.calling() {
		s.expect(forTool)
	}
}

// first is the answer that the same question got from the session before, if the person has not heard of it yet.
func (s *Session) first(call tools.Call) json.RawMessage {
	for i, a := range s.answers {
		if !a.orphaned.IsZero() && !a.spoken && time.Since(a.orphaned) < sameCall && a.call.Name == call.Name && bytes.Equal(a.call.Args, call.Args) {
			s.answers = slices.Delete(s.answers, i, i+1)
			return a.response
		}
	}
	return nil
}

// start runs a call in a goroutine of its own. A call outlives the link it came by.
func (s *Session) start(parent context.Context, call tools.Call) {
	timeout := tools.Timeout
	if s.config.Blocks(call.Name) {
		timeout = blockingTimeout
	}
	ctx, cancel := context.WithCancelCause(parent)
	open := &openCall{call: call, cancel: cancel, reply: make(chan json.RawMessage, 1), tick: s.ticks}
	s.mu.Lock()
	s.calls[call.ID] = open
	s.mu.Unlock()
	s.running.Go(func() {
		defer cancel(nil)
		timedOut := false
		outcome, wanted := tools.Run(ctx, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			select {
			case r := <-open.reply:
				return r, nil
			case <-ctx.Done():
				timedOut = errors.Is(context.Cause(ctx), tools.ErrTimeout)
				return nil, context.Cause(ctx)
			}
		}, call, timeout)
		select {
		case s.results <- result{call: open, response: outcome.Response, late: !wanted, timedOut: timedOut}:
		case <-parent.Done():
		}
	})
}

// calling tells whether calls are without an answer.
func (s *Session) calling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0
}

// gate keeps audio from a model that waits for a tool and would close the session for it. Each such call has a time limit,
// so the gate opens again whatever happens.
func (s *Session) gate() {
	s.mu.Lock()
	shut := false
	for _, open := range s.calls {
		shut = shut || s.config.Blocks(open.call.Name)
	}
	s.mu.Unlock()
	s.up.Gate(shut)
}

// onResult sends a call's answer up, unless nobody wants it any more.
func (s *Session) onResult(r result) {
	s.mu.Lock()
	open := s.calls[r.call.call.ID] == r.call
	if open {
		delete(s.calls, r.call.call.ID)
	}
	s.mu.Unlock()
	if !open || r.late {
		return
	}
	if r.timedOut {
		s.log.Warn("tool did not answer", "tool", r.call.call.Name)
		s.tell(ToolCallCancellation{[]string{r.call.call.ID}})
		s.fail(CodeToolExecution, fmt.Sprintf("The tool %q did not answer in time; Gemini was told so.", r.call.call.Name))
	}
	s.respond(r.call.call, r.call.tick, r.response)
	s.gate()
	if !s.calling() {
		s.expect(forTool)
	}
}

// respond answers a call that came at a tick.
func (s *Session) respond(call tools.Call, came int, response json.RawMessage) {
	s.ticks++
	s.dirty = s.ticks
	if len(s.answers) == maxAnswers {
		s.answers = slices.Delete(s.answers, 0, 1)
	}
	s.answers = append(s.answers, answered{call: call, response: response, came: came, sent: s.ticks, at: time.Now()})
	s.send(call, response)
}

func (s *Session) send(call tools.Call, response json.RawMessage) {
	if !s.up.Respond(gemini.FunctionResponse{ID: call.ID, Name: call.Name, Response: response}) {
		s.log.Error("answer dropped: too many wait", "tool", call.Name)
	}
}

// repeatAnswers sends a new link the answers that its session waits for: it knows of the call, and the answer went to the
// link before.
func (s *Session) repeatAnswers() {
	s.up.TakeBack() // those that were not sent are among them
	for _, a := range s.answers {
		if s.handle.text != "" && a.came < s.handle.tick && a.orphaned.IsZero() {
			s.send(a.call, a.response)
		}
	}
}

// forgetAnswers drops those that the session behind the newest handle knows.
func (s *Session) forgetAnswers() {
	s.answers = slices.DeleteFunc(s.answers, func(a answered) bool {
		known := a.sent < s.handle.tick && (a.spoken || time.Since(a.at) >= underWay)
		return a.orphaned.IsZero() && known || !a.orphaned.IsZero() && time.Since(a.orphaned) >= sameCall
	})
}

// settleAnswers notes that the model has gone on to speak.
func (s *Session) settleAnswers() {
	for i := range s.answers {
		s.answers[i].spoken = true
	}
}

// answer takes a client's answer to a call.
func (s *Session) answer(r ToolResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.calls[r.ID]
	if r.ID == "" {
		open = s.callNamed(r.Name)
	}
	if open != nil && !open.answered {
		open.answered = true
		open.reply <- r.Response
		return nil
	}
	return &Error{Code: CodeInvalidState, Message: fmt.Sprintf("No tool call with the id %q waits for an answer.", r.ID)}
}

// callNamed finds the only unanswered call of a name, for clients of the old protocol that answer without an id. Needs mu.
func (s *Session) callNamed(name string) *openCall {
	var found *openCall
	for _, open := range s.calls {
		if open.call.Name == name && !open.answered {
			if found != nil {
				return nil
			}
			found = open
		}
	}
	return found
}

// cancelCalls stops calls whose answers the model no longer wants.
func (s *Session) cancelCalls(ids []string) {
	var stopped []string
	s.mu.Lock()
	for _, id := range ids {
		if open := s.calls[id]; open != nil {
			open.cancel(tools.ErrCancelled)
			delete(s.calls, id)
			stopped = append(stopped, id)
		}
	}
	s.mu.Unlock()
	if len(stopped) > 0 {
		s.tell(ToolCallCancellation{stopped})
		s.gate()
	}
}

// orphanCalls cancels the calls that the session behind the newest handle has never seen. What was answered of those is
// kept for when it asks again.
func (s *Session) orphanCalls() {
	unseen := func(tick int) bool { return s.handle.text == "" || tick > s.handle.tick }
	var ids []string
	s.mu.Lock()
	for id, open := range s.calls {
		if unseen(open.tick) {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	slices.Sort(ids)
	s.cancelCalls(ids)
	for i, a := range s.answers {
		if unseen(a.came) && a.orphaned.IsZero() {
			s.answers[i].orphaned = time.Now()
		}
	}
}

// repeatCalls asks a client that is back for the answers it still owes.
func (s *Session) repeatCalls() {
	var calls []tools.Call
	s.mu.Lock()
	for _, open := range s.calls {
		if !open.answered {
			calls = append(calls, open.call)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(calls, func(a, b tools.Call) int { return strings.Compare(a.ID, b.ID) })
	if len(calls) > 0 {
		s.notify(ToolCall{calls})
	}
}
