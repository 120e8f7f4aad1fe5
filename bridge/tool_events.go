package bridge

import (
	"encoding/json"
	"fmt"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
	"voxgate/tools"
)

// onToolEvent handles an event of the function calls.
func (s *Session) onToolEvent(e toolcalls.Event) {
	switch e := e.(type) {
	case toolcalls.ClientCalls:
		s.requestCalls(e.Calls)
	case toolcalls.CallsWithdrawn:
		s.voice.notifyInOrder(s.subscribers, ToolCallCancellation{e.IDs})
	case toolcalls.Status:
		s.notify(ToolStatus(e))
	case toolcalls.CallRejected:
		s.notify(ErrorEvent{AsError(e.Err)})
	case toolcalls.Warning:
		s.warnDeveloper(e.Message)
	case toolcalls.ReplyExpected:
		s.expectToolReply()
	case toolcalls.PersonAnswered:
		s.output.questions.replaceAll(time.Now()) // the time that the person took is not part of the model's latency
	case toolcalls.Text:
		s.sendToolText(e)
	case toolcalls.Pictures:
		s.sendToolPictures(e.Parts)
	case toolcalls.CallEnd:
		s.output.reportCallEnd(e)
	}
}

// requestCalls asks for calls to be run. It asks the backend to run the functions that the backend has declared, and
// the caller to run its own.
func (s *Session) requestCalls(calls []tools.Call) {
	callerCalls, backends := s.steering.splitCalls(calls)
	if len(backends) > 0 {
		s.notifyWatchersOnly(ToolCall{backends})
	}
	if len(callerCalls) > 0 {
		s.voice.notifyInOrder(s.subscribers, ToolCall{callerCalls})
	}
}

// expectToolReply starts waiting for the model's reaction to a tool's answer. If the tool ends the conversation, it
// also waits for the model's goodbye.
func (s *Session) expectToolReply() {
	s.keeper.ExpectReply(upstream.ForTool)
	switch {
	case !s.awaitsGoodbye:
	case s.output.hasAnswered:
		s.clock.Set(alarmGoodbye, goodbyeTimeSpoken)
	default:
		s.clock.Set(alarmGoodbye, goodbyeTime)
	}
}

// sendToolText sends a tool's text to the model, which answers it. If the budget is exhausted, it does nothing.
func (s *Session) sendToolText(t toolcalls.Text) {
	if s.overBudget || s.sendText(t.Text) {
		return
	}
	lost := "the input into a canvas"
	if t.Function != "" {
		lost = fmt.Sprintf("the result of %q", t.Function)
	}
	s.reportError(CodeStreamLimitExceeded, "Too many messages are queued for Gemini; "+lost+" was dropped.")
}

// sendToolPictures sends pictures in a turn that the model does not answer.
func (s *Session) sendToolPictures(parts json.RawMessage) {
	if p, err := wire.ParseParts(parts); err == nil {
		s.transcript.AddTypedText(s.output.questionTurn()-1, p.Text())
	}
	if !s.uplink.QueueTurn(uplink.Turn{Parts: parts}) {
		s.reportError(CodeStreamLimitExceeded, "Too many messages are queued for Gemini; a picture was dropped.")
	}
}

// canShowCanvas reports whether the client has a canvas, or another way to show a tool's question to the person.
func (s *Session) canShowCanvas() bool {
	if s.request.Origin.ShowsQuestions {
		return true
	}
	config := s.keeper.Config()
	if config.Options.Canvas {
		return s.request.Origin.HasScreen
	}
	for _, f := range config.Functions {
		if f.Where == liveconfig.OnCanvas {
			return s.request.Origin.HasScreen
		}
	}
	return false
}

// functionList implements [toolcalls.FunctionList] for a session.
type functionList struct{ s *Session }

// FindFunction returns the function with this name. isCallable reports whether it can be called now.
func (l functionList) FindFunction(name string) (f liveconfig.Function, isCallable bool) {
	f, isDeclared := l.s.keeper.Config().Functions.Find(name)
	return f, isDeclared && !l.s.steering.flow.HidesTool(name) // the model's configuration may have the hidden tool until the next pause
}

// ResolveFunction returns the function that the model means by a name, even if it cannot be called now.
func (l functionList) ResolveFunction(name string) (f liveconfig.Function, ok bool) {
	return l.s.keeper.Config().Functions.FindCalled(name)
}

func (l functionList) RunsInBackend(name string) bool { return l.s.steering.functionNames[name] }
