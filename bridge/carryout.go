package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
)

// maxHeld bounds the parts of a typed turn that wait for its end, in bytes: one message with a picture, and some text.
const maxHeld = 12 << 20

var (
	errTooManyMessages = &Error{Code: CodeStreamLimitExceeded, Message: "Too many messages wait for Gemini; this one was dropped."}
	errParts           = &Error{Code: CodeBadMessage, Message: "The parts of a message must be an array."}
)

// carryOut does what a command asks for.
func (s *Session) carryOut(ctx context.Context, c Command) error {
	if _, asks := c.(describe); !asks {
		s.move.unsaved = true
	}
	switch c := c.(type) {
	case Message:
		return s.sendMessage(c)
	case Seed:
		return s.seed(c.Turns)
	case Text:
		if !s.sendText(c.Text) {
			return errTooManyMessages
		}
	case ToolResponse:
		return s.calls.Answer(toolcalls.Response(c))
	case Interrupt:
		s.stopAnswer(ctx)
	case Respond:
		return s.respond(c.Instruction)
	case Heard:
		s.transcript.heardUpTo(c.Turn, c.Played)
	case Pause:
		s.setPaused(ctx, c.On)
	case EndAfterSpeaking:
		s.endAfterSpeaking(ErrGoodbye)
	case UpdateConfig:
		s.updateConfig(ctx, c.Config)
	case Steer:
		return s.steer(ctx, c)
	case leave:
		s.leave(c.in)
	case taken:
		s.end(ErrReplaced)
	case describe:
		*c.into = s.describe()
	case watch:
		s.addWatcher(c.watcher)
	case GetContext:
		s.notify(History{s.transcript.list()})
	case ClearContext:
		s.clear(ctx)
	case Goodbye:
		s.end(ErrGoodbye)
	default:
		return &Error{Code: CodeUnknown, Message: fmt.Sprintf("%T is no command of a caller.", c)}
	}
	return nil
}

// sendText sends real-time text.
func (s *Session) sendText(text string) bool {
	s.transcript.typed(s.question(), text)
	ok := s.up.Send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: text}})
	s.apologise(false)
	s.ask(time.Now())
	s.keeper.Expect(keeper.ForText)
	return ok
}

// sendMessage sends a typed turn. A model that takes only whole turns gets the parts with the one that completes it: it would
// answer each.
func (s *Session) sendMessage(m Message) error {
	var parts []json.RawMessage
	switch {
	case m.Parts == nil && m.Text != "":
		parts = textPart(m.Text)
	case json.Unmarshal(m.Parts, &parts) != nil || parts == nil: // what cannot be encoded would fail on every connection
		return errParts
	}
	profile := s.keeper.Config().Profile
	wholeTurns := profile.Seeds && !profile.Appends
	if wholeTurns && !m.TurnComplete {
		held := append(s.held, parts...)
		if lengthOf(held) > maxHeld {
			return errTooManyMessages
		}
		s.held = held
		return nil
	}
	parts = append(s.held, parts...)
	if m.TurnComplete {
		if len(parts) == 0 && wholeTurns {
			return nil // a turn of nothing
		}
		s.interrupt(ByText, true)
		s.apologise(false)
		s.ask(time.Now())
		s.keeper.Expect(keeper.ForText)
	}
	turn := s.question()
	if !m.TurnComplete {
		turn-- // the next handle knows it, answered or not
	}
	if len(parts) > 0 {
		s.transcript.typed(turn, textOf(parts))
	}
	t := uplink.Turn{Parts: joined(parts), Complete: m.TurnComplete}
	if m.TurnComplete {
		t.Picture = s.pictureFor(parts)
	}
	s.held = nil
	if !s.up.Say(t) {
		return errTooManyMessages
	}
	return nil
}

// seed tells the model of turns that it is not to answer. Each question of the person begins a turn of the transcript.
func (s *Session) seed(turns []SeedTurn) error {
	config := s.keeper.Config()
	if !config.Profile.Appends {
		return &Error{Code: CodeInvalidState, Message: config.Model + " takes no turns that are not to be answered."}
	}
	content, texts := &wire.ClientContent{}, make([]string, len(turns))
	for i, t := range turns {
		var parts []json.RawMessage
		if json.Unmarshal(t.Parts, &parts) != nil || parts == nil {
			return errParts
		}
		role := "user"
		if t.Model {
			role = "model"
		}
		content.Turns, texts[i] = append(content.Turns, wire.Content{Role: role, Parts: t.Parts}), textOf(parts)
	}
	if !s.up.Send(wire.ClientMessage{ClientContent: content}) {
		return errTooManyMessages
	}
	for i, t := range turns {
		if i == 0 || turns[i-1].Model {
			s.nextTurn()
		}
		speaker := roleUser
		if t.Model {
			speaker = roleAssistant
		}
		s.transcript.add(s.question()-1, speaker, texts[i])
	}
	return nil
}

// stopAnswer cuts off the answer that is under way. Of one that the model still thinks about nothing is waited for any more.
func (s *Session) stopAnswer(ctx context.Context) {
	thinking := s.answer.state == turnThinking
	s.interrupt(ByClient, false)
	if thinking {
		s.up.Answered()
		s.keeper.ExpectNothing(ctx)
	}
}

// respond has the model speak by an instruction that nobody sees.
func (s *Session) respond(instruction string) error {
	if instruction == "" {
		return &Error{Code: CodeBadMessage, Message: "The model needs an instruction to respond to."}
	}
	s.interrupt(ByClient, true)
	s.apologise(false)
	s.ask(time.Now())
	s.keeper.Expect(keeper.ForText)
	if !s.up.Say(uplink.Turn{Parts: joined(textPart(instruction)), Complete: true}) {
		return errTooManyMessages
	}
	return nil
}

// setPaused puts the conversation on hold, or goes on with it.
func (s *Session) setPaused(ctx context.Context, on bool) {
	if on == s.paused {
		return
	}
	s.paused = on
	s.up.Pause(on)
	s.keeper.Pause(ctx, on)
	if on {
		s.forgetAsked()
		s.interrupt(ByClient, false)
	}
}

// updateConfig notes the configuration that is wanted next. A refused one leaves the one in force.
func (s *Session) updateConfig(ctx context.Context, raw json.RawMessage) {
	config, err := s.read(raw)
	for _, w := range config.Warnings {
		s.warn(w)
	}
	s.keeper.Update(ctx, config, err)
}

// clear forgets the conversation. The next session is told nothing.
func (s *Session) clear(ctx context.Context) {
	s.interrupt(ByClear, false)
	s.transcript.clear()
	s.held = nil
	s.calls.CancelAll()
	s.keeper.Clear(ctx)
}

// pictureFor is what the person shows, to go with a typed turn, unless that has a picture of its own or nothing: the model
// looks at a stream of pictures only while it hears somebody.
func (s *Session) pictureFor(parts []json.RawMessage) *wire.Blob {
	if len(parts) == 0 {
		return nil // only the end of what was typed before
	}
	for _, raw := range parts {
		var part map[string]json.RawMessage
		if json.Unmarshal(raw, &part) != nil || part["inlineData"] != nil || part["inline_data"] != nil {
			return nil
		}
	}
	return s.up.Seen()
}

// textOf is the text of typed parts, and where their pictures are.
func textOf(parts []json.RawMessage) string {
	var texts []string
	for _, raw := range parts {
		var part struct {
			Text       string
			InlineData *struct{ MIMEType string }
		}
		switch {
		case json.Unmarshal(raw, &part) != nil:
		case part.Text != "":
			texts = append(texts, part.Text)
		case part.InlineData != nil:
			texts = append(texts, "("+part.InlineData.MIMEType+")")
		}
	}
	return strings.Join(texts, " ")
}

// textPart is a text as the parts of a turn.
func textPart(text string) []json.RawMessage {
	part, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return nil // a string encodes
	}
	return []json.RawMessage{part}
}

// joined is parts as an array.
func joined(parts []json.RawMessage) json.RawMessage {
	return slices.Concat([]byte("["), bytes.Join(raws(parts), []byte(",")), []byte("]"))
}

func raws(parts []json.RawMessage) [][]byte {
	list := make([][]byte, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list
}

func lengthOf(parts []json.RawMessage) (bytes int) {
	for _, p := range parts {
		bytes += len(p)
	}
	return bytes
}
