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

// modelOutput tracks what the model says, and how much of it was played. It belongs to the session's loop. Only the
// callbacks that it adds to the voice may run in other goroutines.
type modelOutput struct {
	outputOptions
	questions        questionEnds
	turn             turn
	lastTurn         lastTurn
	prompts          openPrompts
	turnNumber       int  // number of the current or next turn
	coveredTurn      int  // last turn that the newest resumption handle covers
	openUserTextTurn int  // turn whose UserText is not final yet; 0 means none
	isWorking        bool // the model continues to think after its turn
	workRequested    bool // while isWorking: the person or a tool's result has requested what the model works on
	textOnlyAnswers  int  // consecutive answers with text but without voice, although the model should speak
	hasAnswered      bool // an answer has begun since the person's last question
	wasStopped       bool // the client stopped an answer that the model may continue, and nothing was asked since
	unheardTurn      int  // interrupted turn for which the model still needs a note about the part that was played; 0 means none
	wasRetracted     bool // the person still continues a question that counted as complete, so an answer that still comes is dropped

	latestLatency     atomic.Int64 // latency of the last answer, in ns, set by the voice's goroutine; 0 means not measured
	announcedThinking atomic.Bool  // the caller was informed that an answer is due
}

// outputOptions holds the parts of the session that a modelOutput needs. All fields except noCues and suggestionsPage
// are required.
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
	turnThinking                   // the model generates thoughts, and no answer yet
	turnSpeaking                   // the model generates an answer
	turnGenerated                  // the answer is fully generated, but its turnComplete has not come
	turnDropped                    // interrupted before the model has ended it: the output that still comes is dropped
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
	voiceLength     time.Duration // length of the voice generated so far
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

// handleContent plays the voice in a message of the model, and forwards everything else to the caller. If the message
// completes the turn, the caller of handleContent ends the turn.
func (m *modelOutput) handleContent(c *wire.ServerContent) {
	t := &m.turn
	// The interruption is handled first, because audio in the same message belongs to the interrupted answer.
	if c.Interrupted {
		m.onInterrupted()
	}
	if c.Fields != nil {
		m.voice.notifyInOrder(m.subscribers, RawServerContent{ServerContent: c.Fields})
	}
	if c.InputTranscription != "" {
		m.addUserTranscript(c.InputTranscription)
	}
	if raw := c.Transcript; raw != nil && c.OutputTranscription == "" { // e.g. "finished": must come after the text, sent with its voice
		m.voice.AddMark(func(bool) {
			if b := (RawServerContent{ServerContent: raw}); !m.voice.deferEvent(b) {
				m.subscribers.notify(b)
			}
		})
	}
	switch {
	case t.state == turnDropped:
		t.latestAt = time.Now()
	case m.belongsToEndedTurn(c):
		m.addToEndedTurn(c)
	default:
		m.onAnswer(c)
	}
	if c.Grounding != nil {
		m.voice.notifyInOrder(m.subscribers, m.groundingEvent(c))
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
		m.isWorking, m.workRequested = c.Interaction == wire.InProgress, t.isRequested || m.hasRequest()
	}
}

// onInterrupted ends the answer because the model reported an interruption.
func (m *modelOutput) onInterrupted() {
	t := &m.turn
	byVoice := m.loop.user.isSpeaking || t.spokenOver
	m.lastTurn = lastTurn{number: t.number, endedAt: time.Now(), startedAt: t.startedAt, wasCut: true}
	if !t.isCut() {
		something := t.state != turnIdle || m.voice.QueuedDuration() > 0
		cut, behind := m.cutOff(m.interruptionCause(byVoice))
		if something {
			m.subscribers.notify(cut)
		}
		m.notifyDeferred(behind, true)
	}
	if !t.isNumberTaken && t.state != turnIdle {
		m.advanceTurn()
	}
	if !byVoice { // the typed text that has interrupted this answer is still to be answered
		m.uplink.MarkTypedTextUnanswered()
	}
	m.prompts.onInterrupted()
	*t = turn{state: turnDropped, isNumberTaken: true, number: t.number, selfInterrupted: true, latestAt: time.Now()} // turnComplete follows
}

// interruptionCause returns the probable cause of an interruption, which the model does not report. byVoice means that
// the person has spoken. If not, text that the model has not answered is the cause.
func (m *modelOutput) interruptionCause(byVoice bool) Cause {
	if m.prompts.pendingCount > 0 && !byVoice {
		return m.prompts.newestCause
	}
	return ByVoice
}

// groundingEvent returns the event with the metadata of a search.
func (m *modelOutput) groundingEvent(c *wire.ServerContent) Grounding {
	g := Grounding{Metadata: c.Grounding}
	// Google's terms require that the search suggestions are shown unchanged
	// (https://ai.google.dev/gemini-api/docs/google-search, Search Suggestions). They are untrusted HTML, so they are
	// shown on a page of their own.
	if c.Suggestions != "" && m.suggestionsPage != nil {
		g.SuggestionsPage = m.suggestionsPage(c.Suggestions)
	}
	return g
}

// onAnswer handles a message that belongs to the current answer or begins a new one.
func (m *modelOutput) onAnswer(c *wire.ServerContent) {
	if len(c.Audio) == 0 && !c.HasText && !c.HasThought && c.OutputTranscription == "" {
		return
	}
	t := &m.turn
	if !t.isGenerating() {
		if t.isCut() { // an interrupted turn is over, even if the model still sends parts of it
			if !t.isNumberTaken {
				m.advanceTurn()
			}
			*t = turn{}
		}
		t.number, t.startedAt, t.isRequested = m.turnNumber, time.Now(), m.hasRequest()
		if m.wasStopped && !t.isRequested || m.wasRetracted {
			t.state, t.latestAt = turnDropped, time.Now()
			return
		}
		t.state = turnThinking
		m.prompts.takePrompt()
	}
	t.latestAt = time.Now()
	if c.Thoughts != "" {
		m.voice.notifyInOrder(m.subscribers, Thought{Turn: t.number, Text: c.Thoughts})
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
		t.hasAnswer, m.hasAnswered = true, true
		m.keeper.OnAnswer()
		m.calls.MarkModelSpoke()
		m.loop.awaitsGoodbye = false
		m.status.setApology(false)
		m.sendFinalUserText()
		if m.loop.isUnheard() || m.keeper.Config().TextOnly {
			m.takeQuestionEnd()
		}
	}
	if m.loop.isUnheard() {
		t.state = turnDropped
		return
	}
	m.playAnswer(c, text)
}

// playAnswer plays the voice of an answer in real time, and sends its text while the voice is played.
func (m *modelOutput) playAnswer(c *wire.ServerContent, text string) {
	t := &m.turn
	number, from := t.number, t.voiceLength
	voiced := len(c.Audio) > 0 && !m.keeper.Config().TextOnly
	if voiced && c.AudioRate != wire.OutputRate {
		voiced = false
		if !t.hasVoiceLoss {
			t.hasVoiceLoss = true
			m.subscribers.reportError(CodeAudioProcessing,
				fmt.Sprintf("Gemini sent audio at %d Hz; only %d Hz can be played.", c.AudioRate, wire.OutputRate))
		}
	}
	if voiced && t.timing == nil {
		m.voice.whenPlayed(func() {
			m.voice.isAnswering.Store(true)
			m.announceThinking(false)
			m.subscribers.notify(Speaking{number})
		})
	}
	if text != "" {
		m.sendAnswerText(number, text, c.Transcript)
	}
	if voiced {
		m.playVoice(c)
	}
	until := t.voiceLength
	m.transcript.AddAnswer(number, text, from, until)
	m.voice.AddMark(func(heard bool) { // not with whenPlayed, which would need another allocation per message
		if heard {
			m.transcript.SetPlayed(number, until)
		}
	})
}

// sendAnswerText sends the text of an answer when its voice is played. raw is Gemini's own object with the text, or
// nil. If the client has requested text from a model that only speaks, it gets the transcript instead.
func (m *modelOutput) sendAnswerText(number int, text string, raw []byte) {
	config := m.keeper.Config()
	if raw != nil && (config.TextOnly || config.TextToo) {
		raw = wire.ServerTextContent(text)
	}
	send := func() {
		if raw != nil {
			m.subscribers.notify(RawServerContent{ServerContent: raw})
		}
		m.subscribers.notify(AssistantText{Turn: number, Text: text})
	}
	if config.TextOnly {
		send()
		return
	}
	m.voice.whenPlayed(send)
}

// playVoice passes audio to the playout.
func (m *modelOutput) playVoice(c *wire.ServerContent) {
	t := &m.turn
	write := m.voice.WritePCM
	if t.timing == nil {
		write = m.playFirstAudio
	}
	if err := write(c.Audio); err != nil {
		if !t.hasVoiceLoss {
			t.hasVoiceLoss = true
			m.log.Warn("voice dropped", "err", err)
			m.subscribers.reportError(CodeSpeakerStream, "Gemini speaks further ahead than can be kept; some of its voice was lost.")
		}
		return
	}
	t.voiceLength += voiceDuration(c.Audio)
	m.textOnlyAnswers = 0
}

// playFirstAudio queues the first audio of an answer. It also records when the first frame of that audio is sent.
func (m *modelOutput) playFirstAudio(pcm []int16) error {
	// The question is taken, so that later output that answers nothing does not count as its answer.
	t := &turnTiming{questionEnd: m.takeQuestionEnd(), firstAudio: time.Now()}
	m.turn.timing = t
	first := min(len(pcm), VoiceRate*int(media.FrameDuration/time.Millisecond)/1000)
	if err := m.voice.WritePCM(pcm[:first]); err != nil {
		return err
	}
	m.voice.whenPlayed(func() { t.firstFrameDelay.Store(max(1, int64(time.Since(t.firstAudio)))) })
	return m.voice.WritePCM(pcm[first:])
}

// endTurn handles the end of a turn that the model has completed.
func (m *modelOutput) endTurn() {
	t := &m.turn
	if !t.selfInterrupted { // otherwise lastTurn already describes this turn, which was interrupted
		m.lastTurn = lastTurn{number: t.number, startedAt: t.startedAt, voiceLength: t.voiceLength, wasCut: t.isCut()}
		if t.state == turnIdle {
			m.lastTurn.number = m.turnNumber
		}
		m.lastTurn.hasQuestionText = m.transcript.UserText(m.lastTurn.number) != ""
	}
	m.lastTurn.endedAt = time.Now()
	if !t.isCut() {
		m.finishTurn(false)
	}
	if !t.isNumberTaken {
		m.advanceTurn()
	}
	m.prompts.onTurnEnd(t.state == turnIdle)
	m.turn = turn{}
	m.sendUnheardNote()
}

// abortTurn ends the turn in progress after the connection was lost, because the model will not send the end of the
// turn.
func (m *modelOutput) abortTurn() {
	t := &m.turn
	m.unheardTurn = 0 // no note is needed: the history for the next session contains what was heard
	m.isWorking = false
	m.lastTurn.wasCut = true // nothing more of the last turn will come
	m.prompts.isOpen = m.prompts.isOpen || t.isRequested
	if t.state == turnSpeaking || t.state == turnGenerated {
		m.finishTurn(t.state == turnSpeaking)
	}
	if t.state != turnIdle && !t.isNumberTaken {
		m.advanceTurn()
	}
	*t = turn{}
}

// finishTurn arranges for the end of the turn to be reported once all of the turn has been played. isConnectionLost
// means that the rest of the turn will not come.
func (m *modelOutput) finishTurn(isConnectionLost bool) {
	number, length, timing, began := m.turn.number, m.turn.voiceLength, m.turn.timing, m.turn.startedAt
	generation := m.voice.Generation()
	endReported := &atomic.Bool{}
	m.voice.addFinished(utterance{number, length, endReported})
	if number == 0 {
		number = m.turnNumber // the turn was empty
	}
	otherwise := Cause("")
	if isConnectionLost {
		otherwise = ByConnectionLoss
	}
	m.voice.AddMark(func(heard bool) {
		m.voice.isAnswering.Store(false)
		endReported.Store(heard)
		m.reportTurnEnd(number, began, timing, m.reportLatency(timing), m.voice.cutCauseOr(heard, otherwise))
		switch {
		case !heard:
			m.transcript.MarkInterrupted(number, -1)
		case isConnectionLost:
			kept := m.transcript.MarkInterrupted(number, length)
			m.sendFinalAnswerText(number)
			m.subscribers.notify(Interrupted{
				Turn: number, By: ByConnectionLoss, Generation: generation, PlayedText: kept.Content, Played: kept.Played,
			})
		default:
			m.transcript.MarkComplete(number)
			m.sendFinalAnswerText(number)
			m.subscribers.notify(TurnComplete{number})
		}
		m.voice.signalPlayed()
	})
}

// advanceTurn increases the turn number.
func (m *modelOutput) advanceTurn() {
	m.turnNumber++
	m.keeper.RecordEvent()
}

// questionTurn returns the number of the turn to which the person's next words belong.
func (m *modelOutput) questionTurn() int {
	t := &m.turn
	if t.state != turnIdle && !t.isNumberTaken && (t.isCut() || t.spokenOver) {
		return m.turnNumber + 1
	}
	return m.turnNumber
}

// recordQuestionEnd records when the person ended a question. The model may have detected the end earlier than the
// gateway, and may already be answering.
func (m *modelOutput) recordQuestionEnd(at time.Time) {
	m.calls.MarkPersonAsked()
	m.hasAnswered, m.wasStopped = false, false
	m.prompts.questionEndedAt = at
	if !m.hasRepliedSince(at) {
		m.prompts.isOpen = true
	}
	if m.turn.isGenerating() {
		m.turn.isRequested = true
	}
	if t := m.turn.timing; t == nil || t.firstAudio.Before(at) {
		m.questions.addEnd(at)
	}
}

// takeQuestionEnd removes the question that is answered by the answer beginning now. It returns when that question
// ended, or zero.
func (m *modelOutput) takeQuestionEnd() time.Time {
	return m.questions.takeNext(m.keeper.AnswerExpiry())
}

// interrupt interrupts the answer, if there is one. It is called even if the model does not know of the interruption
// yet. sendsText means that text is being sent to the model.
func (m *modelOutput) interrupt(cause Cause, sendsText bool) {
	t := &m.turn
	silent := t.timing == nil || t.state != turnSpeaking
	// If text is sent and the answer has no voice yet, the answer goes on: either it or the next answer covers the
	// text.
	if m.voice.QueuedDuration() > 0 || t.isGenerating() && !(sendsText && silent) {
		cut, behind := m.cutOff(cause)
		m.subscribers.notify(cut)
		m.notifyDeferred(behind, t.state != turnIdle)
	}
	if !sendsText { // otherwise the note is sent together with the text
		m.sendUnheardNote()
	}
}

// retractQuestion drops the answer to a question that the person is still continuing. The person has heard nothing of
// this answer.
func (m *modelOutput) retractQuestion() {
	m.interrupt(ByVoice, false)
	m.wasRetracted = true
}

// notifyDeferred sends the events that waited behind voice that was then interrupted. isTurnEndPending means that a
// turnComplete is still to come.
func (m *modelOutput) notifyDeferred(events []EventBody, isTurnEndPending bool) {
	hasEnded := isTurnEndPending
	for i, b := range slices.Backward(events) {
		raw, ok := b.(RawServerContent)
		if !ok || raw.TopLevel {
			continue
		}
		// Google's servers send no generationComplete and only one turnComplete for an interrupted turn. We do the
		// same.
		raw.ServerContent = withoutField(raw.ServerContent, "generationComplete")
		if hasEnded {
			raw.ServerContent = withoutField(raw.ServerContent, "turnComplete")
		}
		hasEnded = hasEnded || hasField(raw.ServerContent, "turnComplete")
		events[i] = raw
	}
	for _, b := range events {
		if raw, ok := b.(RawServerContent); !ok || raw.ServerContent != nil {
			m.subscribers.notify(b)
		}
	}
}

// cutOff drops the rest of the answer. It is called even if the model does not know of the interruption yet. behind has
// the events that were queued behind the dropped voice.
func (m *modelOutput) cutOff(cause Cause) (interruption Interrupted, behind []EventBody) {
	t := &m.turn
	playing, stopped := m.voice.QueuedDuration() > 0, m.hasOutputStopped()
	m.voice.cutCause.Store(&cause)
	flushed, behind := m.voice.dropVoice()
	m.voice.isAnswering.Store(false)
	if playing && cause == ByVoice {
		m.reportBargeIn(flushed.FadeDelay)
	}
	m.voice.Duck(0)
	interruption = Interrupted{Turn: t.number, By: cause, Generation: flushed.Generation}
	if number, ok := m.markInterruptedTurns(flushed.Unplayed); ok {
		kept := m.transcript.PlayedAnswer(number)
		interruption.Turn, interruption.PlayedText, interruption.Played = number, kept.Content, kept.Played
		m.sendFinalAnswerText(number)
	}
	latency := m.reportLatency(t.timing)
	if t.isActive() {
		m.reportTurnEnd(t.number, t.startedAt, t.timing, latency, cause)
	}
	t.timing = nil
	switch {
	case t.isGenerating() && !stopped:
		t.state = turnDropped
	case t.isActive(): // the whole answer was received, so later output answers something else
		t.state = turnCut
	}
	t.latestAt = time.Now()
	m.recordUnheard(interruption, flushed.Unplayed)
	return interruption, behind
}

// markInterruptedTurns marks the turns whose voice is in the playout as interrupted. unplayed is how much of their
// voice was not played. It returns the number of the first of these turns whose end the client has not been told, and
// whether any of their voice was played.
func (m *modelOutput) markInterruptedTurns(unplayed time.Duration) (oldestTurn int, wasPlayed bool) {
	t := &m.turn
	// A turn that the model has finished may still be playing, and the next turn may be queued behind it.
	turns := m.voice.finishedTurns
	if t.isActive() {
		turns = append(turns, utterance{turn: t.number, length: t.voiceLength})
	}
	defer func() { m.voice.finishedTurns = m.voice.finishedTurns[:0] }()
	for i := len(turns) - 1; i >= 0; i-- {
		u := turns[i]
		growing := t.isActive() && i == len(turns)-1
		if !wasPlayed || !u.isEndReported() {
			oldestTurn, wasPlayed = u.turn, true
		}
		switch {
		case unplayed == 0 && !growing:
			return oldestTurn, true
		case unplayed < u.length || unplayed == 0:
			m.transcript.MarkInterrupted(u.turn, u.length-unplayed)
			return oldestTurn, true
		}
		m.transcript.MarkInterrupted(u.turn, 0)
		unplayed -= u.length
	}
	return oldestTurn, false
}

// playingTurn returns the turn that is being played, or 0.
func (m *modelOutput) playingTurn() int {
	return m.voice.playingTurn(utterance{turn: m.turn.number, length: m.turn.voiceLength})
}

// isIdle reports whether the model neither generates a turn nor goes on thinking after one. An interrupted turn counts
// as ended if the model has sent nothing for stoppedAfter.
func (m *modelOutput) isIdle() bool {
	t := &m.turn
	return !m.isWorking && (t.state == turnIdle || t.isCut() && time.Since(t.latestAt) >= stoppedAfter)
}

// onSpeechStart records that the person has begun to speak.
func (m *modelOutput) onSpeechStart() {
	m.turn.spokenOver = m.turn.state != turnIdle
	m.prompts.isOpen, m.prompts.pendingCount = true, 0
	m.wasStopped = false
}

// announceThinking tells the caller that an answer is due, or that it is no longer due.
func (m *modelOutput) announceThinking(isThinking bool) {
	if m.announcedThinking.Swap(isThinking) != isThinking {
		m.subscribers.notify(Thinking{isThinking})
	}
}

// sendFinalUserText sends everything that the person said in a turn.
func (m *modelOutput) sendFinalUserText() {
	if turn := m.openUserTextTurn; turn > 0 {
		m.openUserTextTurn = 0
		m.subscribers.notify(UserText{Turn: turn, Text: m.transcript.UserText(turn), Final: true})
	}
}

// sendFinalAnswerText sends everything that was played of a turn.
func (m *modelOutput) sendFinalAnswerText(number int) {
	if text := m.transcript.PlayedAnswer(number).Content; text != "" {
		m.subscribers.notify(AssistantText{Turn: number, Text: text, Final: true})
	}
}

// reportLatency returns the latency of a turn and reports it, but only once per turn.
func (m *modelOutput) reportLatency(t *turnTiming) Latency {
	l, ok := t.takeLatency(time.Duration(m.voice.roundTrip.Load()))
	if ok {
		m.latestLatency.Store(int64(l.Total()))
		m.subscribers.notify(l)
	}
	return l
}

// reportTurnEnd reports to the observer that a turn has ended. startedAt is when the turn's first message came. It is
// zero for an empty turn, which is not reported. cut is the cause of an interruption, or "".
func (m *modelOutput) reportTurnEnd(number int, startedAt time.Time, t *turnTiming, l Latency, cut Cause) {
	if !m.observer.isEnabled() || startedAt.IsZero() { // zero for an empty turn
		return
	}
	if t != nil && !t.questionEnd.IsZero() && t.questionEnd.Before(startedAt) {
		startedAt = t.questionEnd
	}
	m.observer.report(TurnEnd{Number: number, StartedAt: startedAt, InterruptedBy: cut, Latency: l})
}

// reportBargeIn reports that the person's voice has interrupted the model. unplayed is the length of the voice that is
// still to be played.
func (m *modelOutput) reportBargeIn(unplayed time.Duration) {
	if m.observer.isEnabled() && (m.loop.user.isSpeaking || m.turn.spokenOver) {
		m.observer.report(BargeIn{time.Since(m.uplink.SpeechStart()) + unplayed})
	}
}

// buildHistory returns the turns that the next session of the model does not know, with at most maxBytes of text. If
// isNewSession is true, these are all turns, otherwise those after coveredTurn.
func (m *modelOutput) buildHistory(isNewSession bool, maxBytes int) []wire.Content {
	before := m.questionTurn() + 1
	// If a turn has input that was not answered, the turn is left out, because its input is sent again.
	if m.uplink.HasUnanswered() {
		before--
	}
	if isNewSession {
		return m.transcript.HistoryBefore(before, maxBytes)
	}
	return m.transcript.HistoryBetween(m.coveredTurn, before, maxBytes)
}

// reportCallEnd reports the end of a tool call.
func (m *modelOutput) reportCallEnd(e toolcalls.CallEnd) {
	if m.observer.isEnabled() {
		m.observer.report(CallEnd{e, m.turnNumber})
	}
}

// close drops the voice that is still queued, and reports the end of the current turn.
func (m *modelOutput) close() {
	by := ByEnd
	m.voice.cutCause.Store(&by)
	if t := &m.turn; t.isActive() {
		m.reportTurnEnd(t.number, t.startedAt, t.timing, Latency{}, ByEnd)
	}
	m.voice.Close()
}

// playCue plays a sound of the gateway, unless the model's voice is still playing.
func (m *modelOutput) playCue(pcm []int16) {
	if m.noCues || m.keeper.Config().TextOnly || m.voice.QueuedDuration() > 0 {
		return
	}
	if err := m.voice.playSound(pcm); err != nil {
		m.log.Warn("waiting sound dropped", "err", err)
	}
}

// recordTypedText records typed text, and sends it to the watchers.
func (m *modelOutput) recordTypedText(turn int, text string) {
	m.transcript.AddTypedText(turn, text)
	if text != "" {
		m.subscribers.notifyWatchersOnly(UserText{Turn: turn, Text: text, Final: true})
	}
}
