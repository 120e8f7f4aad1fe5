package bridge

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
	"voxgate/media"
)

// modelOutput tracks what the model says: its current turn, the unanswered questions, and what was played. It belongs
// to the session's loop. But the callbacks that it queues with the voice may run in any goroutine.
type modelOutput struct {
	outputOptions
	questions        questionEnds
	turn             turn
	lastTurn         lastTurn
	prompts          openPrompts
	turnNumber       int  // number of the current or next turn
	coveredTurn      int  // last turn that the newest handle covers
	openUserTextTurn int  // turn whose UserText is not final yet; 0 means none
	isWorking        bool // the model continues to think after its turn
	workRequested    bool // isWorking, and the person or a tool's result has requested it
	textOnlyAnswers  int  // consecutive answers with text but without voice, although the model should speak
	hasAnswered      bool // something was answered since the person's last request
	wasStopped       bool // the client stopped an answer that the model may continue, and nothing was asked since
	unheardTurn      int  // interrupted turn of which the model must be told what was heard; 0 means none
	wasRetracted     bool // the person still continues a question that counted as complete, so an answer that still comes is dropped

	latestLatency     atomic.Int64 // latency of the last answer, in ns, set by the voice's goroutine; 0 means not measured
	announcedThinking atomic.Bool  // the caller was informed that an answer is due
}

// outputOptions holds what a modelOutput needs of its session. All fields but noCues and suggestionsPage are required.
type outputOptions struct {
	subscribers *subscribers
	observer    observer
	log         *slog.Logger
	voice       *voice
	transcript  *transcript.Transcript
	uplink      *uplink.Uplink
	keeper      *upstream.Keeper
	calls       *toolcalls.Calls
	status      *callerStatus
	loop        *loopState

	noCues          bool                     // no sounds of the gateway for the caller
	suggestionsPage func(html string) string // creates a page of search suggestions; nil means the caller cannot show it
}

// turnState is the state of the model's turn.
//
//	idle ─> thinking ─> speaking ─> generated ┐
//	           │            │                 │ interrupted while the rest was played
//	           │            │                 v
//	           └────────────┴─> dropped ───> cut
//	          interrupted first   the model has ended it, too
//
// turnComplete, or a lost connection, leads from every state to idle. Output after cut belongs to a new turn.
type turnState int

const (
	turnIdle      turnState = iota // no answer in progress
	turnThinking                   // the model generates something that is not part of an answer yet
	turnSpeaking                   // the model generates an answer
	turnGenerated                  // fully generated; turnComplete has not come
	turnDropped                    // interrupted by the gateway before the model knew: the rest is dropped
	turnCut                        // interrupted, and no more output follows; its turnComplete is ignored
)

// turn is the model's current turn.
type turn struct {
	state           turnState
	number          int
	isNumberTaken   bool          // turnNumber has already advanced to the next turn
	spokenOver      bool          // the person has begun to speak during the turn
	hasAnswer       bool          // part of it was an answer, not a thought
	isRequested     bool          // it answers a question or a tool's result; otherwise the model speaks unasked
	selfInterrupted bool          // the model itself reported the interruption
	hasSpeech       bool          // part of it has a voice, or a transcript of one
	hasVoiceLoss    bool          // some of its voice was not played
	voiceLength     time.Duration // generated so far
	timing          *turnTiming   // nil before its first audio
	startedAt       time.Time     // when its first message came
	latestAt        time.Time     // when its last message came, or when it was interrupted
}

// isGenerating reports whether the model is generating a turn that was not interrupted.
func (t *turn) isGenerating() bool { return t.state == turnThinking || t.state == turnSpeaking }

// isActive reports whether the turn is in progress and was not interrupted.
func (t *turn) isActive() bool { return t.isGenerating() || t.state == turnGenerated }

// isCut reports whether the turn was interrupted.
func (t *turn) isCut() bool { return t.state == turnDropped || t.state == turnCut }

// handleContent plays the model's output and forwards everything else; the caller of handleContent then ends the turn
// if it is complete. An interruption is processed before the rest of its message, because audio in that message belongs
// to the interrupted answer.
func (a *modelOutput) handleContent(c *wire.ServerContent) {
	t := &a.turn
	if c.Interrupted {
		a.onInterrupted()
	}
	if c.Fields != nil {
		a.voice.notifyInOrder(a.subscribers, RawServerContent{ServerContent: c.Fields})
	}
	if c.InputTranscription != "" {
		a.onTranscript(c.InputTranscription)
	}
	if raw := c.Transcript; raw != nil && c.OutputTranscription == "" { // e.g. "finished": must follow the text, which waits for its voice
		a.voice.AddMark(func(bool) {
			if b := (RawServerContent{ServerContent: raw}); !a.voice.deferEvent(b) {
				a.subscribers.notify(b)
			}
		})
	}
	switch {
	case t.state == turnDropped:
		t.latestAt = time.Now()
	case a.isLate(c):
		a.addLate(c)
	default:
		a.onAnswer(c)
	}
	if c.Grounding != nil {
		a.voice.notifyInOrder(a.subscribers, a.groundingEvent(c))
	}
	if c.Interrupted || c.GenerationComplete || c.TurnComplete {
		switch {
		case t.state == turnDropped:
			t.state = turnCut
		case t.isGenerating():
			t.state = turnGenerated
		}
	}
	if c.Interaction != "" {
		a.isWorking, a.workRequested = c.Interaction == wire.InProgress, t.isRequested || a.hasRequest()
	}
}

// onInterrupted ends the answer because the model reported an interruption.
func (a *modelOutput) onInterrupted() {
	t := &a.turn
	byVoice := a.loop.user.isSpeaking || t.spokenOver
	a.lastTurn = lastTurn{number: t.number, endedAt: time.Now(), startedAt: t.startedAt, wasCut: true}
	if !t.isCut() {
		something := t.state != turnIdle || a.voice.QueuedDuration() > 0
		cut, behind := a.cutOff(a.interruptionCause(byVoice))
		if something {
			a.subscribers.notify(cut)
		}
		a.notifyDeferred(behind, true)
	}
	if !t.isNumberTaken && t.state != turnIdle {
		a.advanceTurn()
	}
	if !byVoice { // typed text has interrupted the answer to something else
		a.uplink.ReopenTypedText()
	}
	a.prompts.onInterrupted()
	*t = turn{state: turnDropped, isNumberTaken: true, number: t.number, selfInterrupted: true, latestAt: time.Now()} // turnComplete follows
}

// interruptionCause returns what has probably interrupted the model, which does not report the cause: unanswered text,
// unless the person has spoken.
func (a *modelOutput) interruptionCause(byVoice bool) Cause {
	if a.prompts.pendingCount > 0 && !byVoice {
		return a.prompts.newestCause
	}
	return ByVoice
}

// groundingEvent returns the metadata of a search. Google's terms require its suggestions to be shown unchanged
// (https://ai.google.dev/gemini-api/docs/google-search, Search Suggestions). They are untrusted HTML, so they are shown
// in a page of their own.
func (a *modelOutput) groundingEvent(c *wire.ServerContent) Grounding {
	g := Grounding{Metadata: c.Grounding}
	if c.Suggestions != "" && a.suggestionsPage != nil {
		g.SuggestionsPage = a.suggestionsPage(c.Suggestions)
	}
	return g
}

// onAnswer handles the part of a message that belongs to an active answer.
func (a *modelOutput) onAnswer(c *wire.ServerContent) {
	if len(c.Audio) == 0 && !c.HasText && !c.HasThought && c.OutputTranscription == "" {
		return
	}
	t := &a.turn
	if !t.isGenerating() {
		if t.isCut() { // an interrupted turn is over, even if the model still sends parts of it
			if !t.isNumberTaken {
				a.advanceTurn()
			}
			*t = turn{}
		}
		t.number, t.startedAt, t.isRequested = a.turnNumber, time.Now(), a.hasRequest()
		if a.wasStopped && !t.isRequested || a.wasRetracted {
			t.state, t.latestAt = turnDropped, time.Now()
			return
		}
		t.state = turnThinking
		a.prompts.takePrompt()
	}
	t.latestAt = time.Now()
	if c.Thoughts != "" {
		a.voice.notifyInOrder(a.subscribers, Thought{Turn: t.number, Text: c.Thoughts})
	}
	text, spoken := c.OutputTranscription, len(c.Audio) > 0 || c.OutputTranscription != ""
	if !spoken {
		text = c.Text
	}
	t.hasSpeech = t.hasSpeech || spoken
	if t.hasAnswer {
		t.state = turnSpeaking
	}
	if !spoken && !c.HasText {
		return
	}
	t.state = turnSpeaking
	if !t.hasAnswer {
		t.hasAnswer, a.hasAnswered = true, true
		a.keeper.OnAnswer()
		a.calls.MarkSpoken()
		a.loop.awaitsGoodbye = false
		a.status.setApology(false)
		a.sendFinalUserText()
		if a.loop.isUnheard() || a.keeper.Config().TextOnly {
			a.takeQuestion()
		}
	}
	if a.loop.isUnheard() {
		t.state = turnDropped
		return
	}
	a.playAnswer(c, text)
}

// playAnswer plays the voice of an answer in real time, and sends its text while the voice is played.
func (a *modelOutput) playAnswer(c *wire.ServerContent, text string) {
	t := &a.turn
	number, from := t.number, t.voiceLength
	voiced := len(c.Audio) > 0 && !a.keeper.Config().TextOnly
	if voiced && c.AudioRate != wire.OutputRate {
		voiced = false
		if !t.hasVoiceLoss {
			t.hasVoiceLoss = true
			a.subscribers.reportError(CodeAudioProcessing,
				fmt.Sprintf("Gemini sent audio at %d Hz; only %d Hz can be played.", c.AudioRate, wire.OutputRate))
		}
	}
	if voiced && t.timing == nil {
		a.voice.whenPlayed(func() {
			a.voice.isAnswering.Store(true)
			a.announceThinking(false)
			a.subscribers.notify(Speaking{number})
		})
	}
	if text != "" {
		a.sendAnswerText(number, text, c.Transcript)
	}
	if voiced {
		a.playVoice(c)
	}
	until := t.voiceLength
	a.transcript.AddAnswer(number, text, from, until)
	a.voice.AddMark(func(heard bool) { // not with whenPlayed, which would need another allocation per message
		if heard {
			a.transcript.SetPlayed(number, until)
		}
	})
}

// sendAnswerText sends the text of an answer when its voice is played. A client that asked a speaking model for text
// gets the transcript as its answer.
func (a *modelOutput) sendAnswerText(number int, text string, raw []byte) {
	config := a.keeper.Config()
	if raw != nil && (config.TextOnly || config.TextToo) {
		raw = wire.TextTurn(text)
	}
	send := func() {
		if raw != nil {
			a.subscribers.notify(RawServerContent{ServerContent: raw})
		}
		a.subscribers.notify(AssistantText{Turn: number, Text: text})
	}
	if config.TextOnly {
		send()
		return
	}
	a.voice.whenPlayed(send)
}

// playVoice passes audio to the playout clock.
func (a *modelOutput) playVoice(c *wire.ServerContent) {
	t := &a.turn
	write := a.voice.WritePCM
	if t.timing == nil {
		write = a.playFirstAudio
	}
	if err := write(c.Audio); err != nil {
		if !t.hasVoiceLoss {
			t.hasVoiceLoss = true
			a.log.Warn("voice dropped", "err", err)
			a.subscribers.reportError(CodeSpeakerStream, "Gemini speaks further ahead than can be kept; some of its voice was lost.")
		}
		return
	}
	t.voiceLength += voiceDuration(c.Audio)
	a.textOnlyAnswers = 0
}

// playFirstAudio queues the first audio of an answer, and records when its first frame is out. It also removes the
// question, so that later unasked output does not count as its answer.
func (a *modelOutput) playFirstAudio(pcm []int16) error {
	t := &turnTiming{questionEnd: a.takeQuestion(), firstAudio: time.Now()}
	a.turn.timing = t
	first := min(len(pcm), VoiceRate*int(media.FrameDuration/time.Millisecond)/1000)
	if err := a.voice.WritePCM(pcm[:first]); err != nil {
		return err
	}
	a.voice.whenPlayed(func() { t.firstFrameDelay.Store(max(1, int64(time.Since(t.firstAudio)))) })
	return a.voice.WritePCM(pcm[first:])
}

// endTurn ends the model's complete turn.
func (a *modelOutput) endTurn() {
	t := &a.turn
	if !t.selfInterrupted { // otherwise lastTurn already describes this turn, which was interrupted
		a.lastTurn = lastTurn{number: t.number, startedAt: t.startedAt, voiceLength: t.voiceLength, wasCut: t.isCut()}
		if t.state == turnIdle {
			a.lastTurn.number = a.turnNumber
		}
		a.lastTurn.hasQuestionText = a.transcript.UserText(a.lastTurn.number) != ""
	}
	a.lastTurn.endedAt = time.Now()
	if !t.isCut() {
		a.finishTurn(false)
	}
	if !t.isNumberTaken {
		a.advanceTurn()
	}
	a.prompts.onTurnEnd(t.state == turnIdle)
	a.turn = turn{}
	a.sendUnheardNote()
}

// abortTurn ends the turn in progress when the connection was lost, because the model will not send its end.
func (a *modelOutput) abortTurn() {
	t := &a.turn
	a.unheardTurn = 0 // the next session's history has what was heard
	a.isWorking = false
	a.lastTurn.wasCut = true // nothing more of the last turn will come
	a.prompts.isOpen = a.prompts.isOpen || t.isRequested
	if t.state == turnSpeaking || t.state == turnGenerated {
		a.finishTurn(t.state == turnSpeaking)
	}
	if t.state != turnIdle && !t.isNumberTaken {
		a.advanceTurn()
	}
	*t = turn{}
}

// finishTurn reports the end of the turn to the caller once everything received of the turn has been played. lost means
// that the rest of the turn will not come.
func (a *modelOutput) finishTurn(lost bool) {
	number, length, timing, began := a.turn.number, a.turn.voiceLength, a.turn.timing, a.turn.startedAt
	generation := a.voice.Generation()
	endReported := &atomic.Bool{}
	a.voice.addFinished(utterance{number, length, endReported})
	if number == 0 {
		number = a.turnNumber // it was empty
	}
	otherwise := Cause("")
	if lost {
		otherwise = ByConnectionLoss
	}
	a.voice.AddMark(func(heard bool) {
		a.voice.isAnswering.Store(false)
		endReported.Store(heard)
		a.reportTurnEnd(number, began, timing, a.reportLatency(timing), a.voice.cutCauseOr(heard, otherwise))
		switch {
		case !heard:
			a.transcript.MarkInterrupted(number, -1)
		case lost:
			kept := a.transcript.MarkInterrupted(number, length)
			a.sendFinalAnswerText(number)
			a.subscribers.notify(Interrupted{
				Turn: number, By: ByConnectionLoss, Generation: generation, PlayedText: kept.Content, Played: kept.Played,
			})
		default:
			a.transcript.MarkComplete(number)
			a.sendFinalAnswerText(number)
			a.subscribers.notify(TurnComplete{number})
		}
		a.voice.signalPlayed()
	})
}

// advanceTurn starts the next turn number.
func (a *modelOutput) advanceTurn() {
	a.turnNumber++
	a.keeper.RecordEvent()
}

// questionTurn returns the number of the turn that begins with the person's next words.
func (a *modelOutput) questionTurn() int {
	t := &a.turn
	if t.state != turnIdle && !t.isNumberTaken && (t.isCut() || t.spokenOver) {
		return a.turnNumber + 1
	}
	return a.turnNumber
}

// recordQuestion records when the person ended a question. The model may have detected the end sooner, and have begun
// to answer.
func (a *modelOutput) recordQuestion(at time.Time) {
	a.calls.MarkAsked()
	a.hasAnswered, a.wasStopped = false, false
	a.prompts.questionEndedAt = at
	if !a.hasRepliedSince(at) {
		a.prompts.isOpen = true
	}
	if a.turn.isGenerating() {
		a.turn.isRequested = true
	}
	if t := a.turn.timing; t == nil || t.firstAudio.Before(at) {
		a.questions.addQuestion(at)
	}
}

// takeQuestion removes the question that is answered from now on, and returns its end, or zero if there is none.
func (a *modelOutput) takeQuestion() time.Time { return a.questions.takeNext(a.keeper.AnswerExpiry()) }

// interrupt interrupts the answer, if there is one, perhaps before the model detects the interruption. asking means
// that text is sent to the model now. Then an answer that has no voice yet is not interrupted: this answer or the next
// one covers the text.
func (a *modelOutput) interrupt(by Cause, asking bool) {
	t := &a.turn
	silent := t.timing == nil || t.state != turnSpeaking
	if a.voice.QueuedDuration() > 0 || t.isGenerating() && !(asking && silent) {
		cut, behind := a.cutOff(by)
		a.subscribers.notify(cut)
		a.notifyDeferred(behind, t.state != turnIdle)
	}
	if !asking { // otherwise the note is sent together with the text
		a.sendUnheardNote()
	}
}

// retractQuestion drops the answer to a question that the person continues. Nothing of this answer was heard.
func (a *modelOutput) retractQuestion() {
	a.interrupt(ByVoice, false)
	a.wasRetracted = true
}

// notifyDeferred sends the events that were queued behind voice that was then interrupted. As with Google's servers, an
// interrupted turn has no generationComplete, and one turnComplete after the interruption. underWay means that a turn
// is in progress whose turnComplete is still to come.
func (a *modelOutput) notifyDeferred(events []EventBody, underWay bool) {
	hasEnded := underWay
	for i, b := range slices.Backward(events) {
		raw, ok := b.(RawServerContent)
		if !ok || raw.TopLevel {
			continue
		}
		raw.ServerContent = withoutField(raw.ServerContent, "generationComplete")
		if hasEnded {
			raw.ServerContent = withoutField(raw.ServerContent, "turnComplete")
		}
		hasEnded = hasEnded || hasField(raw.ServerContent, "turnComplete")
		events[i] = raw
	}
	for _, b := range events {
		if raw, ok := b.(RawServerContent); !ok || raw.ServerContent != nil {
			a.subscribers.notify(b)
		}
	}
}

// cutOff interrupts the answer in the gateway, perhaps before the model detects the interruption. It also returns the
// events that were queued behind the dropped voice.
func (a *modelOutput) cutOff(by Cause) (i Interrupted, behind []EventBody) {
	t := &a.turn
	playing, stopped := a.voice.QueuedDuration() > 0, a.hasStopped()
	a.voice.cutCause.Store(&by)
	flushed, behind := a.voice.dropVoice()
	a.voice.isAnswering.Store(false)
	if playing && by == ByVoice {
		a.reportBargeIn(flushed.FadeDelay)
	}
	a.voice.Duck(0)
	i = Interrupted{Turn: t.number, By: by, Generation: flushed.Generation}
	if number, ok := a.trimToPlayed(flushed.Unplayed); ok {
		kept := a.transcript.PlayedAnswer(number)
		i.Turn, i.PlayedText, i.Played = number, kept.Content, kept.Played
		a.sendFinalAnswerText(number)
	}
	latency := a.reportLatency(t.timing)
	if t.isActive() {
		a.reportTurnEnd(t.number, t.startedAt, t.timing, latency, by)
	}
	t.timing = nil
	switch {
	case t.isGenerating() && !stopped:
		t.state = turnDropped
	case t.isActive(): // the whole answer was received, so later output answers something else
		t.state = turnCut
	}
	t.latestAt = time.Now()
	a.recordUnheard(i, flushed.Unplayed)
	return i, behind
}

// trimToPlayed marks the turns in the playout as interrupted in the transcript, which keeps the part that was played.
// It returns the oldest turn whose end was not reported to the caller. A finished turn may still be playing, with the
// next one queued behind it.
func (a *modelOutput) trimToPlayed(unheard time.Duration) (number int, ok bool) {
	t := &a.turn
	turns := a.voice.finishedTurns
	if t.isActive() {
		turns = append(turns, utterance{turn: t.number, length: t.voiceLength})
	}
	defer func() { a.voice.finishedTurns = a.voice.finishedTurns[:0] }()
	for i := len(turns) - 1; i >= 0; i-- {
		u := turns[i]
		growing := t.isActive() && i == len(turns)-1
		if !ok || !u.isEndReported() {
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

// playingTurn returns the turn that is being played, or 0.
func (a *modelOutput) playingTurn() int {
	return a.voice.playingTurn(utterance{turn: a.turn.number, length: a.turn.voiceLength})
}

// isIdle reports whether the model is idle.
func (a *modelOutput) isIdle() bool {
	t := &a.turn
	return !a.isWorking && (t.state == turnIdle || t.isCut() && time.Since(t.latestAt) >= stoppedAfter)
}

// onSpeech records that the person has begun to speak.
func (a *modelOutput) onSpeech() {
	a.turn.spokenOver = a.turn.state != turnIdle
	a.prompts.isOpen, a.prompts.pendingCount = true, 0
	a.wasStopped = false
}

// announceThinking notifies the caller when an answer becomes due or is no longer due.
func (a *modelOutput) announceThinking(on bool) {
	if a.announcedThinking.Swap(on) != on {
		a.subscribers.notify(Thinking{on})
	}
}

// sendFinalUserText sends everything that the person said in a turn.
func (a *modelOutput) sendFinalUserText() {
	if turn := a.openUserTextTurn; turn > 0 {
		a.openUserTextTurn = 0
		a.subscribers.notify(UserText{Turn: turn, Text: a.transcript.UserText(turn), Final: true})
	}
}

// sendFinalAnswerText sends everything that was played of a turn.
func (a *modelOutput) sendFinalAnswerText(number int) {
	if text := a.transcript.PlayedAnswer(number).Content; text != "" {
		a.subscribers.notify(AssistantText{Turn: number, Text: text, Final: true})
	}
}

// reportLatency reports the measured latency of a turn, once, and returns it.
func (a *modelOutput) reportLatency(t *turnTiming) Latency {
	l, ok := t.takeLatency(time.Duration(a.voice.roundTrip.Load()))
	if ok {
		a.latestLatency.Store(int64(l.Total()))
		a.subscribers.notify(l)
	}
	return l
}

// reportTurnEnd reports an ended turn to the observer.
func (a *modelOutput) reportTurnEnd(number int, began time.Time, t *turnTiming, l Latency, cut Cause) {
	if !a.observer.isEnabled() || began.IsZero() { // it was empty
		return
	}
	if t != nil && !t.questionEnd.IsZero() && t.questionEnd.Before(began) {
		began = t.questionEnd
	}
	a.observer.report(TurnEnd{Number: number, StartedAt: began, InterruptedBy: cut, Latency: l})
}

// reportBargeIn reports an interruption by the person's voice; left is the length of the voice that was still to be
// played.
func (a *modelOutput) reportBargeIn(left time.Duration) {
	if a.observer.isEnabled() && (a.loop.user.isSpeaking || a.turn.spokenOver) {
		a.observer.report(BargeIn{time.Since(a.uplink.SpeechStart()) + left})
	}
}

// buildHistory returns the part of the conversation that a new session of the model does not know. Unanswered input is
// omitted, because it is sent again.
func (a *modelOutput) buildHistory(fresh bool, limit int) []wire.Content {
	before := a.questionTurn() + 1
	if a.uplink.HasUnanswered() {
		before--
	}
	if fresh {
		return a.transcript.HistoryBefore(before, limit)
	}
	return a.transcript.HistoryBetween(a.coveredTurn, before, limit)
}

// reportCallEnd reports the end of a tool call.
func (a *modelOutput) reportCallEnd(e toolcalls.CallEnd) {
	if a.observer.isEnabled() {
		a.observer.report(CallEnd{e, a.turnNumber})
	}
}

// close drops the voice that is still queued, and reports the turn in which the conversation ends.
func (a *modelOutput) close() {
	by := ByEnd
	a.voice.cutCause.Store(&by)
	if t := &a.turn; t.isActive() {
		a.reportTurnEnd(t.number, t.startedAt, t.timing, Latency{}, ByEnd)
	}
	a.voice.Close()
}

// playCue plays a sound of the gateway, unless the model's voice is still playing.
func (a *modelOutput) playCue(pcm []int16) {
	if a.noCues || a.keeper.Config().TextOnly || a.voice.QueuedDuration() > 0 {
		return
	}
	if err := a.voice.playSound(pcm); err != nil {
		a.log.Warn("waiting sound dropped", "err", err)
	}
}

// recordTypedText records typed text, and sends it to the watchers.
func (a *modelOutput) recordTypedText(turn int, text string) {
	a.transcript.AddTypedText(turn, text)
	if text != "" {
		a.subscribers.notifyWatchersOnly(UserText{Turn: turn, Text: text, Final: true})
	}
}
