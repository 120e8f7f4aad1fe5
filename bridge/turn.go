package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"voxgate/bridge/gemini/usage"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/transcript"
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
	timing     *timing       // nil before its first audio
}

// maxSpoken is how many turns may wait to be heard, for all that is known: they come at most as fast as they are spoken.
const maxSpoken = 8

// spoken is how much voice a turn had that is over, and may still be heard.
type spoken struct {
	number int // 0: a sound of ours, which is no turn's
	voice  time.Duration
}

// onMessage passes on everything that one message of the model holds.
func (s *Session) onMessage(ctx context.Context, m *wire.ServerMessage) {
	if m.Usage != nil {
		if u, err := usage.Parse(m.Usage); err != nil {
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
		s.broker.onToolCalls(ctx, m.ToolCalls)
	}
	if len(m.Cancelled) > 0 {
		s.broker.cancelCalls(m.Cancelled)
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
	s.broker.forgetAnswers()
	s.up.Handled()
}

// onContent plays what the model says and passes on the rest. An interruption comes before whatever is in the same
// message: its audio belongs to the answer that was cut off.
func (s *Session) onContent(c *wire.ServerContent) {
	if c.Interrupted {
		if !s.turn.cut {
			s.notify(s.cutVoice())
		}
		if !s.turn.counted && s.turn.open {
			s.nextTurn()
		}
		if !s.speaking && !s.turn.spokenOver { // by what was typed, which met the answer to something else
			s.up.Unsettle()
		}
		s.turn = turn{open: true, stale: true, cut: true, counted: true, number: s.turn.number} // turnComplete follows
	}
	fields, transcript := s.fields(c)
	if fields != nil {
		s.notify(Content{fields})
	}
	s.transcript.Heard(s.question(), c.InputTranscription)
	if !s.turn.stale {
		s.onAnswer(c, transcript)
	}
	if c.Grounding != nil {
		s.notify(s.grounding(c.Grounding))
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

// onAnswer takes what a message has of an answer that is wanted. transcript is what the client gets when its voice is heard.
func (s *Session) onAnswer(c *wire.ServerContent, transcript json.RawMessage) {
	written := bytes.Contains(c.Fields, modelTurn)
	if len(c.Audio) == 0 && !written && c.OutputTranscription == "" {
		return
	}
	if !s.turn.generating {
		if s.turn.open && s.turn.cut && !s.turn.counted { // what was cut off here is over, though the model does not know
			s.nextTurn()
			s.turn = turn{}
		}
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
		s.broker.settleAnswers()
		s.apologised(false)
		if s.state == StateParked || s.config.TextOnly {
			s.notTimed()
		}
	}
	if s.state == StateParked { // nobody hears it
		s.turn.stale, s.turn.cut = true, true
		return
	}
	s.say(c, text, transcript)
}

// say has an answer heard: the voice in real time, its text when its voice is.
func (s *Session) say(c *wire.ServerContent, text string, transcript json.RawMessage) {
	from := s.turn.voice
	voiced := len(c.Audio) > 0 && !s.config.TextOnly
	if voiced && c.AudioRate != wire.OutputRate {
		voiced = false
		if !s.turn.told {
			s.turn.told = true
			s.fail(CodeAudioProcessing, fmt.Sprintf("Gemini sent audio at %d Hz; only %d Hz can be played.", c.AudioRate, wire.OutputRate))
		}
	}
	if voiced && !s.turn.told {
		s.playout.Mark(func(heard bool) {
			if heard {
				s.notify(Speaking{})
			}
		})
	}
	switch {
	case transcript == nil:
	case s.config.TextOnly:
		s.notify(Content{transcript})
	default:
		s.playout.Mark(func(heard bool) {
			if heard {
				s.notify(Content{transcript})
			}
		})
	}
	if voiced {
		s.speak(c)
	}
	number, until := s.turn.number, s.turn.voice
	s.transcript.Answer(number, text, from, until)
	s.playout.Mark(func(heard bool) {
		if heard {
			s.transcript.Played(number, until)
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
	s.notify(s.cutVoice())
}

// cutVoice ends the answer here, perhaps before the model knows of it.
func (s *Session) cutVoice() Interrupted {
	cut := s.playout.Flush()
	s.playout.Duck(0)
	i := Interrupted{Generation: cut.Generation}
	if kept, ok := s.cutHistory(cut.Unheard); ok {
		i.Heard, i.Played = kept.Content, kept.Played
	}
	s.tellLatency(s.turn.timing)
	s.turn.timing = nil
	s.turn.stale = s.turn.generating
	s.turn.cut = s.turn.open
	s.turn.told = false
	return i
}

// cutHistory keeps of the turns in the playout what was heard, and returns the one in which that ends. The last turn may be
// over and still be heard, and the next one wait behind it.
func (s *Session) cutHistory(unheard time.Duration) (transcript.Entry, bool) {
	turns := s.spoken
	if s.turn.open && !s.turn.cut {
		turns = append(turns, spoken{s.turn.number, s.turn.voice})
	}
	defer func() { s.spoken = s.spoken[:0] }()
	for i := len(turns) - 1; i >= 0; i-- {
		t := turns[i]
		open := s.turn.open && !s.turn.cut && i == len(turns)-1
		switch {
		case unheard == 0 && !open:
			return s.transcript.Told(t.number), true
		case unheard < t.voice || unheard == 0:
			return s.transcript.Cut(t.number, t.voice-unheard), true
		}
		s.transcript.Cut(t.number, 0)
		unheard -= t.voice
	}
	return transcript.Entry{}, false
}

// toBeHeard notes what is in the playout and will grow no more.
func (s *Session) toBeHeard(t spoken) {
	if s.spoken = append(s.spoken, t); len(s.spoken) > maxSpoken {
		s.spoken = slices.Delete(s.spoken, 0, 1)
	}
}

// modelTurn is in the fields of a message with text, a thought or a picture of the model.
var modelTurn = []byte(`"modelTurn":`)

// completeTurn has the client told when all that was said is played. lost is set if there should have been more.
func (s *Session) completeTurn(lost bool) {
	number, voice, timing := s.turn.number, s.turn.voice, s.turn.timing
	s.toBeHeard(spoken{number, voice})
	s.playout.Mark(func(heard bool) {
		s.tellLatency(timing)
		if heard {
			s.notify(TurnComplete{})
		}
		switch {
		case !heard:
			s.transcript.Cut(number, -1)
		case lost:
			s.transcript.Cut(number, voice)
		default:
			s.transcript.Complete(number)
		}
		select {
		case s.poked <- struct{}{}:
		default: // the loop will look anyway
		}
	})
}

// speak hands audio to the playout clock.
func (s *Session) speak(c *wire.ServerContent) {
	first := !s.turn.told
	s.turn.told = true
	write := s.playout.WritePCM
	if first {
		write = s.timed
	}
	if err := write(c.Audio); err != nil {
		if !s.turn.lost {
			s.turn.lost = true
			s.log.Warn("voice dropped", "err", err)
			s.fail(CodeSpeakerStream, "Gemini speaks further ahead than can be kept; some of its voice was lost.")
		}
		return
	}
	s.turn.voice += time.Duration(len(c.Audio)) * time.Second / wire.OutputRate
}

// fields is what the client gets of c at once, and what it gets when it is heard. A client that asked a speaking model for
// text reads the transcript as its answer.
func (s *Session) fields(c *wire.ServerContent) (now, heard json.RawMessage) {
	if c.OutputTranscription == "" {
		return c.Fields, nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Fields, &fields); err != nil {
		return c.Fields, nil
	}
	heard = wrapField("outputTranscription", fields["outputTranscription"])
	delete(fields, "outputTranscription")
	if s.config.TextOnly || s.config.TextToo {
		text, err := json.Marshal(c.OutputTranscription)
		if err != nil {
			return c.Fields, nil // a string encodes
		}
		heard = wrapField("modelTurn", json.RawMessage(`{"role":"model","parts":[{"text":`+string(text)+`}]}`))
	}
	if len(fields) == 0 {
		return nil, heard
	}
	now, err := json.Marshal(fields)
	if err != nil {
		return c.Fields, nil
	}
	return now, heard
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

// grounding is what a search has found. Google's terms want its suggestions shown as they come
// (https://ai.google.dev/gemini-api/docs/google-search, Search Suggestions), which is HTML of strangers: a page of its own.
func (s *Session) grounding(metadata json.RawMessage) Grounding {
	var m struct {
		SearchEntryPoint struct{ RenderedContent string }
	}
	g := Grounding{Metadata: metadata}
	if json.Unmarshal(metadata, &m) == nil && m.SearchEntryPoint.RenderedContent != "" && s.host.options.Chips != nil && s.from.Screen {
		g.Chips = s.host.options.Chips(m.SearchEntryPoint.RenderedContent)
	}
	return g
}
