package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
	"voxgate/media"
	"voxgate/tools"
)

// onKeeper follows what happens between us and the model.
func (s *Session) onKeeper(ctx context.Context, e keeper.Event) {
	if _, message := e.(keeper.Message); !message { // of which onMessage knows
		s.handover.changed()
	}
	switch e := e.(type) {
	case keeper.DialOutcome, keeper.ConnectionEnd:
		s.observer.report(e)
	case keeper.Message:
		s.onMessage(ctx, e.ServerMessage)
	case keeper.Connected:
		s.onLinked(e)
	case keeper.ResendPending:
		s.recording.follow(s.keeper.Config().Options.Record)
		s.calls.ResendAnswers()
	case keeper.SetupComplete:
		done := s.setupComplete()
		if s.resumable() {
			done.ResumeToken = s.host.tokens.next(s.id, "")
		}
		s.notify(done)
	case keeper.Replayed:
		if e.Speech > 0 && !e.Partial {
			s.transcript.RemoveTranscription(s.answer.question())
		}
		if e.Lost > 0 {
			s.fail(CodeAudioStream, fmt.Sprintf(
				"The connection to Gemini was lost in a long sentence: the first %.0f s of it cannot be said again.", e.Lost.Seconds()))
		}
	case keeper.Disconnected:
		s.holdAnswers(false)
		s.noSpeech = noSpeechFilter{} // the rest of the turn will not come
		s.answer.breakOff()
		s.calls.CancelOrphans()
	case keeper.HandleChanged:
		s.answer.known = s.answer.number - 1
		s.calls.OnHandleChanged()
		s.calls.CancelOrphans()
	case keeper.ConfigChanged:
		s.configured()
	case keeper.UpdateResult:
		s.onUpdated(e)
	case keeper.ContextCleared:
		s.notify(History{[]Entry{}})
	case keeper.WaitNotice:
		s.onWaiting(e)
	case keeper.WaitOver:
		s.reassured = false
		s.status.waitOver()
	case keeper.ModelStalled:
		s.notify(Log{Level: "warn", Message: stallMessages[e.Remedy], Details: map[string]any{"stall": string(e.Remedy)}})
	case keeper.AnswerAbandoned:
		s.answer.questions = questions{}
		if e.GaveUp && !e.Aside {
			s.status.apologise(true)
			if e.Sure {
				s.answer.cue(media.AppendSamples(nil, sayAgain))
			}
		}
	case keeper.InputDropped:
		s.fail(CodeResumptionFailed, "Gemini ends the session whenever it hears what was said last; that was dropped.")
	case keeper.FieldsRejected:
		for _, w := range e.Fields {
			s.warn(w)
		}
	case keeper.ConversationFailed:
		s.end(dialFailure(e.Err, e.WasConnected))
	}
}

var stallMessages = map[keeper.Remedy]string{
	keeper.Nudge:   "Gemini has not reacted to what was said; the gateway marks the end of the speech.",
	keeper.Resume:  "Gemini does not answer; the session goes on over a new connection.",
	keeper.Restart: "Gemini does not answer; a fresh session gets what was said so far.",
	keeper.Repeat:  "Gemini has ended its turn without an answer; what was said is said again.",
	keeper.GiveUp:  "Gemini did not answer, whatever was tried.",
}

// onLinked follows a new connection to the model.
func (s *Session) onLinked(e keeper.Connected) {
	s.spending.settle() // also of a session that goes on: it does not count on from the part of an answer that was lost
	if !e.Fresh {
		return
	}
	switch {
	case e.First:
	case e.NewModel:
		s.warn("The model has changed, so a fresh session goes on; it knows what was said so far.")
	case !e.Cleared && !e.Renewal && s.keeper.Config().Options.Resumption:
		s.fail(CodeResumptionFailed,
			"The session could not be resumed at Gemini. A fresh one goes on; some of the conversation may be lost.")
	}
}

// onMessage passes on everything in one message of the model.
func (s *Session) onMessage(ctx context.Context, m *wire.ServerMessage) {
	a, c := s.answer, m.Content
	switch {
	case m.Tokens != nil:
		s.spending.add(*m.Tokens)
	case m.Usage != nil:
		s.log.Warn("usage skipped: it cannot be read")
	}
	if m.Failed != nil {
		s.notify(Failure{AsError(m.Failed)})
	}
	wasCut, overtaken := a.turn.wasCut(), a.turn.state == turnMade && a.prompts.at.After(a.turn.latest)
	if len(m.ToolCalls) > 0 {
		a.prompts.calls(s.answersAll(m.ToolCalls))
	}
	endsCall := a.turn.state == turnIdle && a.prompts.endsCall()
	ofCall := a.prompts.isCallingTurn // what ends now is the turn that has called: that is no reaction to the answers
	actedOn := false
	if c != nil {
		if s.keeper.Config().Profile.NoSpeechMarker {
			s.noSpeech.filter(c)
		}
		if c.Interrupted || c.TurnComplete || c.InputTranscription != "" || !a.turn.making() {
			s.handover.changed()
		}
		actedOn = s.onContent(ctx, c, m.Usage != nil, endsCall)
	}
	if m.Beside != nil {
		s.voice.notifyInOrder(s.audience, Raw{m.Beside, true})
	}
	switch {
	case actedOn: // the keeper knows what it waits for
	case a.turn.making() && a.turn.asked:
		s.keeper.OnAnswerPart(ctx)
	default:
		// The end of an answer that was cut off, or was complete when the question came, does not answer the question; nor
		// does the end of the turn that has called a tool answer the tool's result.
		over := c != nil && (c.TurnComplete || c.GenerationComplete) && !c.Interrupted && !wasCut && !overtaken && !endsCall && !ofCall
		understood := c != nil && c.InputTranscription != "" || m.VoiceActivity != nil
		if s.keeper.OnModelActivity(ctx, over || m.ToolCalls != nil, understood) && m.ToolCalls == nil && !s.calls.HasRunningCall() {
			a.answered() // it has nothing to say
		}
	}
	if len(m.ToolCalls) > 0 {
		s.handover.changed()
		if limit := s.spending.again(); limit != nil { // the model reads all of the context once more, with the results
			s.endOverBudget(limit)
		} else {
			if s.needsTurnEnd(m.ToolCalls) {
				s.holdAnswers(true)
			}
			s.calls.StartCalls(ctx, m.ToolCalls)
		}
	}
	if len(m.Cancelled) > 0 {
		s.handover.changed()
		s.calls.Cancel(m.Cancelled)
	}
	if c != nil && (c.TurnComplete || c.Interrupted) {
		s.holdAnswers(false)
	}
}

// Limits of the wait for the end of a turn that contains function calls, so that a missing turnComplete does not lose the answers.
// Without voice the turn ends together with the call (recorded). With voice it ends when the voice has been played, so the
// duration of the queued voice is added.
const (
	silentTurnWait = 100 * time.Millisecond
	spokenTurnWait = 3 * time.Second
)

// holdAnswers holds back the answers of tools until the end of the current turn, or releases them.
func (s *Session) holdAnswers(on bool) {
	s.answer.prompts.isCallingTurn = on
	s.up.HoldToolResponses(on)
	s.clock.Clear(alarmAnswers)
	if on {
		wait := silentTurnWait
		if t := &s.answer.turn; t.state != turnIdle && !t.wasCut() {
			wait = spokenTurnWait + s.voice.QueuedDuration()
		}
		s.clock.Set(alarmAnswers, wait)
	}
}

// needsTurnEnd reports whether the server would drop answers to these calls before the end of the turn.
func (s *Session) needsTurnEnd(calls []wire.FunctionCall) bool {
	config := s.keeper.Config()
	return config.Profile.AnswersAfterTurn && !slices.ContainsFunc(calls, func(call wire.FunctionCall) bool {
		f, ok := config.Functions.Called(call.Name)
		return ok && f.Blocking // the turn goes on with the answer
	})
}

// onContent handles serverContent. costs: something was generated; endsCall: a turn that ends now without a word has
// called tools. It reports whether the turn has ended without an answer and the keeper has acted on that.
func (s *Session) onContent(ctx context.Context, c *wire.ServerContent, costs, endsCall bool) (actedOn bool) {
	a := s.answer
	if c.InputTranscription != "" {
		s.onTranscript()
	}
	lacks := s.lacksAnswer(c, endsCall)
	if lacks {
		s.observer.report(EmptyTurn{c.EndReason})
		if s.keeper.AskAgain(ctx) { // the client only waits a little longer
			c.TurnComplete, c.GenerationComplete = false, false
			c.Fields = withoutField(withoutField(c.Fields, "turnComplete"), "generationComplete")
			a.content(c)
			s.endOverBudget(s.spending.endTurn())
			return true
		}
	}
	asked := a.isAsked() || c.InputTranscription != ""
	silent := a.turn.state == turnIdle && len(c.Audio) == 0 && !c.Written && c.OutputTranscription == "" && !c.Thought
	// A client would take the end of a turn in which nothing was said for the end of the answer. It has had that already,
	// or the gateway answers the calls and the answer follows.
	if c.TurnComplete && silent && !c.Interrupted && (!asked && !costs || endsCall && a.prompts.here) {
		c.TurnComplete = false
		c.Fields = withoutField(c.Fields, "turnComplete")
		a.content(c)
		s.endOverBudget(s.spending.endTurn())
		return false
	}
	a.content(c)
	if c.TurnComplete {
		unspoken := a.unspokenText(c)
		a.finalQuestion()
		s.endTurn()
		return unspoken != "" && s.requestSpeech(ctx, unspoken)
	}
	return lacks
}

// lacksAnswer reports whether a message ends a turn without the answer that is due. The silence of a Proactive model is intended,
// unless the message gives another reason.
func (s *Session) lacksAnswer(c *wire.ServerContent, endsCall bool) bool {
	t, config := &s.answer.turn, s.keeper.Config()
	silent := t.state == turnIdle && len(c.Audio) == 0 && c.OutputTranscription == "" && !c.Written && !c.Thought
	failed := c.EndReason != "" && !slices.Contains(harmlessReasons, c.EndReason)
	return c.TurnComplete && silent && !c.Interrupted && !endsCall && !s.calls.HasRunningCall() && !s.answer.working && config.HasVoice() &&
		!s.paused && !s.unheard() && !s.broke && (failed || !config.Profile.Proactive) && s.keeper.HasUnderstood()
}

// harmlessReasons are the values of turnCompleteReason that need no remedy: the model waits for the person to continue.
var harmlessReasons = []string{"TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT"}

// unspokenText returns the text of an answer that ends now without voice in a session with voice, or "".
func (a *answer) unspokenText(c *wire.ServerContent) string {
	t, config := &a.turn, a.keeper.Config()
	if c.Interrupted || !t.wanted() || t.spoken || !t.asked || !config.HasVoice() || config.TextOnly || a.quiet || a.unheard() {
		return ""
	}
	return strings.TrimSpace(a.transcript.AnswerText(t.number))
}

// requestSpeech asks the model to say an answer that it has only written, since a caller on a telephone cannot read it. At the
// second failure in a row it restarts the session first. It reports whether it has asked.
func (s *Session) requestSpeech(ctx context.Context, text string) bool {
	const most = 2 // tries in a row
	if s.broke || s.paused || s.answer.textOnlyAnswers >= most {
		return false
	}
	s.answer.textOnlyAnswers++
	s.observer.report(EmptyTurn{"TEXT_ONLY"})
	s.log.Warn("the model has written its answer and not spoken", "try", s.answer.textOnlyAnswers)
	if s.answer.textOnlyAnswers == most {
		s.keeper.RestartSession(ctx)
	}
	prompt := wire.TextPart("Say this to the person, word for word and nothing else: " + text)
	if !s.up.QueueTurn(uplink.Turn{Parts: prompt.JSON(), Complete: true}) {
		return false
	}
	s.asked(ByText)
	return true
}

// endTurn ends the model's turn.
func (s *Session) endTurn() {
	s.endOverBudget(s.spending.endTurn()) // first: the cost of a turn is known when its end is reported
	s.answer.end()
	s.forget(!s.parked, s.calls.IsOpen)
}

// onTranscript notes that the model has understood something that the person has said. Words count as speech though our
// own detector has heard none, or not enough for a question.
func (s *Session) onTranscript() {
	a := s.answer
	s.person.prompted = 0
	if _, expected := s.keeper.ExpectedReply(); expected || a.turn.state != turnIdle || s.person.speaking || s.unheard() || a.mayBeLate() {
		return
	}
	a.ask(time.Now())
	s.keeper.ExpectReply(keeper.ForSpeech)
}

// answersAll reports whether the gateway answers all of some calls: the client has to run none.
func (s *Session) answersAll(calls []wire.FunctionCall) bool {
	for _, call := range calls {
		if f, ok := s.keeper.Config().Functions.Called(call.Name); ok && f.Where != setup.InGateway {
			return false
		}
	}
	return true
}

// hasField reports whether a JSON object has a field.
func hasField(raw json.RawMessage, name string) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(raw, &fields) == nil && fields[name] != nil
}

// withoutField is a JSON object without one of its fields; nil if nothing is left.
func withoutField(raw json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields[name] == nil {
		return raw
	}
	if delete(fields, name); len(fields) == 0 {
		return nil
	}
	return tools.Encode(fields)
}

// watchTurn sees to it that a turn ends of which nothing more comes, though the model does not end it. The loop calls it
// after everything that has happened.
func (s *Session) watchTurn() {
	patience := s.keeper.PauseTimeout()
	if at, ok := s.answer.overdue(patience); ok && patience > 0 && !s.clock.IsSet(alarmTurn) {
		s.clock.Set(alarmTurn, time.Until(at))
	}
}

// onTurnOverdue ends a turn of which nothing has come for long. Nobody waits for it, so nothing else is tried.
func (s *Session) onTurnOverdue() {
	a := s.answer
	at, ok := a.overdue(s.keeper.PauseTimeout())
	switch {
	case !ok || time.Until(at) > 0: // watchTurn sets another alarm
	case a.turn.state == turnIdle, a.turn.wasCut():
		a.working = false
	default:
		s.log.Info("turn ended here: nothing more has come of it", "turn", a.turn.number)
		s.endTurn()
	}
}

// onUpdated answers a change of the configuration.
func (s *Session) onUpdated(e keeper.UpdateResult) {
	before := s.undo[0]
	s.undo = s.undo[1:]
	switch {
	case e.Err == nil:
	case len(s.undo) > 0: // the next change has this one in it
		s.undo[0] = before
	default:
		s.goBack(before)
	}
	switch {
	case e.Name != "":
		s.onStep(e.Name, e.Err)
		return
	case e.Err != nil:
		s.notify(SetupFailed{updateFailed(e.Err)})
		return
	}
	record := s.keeper.Config().Options.Record
	s.recording.follow(record)
	done := s.setupComplete()
	done.Update = true
	s.notify(done)
	s.recording.announce(record)
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

// RequestCalls asks whoever declared the functions to run them.
func (c toolClient) RequestCalls(calls []tools.Call) {
	theirs, backends := c.s.steering.share(calls)
	if len(backends) > 0 {
		c.s.tellWatchers(ToolCall{backends})
	}
	if len(theirs) > 0 {
		c.s.voice.notifyInOrder(c.s.audience, ToolCall{theirs})
	}
}

func (c toolClient) WithdrawCalls(ids []string) {
	c.s.voice.notifyInOrder(c.s.audience, ToolCallCancellation{ids})
}

func (c toolClient) ReportStatus(status toolcalls.Status) { c.s.notify(ToolStatus(status)) }

func (c toolClient) ReportFailure(err *toolcalls.Error) { c.s.notify(Failure{AsError(err)}) }

func (c toolClient) RunsInBackend(name string) bool { return c.s.steering.names[name] }

func (c toolClient) WarnDeveloper(message string) { c.s.warn(message) }

// CanShowCanvas reports whether the client shows what a tool asks the person.
func (c toolClient) CanShowCanvas() bool {
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
type toolModel struct {
	*keeper.Keeper
	s *Session
}

// FindFunction finds a function that can be called now.
func (m toolModel) FindFunction(name string) (setup.Function, bool) {
	f, declared := m.Config().Functions.Find(name)
	return f, declared && !m.s.steering.flow.HidesTool(name) // which the model may learn of at the next pause only
}

// ResolveFunction finds the function that the model means by a name, whether or not it can be called now.
func (m toolModel) ResolveFunction(name string) (setup.Function, bool) {
	return m.Config().Functions.Called(name)
}

// ExpectReply begins to wait for the model's reaction, and for its goodbye if the tool ends the conversation.
func (m toolModel) ExpectReply() {
	m.Keeper.ExpectReply(keeper.ForTool)
	s := m.s
	switch {
	case !s.lastWord:
	case s.answer.said:
		s.clock.Set(alarmLastWord, lastWordSaid)
	default:
		s.clock.Set(alarmLastWord, lastWordTime)
	}
}

// SendText sends text that asks for an answer, unless there is no money for that.
func (m toolModel) SendText(text string) bool { return m.s.broke || m.s.sendText(text) }

// SendPictures sends pictures as a part of a turn that asks for nothing.
func (m toolModel) SendPictures(parts json.RawMessage) bool {
	if p, err := wire.ParseParts(parts); err == nil {
		m.s.transcript.AddTypedText(m.s.answer.question()-1, p.Text())
	}
	ok := m.s.up.QueueTurn(uplink.Turn{Parts: parts})
	if !ok {
		m.s.fail(CodeStreamLimitExceeded, "Too many messages wait for Gemini; a picture was dropped.")
	}
	return ok
}

// configured follows a change of the configuration in force.
func (s *Session) configured() {
	config := s.keeper.Config()
	options := config.Options
	s.spending.follow(*config)
	s.endOverBudget(s.spending.again()) // it may be longer, or have come from another gateway
	if !options.Resumption {
		s.host.tokens.void(s.id)
	}
	s.keepEvents(s.resumable())
	s.clock.Clear(alarmLimit)
	limit := lower(options.MaxDuration, s.open.Wanted().Longest)
	if g := s.open.Grant; g != nil {
		limit = lower(limit, g.MaxDuration)
	}
	if limit > 0 {
		s.clock.Set(alarmLimit, limit-time.Since(s.started))
	}
}
