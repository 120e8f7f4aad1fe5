package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/turns"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
	"voxgate/media"
	"voxgate/tools"
)

// onKeeperEvent handles an event of the connection to the model.
func (s *Session) onKeeperEvent(ctx context.Context, e upstream.Event) {
	if _, message := e.(upstream.Message); !message { // for a message, onMessage decides whether it changes the snapshot
		s.cluster.markChanged()
	}
	switch e := e.(type) {
	case upstream.DialOutcome, upstream.ConnectionEnd:
		s.observer.report(e)
	case upstream.Message:
		s.onMessage(ctx, e.ServerMessage)
	case upstream.Connected:
		s.onConnected(e)
	case upstream.ResendPending:
		s.recording.applyConfig(s.keeper.Config().Options.Record)
		s.calls.ResendAnswers()
	case upstream.SetupComplete:
		done := s.buildSetupComplete()
		if s.isResumable() {
			done.ResumeToken = s.host.tokens.issueToken(s.id, "")
		}
		s.notify(done)
	case upstream.Replayed:
		if e.Speech > 0 && !e.Partial {
			s.transcript.RemoveTranscription(s.output.questionTurn())
		}
		if e.Lost > 0 {
			s.reportError(CodeAudioStream, fmt.Sprintf(
				"The connection to Gemini was lost during a long sentence: its first %.0f s cannot be replayed.", e.Lost.Seconds()))
		}
	case upstream.Disconnected:
		s.holdToolResponses(false)
		s.noSpeech = noSpeechFilter{} // the rest of the turn will not come
		s.output.abortTurn()
		s.calls.CancelOrphans()
	case upstream.HandleChanged:
		s.output.coveredTurn = s.output.turnNumber - 1
		s.calls.OnHandleChanged()
		s.calls.CancelOrphans()
	case upstream.ConfigChanged:
		s.applyConfig()
	case upstream.ConfigResult:
		s.onConfigResult(e)
	case upstream.ContextCleared:
		s.notifyReply(e.Origin, History{[]Entry{}})
	case upstream.WaitNotice:
		s.onWaitNotice(e)
	case upstream.WaitOver:
		s.hasReassured = false
		s.status.endWait()
	case upstream.ModelStalled:
		s.notify(Log{Level: "warn", Message: stallMessages[e.Remedy], Details: map[string]any{"stall": string(e.Remedy)}})
	case upstream.AnswerAbandoned:
		s.output.questions = questionEnds{}
		if e.GaveUp && !e.Aside {
			s.status.setApology(true)
			if e.Sure {
				s.output.playCue(media.AppendSamples(nil, sayAgain))
			}
		}
	case upstream.InputDropped:
		s.reportError(CodeResumptionFailed, "Gemini ends the session whenever it receives the last input; that input was dropped.")
	case upstream.FieldsRejected:
		for _, w := range e.Fields {
			s.warnDeveloper(w)
		}
	case upstream.ConversationFailed:
		s.endWith(dialError(e.Err, e.WasConnected))
	}
}

var stallMessages = map[upstream.Remedy]string{
	upstream.Nudge:   "Gemini has not reacted to the speech; the gateway marks its end.",
	upstream.Resume:  "Gemini does not answer; the session continues on a new connection.",
	upstream.Restart: "Gemini does not answer; a fresh session gets the transcript.",
	upstream.Repeat:  "Gemini ended its turn without an answer; the input is repeated.",
	upstream.GiveUp:  "Gemini did not answer, despite all remedies.",
}

// onConnected handles a new connection to the model.
func (s *Session) onConnected(e upstream.Connected) {
	s.costs.settleTurn() // also for a resumed session, where the model's token count of the turn starts again
	if !e.Fresh {
		return
	}
	switch {
	case e.First:
	case e.NewModel:
		s.warnDeveloper("The model has changed; a fresh session continues with the transcript.")
	case !e.Cleared && !e.Renewal && s.keeper.Config().Options.Resumption:
		s.reportError(CodeResumptionFailed,
			"The session could not be resumed at Gemini. A fresh one continues; some of the conversation may be lost.")
	}
}

// onMessage processes one message of the model.
func (s *Session) onMessage(ctx context.Context, m *wire.ServerMessage) {
	a, c := s.output, m.Content
	switch {
	case m.Tokens != nil:
		s.costs.addUsage(*m.Tokens)
	case m.Usage != nil:
		s.log.Warn("usage skipped: not readable")
	}
	if m.Failed != nil {
		s.notify(ErrorEvent{AsError(m.Failed)})
	}
	wasCut, overtaken := a.turn.isCut(), a.turn.state == turnGenerated && a.prompts.questionEndedAt.After(a.turn.latestAt)
	if len(m.ToolCalls) > 0 {
		a.prompts.onToolCalls(s.gatewayAnswersAll(m.ToolCalls))
	}
	endsCall := a.turn.state == turnIdle && a.prompts.isEndOfCallingTurn()
	ofCall := a.prompts.isCallingTurn // the turn that ends now made the calls, so its end is not a reaction to the tools' answers
	actedOn := false
	if c != nil {
		if s.keeper.Config().Profile.NoSpeechMarker {
			s.noSpeech.filterMessage(c)
		}
		if c.Interrupted || c.TurnComplete || c.InputTranscription != "" || !a.turn.isGenerating() {
			s.cluster.markChanged()
		}
		actedOn = s.onContent(ctx, c, m.Usage != nil, endsCall)
	}
	if m.Beside != nil {
		s.voice.notifyInOrder(s.subscribers, RawServerContent{m.Beside, true})
	}
	switch {
	case actedOn: // onContent has already informed the keeper
	case a.turn.isGenerating() && a.turn.isRequested:
		s.keeper.OnAnswerPart(ctx)
	default:
		// The end of a turn ends the answer to the current question only in some cases. The turn may have answered an
		// earlier question, been interrupted, or only called a tool.
		over := c != nil && (c.TurnComplete || c.GenerationComplete) && !c.Interrupted && !wasCut && !overtaken && !endsCall && !ofCall
		understood := c != nil && c.InputTranscription != "" || m.VoiceActivity != nil
		if s.keeper.OnModelActivity(ctx, over || m.ToolCalls != nil, understood) && m.ToolCalls == nil && !s.calls.HasRunningCall() {
			a.takeQuestionEnd() // removes the question, which has no answer
		}
	}
	if len(m.ToolCalls) > 0 {
		s.cluster.markChanged()
		if limit := s.costs.reserveAgain(); limit != nil { // the model will read the context once more, with the tools' results
			s.endOverBudget(limit)
		} else {
			if s.mustAnswerAfterTurnEnd(m.ToolCalls) {
				s.holdToolResponses(true)
			}
			s.calls.StartCalls(ctx, m.ToolCalls)
		}
	}
	if len(m.Cancelled) > 0 {
		s.cluster.markChanged()
		s.calls.Cancel(m.Cancelled)
	}
	if c != nil && (c.TurnComplete || c.Interrupted) {
		s.holdToolResponses(false)
	}
}

// These constants limit the wait for the end of a turn with tool calls, because its turnComplete may be missing.
const (
	// silentTurnWait applies to a turn without voice. Such a turn ends together with the call (seen in recorded
	// sessions).
	silentTurnWait = 100 * time.Millisecond
	// spokenTurnWait applies to a turn with voice. Such a turn ends when the voice has been played, so the duration of
	// the queued voice is added.
	spokenTurnWait = 3 * time.Second
)

// holdToolResponses holds back the results of tools until the end of the current turn, or releases them.
func (s *Session) holdToolResponses(on bool) {
	s.output.prompts.isCallingTurn = on
	s.uplink.HoldToolResponses(on)
	s.clock.Clear(alarmToolResponses)
	if on {
		wait := silentTurnWait
		if t := &s.output.turn; t.state != turnIdle && !t.isCut() {
			wait = spokenTurnWait + s.voice.QueuedDuration()
		}
		s.clock.Set(alarmToolResponses, wait)
	}
}

// mustAnswerAfterTurnEnd reports whether these calls must be answered only after the end of the turn, because the
// server would drop earlier answers.
func (s *Session) mustAnswerAfterTurnEnd(calls []wire.FunctionCall) bool {
	config := s.keeper.Config()
	return config.Profile.AnswersAfterTurn && !slices.ContainsFunc(calls, func(call wire.FunctionCall) bool {
		f, ok := config.Functions.FindCalled(call.Name)
		return ok && f.Blocking // the model waits for the answer, and then continues the same turn
	})
}

// onContent handles serverContent. hasUsage means that the message reports used tokens. isEndOfCallingTurn means that
// the message is the empty end of a turn with tool calls. isKeeperInformed means that the turn lacked the expected
// answer and the keeper was told so.
func (s *Session) onContent(ctx context.Context, c *wire.ServerContent, hasUsage, isEndOfCallingTurn bool) (isKeeperInformed bool) {
	a := s.output
	if c.InputTranscription != "" {
		s.countTranscriptAsSpeech()
	}
	lacks := s.lacksAnswer(c, isEndOfCallingTurn)
	if lacks {
		s.observer.report(EmptyTurn{c.EndReason})
		if s.keeper.AskAgain(ctx) { // the client gets no event: it only waits a little longer
			c.TurnComplete, c.GenerationComplete = false, false
			c.Fields = withoutField(withoutField(c.Fields, "turnComplete"), "generationComplete")
			a.handleContent(c)
			s.endOverBudget(s.costs.endTurn())
			return true
		}
	}
	hasRequest := a.hasRequest() || c.InputTranscription != ""
	silent := a.turn.state == turnIdle && len(c.Audio) == 0 && !c.HasText && c.OutputTranscription == "" && !c.HasThought
	// The client must not see the end of this empty turn. It would take it for the end of the answer, which ends
	// separately.
	if c.TurnComplete && silent && !c.Interrupted && (!hasRequest && !hasUsage || isEndOfCallingTurn && a.prompts.gatewayAnswers) {
		c.TurnComplete = false
		c.Fields = withoutField(c.Fields, "turnComplete")
		a.handleContent(c)
		s.endOverBudget(s.costs.endTurn())
		return false
	}
	a.handleContent(c)
	if c.TurnComplete {
		unspoken := a.unspokenText(c)
		a.sendFinalUserText()
		s.endTurn()
		return unspoken != "" && s.requestSpeech(ctx, unspoken)
	}
	return lacks
}

// lacksAnswer reports whether a message ends a turn without the expected answer. isEndOfCallingTurn has the same
// meaning as in onContent.
func (s *Session) lacksAnswer(c *wire.ServerContent, isEndOfCallingTurn bool) bool {
	t, config := &s.output.turn, s.keeper.Config()
	silent := t.state == turnIdle && len(c.Audio) == 0 && c.OutputTranscription == "" && !c.HasText && !c.HasThought
	failed := c.EndReason != "" && !slices.Contains(harmlessReasons, c.EndReason)
	// A Proactive model may choose not to answer, so this needs no remedy unless it reports a failure.
	return c.TurnComplete && silent && !c.Interrupted && !isEndOfCallingTurn && !s.calls.HasRunningCall() && !s.output.isWorking &&
		config.HasVoice() && !s.onHold && !s.isUnheard() && !s.overBudget && (failed || !config.Profile.Proactive) && s.keeper.HasUnderstood()
}

// harmlessReasons are the values of turnCompleteReason that need no remedy, because the model only waits for the person
// to go on.
var harmlessReasons = []string{"TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT"}

// unspokenText returns the text of an answer that ends now and was only written, although the session has voice.
// Otherwise it returns "".
func (m *modelOutput) unspokenText(c *wire.ServerContent) string {
	t, config := &m.turn, m.keeper.Config()
	if c.Interrupted || !t.isActive() || t.hasSpeech || !t.isRequested || !config.HasVoice() || config.TextOnly || m.noCues ||
		m.loop.isUnheard() {
		return ""
	}
	return strings.TrimSpace(m.transcript.AnswerText(t.number))
}

// requestSpeech asks the model to speak an answer that it has only written, because a caller on a telephone cannot
// read. isRequested is false if it has not asked.
func (s *Session) requestSpeech(ctx context.Context, text string) (isRequested bool) {
	const most = 2 // maximum of consecutive attempts
	if s.overBudget || s.onHold || s.output.textOnlyAnswers >= most {
		return false
	}
	s.output.textOnlyAnswers++
	s.observer.report(EmptyTurn{"TEXT_ONLY"})
	s.log.Warn("model wrote its answer without voice", "try", s.output.textOnlyAnswers)
	if s.output.textOnlyAnswers == most {
		s.keeper.RestartSession(ctx)
	}
	prompt := wire.TextPart("Say this to the person, word for word and nothing else: " + text)
	if !s.uplink.QueueTurn(uplink.Turn{Parts: prompt.JSON(), Complete: true}) {
		return false
	}
	s.expectTextReply(ByText)
	return true
}

// endTurn ends the model's turn.
func (s *Session) endTurn() {
	s.endOverBudget(s.costs.endTurn()) // first, so that the cost of the turn is known when its end is reported
	s.output.endTurn()
	s.pruneEvents(!s.isParked, s.calls.IsOpen)
}

// countTranscriptAsSpeech is called for a transcript of the person's speech. The transcript proves that there was
// speech, even if the gateway has detected too little.
func (s *Session) countTranscriptAsSpeech() {
	a := s.output
	s.user.promptCount = 0
	_, expected := s.keeper.ExpectedReply()
	if expected || a.turn.state != turnIdle || s.user.isSpeaking || s.isUnheard() || a.mayTranscriptBeLate() {
		return
	}
	a.recordQuestionEnd(time.Now())
	s.keeper.ExpectReply(upstream.ForSpeech)
}

// gatewayAnswersAll reports whether the gateway itself answers all of these calls: it runs the tool, or rejects a call
// of an unknown function.
func (s *Session) gatewayAnswersAll(calls []wire.FunctionCall) bool {
	for _, call := range calls {
		if f, ok := s.keeper.Config().Functions.FindCalled(call.Name); ok && f.Where != liveconfig.InGateway {
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

// withoutField returns a JSON object without one of its fields. If no field is left, it returns nil.
func withoutField(raw json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields[name] == nil {
		return raw
	}
	if delete(fields, name); len(fields) == 0 {
		return nil
	}
	return tools.EncodeOrEmpty(fields)
}

// setTurnAlarm sets an alarm in case the model does not end its turn. The session's loop calls it after every event.
func (s *Session) setTurnAlarm() {
	patience := s.keeper.PauseTimeout()
	if at, ok := s.output.turnDeadline(patience); ok && patience > 0 && !s.clock.IsSet(alarmTurn) {
		s.clock.Set(alarmTurn, time.Until(at))
	}
}

// onTurnOverdue ends a turn that the model has not ended although it has sent nothing for a long time. The person
// expects no answer, so there is no need to ask the model again.
func (s *Session) onTurnOverdue() {
	a := s.output
	at, ok := a.turnDeadline(s.keeper.PauseTimeout())
	switch {
	case !ok || time.Until(at) > 0: // the turn is not overdue; setTurnAlarm sets another alarm
	case a.turn.state == turnIdle, a.turn.isCut():
		a.isWorking = false
	default:
		s.log.Info("turn ended by the gateway: no more output", "turn", a.turn.number)
		s.endTurn()
	}
}

// applyConfig applies the new configuration to the session.
func (s *Session) applyConfig() {
	config := s.keeper.Config()
	options := config.Options
	s.costs.applyConfig(*config)
	s.endOverBudget(s.costs.reserveAgain()) // the new configuration may be longer, or the conversation may come from another gateway
	if !options.Resumption {
		s.host.tokens.revokeTokens(s.id)
	}
	s.setKeepEvents(s.isResumable())
	s.voice.MeasureLevel(options.Turns.By == turns.ByGateway)
	s.clock.Clear(alarmLimit)
	limit := minNonZero(options.MaxDuration, s.request.MergedAgent().MaxDuration)
	if g := s.request.Grant; g != nil {
		limit = minNonZero(limit, g.MaxDuration)
	}
	if limit > 0 {
		s.clock.Set(alarmLimit, limit-time.Since(s.started))
	}
}
