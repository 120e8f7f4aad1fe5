package bridge

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/media"
)

// answer is what the model says: its current turn, the questions that it has not answered, and what was heard. The loop
// owns it; any goroutine may call the marks that it leaves in the playout.
type answer struct {
	answerOptions
	questions       questions
	turn            turn
	last            lastTurn
	prompts         prompts
	number          int  // of the turn that is spoken, or comes next
	known           int  // the last turn that the session behind the newest handle knows
	textTurn        int  // whose UserText is not final yet; 0: none
	working         bool // the model thinks on, whatever its turn says
	workAsked       bool // it does so because somebody has asked
	textOnlyAnswers int  // answers in a row that were written and not spoken, though the model is to speak
	said            bool // something was answered since the person asked
	stopped         bool // the client has stopped an answer that the model may take up again, and nothing was asked since

	latest   atomic.Int64 // that an answer took, in ns, which the voice's goroutine may measure; 0: none was measured
	thinking atomic.Bool  // the caller knows that an answer is due
}

// answerOptions are what an answer needs of its session. All fields but quiet and chips are needed.
type answerOptions struct {
	audience   *audience
	observer   observer
	log        *slog.Logger
	voice      *voice
	transcript *transcript.Transcript
	up         *uplink.Uplink
	keeper     *keeper.Keeper
	calls      *toolcalls.Calls

	quiet    bool                     // the caller hears nothing
	chips    func(html string) string // makes a page of a search's suggestions; nil: the caller cannot show it
	begun    func()                   // the model has begun to answer
	speaking func() bool              // the person speaks
	unheard  func() bool              // nobody would hear an answer
}

// turnState is where the model's turn stands.
//
//	idle ─> thinking ─> speaking ─> made ─────┐
//	           │            │                 │ cut off while the rest of it was played
//	           │            │                 v
//	           └────────────┴─> dropped ───> cut
//	             cut off first    the model has ended it, too
//
// turnComplete, or the loss of the connection, leads from every state to idle. What the model makes after cut is a new turn.
type turnState int

const (
	turnIdle     turnState = iota // no answer is under way
	turnThinking                  // the model makes something; none of it is an answer yet
	turnSpeaking                  // the model makes an answer
	turnMade                      // all of it was made; turnComplete has not come
	turnDropped                   // it was cut off here before the model knew: the rest of it is dropped
	turnCut                       // it was cut off and nothing more comes of it; its turnComplete is no news
)

// turn is the model's turn that is under way.
type turn struct {
	state      turnState
	number     int
	counted    bool          // the next turn has its number already
	spokenOver bool          // the person has begun to speak since it began
	answered   bool          // some of it was an answer, not a thought
	asked      bool          // it has a question, or a tool's result, to answer; else the model speaks by itself
	rejected   bool          // the model itself has said that it was interrupted
	spoken     bool          // some of it has a voice, or a transcript of one
	lost       bool          // some of its voice was not played
	voice      time.Duration // of it so far
	timing     *timing       // nil before its first audio
	began      time.Time     // when the first of it came
	latest     time.Time     // when the last of it came, or what has cut it off
}

// making reports whether the model makes something of it that is wanted.
func (t *turn) making() bool { return t.state == turnThinking || t.state == turnSpeaking }

// wanted reports whether it is under way and was not cut off.
func (t *turn) wanted() bool { return t.making() || t.state == turnMade }

// wasCut reports whether it was cut off.
func (t *turn) wasCut() bool { return t.state == turnDropped || t.state == turnCut }

// content plays what the model says and passes on the rest; its caller ends the turn if it is complete. An interruption
// comes before whatever is in the same message: its audio belongs to the answer that was cut off.
func (a *answer) content(c *wire.ServerContent) {
	t := &a.turn
	if c.Interrupted {
		a.onInterrupted()
	}
	if c.Fields != nil {
		a.voice.notifyInOrder(a.audience, Raw{ServerContent: c.Fields})
	}
	if c.InputTranscription != "" {
		a.onTranscript(c.InputTranscription)
	}
	if raw := c.Transcript; raw != nil && c.OutputTranscription == "" { // that it is finished, say: behind the text, which waits for the voice
		a.voice.AddMark(func(bool) {
			if b := (Raw{ServerContent: raw}); !a.voice.deferEvent(b) {
				a.audience.notify(b)
			}
		})
	}
	switch {
	case t.state == turnDropped:
		t.latest = time.Now()
	case a.isLate(c):
		a.addLate(c)
	default:
		a.onAnswer(c)
	}
	if c.Grounding != nil {
		a.voice.notifyInOrder(a.audience, a.grounding(c))
	}
	if c.Interrupted || c.GenerationComplete || c.TurnComplete {
		switch {
		case t.state == turnDropped:
			t.state = turnCut
		case t.making():
			t.state = turnMade
		}
	}
	if c.Interaction != "" {
		a.working, a.workAsked = c.Interaction == wire.InProgress, t.asked || a.isAsked()
	}
}

// onInterrupted ends the answer because the model says that it was interrupted.
func (a *answer) onInterrupted() {
	t := &a.turn
	byVoice := a.speaking() || t.spokenOver
	a.last = lastTurn{number: t.number, at: time.Now(), began: t.began, cut: true}
	if !t.wasCut() {
		something := t.state != turnIdle || a.voice.QueuedDuration() > 0
		cut, behind := a.cut(a.causeOfInterruption(byVoice))
		if something {
			a.audience.notify(cut)
		}
		a.notifyDeferred(behind, true)
	}
	if !t.counted && t.state != turnIdle {
		a.nextTurn()
	}
	if !byVoice { // what was typed has met the answer to something else
		a.up.ReopenTypedText()
	}
	a.prompts.interrupted()
	*t = turn{state: turnDropped, counted: true, number: t.number, rejected: true, latest: time.Now()} // turnComplete follows
}

// causeOfInterruption is what has interrupted the model, which does not report it: words that were sent and have no
// answer yet, if nobody has spoken.
func (a *answer) causeOfInterruption(byVoice bool) Cause {
	if a.prompts.pending > 0 && !byVoice {
		return a.prompts.newest
	}
	return ByVoice
}

// grounding is what a search has found. Google's terms require its suggestions to be shown unchanged
// (https://ai.google.dev/gemini-api/docs/google-search, Search Suggestions). They are HTML from strangers, so they get
// a page of their own.
func (a *answer) grounding(c *wire.ServerContent) Grounding {
	g := Grounding{Metadata: c.Grounding}
	if c.Suggestions != "" && a.chips != nil {
		g.Chips = a.chips(c.Suggestions)
	}
	return g
}

// onAnswer handles the part of a message that belongs to a wanted answer.
func (a *answer) onAnswer(c *wire.ServerContent) {
	if len(c.Audio) == 0 && !c.Written && !c.Thought && c.OutputTranscription == "" {
		return
	}
	t := &a.turn
	if !t.making() {
		if t.wasCut() { // what was cut off is over, though the model may not know
			if !t.counted {
				a.nextTurn()
			}
			*t = turn{}
		}
		t.number, t.began, t.asked = a.number, time.Now(), a.isAsked()
		if a.stopped && !t.asked {
			t.state, t.latest = turnDropped, time.Now()
			return
		}
		t.state = turnThinking
		a.prompts.taken()
	}
	t.latest = time.Now()
	if c.Thoughts != "" {
		a.voice.notifyInOrder(a.audience, Thought{Turn: t.number, Text: c.Thoughts})
	}
	text, spoken := c.OutputTranscription, len(c.Audio) > 0 || c.OutputTranscription != ""
	if !spoken {
		text = c.Text
	}
	t.spoken = t.spoken || spoken
	if t.answered {
		t.state = turnSpeaking
	}
	if !spoken && !c.Written {
		return
	}
	t.state = turnSpeaking
	if !t.answered {
		t.answered, a.said = true, true
		a.keeper.OnAnswer()
		a.calls.MarkSpoken()
		a.begun()
		a.finalQuestion()
		if a.unheard() || a.keeper.Config().TextOnly {
			a.answered()
		}
	}
	if a.unheard() {
		t.state = turnDropped
		return
	}
	a.say(c, text)
}

// say plays an answer: the voice in real time, and its text when its voice is heard.
func (a *answer) say(c *wire.ServerContent, text string) {
	t := &a.turn
	number, from := t.number, t.voice
	voiced := len(c.Audio) > 0 && !a.keeper.Config().TextOnly
	if voiced && c.AudioRate != wire.OutputRate {
		voiced = false
		if !t.lost {
			t.lost = true
			a.audience.fail(CodeAudioProcessing,
				fmt.Sprintf("Gemini sent audio at %d Hz; only %d Hz can be played.", c.AudioRate, wire.OutputRate))
		}
	}
	if voiced && t.timing == nil {
		a.voice.whenHeard(func() {
			a.announceThinking(false)
			a.audience.notify(Speaking{number})
		})
	}
	if text != "" {
		a.sayText(number, text, c.Transcript)
	}
	if voiced {
		a.play(c)
	}
	until := t.voice
	a.transcript.AddAnswer(number, text, from, until)
	a.voice.AddMark(func(heard bool) { // not by whenHeard: one allocation a message
		if heard {
			a.transcript.SetPlayed(number, until)
		}
	})
}

// sayText passes the text of an answer on when its voice is heard. A client that asked a speaking model for text reads
// the transcript as its answer.
func (a *answer) sayText(number int, text string, raw []byte) {
	config := a.keeper.Config()
	if raw != nil && (config.TextOnly || config.TextToo) {
		raw = wire.TextTurn(text)
	}
	send := func() {
		if raw != nil {
			a.audience.notify(Raw{ServerContent: raw})
		}
		a.audience.notify(AssistantText{Turn: number, Text: text})
	}
	if config.TextOnly {
		send()
		return
	}
	a.voice.whenHeard(send)
}

// play hands audio to the playout clock.
func (a *answer) play(c *wire.ServerContent) {
	t := &a.turn
	write := a.voice.WritePCM
	if t.timing == nil {
		write = a.playFirst
	}
	if err := write(c.Audio); err != nil {
		if !t.lost {
			t.lost = true
			a.log.Warn("voice dropped", "err", err)
			a.audience.fail(CodeSpeakerStream, "Gemini speaks further ahead than can be kept; some of its voice was lost.")
		}
		return
	}
	t.voice += lengthOf(c.Audio)
	a.textOnlyAnswers = 0
}

// playFirst queues the first audio of an answer, and notes when its first frame is out. It takes the end of the
// question with it: what the model says next without being asked is no answer to it.
func (a *answer) playFirst(pcm []int16) error {
	t := &timing{asked: a.answered(), audio: time.Now()}
	a.turn.timing = t
	first := min(len(pcm), VoiceRate*int(media.FrameDuration/time.Millisecond)/1000)
	if err := a.voice.WritePCM(pcm[:first]); err != nil {
		return err
	}
	a.voice.whenHeard(func() { t.out.Store(max(1, int64(time.Since(t.audio)))) })
	return a.voice.WritePCM(pcm[first:])
}

// end ends the model's turn, which is complete.
func (a *answer) end() {
	t := &a.turn
	if !t.rejected { // else last is what was interrupted
		a.last = lastTurn{number: t.number, began: t.began, voice: t.voice, cut: t.wasCut()}
		if t.state == turnIdle {
			a.last.number = a.number
		}
		a.last.known = a.transcript.UserText(a.last.number) != ""
	}
	a.last.at = time.Now()
	if !t.wasCut() {
		a.finish(false)
	}
	if !t.counted {
		a.nextTurn()
	}
	a.prompts.ended(t.state == turnIdle)
	a.turn = turn{}
}

// breakOff ends a turn that was under way when the connection was lost: its end will not come.
func (a *answer) breakOff() {
	t := &a.turn
	a.working = false
	a.last.cut = true // nothing more comes of what was said on the connection
	a.prompts.open = a.prompts.open || t.asked
	if t.state == turnSpeaking || t.state == turnMade {
		a.finish(t.state == turnSpeaking)
	}
	if t.state != turnIdle && !t.counted {
		a.nextTurn()
	}
	*t = turn{}
}

// finish reports the end of the turn to the caller when all that has come of it is played. With lost, the rest will not
// come.
func (a *answer) finish(lost bool) {
	number, length, timing, began := a.turn.number, a.turn.voice, a.turn.timing, a.turn.began
	generation := a.voice.Generation()
	over := &atomic.Bool{}
	a.voice.finish(utterance{number, length, over})
	if number == 0 {
		number = a.number // it had nothing to say
	}
	otherwise := Cause("")
	if lost {
		otherwise = ByLink
	}
	a.voice.AddMark(func(heard bool) {
		over.Store(heard)
		a.observe(number, began, timing, a.measure(timing), a.voice.cause(heard, otherwise))
		switch {
		case !heard:
			a.transcript.MarkInterrupted(number, -1)
		case lost:
			kept := a.transcript.MarkInterrupted(number, length)
			a.finalText(number)
			a.audience.notify(Interrupted{
				Turn: number, By: ByLink, Generation: generation, Heard: kept.Content, Played: kept.Played,
			})
		default:
			a.transcript.MarkComplete(number)
			a.finalText(number)
			a.audience.notify(TurnComplete{number})
		}
		a.voice.signalPlayed()
	})
}

// nextTurn counts a turn.
func (a *answer) nextTurn() {
	a.number++
	a.keeper.RecordEvent()
}

// question is the number of the turn that begins with what the person says now.
func (a *answer) question() int {
	t := &a.turn
	if t.state != turnIdle && !t.counted && (t.wasCut() || t.spokenOver) {
		return a.number + 1
	}
	return a.number
}

// ask notes when the person ended a question. A model quicker than our own detector may have begun to answer it.
func (a *answer) ask(at time.Time) {
	a.calls.MarkAsked()
	a.said, a.stopped = false, false
	a.prompts.at = at
	if !a.repliedSince(at) {
		a.prompts.open = true
	}
	if a.turn.making() {
		a.turn.asked = true
	}
	if t := a.turn.timing; t == nil || t.audio.Before(at) {
		a.questions.add(at)
	}
}

// answered takes the question to which an answer begins now, and returns when the question ended; zero: none.
func (a *answer) answered() time.Time { return a.questions.answered(a.keeper.AnswerExpiry()) }

// interrupt cuts the answer off, if there is one, perhaps before the model knows. asking: words go to the model now. If
// it is still thinking, or writing text that has no voice yet, nothing is cut off: it answers them in that answer or the next.
func (a *answer) interrupt(by Cause, asking bool) {
	t := &a.turn
	silent := t.timing == nil || t.state != turnSpeaking
	if a.voice.QueuedDuration() > 0 || t.making() && !(asking && silent) {
		cut, behind := a.cut(by)
		a.audience.notify(cut)
		a.notifyDeferred(behind, t.state != turnIdle)
	}
}

// notifyDeferred sends what has waited behind voice that was cut off. As Google has it, an interrupted turn has no generationComplete, and
// one turnComplete behind the interruption: it still comes if a turn is under way.
func (a *answer) notifyDeferred(events []Body, underWay bool) {
	ended := underWay
	for i, b := range slices.Backward(events) {
		raw, ok := b.(Raw)
		if !ok || raw.Beside {
			continue
		}
		raw.ServerContent = withoutField(raw.ServerContent, "generationComplete")
		if ended {
			raw.ServerContent = withoutField(raw.ServerContent, "turnComplete")
		}
		ended = ended || hasField(raw.ServerContent, "turnComplete")
		events[i] = raw
	}
	for _, b := range events {
		if raw, ok := b.(Raw); !ok || raw.ServerContent != nil {
			a.audience.notify(b)
		}
	}
}

// cut ends the answer here. behind is what has waited behind voice that is not heard.
func (a *answer) cut(by Cause) (i Interrupted, behind []Body) {
	t := &a.turn
	playing, stopped := a.voice.QueuedDuration() > 0, a.hasStopped()
	a.voice.cutBy.Store(&by)
	flushed, behind := a.voice.dropVoice()
	if playing && by == ByVoice {
		a.observeBargeIn(flushed.FadeDelay)
	}
	a.voice.Duck(0)
	i = Interrupted{Turn: t.number, By: by, Generation: flushed.Generation}
	if number, ok := a.keepHeard(flushed.Unplayed); ok {
		kept := a.transcript.PlayedAnswer(number)
		i.Turn, i.Heard, i.Played = number, kept.Content, kept.Played
		a.finalText(number)
	}
	latency := a.measure(t.timing)
	if t.wanted() {
		a.observe(t.number, t.began, t.timing, latency, by)
	}
	t.timing = nil
	switch {
	case t.making() && !stopped:
		t.state = turnDropped
	case t.wanted(): // all of it has come: what follows answers something else
		t.state = turnCut
	}
	t.latest = time.Now()
	return i, behind
}

// keepHeard trims the turns in the playout to what was heard, and returns the oldest whose end the caller has not learned yet. A turn that
// is over may still be playing, with the next one queued behind it.
func (a *answer) keepHeard(unheard time.Duration) (number int, ok bool) {
	t := &a.turn
	turns := a.voice.finished
	if t.wanted() {
		turns = append(turns, utterance{turn: t.number, length: t.voice})
	}
	defer func() { a.voice.finished = a.voice.finished[:0] }()
	for i := len(turns) - 1; i >= 0; i-- {
		u := turns[i]
		growing := t.wanted() && i == len(turns)-1
		if !ok || !u.isOver() {
			number, ok = u.turn, true
		}
		switch {
		case unheard == 0 && !growing:
			return number, true
		case unheard < u.length || unheard == 0:
			a.transcript.MarkInterrupted(u.turn, u.length-unheard)
			return number, true
		}
		a.transcript.MarkInterrupted(u.turn, 0)
		unheard -= u.length
	}
	return number, false
}

// playing is the turn that is being played; 0: none.
func (a *answer) playing() int {
	return a.voice.playing(utterance{turn: a.turn.number, length: a.turn.voice})
}

// idle reports whether the model does nothing.
func (a *answer) idle() bool {
	t := &a.turn
	return !a.working && (t.state == turnIdle || t.wasCut() && time.Since(t.latest) >= stoppedTime)
}

// onSpeech notes that the person has begun to speak.
func (a *answer) onSpeech() {
	a.turn.spokenOver = a.turn.state != turnIdle
	a.prompts.open, a.prompts.pending = true, 0
	a.stopped = false
}

// announceThinking reports whether an answer is due, if that has changed.
func (a *answer) announceThinking(on bool) {
	if a.thinking.Swap(on) != on {
		a.audience.notify(Thinking{on})
	}
}

// finalQuestion sends all that the person has said in a turn.
func (a *answer) finalQuestion() {
	if turn := a.textTurn; turn > 0 {
		a.textTurn = 0
		a.audience.notify(UserText{Turn: turn, Text: a.transcript.UserText(turn), Final: true})
	}
}

// finalText sends all that was heard of a turn.
func (a *answer) finalText(number int) {
	if text := a.transcript.PlayedAnswer(number).Content; text != "" {
		a.audience.notify(AssistantText{Turn: number, Text: text, Final: true})
	}
}

// measure reports what was measured of a turn, once, and returns it.
func (a *answer) measure(t *timing) Latency {
	l, ok := t.latency(time.Duration(a.voice.roundTrip.Load()))
	if ok {
		a.latest.Store(int64(l.Total()))
		a.audience.notify(l)
	}
	return l
}

// observe reports a turn that is over.
func (a *answer) observe(number int, began time.Time, t *timing, l Latency, cut Cause) {
	if !a.observer.on() || began.IsZero() { // it had nothing to say
		return
	}
	if t != nil && !t.asked.IsZero() && t.asked.Before(began) {
		began = t.asked
	}
	a.observer.report(TurnEnd{Number: number, Began: began, Cut: cut, Latency: l})
}

// observeBargeIn reports a voice that was cut off; left is how much of it is still to be played.
func (a *answer) observeBargeIn(left time.Duration) {
	if a.observer.on() && (a.speaking() || a.turn.spokenOver) {
		a.observer.report(BargeIn{time.Since(a.up.SpeechStart()) + left})
	}
}

// history is the part of the conversation that a session does not know. What has no answer is left out: it is said
// again.
func (a *answer) history(fresh bool, limit int) []wire.Content {
	before := a.question() + 1
	if a.up.HasUnanswered() {
		before--
	}
	if fresh {
		return a.transcript.HistoryBefore(before, limit)
	}
	return a.transcript.HistoryBetween(a.known, before, limit)
}

// observeCall reports the end of a tool call.
func (a *answer) observeCall(e toolcalls.CallEnd) {
	if a.observer.on() {
		a.observer.report(CallEnd{e, a.number})
	}
}

// close drops the voice. It reports the turn in which the conversation ends.
func (a *answer) close() {
	by := ByEnd
	a.voice.cutBy.Store(&by)
	if t := &a.turn; t.wanted() {
		a.observe(t.number, t.began, t.timing, Latency{}, ByEnd)
	}
	a.voice.Close()
}

// cue plays a sound of the gateway's, unless the model's voice is still playing.
func (a *answer) cue(pcm []int16) {
	if a.quiet || a.keeper.Config().TextOnly || a.voice.QueuedDuration() > 0 {
		return
	}
	if err := a.voice.sound(pcm); err != nil {
		a.log.Warn("waiting sound dropped", "err", err)
	}
}

// typed keeps what was typed, and tells the watchers.
func (a *answer) typed(turn int, text string) {
	a.transcript.AddTypedText(turn, text)
	if text != "" {
		a.audience.tellWatchers(UserText{Turn: turn, Text: text, Final: true})
	}
}
