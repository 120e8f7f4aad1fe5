package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
)

// onMessage passes on everything that one message of the model holds.
func (s *Session) onMessage(ctx context.Context, m *wire.ServerMessage) {
	if m.Usage != nil {
		if u, err := wire.ParseTokens(m.Usage); err != nil {
			s.log.Warn("usage skipped", "err", err)
		} else {
			s.spent.meter.Add(u)
			s.spent.turn = true
		}
	}
	wasCut := s.answer.state == turnCut
	c := m.Content
	if c != nil {
		s.onContent(c)
	} else if m.Usage != nil {
		s.notify(Raw{wrapField("usageMetadata", m.Usage), true})
	}
	if m.VoiceActivity != nil {
		s.notify(Raw{wrapField("voiceActivity", m.VoiceActivity), true})
	}
	if len(m.Extra) > 0 {
		if b, err := json.Marshal(m.Extra); err == nil {
			s.notify(Raw{b, true})
		}
	}
	if s.answer.making() {
		s.keeper.Answering(ctx)
	} else {
		// The end of an answer that was cut off is no answer to what cut it off.
		over := c != nil && (c.TurnComplete || c.GenerationComplete) && !c.Interrupted && !wasCut
		understood := c != nil && c.InputTranscription != "" || m.VoiceActivity != nil
		if s.keeper.Reacted(ctx, over || m.ToolCalls != nil, understood) && m.ToolCalls == nil && !s.calls.Calling() {
			s.answered() // it has nothing to say
		}
	}
	if len(m.ToolCalls) > 0 || len(m.Cancelled) > 0 {
		s.move.unsaved = true
	}
	if len(m.ToolCalls) > 0 {
		s.calls.Start(ctx, m.ToolCalls)
	}
	if len(m.Cancelled) > 0 {
		s.calls.Cancel(m.Cancelled)
	}
}

// onContent plays what the model says and passes on the rest. An interruption comes before whatever is in the same
// message: its audio belongs to the answer that was cut off.
func (s *Session) onContent(c *wire.ServerContent) {
	t := &s.answer.turn
	s.move.unsaved = s.move.unsaved || c.Interrupted || c.TurnComplete || c.InputTranscription != "" || !s.answer.making()
	if c.Interrupted {
		byVoice := s.person.speaking || t.spokenOver
		if t.state != turnCut {
			something := t.state != turnIdle || s.playout.Queued() > 0
			if cut := s.cutBy(byVoice); something {
				s.notify(cut)
			}
		}
		if !t.counted && t.state != turnIdle {
			s.nextTurn()
		}
		if !byVoice { // what was typed has met the answer to something else
			s.up.Unsettle()
		}
		*t = turn{state: turnCut, skipping: true, counted: true, number: t.number} // turnComplete follows
	}
	fields, transcript := s.fields(c)
	if fields != nil {
		s.notify(Raw{ServerContent: fields})
	}
	if text := c.InputTranscription; text != "" {
		s.transcript.heard(s.question(), text)
		s.notify(UserText{Turn: s.question(), Text: text})
		s.person.textTurn = s.question()
	}
	if !t.skipping {
		s.onAnswer(c, transcript)
	}
	if c.Grounding != nil {
		s.notify(s.grounding(c.Grounding))
	}
	if c.Interrupted || c.GenerationComplete || c.TurnComplete {
		t.skipping = false
		if t.making() {
			t.state = turnOver
		}
	}
	if bytes.Contains(c.Fields, inProgress) {
		s.answer.working = true
	} else if bytes.Contains(c.Fields, atRest) {
		s.answer.working = false
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

// modelTurn is in the fields of a message with text, a thought or a picture of the model.
var modelTurn = []byte(`"modelTurn":`)

// onAnswer takes what a message has of an answer that is wanted. transcript is what the client gets when its voice is heard.
func (s *Session) onAnswer(c *wire.ServerContent, transcript json.RawMessage) {
	written := bytes.Contains(c.Fields, modelTurn)
	if len(c.Audio) == 0 && !written && c.OutputTranscription == "" {
		return
	}
	t := &s.answer.turn
	if !t.making() {
		if t.state == turnCut { // what was cut off is over, though the model may not know
			if !t.counted {
				s.nextTurn()
			}
			*t = turn{counted: t.counted}
		}
		t.number, t.began = s.answer.number, time.Now()
		t.state = turnThinking
	}
	text, answer := c.OutputTranscription, len(c.Audio) > 0 || c.OutputTranscription != ""
	if written {
		said, thought, wrote := textOfTurn(c.Fields)
		if thought != "" {
			s.notify(Thought{Turn: t.number, Text: thought})
		}
		if !answer {
			text, answer = said, wrote
		}
	}
	if t.answered {
		t.state = turnSpeaking
	}
	if !answer {
		return
	}
	t.state = turnSpeaking
	if !t.answered {
		t.answered, s.answer.said, s.lastWord = true, true, false
		s.keeper.Answers()
		s.calls.Spoken()
		s.apologise(false)
		s.finalUserText()
		if s.nobodyHears() || s.keeper.Config().TextOnly {
			s.answered()
		}
	}
	if s.nobodyHears() {
		t.state, t.skipping = turnCut, true
		return
	}
	s.say(c, text, transcript)
}

// nobodyHears tells whether an answer would be said to nobody.
func (s *Session) nobodyHears() bool { return s.parked || s.paused }

// say has an answer heard: the voice in real time, its text when its voice is.
func (s *Session) say(c *wire.ServerContent, text string, transcript json.RawMessage) {
	t := &s.answer.turn
	number, from := t.number, t.voice
	voiced := len(c.Audio) > 0 && !s.keeper.Config().TextOnly
	if voiced && c.AudioRate != wire.OutputRate {
		voiced = false
		if !t.lost {
			t.lost = true
			s.fail(CodeAudioProcessing, fmt.Sprintf("Gemini sent audio at %d Hz; only %d Hz can be played.", c.AudioRate, wire.OutputRate))
		}
	}
	if voiced && t.timing == nil {
		s.whenHeard(func() {
			s.tellThinking(false)
			s.notify(Speaking{number})
		})
	}
	if transcript != nil || text != "" {
		s.sayText(number, text, transcript)
	}
	if voiced {
		s.play(c)
	}
	until := t.voice
	s.transcript.answer(number, text, from, until)
	s.playout.Mark(func(heard bool) { // not by whenHeard: one allocation a message
		if heard {
			s.transcript.played(number, until)
		}
	})
}

// sayText tells the text of an answer when its voice is heard.
func (s *Session) sayText(number int, text string, transcript json.RawMessage) {
	tell := func() {
		if transcript != nil {
			s.notify(Raw{ServerContent: transcript})
		}
		if text != "" {
			s.notify(AssistantText{Turn: number, Text: text})
		}
	}
	if s.keeper.Config().TextOnly {
		tell()
		return
	}
	s.whenHeard(tell)
}

// play hands audio to the playout clock.
func (s *Session) play(c *wire.ServerContent) {
	t := &s.answer.turn
	write := s.playout.WritePCM
	if t.timing == nil {
		write = s.timed
	}
	if err := write(c.Audio); err != nil {
		if !t.lost {
			t.lost = true
			s.log.Warn("voice dropped", "err", err)
			s.fail(CodeSpeakerStream, "Gemini speaks further ahead than can be kept; some of its voice was lost.")
		}
		return
	}
	t.voice += time.Duration(len(c.Audio)) * time.Second / wire.OutputRate
}

// onTurnComplete ends the model's turn.
func (s *Session) onTurnComplete() {
	t := &s.answer.turn
	s.finalUserText()
	s.countTokens() // first: who is told that the turn is over knows what it has cost
	if t.state != turnCut {
		s.complete()
	}
	if !t.counted {
		s.nextTurn()
	}
	*t = turn{}
	s.audience.mu.Lock()
	s.audience.ring.forget(!s.parked, s.calls.IsOpen)
	s.audience.mu.Unlock()
}

// nextTurn counts a turn.
func (s *Session) nextTurn() {
	s.answer.number++
	s.keeper.Happened()
}

// question is the number of the turn that begins with what the person says now.
func (s *Session) question() int {
	t := &s.answer.turn
	if t.state != turnIdle && !t.counted && (t.state == turnCut || t.spokenOver) {
		return s.answer.number + 1
	}
	return s.answer.number
}

// complete has the client told when all that was said of a turn is played.
func (s *Session) complete() {
	number, timing, began := s.answer.turn.number, s.answer.timing, s.answer.began
	s.toBeHeard(finishedTurn{number, s.answer.voice})
	if number == 0 {
		number = s.answer.number // it had nothing to say
	}
	s.playout.Mark(func(heard bool) {
		s.observeTurn(number, began, timing, s.tellLatency(timing), s.cause(heard, ""))
		if heard {
			s.transcript.complete(number)
			s.finalText(number)
			s.notify(TurnComplete{number})
		} else {
			s.transcript.cut(number, -1)
		}
		s.signalPlayed()
	})
}

// breakOff has the client told, when all that has come of a turn is played, that the rest will not come.
func (s *Session) breakOff() {
	number, voice, timing, began := s.answer.turn.number, s.answer.voice, s.answer.timing, s.answer.began
	generation := s.playout.Generation()
	s.toBeHeard(finishedTurn{number, voice})
	s.playout.Mark(func(heard bool) {
		s.observeTurn(number, began, timing, s.tellLatency(timing), s.cause(heard, ByLink))
		if heard {
			kept := s.transcript.cut(number, voice)
			s.finalText(number)
			s.notify(Interrupted{Turn: number, By: ByLink, Generation: generation, Heard: kept.Content, Played: kept.Played})
		} else {
			s.transcript.cut(number, -1)
		}
		s.signalPlayed()
	})
}

// countTokens tells of the tokens of a turn, and ends a conversation that has used up its share.
func (s *Session) countTokens() {
	if !s.spent.turn {
		return
	}
	s.spent.turn = false
	u := Usage{Turn: s.spent.meter.Turn()}
	s.spent.meter.EndTurn()
	u.Total = s.spent.meter.Total()
	s.notify(u)
	if most := s.host.options.MaxTokens; most > 0 && u.Total.Total >= most {
		s.log.Info("token limit reached", "tokens", u.Total.Total)
		s.endAfterSpeaking(ErrTokenLimit)
	}
	s.spend()
}

// interrupt cuts the answer off, if there is something to be cut off, perhaps before the model knows of it. asking: words go to
// the model now. They meet a thought or a text that has no voice yet, and are answered with it or after it.
func (s *Session) interrupt(by Cause, asking bool) {
	t := &s.answer.turn
	unheard := t.timing == nil || t.state != turnSpeaking
	if s.playout.Queued() > 0 || t.making() && !(asking && unheard) {
		s.notify(s.cut(by))
	}
}

// cutBy ends the answer because the model says that it was interrupted. It does not say why: by what was typed, if that has no
// answer yet and nobody has spoken.
func (s *Session) cutBy(voice bool) Interrupted {
	if what, _ := s.keeper.Expects(); !voice && what == keeper.ForText {
		return s.cut(ByText)
	}
	return s.cut(ByVoice)
}

// playing is the turn whose voice is played now; 0: none.
func (s *Session) playing() int {
	left := s.playout.Queued()
	if left == 0 {
		return 0
	}
	turns := append(slices.Clone(s.answer.finished), finishedTurn{s.answer.turn.number, s.answer.turn.voice})
	number := 0
	for _, f := range slices.Backward(turns) {
		if f.voice > 0 {
			number = f.number
		}
		if left -= f.voice; left <= 0 {
			break
		}
	}
	return number
}

// cut ends the answer here.
func (s *Session) cut(by Cause) Interrupted {
	t := &s.answer.turn
	speaking := s.playout.Queued() > 0
	s.answer.cutBy.Store(&by)
	flushed := s.playout.Flush()
	if speaking && by == ByVoice {
		s.observeBargeIn(flushed.Left)
	}
	s.playout.Duck(0)
	i := Interrupted{Turn: t.number, By: by, Generation: flushed.Generation}
	if number, ok := s.cutHistory(flushed.Unheard); ok {
		kept := s.transcript.told(number)
		i.Turn, i.Heard, i.Played = number, kept.Content, kept.Played
		s.finalText(number)
	}
	latency := s.tellLatency(t.timing)
	if t.state != turnIdle && t.state != turnCut {
		s.observeTurn(t.number, t.began, t.timing, latency, by)
	}
	t.timing = nil
	t.skipping = t.making()
	if t.state != turnIdle {
		t.state = turnCut
	}
	return i
}

// cutHistory keeps of the turns in the playout what was heard, and returns the one in which that ends. The last turn may be
// over and still be heard, and the next one wait behind it.
func (s *Session) cutHistory(unheard time.Duration) (number int, ok bool) {
	t := &s.answer.turn
	turns := s.answer.finished
	running := t.state != turnIdle && t.state != turnCut
	if running {
		turns = append(turns, finishedTurn{t.number, t.voice})
	}
	defer func() { s.answer.finished = s.answer.finished[:0] }()
	for i := len(turns) - 1; i >= 0; i-- {
		f := turns[i]
		open := running && i == len(turns)-1
		switch {
		case unheard == 0 && !open:
			return f.number, true
		case unheard < f.voice || unheard == 0:
			s.transcript.cut(f.number, f.voice-unheard)
			return f.number, true
		}
		s.transcript.cut(f.number, 0)
		unheard -= f.voice
	}
	return 0, false
}

// idle tells whether nobody speaks, no answer is under way, and no tool runs.
func (s *Session) idle() bool {
	return s.answer.state == turnIdle && !s.answer.working && !s.person.speaking && !s.calls.Calling()
}

// history is what a session is told of the conversation that it does not know. What has no answer is said again instead.
func (s *Session) history(fresh bool) []wire.Content {
	before := s.question() + 1
	if s.up.Unanswered() {
		before--
	}
	if fresh {
		return s.transcript.before(before)
	}
	return s.transcript.between(s.answer.known, before)
}

// finalUserText tells all that the person has said in a turn.
func (s *Session) finalUserText() {
	if turn := s.person.textTurn; turn > 0 {
		s.person.textTurn = 0
		s.notify(UserText{Turn: turn, Text: s.transcript.asked(turn), Final: true})
	}
}
