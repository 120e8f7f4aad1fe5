package bridge

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

// Google does not guarantee the order of transcripts: https://ai.google.dev/api/live#BidiGenerateContentServerContent.
// We have received transcripts after the turnComplete of their turn, and turns without any turnComplete.

const (
	// lateTranscriptTime limits the time from the end of a turn to a transcript of the turn's question. A transcript
	// that arrives later belongs to another question.
	lateTranscriptTime = 3 * time.Second

	// minReplyTime is the minimum time between the end of a question and its answer. Output that comes earlier does not
	// answer this question. The fastest answers take some 300 ms.
	minReplyTime = 150 * time.Millisecond

	// leftoverTime limits the time from the end of a turn to a transcript that belongs to that turn, although the
	// person has asked a new question.
	leftoverTime = time.Second

	// stoppedAfter is the time without output from the model after which its interrupted answer counts as complete.
	// Google sends voice faster than real time, with pauses of less than a second.
	stoppedAfter = 2 * time.Second

	// strayAfter replaces stoppedAfter if nothing had asked for the model's turn and the turn's voice has been played.
	strayAfter = 300 * time.Millisecond

	// callEndTime limits the time from a tool call to an end of turn that belongs to the turn with that call. Some
	// models end the turn before they have the tool's result, within milliseconds of the call.
	callEndTime = time.Second
)

// lastTurn describes the model's turn that ended last. More messages of that turn may still come.
type lastTurn struct {
	number          int           // number of the turn; 0 means that no turn has ended yet
	endedAt         time.Time     // when it ended
	startedAt       time.Time     // when its first message came; zero means that none came
	voiceLength     time.Duration // length of the voice of the whole turn
	wasCut          bool          // the turn was not fully played, and its later output will not be played
	hasQuestionText bool          // the question of the turn has a transcript
}

// openPrompts tracks what the model has to answer.
type openPrompts struct {
	isOpen          bool      // there is speech, text or a tool call that no turn of the model has answered yet
	questionEndedAt time.Time // end of the newest question
	pendingCount    int       // text prompts that no turn has answered yet
	newestCause     Cause     // cause to report if the newest text prompt interrupts an answer
	calledAt        time.Time // when the model last called a tool
	gatewayAnswers  bool      // the gateway answers all calls of the turn
	isCallingTurn   bool      // the turn with the calls has not ended, and the model would drop the tools' answers until then
}

// addPrompt records that text was sent to the model. If the text interrupts an answer, cause is reported as the cause.
func (o *openPrompts) addPrompt(cause Cause) { o.pendingCount, o.newestCause = o.pendingCount+1, cause }

// takePrompt records that a new turn has begun, which answers the oldest open prompt.
func (o *openPrompts) takePrompt() { o.isOpen, o.pendingCount = false, max(o.pendingCount-1, 0) }

// onInterrupted records that the model was interrupted. It will answer only the newest of the text prompts.
func (o *openPrompts) onInterrupted() { o.pendingCount = min(o.pendingCount, 1) }

// onTurnEnd records the end of a turn. hadNoAnswer means that the turn had no answer. The newest prompt then no longer
// waits for one.
func (o *openPrompts) onTurnEnd(hadNoAnswer bool) {
	o.pendingCount, o.calledAt, o.gatewayAnswers = 0, time.Time{}, false
	if hadNoAnswer {
		o.isOpen = false
	}
}

// onToolCalls records that the model calls tools. byGateway means that the gateway answers all of these calls.
func (o *openPrompts) onToolCalls(byGateway bool) {
	o.gatewayAnswers = byGateway && (o.gatewayAnswers || o.calledAt.IsZero())
	o.isOpen, o.calledAt = true, time.Now()
}

// isEndOfCallingTurn is called when an empty turn ends. It reports whether that turn is the one with the last tool
// call. If so, the answer comes in another turn.
func (o *openPrompts) isEndOfCallingTurn() bool {
	return !o.calledAt.IsZero() && time.Since(o.calledAt) < callEndTime
}

// hasRequest reports whether the model has something to answer: a question, text, or a tool's result.
func (m *modelOutput) hasRequest() bool {
	_, expected := m.keeper.ExpectedReply()
	return expected || m.prompts.isOpen || m.isWorking && m.workRequested || m.calls.HasRunningCall()
}

// hasRepliedSince reports whether an answer has begun after end, the end of a question. The answer may begin before the
// gateway calls this method, because the gateway detects the end later than the model.
func (m *modelOutput) hasRepliedSince(end time.Time) bool {
	return m.turn.hasAnswer && m.turn.startedAt.After(end) || m.turn.state == turnIdle && !m.lastTurn.wasCut && m.lastTurn.startedAt.After(end)
}

// belongsToEndedTurn reports whether a message belongs to the turn that ended last. Only transcripts and thoughts can
// come after the end of their turn.
func (m *modelOutput) belongsToEndedTurn(c *wire.ServerContent) bool {
	// Voice and written text always begin a new turn. If that turn was not requested, turnDeadline ends it.
	if len(c.Audio) > 0 || c.HasText || c.OutputTranscription == "" && !c.HasThought {
		return false
	}
	switch m.turn.state {
	case turnCut:
		return m.turn.selfInterrupted // such messages belong to the ended turn until its turnComplete
	case turnIdle:
	default:
		return false
	}
	switch {
	case m.lastTurn.number == 0:
		return false
	case m.hasRequest() && !m.loop.user.isSpeaking:
		return time.Since(m.lastTurn.endedAt) < leftoverTime && time.Since(m.prompts.questionEndedAt) < minReplyTime
	}
	return !m.prompts.isOpen || m.lastTurn.wasCut
}

// addToEndedTurn adds a message to the turn that ended last.
func (m *modelOutput) addToEndedTurn(c *wire.ServerContent) {
	number, voice := m.lastTurn.number, m.lastTurn.voiceLength
	if c.Thoughts != "" {
		m.voice.notifyInOrder(m.subscribers, Thought{Turn: number, Text: c.Thoughts})
	}
	text := c.OutputTranscription
	if text == "" || m.lastTurn.wasCut || m.loop.isUnheard() {
		return
	}
	m.sendAnswerText(number, text, c.Transcript)
	m.transcript.AddAnswer(number, text, voice, voice)
	m.voice.AddMark(func(heard bool) {
		if heard {
			m.transcript.MarkComplete(number)
			m.sendFinalAnswerText(number)
		}
	})
}

// addUserTranscript handles a transcript of the person's speech. The transcript may come after the answer to that
// speech.
func (m *modelOutput) addUserTranscript(text string) {
	turn := m.questionTurn()
	isLate := m.isTranscriptLate()
	switch {
	case isLate:
		turn = m.lastTurn.number
	case !m.mayTranscriptBeLate():
		m.prompts.isOpen = true
	}
	m.openUserTextTurn = turn
	m.transcript.AddTranscription(turn, text)
	m.subscribers.notify(UserText{Turn: turn, Text: text})
	if isLate {
		m.sendFinalUserText()
		m.lastTurn.hasQuestionText = false // more pieces may follow
	}
}

// mayTranscriptBeLate reports whether a transcript of the person's speech that arrives now may belong to a question
// that is already answered. isTranscriptLate reports whether it certainly does.
func (m *modelOutput) mayTranscriptBeLate() bool {
	return m.turn.state == turnIdle && m.lastTurn.number > 0 && !m.loop.user.isSpeaking && !m.hasRequest() &&
		time.Since(m.lastTurn.endedAt) < lateTranscriptTime
}

func (m *modelOutput) isTranscriptLate() bool {
	return m.mayTranscriptBeLate() && !m.lastTurn.hasQuestionText
}

// hasOutputStopped reports whether nothing of the turn has come for longer than the model's usual pauses. The turn has
// then presumably been received completely.
func (m *modelOutput) hasOutputStopped() bool {
	t := &m.turn
	if t.isRequested || m.voice.QueuedDuration() > 0 {
		return time.Since(t.latestAt) >= stoppedAfter
	}
	return time.Since(t.latestAt) >= strayAfter
}

// turnDeadline returns the time at which to end a turn if nothing more of it comes. patience limits how long the model
// may send nothing. ok is false if there is no deadline.
func (m *modelOutput) turnDeadline(patience time.Duration) (at time.Time, ok bool) {
	t := &m.turn
	switch {
	case t.state == turnIdle && !m.isWorking,
		t.isGenerating() && t.isRequested, // the keeper watches this answer and asks again
		t.isCut() && !m.isWorking,
		m.calls.HasRunningCall():
		return time.Time{}, false
	case t.state == turnIdle:
		at = m.lastTurn.endedAt
	default:
		at = t.latestAt
		if voiced := t.startedAt.Add(t.voiceLength); voiced.After(at) { // the model sends turnComplete only when the voice would have been played
			at = voiced
		}
	}
	return at.Add(patience + m.voice.QueuedDuration()), true
}
