package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
	"voxgate/tools"
)

// onKeeper follows what happens between us and the model.
func (s *Session) onKeeper(ctx context.Context, e keeper.Event) {
	if _, message := e.(keeper.Message); !message { // of which onMessage knows
		s.move.unsaved = true
	}
	switch e := e.(type) {
	case keeper.Dialled, keeper.LinkEnd:
		if tell := s.host.options.Observe; tell != nil {
			tell(s.id, e)
		}
	case keeper.Message:
		s.onMessage(ctx, e.ServerMessage)
	case keeper.Linked:
		s.onLinked(e)
	case keeper.CatchUp:
		s.record()
		s.calls.SendAgain()
	case keeper.SetUp:
		done := s.setupComplete()
		if s.resumable() {
			done.ResumeToken = s.host.newToken(s, "")
		}
		s.notify(done)
	case keeper.Rewound:
		if e.Replayed > 0 {
			s.transcript.unsay(s.question())
		}
		if e.Lost > 0 {
			s.fail(CodeAudioStream, fmt.Sprintf("The connection to Gemini was lost in a long sentence: the first %.0f s of it cannot be said again.", e.Lost.Seconds()))
		}
	case keeper.Unlinked:
		s.onUnlinked()
	case keeper.HandleChanged:
		s.answer.known = s.answer.number - 1
		s.calls.HandleChanged()
		s.calls.Orphan()
	case keeper.Configured:
		s.configured()
	case keeper.Updated:
		s.onUpdated(e.Err)
	case keeper.Cleared:
		s.notify(History{[]Entry{}})
	case keeper.Waiting:
		s.onWaiting(e)
	case keeper.WaitOver:
		s.onWaitOver()
	case keeper.Stalled:
		s.notify(Log{Level: "warn", Message: stallMessages[e.Tried], Details: map[string]any{"stall": string(e.Tried)}})
	case keeper.Unanswered:
		s.forgetAsked()
		if e.GaveUp && !e.Aside {
			s.apologise(true)
			if e.Sure {
				s.sound(samples(sayAgain))
			}
		}
	case keeper.Dropped:
		s.fail(CodeResumptionFailed, "Gemini ends the session whenever it hears what was said last; that was dropped.")
	case keeper.Failed:
		s.end(dialFailure(e.Err, e.Used))
	}
}

var stallMessages = map[keeper.Remedy]string{
	keeper.Nudge:   "Gemini has not reacted to what was said; it is told that the speech is over.",
	keeper.Resume:  "Gemini does not answer; the session goes on over a new connection.",
	keeper.Restart: "Gemini does not answer; a fresh session is told what was said so far.",
	keeper.GiveUp:  "Gemini did not answer, whatever was tried.",
}

// onLinked follows a new connection to the model.
func (s *Session) onLinked(e keeper.Linked) {
	if !e.Fresh {
		return
	}
	s.spent.meter.EndTurn()
	switch {
	case e.First:
	case e.NewModel:
		s.warn("The model has changed, so a fresh session goes on; it was told what was said so far.")
	case !e.Cleared && s.keeper.Config().Options.Resumption:
		s.fail(CodeResumptionFailed, "The session could not be resumed at Gemini. A fresh one goes on; some of the conversation may be lost.")
	}
}

// onUnlinked follows the end of a connection. The end of a turn that was under way will not come.
func (s *Session) onUnlinked() {
	t := &s.answer.turn
	s.answer.working = false
	switch t.state {
	case turnSpeaking:
		s.breakOff()
	case turnOver:
		s.complete()
	}
	if t.state != turnIdle && !t.counted {
		s.nextTurn()
	}
	*t = turn{}
	s.calls.Orphan()
}

// onUpdated answers a change of the configuration.
func (s *Session) onUpdated(err error) {
	if err != nil {
		s.notify(SetupFailed{updateFailed(err)})
		return
	}
	s.record()
	done := s.setupComplete()
	done.Update = true
	s.notify(done)
	s.tellRecording()
}

// updateFailed is the error of a change of the configuration that was refused.
func updateFailed(err error) *Error {
	switch {
	case errors.Is(err, keeper.ErrTooManyUpdates):
		return &Error{Code: CodeStreamLimitExceeded, Message: "Too many changes of the configuration wait for Gemini."}
	case errors.Is(err, keeper.ErrTooManyMessages):
		return &Error{Code: CodeStreamLimitExceeded, Message: "Too many messages wait for Gemini."}
	}
	e := *AsError(err)
	e.Code = CodeConfigUpdateFailed
	return &e
}

// toolClient is the caller as the tool calls see it.
type toolClient struct{ s *Session }

func (c toolClient) Ask(calls []tools.Call) { c.s.askClient(calls) }

func (c toolClient) Withdraw(ids []string) { c.s.notify(ToolCallCancellation{ids}) }

func (c toolClient) Status(status toolcalls.Status) { c.s.notify(ToolStatus(status)) }

func (c toolClient) Failed(err *toolcalls.Error) { c.s.notify(Failure{AsError(err)}) }

func (c toolClient) Warn(message string) { c.s.warn(message) }

// CanShow tells whether the client shows what a tool asks the person.
func (c toolClient) CanShow() bool {
	if c.s.open.Origin.Asks {
		return true
	}
	config := c.s.keeper.Config()
	if config.Options.Canvas {
		return c.s.open.Origin.Screen
	}
	for _, f := range config.Functions {
		if f.Where == setup.OnCanvas {
			return c.s.open.Origin.Screen
		}
	}
	return false
}

// toolModel is the model as the tool calls see it.
type toolModel struct{ s *Session }

func (m toolModel) Find(name string) (setup.Function, bool) {
	return m.s.keeper.Config().Functions.Find(name)
}

func (m toolModel) Expect() {
	m.s.keeper.Expect(keeper.ForTool)
	m.s.awaitLastWord()
}

func (m toolModel) Text(text string) bool { return m.s.sendText(text) }

func (m toolModel) Happened() int { return m.s.keeper.Happened() }

func (m toolModel) Knows(when int) bool { return m.s.keeper.Knows(when) }

// Pictures sends pictures as a part of a turn that asks for nothing.
func (m toolModel) Pictures(parts json.RawMessage) bool {
	var list []json.RawMessage
	if json.Unmarshal(parts, &list) == nil {
		m.s.transcript.typed(m.s.question()-1, textOf(list))
	}
	ok := m.s.up.Say(uplink.Turn{Parts: parts})
	if !ok {
		m.s.fail(CodeStreamLimitExceeded, "Too many messages wait for Gemini; a picture was dropped.")
	}
	return ok
}

// configured follows a change of the configuration in force.
func (s *Session) configured() {
	options := s.keeper.Config().Options
	if !options.Resumption {
		s.host.void(s)
	}
	s.audience.mu.Lock()
	s.audience.keep = s.resumable()
	s.audience.mu.Unlock()
	s.clock.Clear(alarmLimit)
	if limit := s.open.Grant.limit(options.MaxDuration); limit > 0 {
		s.clock.Set(alarmLimit, limit-time.Since(s.started))
	}
}
