package bridge

import (
	"context"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
)

// maxHeldBytes limits the total size of the parts of an incomplete typed turn. A picture and some text fit.
const maxHeldBytes = 12 << 20

var (
	errTooManyMessages = &Error{
		Code: CodeStreamLimitExceeded, Message: "Too many messages are queued for Gemini; this one was dropped.",
	}
	errParts = &Error{Code: CodeBadMessage, Message: "The parts of a message must be an array."}
)

// runCommand executes a command in the loop.
func (s *Session) runCommand(ctx context.Context, c Command) error {
	if _, asks := c.(infoRequest); !asks {
		s.cluster.markChanged()
	}
	if s.overBudget && requestsAnswer(c) { // the conversation only waits until the last answer was played
		s.endWith(s.pendingReason)
		return nil
	}
	return c.run(ctx, s)
}

func (c Message) run(ctx context.Context, s *Session) error {
	if s.isEmptyInterrupt(c) {
		s.stopAnswer(ctx)
		s.output.wasStopped = true
		return nil
	}
	return s.sendMessage(c)
}

func (c Text) run(_ context.Context, s *Session) error {
	if !s.sendText(c.Text) {
		return errTooManyMessages
	}
	return nil
}

func (c Interrupt) run(ctx context.Context, s *Session) error {
	s.stopAnswer(ctx)
	return nil
}

func (c PlaybackPosition) run(_ context.Context, s *Session) error {
	s.transcript.LimitPlayed(c.Turn, c.Played)
	return nil
}

func (c EndAfterSpeaking) run(_ context.Context, s *Session) error {
	s.endAfterSpeaking(ErrGoodbye)
	return nil
}

func (c GetContext) run(_ context.Context, s *Session) error {
	s.notifyReply(c.ReplyTo, History{s.transcript.Entries()})
	return nil
}

func (c Goodbye) run(_ context.Context, s *Session) error {
	s.endWith(ErrGoodbye)
	return nil
}

func (c drainCommand) run(_ context.Context, s *Session) error {
	s.onDrain(c.stopsIn)
	return nil
}

func (c takenCommand) run(_ context.Context, s *Session) error {
	s.endWith(ErrReplaced)
	return nil
}

func (c PauseRecording) run(_ context.Context, s *Session) error { return s.recording.setPaused(c.On) }

// run exists only because a [Command] needs it: [Session.Do] queues the mark itself, outside the loop.
func (c Activity) run(_ context.Context, s *Session) error {
	return toMarkError(s.uplink.QueueMark(uplink.Mark(c)))
}

func (c ToolResponse) run(_ context.Context, s *Session) error {
	return s.calls.HandleResponse(toolcalls.Response(c))
}

// requestsAnswer reports whether a command makes the model answer.
func requestsAnswer(c Command) bool {
	switch c := c.(type) {
	case Message:
		return c.TurnComplete
	case Text, Prompt:
		return true
	}
	return false
}

// sendText sends real-time text. It returns false if the queue is full.
func (s *Session) sendText(text string) (isQueued bool) {
	s.user.promptCount = 0
	s.output.recordTypedText(s.output.questionTurn(), text)
	ok := s.uplink.QueueMessage(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: s.output.prependUnheardNote(text)}})
	s.expectTextReply(ByText)
	return ok
}

// sendMessage sends a typed turn, or keeps its parts until the turn is complete.
func (s *Session) sendMessage(m Message) error {
	s.user.promptCount = 0
	parts := wire.TextPart(m.Text)
	if m.Parts != nil || m.Text == "" {
		var err error
		if parts, err = wire.ParseParts(m.Parts); err != nil { // invalid parts would fail on every connection
			return errParts
		}
	}
	profile := s.keeper.Config().Profile
	wholeTurns := profile.Seeds && !profile.Appends
	// A model that accepts only whole turns would answer each part, so the parts of an incomplete turn are kept until
	// the turn is complete.
	if wholeTurns && !m.TurnComplete {
		held := s.heldParts.Concat(parts)
		if held.Size() > maxHeldBytes {
			return errTooManyMessages
		}
		s.heldParts = held
		return nil
	}
	parts = s.heldParts.Concat(parts)
	if m.TurnComplete {
		if parts.Len() == 0 && wholeTurns {
			return nil // an empty turn
		}
		s.output.interrupt(ByText, true)
		s.expectTextReply(ByText)
	}
	turn := s.output.questionTurn()
	if !m.TurnComplete {
		turn-- // no answer follows yet, so the text belongs to the previous turn, which the next resumption handle covers
	}
	if parts.Len() > 0 {
		s.output.recordTypedText(turn, parts.Text())
	}
	s.hasOpenTurn = !m.TurnComplete
	if note := s.output.takeTextNote(); note != "" {
		parts = wire.TextPart(note).Concat(parts)
	}
	t := uplink.Turn{Parts: parts.JSON(), Complete: m.TurnComplete}
	// The model looks at the video only while it receives speech. So the newest picture is added to a typed turn.
	if m.TurnComplete && parts.Len() > 0 && parts.OnlyText() && !s.request.NoCues {
		t.Picture = s.uplink.TakePictureForTurn()
	}
	s.heldParts = wire.Parts{}
	if !s.uplink.QueueTurn(t) {
		return errTooManyMessages
	}
	return nil
}

// run adds turns to the model's context. The model does not answer them. In the transcript, each question of the person
// begins a new turn.
func (c PrefillTurns) run(_ context.Context, s *Session) error {
	turns := c.Turns
	config := s.keeper.Config()
	if !config.Profile.Appends {
		return &Error{Code: CodeInvalidState, Message: config.Model + " does not support turns without an answer."}
	}
	content, texts := &wire.ClientContent{}, make([]string, len(turns))
	for i, t := range turns {
		parts, err := wire.ParseParts(t.Parts)
		if err != nil {
			return errParts
		}
		role := "user"
		if t.Model {
			role = "model"
		}
		content.Turns, texts[i] = append(content.Turns, wire.Content{Role: role, Parts: t.Parts}), parts.Text()
	}
	if !s.uplink.QueueMessage(wire.ClientMessage{ClientContent: content}) {
		return errTooManyMessages
	}
	for i, t := range turns {
		if i == 0 || turns[i-1].Model {
			s.output.advanceTurn()
		}
		speaker := transcript.User
		if t.Model {
			speaker = transcript.Assistant
		}
		s.transcript.AddText(s.output.questionTurn()-1, speaker, texts[i])
	}
	return nil
}

// stopAnswer interrupts the answer in progress. If the model has not begun to speak, the answer is discarded when it
// comes.
func (s *Session) stopAnswer(ctx context.Context) {
	thinking := s.output.turn.state == turnThinking
	s.output.interrupt(ByClient, false)
	if s.keeper.Config().Profile.IsTextModel {
		s.uplink.QueueMessage(wire.ClientMessage{ClientContent: &wire.ClientContent{}}) // an empty turn stops a text model
		thinking = true
	}
	if thinking {
		s.uplink.MarkAnswered()
		s.keeper.DiscardReply(ctx)
	}
}

// isEmptyInterrupt reports whether m is an empty turn whose only purpose is to stop the current answer. It returns false
// for models that do not continue an interrupted answer, because these may receive the empty turn.
func (s *Session) isEmptyInterrupt(m Message) bool {
	if !m.TurnComplete || m.Text != "" || !s.keeper.Config().Profile.InterruptedAnswersContinue || s.hasOpenTurn {
		return false
	}
	parts, err := wire.ParseParts(m.Parts)
	return err == nil && parts.Len() == 0 && (s.output.turn.isGenerating() || s.output.voice.QueuedDuration() > 0)
}

func (c Prompt) run(_ context.Context, s *Session) error { return s.promptModel(c.Instruction) }

// promptModel interrupts the current answer, and makes the model speak. Only the model sees the instruction.
func (s *Session) promptModel(instruction string) error {
	if instruction == "" {
		return &Error{Code: CodeBadMessage, Message: "The model needs an instruction to respond to."}
	}
	s.output.interrupt(ByClient, true)
	s.expectTextReply(ByClient)
	instruction = s.output.prependUnheardNote(instruction)
	if !s.uplink.QueueTurn(uplink.Turn{Parts: wire.TextPart(instruction).JSON(), Complete: true}) {
		return errTooManyMessages
	}
	return nil
}

func (p Pause) run(ctx context.Context, s *Session) error {
	s.setHold(ctx, p)
	return nil
}

// setHold puts the conversation on hold, or ends the hold.
func (s *Session) setHold(ctx context.Context, p Pause) {
	s.uplink.SetPaused(s.overBudget || p.On && !p.Listen)
	if p.On == s.onHold {
		return
	}
	s.onHold = p.On
	s.keeper.SetHold(ctx, p.On)
	if p.On {
		s.output.questions = questionEnds{}
		s.output.interrupt(ByClient, false)
	}
}

// run clears the history. The model continues in a new session, which does not have the history.
func (c ClearContext) run(ctx context.Context, s *Session) error {
	if s.keeper.PendingClears() >= maxPendingAnswers {
		return errTooManyRequests
	}
	s.output.interrupt(ByClear, false)
	s.transcript.Clear()
	s.heldParts = wire.Parts{}
	s.calls.CancelAll()
	s.keeper.ClearContext(ctx, c.ReplyTo)
	return nil
}
