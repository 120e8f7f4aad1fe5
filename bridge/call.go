package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	handles  int                  // link.handles when it came: an older handle does not know of the call
}

// result is a tool's answer on its way to the model.
type result struct {
	call     *openCall
	response json.RawMessage
	late     bool // the call was cancelled
	timedOut bool
}

// onToolCalls starts what the model asks for. Each call is answered once, whatever happens.
func (s *Session) onToolCalls(ctx context.Context, wanted []gemini.FunctionCall) {
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
			s.respond(call, s.link.handles, tools.Response(nil, fmt.Errorf("there is no tool %q here", f.Name)))
			s.warn(fmt.Sprintf("Gemini called %q, which the configuration does not declare.", f.Name))
		case running >= maxCalls:
			s.respond(call, s.link.handles, tools.Response(nil, errors.New("too many calls are running")))
		default:
			s.start(ctx, call)
			asked = append(asked, call)
		}
	}
	if len(asked) > 0 {
		s.notify(ToolCall{asked})
	}
}

// start runs a call in a goroutine of its own. A call outlives the link it came by.
func (s *Session) start(parent context.Context, call tools.Call) {
	ctx, cancel := context.WithCancelCause(parent)
	open := &openCall{call: call, cancel: cancel, reply: make(chan json.RawMessage, 1), handles: s.link.handles}
	s.mu.Lock()
	s.calls[call.ID] = open
	s.mu.Unlock()
	s.running.Go(func() {
		defer cancel(nil)
		timedOut := false
		response, wanted := tools.Run(ctx, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			select {
			case r := <-open.reply:
				return r, nil
			case <-ctx.Done():
				timedOut = errors.Is(context.Cause(ctx), tools.ErrTimeout)
				return nil, context.Cause(ctx)
			}
		}, call, tools.Timeout)
		select {
		case s.results <- result{call: open, response: response, late: !wanted, timedOut: timedOut}:
		case <-parent.Done():
		}
	})
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
		s.log.Warn("tool did not answer", "tool", r.call.call.Name, "timeout", tools.Timeout)
		s.notify(ToolCallCancellation{[]string{r.call.call.ID}})
	}
	s.respond(r.call.call, r.call.handles, r.response)
}

// respond answers a call that came when so many handles had come.
func (s *Session) respond(call tools.Call, handles int, response json.RawMessage) {
	if !s.up.respond(gemini.FunctionResponse{ID: call.ID, Name: call.Name, Response: response}, handles) {
		s.log.Error("answer dropped: too many wait", "tool", call.Name)
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
	return &Error{Code: CodeOutOfOrder, Message: fmt.Sprintf("No tool call with the id %q waits for an answer.", r.ID)}
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
		s.notify(ToolCallCancellation{stopped})
	}
}

// orphanCalls cancels the calls that the session behind the newest handle has never seen, and drops answers to such
// calls that were not sent: they would go to a model that did not ask.
func (s *Session) orphanCalls() {
	unseen := func(handles int) bool { return s.link.handle == "" || handles >= s.link.handles }
	var ids []string
	s.mu.Lock()
	for id, open := range s.calls {
		if unseen(open.handles) {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	slices.Sort(ids)
	s.cancelCalls(ids)
	s.up.forget(unseen)
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
