package bridge

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

// Google does not guarantee the order of transcripts: https://ai.google.dev/api/live#BidiGenerateContentServerContent.
// Some have come after the turnComplete of their turn. Some turns had no turnComplete at all.

const (
	// lateTranscriptTime is how long after a turn a transcript of its question may arrive. A later transcript belongs
	// to another question.
	lateTranscriptTime = 3 * time.Second

	// minReplyTime is the minimum time for an answer. Earlier output answers something else. The fastest answers take
	// some 300 ms.
	minReplyTime = 150 * time.Millisecond

	// leftoverTime is how long after the end of a turn a transcript may still belong to that turn, in spite of a new
	// question.
	leftoverTime = time.Second

	// stoppedAfter is the pause after which an interrupted answer counts as complete. Google sends voice faster than real
	// time, with pauses of less than a second.
	stoppedAfter = 2 * time.Second

	// strayAfter replaces stoppedAfter for a turn that the model spoke unasked, once its voice has been played.
	strayAfter = 300 * time.Millisecond

	// callEndTime limits the time from a tool call to the end of its turn. Models that end the turn before they have the
	// tool's result do so within milliseconds of the call.
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

// addPrompt records that text was sent to the model. The cause is reported if the text interrupts an answer.
func (o *openPrompts) addPrompt(by Cause) { o.pendingCount, o.newestCause = o.pendingCount+1, by }

// takePrompt records a new turn, which answers the oldest open prompt.
func (o *openPrompts) takePrompt() { o.isOpen, o.pendingCount = false, max(o.pendingCount-1, 0) }

// onInterrupted records an interruption of the model. Of the text prompts, only the newest one is still to be answered.
func (o *openPrompts) onInterrupted() { o.pendingCount = min(o.pendingCount, 1) }

// onTurnEnd records the end of a turn. isEmpty means that the turn had no answer to the prompt.
func (o *openPrompts) onTurnEnd(isEmpty bool) {
	o.pendingCount, o.calledAt, o.gatewayAnswers = 0, time.Time{}, false
	if isEmpty {
		o.isOpen = false
	}
}

// onToolCalls records that the model calls tools. byGateway means that the gateway answers all of these calls.
func (o *openPrompts) onToolCalls(byGateway bool) {
	o.gatewayAnswers = byGateway && (o.gatewayAnswers || o.calledAt.IsZero())
	o.isOpen, o.calledAt = true, time.Now()
}

// endsCallingTurn reports whether an empty turn that ends now is the turn with the last tool call. If so, the answer
// comes in another turn.
func (o *openPrompts) endsCallingTurn() bool {
	return !o.calledAt.IsZero() && time.Since(o.calledAt) < callEndTime
}

// hasRequest reports whether the model has something to answer.
func (m *modelOutput) hasRequest() bool {
	_, expected := m.keeper.ExpectedReply()
	return expected || m.prompts.isOpen || m.isWorking && m.workRequested || m.calls.HasRunningCall()
}

// hasRepliedSince reports whether an answer has begun after end, the end of a question. This is possible because the
// gateway detects that end later than the model.
func (m *modelOutput) hasRepliedSince(end time.Time) bool {
	return m.turn.hasAnswer && m.turn.startedAt.After(end) || m.turn.state == turnIdle && !m.lastTurn.wasCut && m.lastTurn.startedAt.After(end)
}

// isLate reports whether a message belongs to the turn that ended last. Only a transcript or a thought can.
func (m *modelOutput) isLate(c *wire.ServerContent) bool {
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

// addLate adds a message to the turn that ended last.
func (m *modelOutput) addLate(c *wire.ServerContent) {
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

// onTranscript handles a transcript of the person's speech. It may come after the answer.
func (m *modelOutput) onTranscript(text string) {
	turn := m.questionTurn()
	isLate := m.isLateTranscript()
	switch {
	case isLate:
		turn = m.lastTurn.number
	case !m.mayBeLate():
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

// mayBeLate reports whether a transcript of the person that comes now may belong to an answered question.
// isLateTranscript reports whether it certainly does.
func (m *modelOutput) mayBeLate() bool {
	return m.turn.state == turnIdle && m.lastTurn.number > 0 && !m.loop.user.isSpeaking && !m.hasRequest() &&
		time.Since(m.lastTurn.endedAt) < lateTranscriptTime
}

func (m *modelOutput) isLateTranscript() bool { return m.mayBeLate() && !m.lastTurn.hasQuestionText }

// hasStopped reports whether the whole turn has presumably been received, because nothing has come for longer than the
// usual pauses.
func (m *modelOutput) hasStopped() bool {
	t := &m.turn
	if t.isRequested || m.voice.QueuedDuration() > 0 {
		return time.Since(t.latestAt) >= stoppedAfter
	}
	return time.Since(t.latestAt) >= strayAfter
}

// turnDeadline returns when to end a turn if nothing more of it comes. The model may be silent for the duration
// patience. ok is false if there is no deadline.
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
