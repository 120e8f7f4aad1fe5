package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/steps"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
)

// maxHeld bounds the parts of a typed turn that wait for its end, in bytes: one message with a picture, and some text.
const maxHeld = 12 << 20

var (
	errTooManyMessages = &Error{
		Code: CodeStreamLimitExceeded, Message: "Too many messages wait for Gemini; this one was dropped.",
	}
	errParts = &Error{Code: CodeBadMessage, Message: "The parts of a message must be an array."}
)

// carryOut does what a command asks for.
func (s *Session) carryOut(ctx context.Context, c Command) error {
	if _, asks := c.(describe); !asks {
		s.handover.changed()
	}
	if s.broke && asks(c) { // the conversation only waits until the last answer was heard
		s.end(s.leaving)
		return nil
	}
	switch c := c.(type) {
	case Message:
		if s.isStop(c) {
			s.stopAnswer(ctx)
			s.answer.stopped = true
			return nil
		}
		return s.sendMessage(c)
	case Seed:
		return s.seed(c.Turns)
	case Text:
		if !s.sendText(c.Text) {
			return errTooManyMessages
		}
	case ToolResponse:
		return s.calls.HandleResponse(toolcalls.Response(c))
	case Interrupt:
		s.stopAnswer(ctx)
	case Respond:
		return s.respond(c.Instruction)
	case Heard:
		s.transcript.LimitPlayed(c.Turn, c.Played)
	case Pause:
		s.setPaused(ctx, c)
	case PauseRecording:
		return s.recording.pause(c.On)
	case EndAfterSpeaking:
		s.endAfterSpeaking(ErrGoodbye)
	case UpdateConfig:
		s.updateConfig(ctx, c)
	case Steer:
		return s.steer(func(t *steering) error { return t.change(c) }, func(config setup.Config) { s.keeper.UpdateConfig(ctx, config, nil) })
	case advance:
		return s.steer(func(t *steering) error { return t.advance(c) }, func(config setup.Config) {
			if s.keeper.AdjustConfig(ctx, config, s.steering.flow.Step) {
				delete(*c.answer, steps.InstructionKey) // the model has that before it has the answer
			}
		})
	case leave:
		s.goElsewhere(c.in)
	case superseded:
		s.end(ErrReplaced)
	case describe:
		*c.into = s.describe()
	case watch:
		first := []Body{History{s.transcript.Entries()}}
		if s.keeper.EverConnected() { // else the watcher gets the caller's
			first = slices.Insert(first, 0, Body(s.setupComplete()))
		}
		s.watch(c.watcher, first...)
	case GetContext:
		s.notify(History{s.transcript.Entries()})
	case ClearContext:
		s.clear(ctx)
	case Goodbye:
		s.end(ErrGoodbye)
	default:
		return &Error{Code: CodeUnknown, Message: fmt.Sprintf("%T is no command of a caller.", c)}
	}
	return nil
}

// asks reports whether a command asks for an answer.
func asks(c Command) bool {
	switch c := c.(type) {
	case Message:
		return c.TurnComplete
	case Text, Respond:
		return true
	}
	return false
}

// sendText sends real-time text.
func (s *Session) sendText(text string) bool {
	s.person.prompted = 0
	s.answer.typed(s.answer.question(), text)
	ok := s.up.QueueMessage(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: text}})
	s.asked(ByText)
	return ok
}

// sendMessage sends a typed turn. For a model that accepts complete turns only, it keeps the parts of an incomplete turn and
// sends them together with the message that completes it: the model would answer each part.
func (s *Session) sendMessage(m Message) error {
	s.person.prompted = 0
	parts := wire.TextPart(m.Text)
	if m.Parts != nil || m.Text == "" {
		var err error
		if parts, err = wire.ParseParts(m.Parts); err != nil { // what cannot be encoded would fail on every connection
			return errParts
		}
	}
	profile := s.keeper.Config().Profile
	wholeTurns := profile.Seeds && !profile.Appends
	if wholeTurns && !m.TurnComplete {
		held := s.held.With(parts)
		if held.Size() > maxHeld {
			return errTooManyMessages
		}
		s.held = held
		return nil
	}
	parts = s.held.With(parts)
	if m.TurnComplete {
		if parts.Len() == 0 && wholeTurns {
			return nil // a turn of nothing
		}
		s.answer.interrupt(ByText, true)
		s.asked(ByText)
	}
	turn := s.answer.question()
	if !m.TurnComplete {
		turn-- // the next handle knows it, answered or not
	}
	if parts.Len() > 0 {
		s.answer.typed(turn, parts.Text())
	}
	s.appended = !m.TurnComplete
	t := uplink.Turn{Parts: parts.JSON(), Complete: m.TurnComplete}
	// The model looks at a stream of pictures only while it hears somebody.
	if m.TurnComplete && parts.Len() > 0 && parts.OnlyText() && !s.open.Quiet {
		t.Picture = s.up.PictureForTurn()
	}
	s.held = wire.Parts{}
	if !s.up.QueueTurn(t) {
		return errTooManyMessages
	}
	return nil
}

// seed gives the model turns that it must not answer. Each question of the person begins a turn of the transcript.
func (s *Session) seed(turns []SeedTurn) error {
	config := s.keeper.Config()
	if !config.Profile.Appends {
		return &Error{Code: CodeInvalidState, Message: config.Model + " takes no turns that are not to be answered."}
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
	if !s.up.QueueMessage(wire.ClientMessage{ClientContent: content}) {
		return errTooManyMessages
	}
	for i, t := range turns {
		if i == 0 || turns[i-1].Model {
			s.answer.nextTurn()
		}
		speaker := transcript.User
		if t.Model {
			speaker = transcript.Assistant
		}
		s.transcript.AddText(s.answer.question()-1, speaker, texts[i])
	}
	return nil
}

// stopAnswer cuts off the answer that is under way. An answer that the model still thinks about is no longer waited
// for.
func (s *Session) stopAnswer(ctx context.Context) {
	thinking := s.answer.turn.state == turnThinking
	s.answer.interrupt(ByClient, false)
	if s.keeper.Config().Profile.Writes {
		s.up.QueueMessage(wire.ClientMessage{ClientContent: &wire.ClientContent{}}) // which stops what the model writes
		thinking = true
	}
	if thinking {
		s.up.MarkAnswered()
		s.keeper.DiscardReply(ctx)
	}
}

// isStop reports whether m is an empty turn that stops the current answer. It is not sent to a model that would continue the
// answer afterwards.
func (s *Session) isStop(m Message) bool {
	if !m.TurnComplete || m.Text != "" || !s.keeper.Config().Profile.InterruptedAnswersContinue || s.appended {
		return false
	}
	parts, err := wire.ParseParts(m.Parts)
	return err == nil && parts.Len() == 0 && (s.answer.turn.making() || s.answer.voice.QueuedDuration() > 0)
}

// respond makes the model speak by an instruction that nobody sees.
func (s *Session) respond(instruction string) error {
	if instruction == "" {
		return &Error{Code: CodeBadMessage, Message: "The model needs an instruction to respond to."}
	}
	s.answer.interrupt(ByClient, true)
	s.asked(ByClient)
	if !s.up.QueueTurn(uplink.Turn{Parts: wire.TextPart(instruction).JSON(), Complete: true}) {
		return errTooManyMessages
	}
	return nil
}

// setPaused puts the conversation on hold, or goes on with it.
func (s *Session) setPaused(ctx context.Context, p Pause) {
	s.up.SetPaused(s.broke || p.On && !p.Listen)
	if p.On == s.paused {
		return
	}
	s.paused = p.On
	s.keeper.SetHold(ctx, p.On)
	if p.On {
		s.answer.questions = questions{}
		s.answer.interrupt(ByClient, false)
	}
}

// steer changes the agent, its functions or its step, and has the model configured so.
func (s *Session) steer(change func(*steering) error, configure func(setup.Config)) error {
	before := s.steering
	err := change(&s.steering)
	if errors.Is(err, errSameStep) {
		return nil
	}
	var config setup.Config
	if err == nil {
		config, err = s.read(before.raw)
	}
	if err != nil {
		s.steering = before
		return err
	}
	s.undo = append(s.undo, basis{before, s.open.Agent, s.answers})
	configure(config)
	s.followStep(before.flow.Step)
	return nil
}

// basis is what the model's configuration is made of, as far as a conversation can change it.
type basis struct {
	steering steering
	agent    Agent  // [Open].Agent
	answers  string // its name
}

// goBack undoes a change that Gemini has refused. It does not undo the steps that the conversation has taken meanwhile, if it has the same.
func (s *Session) goBack(to basis) {
	now := s.steering
	s.steering, s.open.Agent, s.answers = to.steering, to.agent, to.answers
	if now.flow.HasSamePlan(to.steering.flow) {
		s.steering.flow, s.steering.taken = now.flow, now.taken
	}
	s.spending.limit(s.open.Dollars())
	s.followStep(now.flow.Step)
}

// onStep notes that the model has taken what it was configured with for a step, or has not: then the step before goes on.
func (s *Session) onStep(name string, err error) {
	t := &s.steering
	switch {
	case err == nil:
		t.taken = name
	case name == t.flow.Step: // else the conversation has gone on, and another answer follows
		s.warn(fmt.Sprintf("Gemini does not take the instruction or the tools of the step %q: %s", name, updateFailed(err).Message))
		t.flow.Step = t.taken
		s.followStep(name)
		_ = s.respond(fmt.Sprintf("The step %q cannot begin, because of a fault of the system: you are in the step %q again. "+
			"Say briefly that this does not work just now, go on without it, and do not try it again.", name, t.taken))
	}
}

// followStep reports a step that has begun, if another one was there before.
func (s *Session) followStep(before string) (another bool) {
	now := s.steering.flow
	if now.Step == before {
		return false
	}
	s.log.Info("step begun", "step", now.Step)
	s.notify(StepChange{now.Step, now.Fields})
	s.observer.report(StepBegun{now.Step})
	return true
}

// updateConfig queues the next configuration. If it is refused, the current one stays in force.
func (s *Session) updateConfig(ctx context.Context, c UpdateConfig) {
	before, step := basis{s.steering, s.open.Agent, s.answers}, s.steering.flow.Step
	if c.Agent != nil && !s.open.Named {
		s.open.Agent, s.answers = *c.Agent, c.Name
		s.steering.flow = s.steering.flow.WithPlan(s.open.Wanted().Steps)
	}
	config, err := s.read(c.Config)
	if err != nil {
		s.steering, s.open.Agent, s.answers = before.steering, before.agent, before.answers
	}
	s.spending.limit(s.open.Dollars())
	s.undo = append(s.undo, before)
	s.warnOfConfig(config)
	s.keeper.UpdateConfig(ctx, config, err)
	if s.followStep(step) {
		s.steering.taken = s.steering.flow.Step
	}
}

// warnOfConfig tells the client what was dropped or changed of its config, and which functions the model does not have as they were
// declared.
func (s *Session) warnOfConfig(config setup.Config) {
	for _, w := range config.Warnings {
		s.warn(w)
	}
	if len(config.Losses) > 0 {
		s.notify(ToolsLost{config.Losses})
	}
}

// clear forgets the conversation. The next session begins with nothing.
func (s *Session) clear(ctx context.Context) {
	s.answer.interrupt(ByClear, false)
	s.transcript.Clear()
	s.held = wire.Parts{}
	s.calls.CancelAll()
	s.keeper.ClearContext(ctx)
}
