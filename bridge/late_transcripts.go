package bridge

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

// Google does not guarantee the order of transcripts ("sent independently of the other server messages, there is no
// guaranteed ordering", https://ai.google.dev/api/live#BidiGenerateContentServerContent). Messages have come after the
// turnComplete of their turn, and some turns had no turnComplete at all. So more of a turn may follow after its end,
// and the end of a turn may never come.

const (
	// lateTranscriptTime is how long after the end of a turn a transcript of the person's speech may belong to its
	// question.
	lateTranscriptTime = 3 * time.Second

	// minReplyTime is the minimum time for an answer: output that comes sooner after a question answers something else.
	// The fastest answers take some 300 ms.
	minReplyTime = 150 * time.Millisecond

	// leftoverTime is the time after the end of a turn in which a transcript may still belong to that turn although there
	// is a new question.
	leftoverTime = time.Second

	// stoppedAfter is the pause after which an interrupted answer counts as complete, so that later output answers the
	// interruption. strayAfter is the same pause for a turn that the model spoke unasked and that was played. Google sends
	// voice faster than real time, with pauses of less than a second.
	stoppedAfter = 2 * time.Second
	strayAfter   = 300 * time.Millisecond

	// callEndTime is the time after a tool call within which the end of its turn may come. Models that continue while a
	// tool runs end that turn within milliseconds.
	callEndTime = time.Second
)

// lastTurn describes the model's turn that ended last. More messages of that turn may still come.
type lastTurn struct {
	number          int           // number of the turn; 0 means that no turn has ended yet
	endedAt         time.Time     // when it ended
	startedAt       time.Time     // when its first message came; zero means that none came
	voiceLength     time.Duration // length of the voice of the whole turn
	wasCut          bool          // it was not fully played, and later output of it will not be played
	hasQuestionText bool          // its question has a transcript
}

// openPrompts tracks what the model has to answer.
type openPrompts struct {
	isOpen          bool      // speech, text or a tool call that no turn of the model has answered yet
	questionEndedAt time.Time // end of the newest question
	pendingCount    int       // text prompts that no turn has answered yet
	newestCause     Cause     // cause to report if the newest text prompt interrupts an answer
	calledAt        time.Time // when the model last called a tool
	gatewayAnswers  bool      // the gateway answers all calls of the turn
	isCallingTurn   bool      // the turn with the calls has not ended, and the model would drop the tools' answers until then
}

// addPrompt records that text was sent to the model. The cause is reported if the text interrupts an answer.
func (a *openPrompts) addPrompt(by Cause) { a.pendingCount, a.newestCause = a.pendingCount+1, by }

// takePrompt records a new turn, which answers the oldest open prompt.
func (a *openPrompts) takePrompt() { a.isOpen, a.pendingCount = false, max(a.pendingCount-1, 0) }

// onInterrupted records an interruption of the model. Of the text prompts, only the newest one is still to be answered.
func (a *openPrompts) onInterrupted() { a.pendingCount = min(a.pendingCount, 1) }

// onTurnEnd records the end of a turn. isEmpty means that the turn had no answer to the prompt.
func (a *openPrompts) onTurnEnd(isEmpty bool) {
	a.pendingCount, a.calledAt, a.gatewayAnswers = 0, time.Time{}, false
	if isEmpty {
		a.isOpen = false
	}
}

// onToolCalls records that the model calls tools. here means that the gateway answers all of these calls.
func (a *openPrompts) onToolCalls(here bool) {
	a.gatewayAnswers = here && (a.gatewayAnswers || a.calledAt.IsZero())
	a.isOpen, a.calledAt = true, time.Now()
}

// endsCallingTurn reports whether an empty turn that ends now is the turn with the last tool call. If so, the answer
// comes in another turn.
func (a *openPrompts) endsCallingTurn() bool {
	return !a.calledAt.IsZero() && time.Since(a.calledAt) < callEndTime
}

// hasRequest reports whether the model has something to answer.
func (a *modelOutput) hasRequest() bool {
	_, expected := a.keeper.ExpectedReply()
	return expected || a.prompts.isOpen || a.isWorking && a.workRequested || a.calls.HasRunningCall()
}

// hasRepliedSince reports whether an answer has begun after the end of a question. That is possible because the gateway
// detects the end later than the model.
func (a *modelOutput) hasRepliedSince(end time.Time) bool {
	return a.turn.hasAnswer && a.turn.startedAt.After(end) || a.turn.state == turnIdle && !a.lastTurn.wasCut && a.lastTurn.startedAt.After(end)
}

// isLate reports whether a message belongs to the ended turn: a transcript or a thought that answers nothing new. Voice
// and written text always begin a new turn; turnDeadline gives such a turn an end if it was not requested.
func (a *modelOutput) isLate(c *wire.ServerContent) bool {
	if len(c.Audio) > 0 || c.HasText || c.OutputTranscription == "" && !c.HasThought {
		return false
	}
	switch a.turn.state {
	case turnCut:
		return a.turn.selfInterrupted // such messages belong to the ended turn until its turnComplete
	case turnIdle:
	default:
		return false
	}
	switch {
	case a.lastTurn.number == 0:
		return false
	case a.hasRequest() && !a.loop.user.isSpeaking:
		return time.Since(a.lastTurn.endedAt) < leftoverTime && time.Since(a.prompts.questionEndedAt) < minReplyTime
	}
	return !a.prompts.isOpen || a.lastTurn.wasCut
}

// addLate adds a message to the ended turn.
func (a *modelOutput) addLate(c *wire.ServerContent) {
	number, voice := a.lastTurn.number, a.lastTurn.voiceLength
	if c.Thoughts != "" {
		a.voice.notifyInOrder(a.subscribers, Thought{Turn: number, Text: c.Thoughts})
	}
	text := c.OutputTranscription
	if text == "" || a.lastTurn.wasCut || a.loop.isUnheard() {
		return
	}
	a.sendAnswerText(number, text, c.Transcript)
	a.transcript.AddAnswer(number, text, voice, voice)
	a.voice.AddMark(func(heard bool) {
		if heard {
			a.transcript.MarkComplete(number)
			a.sendFinalAnswerText(number)
		}
	})
}

// onTranscript handles a transcript of the person's speech. It may come after the answer.
func (a *modelOutput) onTranscript(text string) {
	turn := a.questionTurn()
	isLate := a.isLateTranscript()
	switch {
	case isLate:
		turn = a.lastTurn.number
	case !a.mayBeLate():
		a.prompts.isOpen = true
	}
	a.openUserTextTurn = turn
	a.transcript.AddTranscription(turn, text)
	a.subscribers.notify(UserText{Turn: turn, Text: text})
	if isLate {
		a.sendFinalUserText()
		a.lastTurn.hasQuestionText = false // more pieces may follow
	}
}

// mayBeLate reports whether a transcript of the person's speech that comes now may belong to an answered question.
// isLateTranscript reports whether it must belong to that question, because the question has no transcript yet.
func (a *modelOutput) mayBeLate() bool {
	return a.turn.state == turnIdle && a.lastTurn.number > 0 && !a.loop.user.isSpeaking && !a.hasRequest() &&
		time.Since(a.lastTurn.endedAt) < lateTranscriptTime
}

func (a *modelOutput) isLateTranscript() bool { return a.mayBeLate() && !a.lastTurn.hasQuestionText }

// hasStopped reports whether the whole turn has presumably been received, because nothing has come for longer than the
// usual pauses.
func (a *modelOutput) hasStopped() bool {
	t := &a.turn
	if t.isRequested || a.voice.QueuedDuration() > 0 {
		return time.Since(t.latestAt) >= stoppedAfter
	}
	return time.Since(t.latestAt) >= strayAfter
}

// turnDeadline returns when to end a turn if nothing more of it comes. patience is how long the model may be silent. ok
// is false if there is no deadline: if the model is idle, if the keeper watches the answer and asks again, if the turn
// was interrupted and the model no longer works, or if a tool call runs.
func (a *modelOutput) turnDeadline(patience time.Duration) (at time.Time, ok bool) {
	t := &a.turn
	switch {
	case t.state == turnIdle && !a.isWorking, t.isGenerating() && t.isRequested, t.isCut() && !a.isWorking, a.calls.HasRunningCall():
		return time.Time{}, false
	case t.state == turnIdle:
		at = a.lastTurn.endedAt
	default:
		at = t.latestAt
		if voiced := t.startedAt.Add(t.voiceLength); voiced.After(at) { // the model sends turnComplete only when the voice would have been played
			at = voiced
		}
	}
	return at.Add(patience + a.voice.QueuedDuration()), true
}
