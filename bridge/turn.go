package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"voxgate/bridge/gemini"
)

// turn is where the model's turn stands.
type turn struct {
	open       bool // the model has begun to answer, turnComplete has not come
	told       bool // Speaking is on its way
	generating bool // the model makes something, generationComplete has not come
	answering  bool // something of it is an answer, and not a thought
	stale      bool // the rest of this generation was cut off here, before the model knew
	cut        bool // the client was told Interrupted; the end of this turn is no news
	counted    bool // the next turn has its number already
	spokenOver bool // the person has begun to speak since
	lost       bool // some of its voice was
	number     int
	voice      time.Duration // of it so far
}

// onMessage passes on everything that one message of the model holds.
func (s *Session) onMessage(ctx context.Context, m *gemini.ServerMessage) {
	if m.Usage != nil {
		if u, err := gemini.ParseUsage(m.Usage); err != nil {
			s.log.Warn("usage skipped", "err", err)
		} else {
			s.meter.Add(u)
			s.usage = true
		}
	}
	before := s.turn
	if c := m.Content; c != nil {
		s.onContent(c)
	} else if m.Usage != nil {
		s.notify(Content{wrapField("usageMetadata", m.Usage)})
	}
	if m.VoiceActivity != nil {
		s.notify(Content{wrapField("voiceActivity", m.VoiceActivity)})
	}
	if len(m.Extra) > 0 {
		if b, err := json.Marshal(m.Extra); err == nil {
			s.notify(Content{b})
		}
	}
	s.alive(m, before)
	if len(m.ToolCalls) > 0 {
		s.onToolCalls(ctx, m.ToolCalls)
	}
	if len(m.Cancelled) > 0 {
		s.cancelCalls(m.Cancelled)
	}
	if r := m.Resumption; r != nil && r.Resumable && r.Handle != "" {
		s.onHandle(r.Handle)
	}
	if m.GoAway != nil {
		s.onGoAway(*m.GoAway)
	}
}

// onHandle keeps the newest handle, and forgets what the session behind it knows.
func (s *Session) onHandle(h string) {
	if !s.config.Options.Resumption {
		return // gemini-3.8-live gives one unasked
	}
	s.ticks++
	s.handle = handle{text: h, tick: s.ticks, turn: s.number - 1}
	s.forgetAnswers()
	s.up.Handled()
}

// onContent plays what the model says and passes on the rest. An interruption comes before whatever is in the same
// message: its audio belongs to the answer that was cut off.
func (s *Session) onContent(c *gemini.ServerContent) {
	if c.Interrupted {
		if !s.turn.cut {
			s.cutVoice()
			s.notify(Interrupted{})
		}
		if !s.turn.counted && s.turn.open {
			s.nextTurn()
		}
		if !s.speaking && !s.turn.spokenOver { // by what was typed, which met the answer to something else
			s.up.Unsettle()
		}
		s.turn = turn{open: true, stale: true, cut: true, counted: true, number: s.turn.number} // turnComplete follows
	}
	if fields := s.fields(c); fields != nil {
		s.notify(Content{fields})
	}
	s.history.heard(s.question(), c.InputTranscription)
	if !s.turn.stale {
		s.onAnswer(c)
	}
	if c.Grounding != nil {
		s.notify(Grounding{c.Grounding})
	}
	if c.Interrupted || c.GenerationComplete || c.TurnComplete {
		s.turn.generating, s.turn.stale = false, false
	}
	if bytes.Contains(c.Fields, inProgress) {
		s.working = true
	} else if bytes.Contains(c.Fields, atRest) {
		s.working = false
	}
	if c.TurnComplete {
		s.onTurnComplete()
	}
}

// What a model says of itself that thinks on after turnComplete (gemini-3.8-live-extended-thinking).
var (
	inProgress = []byte(`"interactionStatus":"IN_PROGRESS"`)
	atRest     = []byte(`"interactionStatus":"IDLE"`)
)

// onAnswer takes what a message has of an answer that is wanted.
func (s *Session) onAnswer(c *gemini.ServerContent) {
	written := bytes.Contains(c.Fields, modelTurn)
	if len(c.Audio) == 0 && !written && c.OutputTranscription == "" {
		return
	}
	if !s.turn.generating {
		s.turn.number = s.number
	}
	s.turn.open, s.turn.generating, s.turn.cut = true, true, false
	text, answer := c.OutputTranscription, len(c.Audio) > 0 || c.OutputTranscription != ""
	if written && !answer {
		text, answer = textOfTurn(c.Fields)
	}
	if !answer {
		return
	}
	if !s.turn.answering {
		s.turn.answering = true
		s.up.Answered()
		s.clock.clear(alarmStale)
		s.settleAnswers()
		s.apologised(false)
	}
	if s.state == StateParked { // nobody hears it
		s.turn.stale, s.turn.cut = true, true
		return
	}
	s.history.answer(s.turn.number, text)
	if len(c.Audio) > 0 && !s.config.TextOnly {
		s.speak(c)
	}
	number, until := s.turn.number, s.turn.voice
	s.playout.Mark(func(heard bool) {
		if heard {
			s.history.played(number, text, until)
		}
	})
}

// onTurnComplete ends the model's turn.
func (s *Session) onTurnComplete() {
	if !s.turn.cut {
		s.completeTurn(false)
	}
	if !s.turn.counted {
		s.nextTurn()
	}
	s.turn = turn{}
	s.tally()
}

// nextTurn counts a turn.
func (s *Session) nextTurn() {
	s.number++
	s.ticks++
	s.dirty = s.ticks
}

// question is the number of the turn that begins with what the person says now.
func (s *Session) question() int {
	if s.turn.open && !s.turn.counted && (s.turn.cut || s.turn.spokenOver) {
		return s.number + 1
	}
	return s.number
}

// tally counts the tokens of a turn, and ends a conversation that has used up its share.
func (s *Session) tally() {
	if !s.usage {
		return
	}
	s.usage = false
	u := Usage{Turn: s.meter.Turn()}
	s.meter.EndTurn()
	u.Total = s.meter.Total()
	s.notify(u)
	if most := s.host.options.MaxTokens; most > 0 && u.Total.Total >= most {
		s.log.Info("token limit reached", "tokens", u.Total.Total)
		s.bid(ErrTokenLimit)
	}
}

// interrupt cuts the voice off because typed text shall be answered, not waited for.
func (s *Session) interrupt() {
	if s.playout.Queued() == 0 && !(s.turn.told && s.turn.generating) {
		return
	}
	s.cutVoice()
	s.notify(Interrupted{})
}

// cutVoice ends the answer here, before the model knows of it.
func (s *Session) cutVoice() {
	queued := s.playout.Queued()
	s.playout.Flush()
	if s.turn.open && !s.turn.cut {
		s.history.cut(s.turn.number, max(0, s.turn.voice-queued))
	}
	s.turn.stale = s.turn.generating
	s.turn.cut = s.turn.open
	s.turn.told = false
}

// modelTurn is in the fields of a message with text, a thought or a picture of the model.
var modelTurn = []byte(`"modelTurn":`)

// completeTurn has the client told when all that was said is played. lost is set if there should have been more.
func (s *Session) completeTurn(lost bool) {
	number, voice := s.turn.number, s.turn.voice
	s.playout.Mark(func(heard bool) {
		if heard {
			s.notify(TurnComplete{})
		}
		switch {
		case !heard:
			s.history.cut(number, -1)
		case lost:
			s.history.cut(number, voice)
		}
		select {
		case s.poked <- struct{}{}:
		default: // the loop will look anyway
		}
	})
}

// speak hands audio to the playout clock.
func (s *Session) speak(c *gemini.ServerContent) {
	first := !s.turn.told
	s.turn.told = true
	if c.AudioRate != gemini.OutputRate {
		if first {
			s.fail(CodeAudioProcessing, fmt.Sprintf("Gemini sent audio at %d Hz; only %d Hz can be played.", c.AudioRate, gemini.OutputRate))
		}
		return
	}
	if first {
		s.playout.Mark(func(heard bool) {
			if heard {
				s.notify(Speaking{})
			}
		})
	}
	if err := s.playout.WritePCM(c.Audio); err != nil {
		if !s.turn.lost {
			s.turn.lost = true
			s.log.Warn("voice dropped", "err", err)
			s.fail(CodeSpeakerStream, "Gemini speaks further ahead than can be kept; some of its voice was lost.")
		}
		return
	}
	s.turn.voice += time.Duration(len(c.Audio)) * time.Second / gemini.OutputRate
}

// fields is what the client gets of c. A client that asked a speaking model for text reads the transcript as its answer.
func (s *Session) fields(c *gemini.ServerContent) json.RawMessage {
	if !s.config.TextOnly && !s.config.TextToo || c.OutputTranscription == "" {
		return c.Fields
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Fields, &fields); err != nil {
		return c.Fields
	}
	text, err := json.Marshal(c.OutputTranscription)
	if err != nil {
		return c.Fields
	}
	delete(fields, "outputTranscription") // or who joins both reads it twice
	fields["modelTurn"] = json.RawMessage(`{"role":"model","parts":[{"text":` + string(text) + `}]}`)
	b, err := json.Marshal(fields)
	if err != nil {
		return c.Fields
	}
	return b
}

// textOfTurn is the text that the model wrote, without its thoughts. answer is false if there are only thoughts.
func textOfTurn(fields json.RawMessage) (text string, answer bool) {
	var c struct {
		ModelTurn struct {
			Parts []struct {
				Text    string
				Thought bool
			}
		}
	}
	if json.Unmarshal(fields, &c) != nil {
		return "", false
	}
	for _, p := range c.ModelTurn.Parts {
		if !p.Thought {
			text += p.Text
			answer = true
		}
	}
	return text, answer
}

// wrapField puts a field that Gemini sends beside serverContent into one, where clients look.
func wrapField(name string, value json.RawMessage) json.RawMessage {
	b, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return b
}
