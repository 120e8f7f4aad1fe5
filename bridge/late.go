package bridge

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

// Google promises no order of transcripts ("sent independently of the other server messages, there is no guaranteed
// ordering", https://ai.google.dev/api/live#BidiGenerateContentServerContent), and messages have come behind
// turnComplete, or without one. So the end of a turn is no proof that nothing more comes of it, and a message is no proof
// that its end will.

const (
	// lateTime is how long after the end of a turn a transcript of what the person has said may belong to its question.
	lateTime = 3 * time.Second

	// replyTime is the least time for an answer: what comes sooner after a question answers something else. The quickest
	// answers take some 300 ms.
	replyTime = 150 * time.Millisecond

	// leftoverTime is how long after the end of a turn a transcript may belong to it although something was asked.
	leftoverTime = time.Second

	// stoppedTime is how long an answer must have stopped for what comes after a cut to answer what cut it off, and
	// strayTime the same for a turn that nobody has asked for and that was played. Google sends voice faster than it is played, with pauses of
	// less than a second.
	stoppedTime = 2 * time.Second
	strayTime   = 300 * time.Millisecond

	// callEndTime is how long after a tool call the end of the turn that has made it may come: models that go on while a
	// tool runs end it within milliseconds.
	callEndTime = time.Second
)

// lastTurn is the model's turn that ended last. Pieces of it may still come.
type lastTurn struct {
	number int           // 0: there was none
	at     time.Time     // when it ended
	began  time.Time     // when its first piece came; zero: none came
	voice  time.Duration // of it
	cut    bool          // it was not heard to its end, and what still comes of it will not be heard
	known  bool          // there is a text of its question
}

// prompts is what the model has to answer.
type prompts struct {
	open          bool      // something was said, typed or called that no turn has answered
	at            time.Time // when the newest question ended
	pending       int       // words that were sent and no turn has answered yet
	newest        Cause     // of an interruption by the newest of them
	called        time.Time // when the model last called a tool
	here          bool      // the gateway answers all calls of the turn
	isCallingTurn bool      // the turn that has called tools has not ended, and the model drops answers until then
}

// words notes that words were sent, which interrupt the model by a cause.
func (a *prompts) words(by Cause) { a.pending, a.newest = a.pending+1, by }

// taken notes that a turn begins, which answers the oldest of what is open.
func (a *prompts) taken() { a.open, a.pending = false, max(a.pending-1, 0) }

// interrupted notes that the model was interrupted: only the newest words are still to be answered.
func (a *prompts) interrupted() { a.pending = min(a.pending, 1) }

// ended notes that a turn has ended. isEmpty: it had nothing to say to what was asked.
func (a *prompts) ended(isEmpty bool) {
	a.pending, a.called, a.here = 0, time.Time{}, false
	if isEmpty {
		a.open = false
	}
}

// calls notes that the model calls tools; here: the gateway answers all of them.
func (a *prompts) calls(here bool) {
	a.here = here && (a.here || a.called.IsZero())
	a.open, a.called = true, time.Now()
}

// endsCall reports whether the end of a turn that comes now, with nothing said in it, is that of the turn which has made
// the last tool call: its answer comes in another one.
func (a *prompts) endsCall() bool { return !a.called.IsZero() && time.Since(a.called) < callEndTime }

// isAsked reports whether the model has something to answer.
func (a *answer) isAsked() bool {
	_, expected := a.keeper.ExpectedReply()
	return expected || a.prompts.open || a.working && a.workAsked || a.calls.HasRunningCall()
}

// repliedSince reports whether an answer has begun after the end of a question: our detector finds the end later than
// the model's.
func (a *answer) repliedSince(end time.Time) bool {
	return a.turn.answered && a.turn.began.After(end) || a.turn.state == turnIdle && !a.last.cut && a.last.began.After(end)
}

// isLate reports whether a message is a piece of the turn that has ended: a transcript, or a thought, that answers
// nothing. Voice and written text always begin a turn, which ends by itself if nobody has asked.
func (a *answer) isLate(c *wire.ServerContent) bool {
	if len(c.Audio) > 0 || c.Written || c.OutputTranscription == "" && !c.Thought {
		return false
	}
	switch a.turn.state {
	case turnCut:
		return a.turn.rejected // until turnComplete
	case turnIdle:
	default:
		return false
	}
	switch {
	case a.last.number == 0:
		return false
	case a.isAsked() && !a.speaking():
		return time.Since(a.last.at) < leftoverTime && time.Since(a.prompts.at) < replyTime
	}
	return !a.prompts.open || a.last.cut
}

// addLate adds a piece to the turn that has ended.
func (a *answer) addLate(c *wire.ServerContent) {
	number, voice := a.last.number, a.last.voice
	if c.Thoughts != "" {
		a.voice.notifyInOrder(a.audience, Thought{Turn: number, Text: c.Thoughts})
	}
	text := c.OutputTranscription
	if text == "" || a.last.cut || a.unheard() {
		return
	}
	a.sayText(number, text, c.Transcript)
	a.transcript.AddAnswer(number, text, voice, voice)
	a.voice.AddMark(func(heard bool) {
		if heard {
			a.transcript.MarkComplete(number)
			a.finalText(number)
		}
	})
}

// onTranscript notes what the person has said, as the model has understood it. It may come behind the answer.
func (a *answer) onTranscript(text string) {
	turn := a.question()
	late := a.isLateTranscript()
	switch {
	case late:
		turn = a.last.number
	case !a.mayBeLate():
		a.prompts.open = true
	}
	a.textTurn = turn
	a.transcript.AddTranscription(turn, text)
	a.audience.notify(UserText{Turn: turn, Text: text})
	if late {
		a.finalQuestion()
		a.last.known = false // more pieces may follow
	}
}

// mayBeLate reports whether a transcript of what the person says, if it comes now, may be of what the model has answered
// already. isLateTranscript reports whether it must be: there is none of that question yet.
func (a *answer) mayBeLate() bool {
	return a.turn.state == turnIdle && a.last.number > 0 && !a.speaking() && !a.isAsked() && time.Since(a.last.at) < lateTime
}

func (a *answer) isLateTranscript() bool { return a.mayBeLate() && !a.last.known }

// hasStopped reports whether all of the turn has come, as far as its pace tells.
func (a *answer) hasStopped() bool {
	t := &a.turn
	if t.asked || a.voice.QueuedDuration() > 0 {
		return time.Since(t.latest) >= stoppedTime
	}
	return time.Since(t.latest) >= strayTime
}

// overdue is when a turn ends that does not end by itself, since nothing more comes of it; ok is false while that is
// no question: the model is idle, its answer is watched by the keeper, which asks again, or it was cut off and keeps
// nobody waiting. Patience is how long the model may be silent.
func (a *answer) overdue(patience time.Duration) (at time.Time, ok bool) {
	t := &a.turn
	switch {
	case t.state == turnIdle && !a.working, t.making() && t.asked, t.wasCut() && !a.working, a.calls.HasRunningCall():
		return time.Time{}, false
	case t.state == turnIdle:
		at = a.last.at
	default:
		at = t.latest
		if voiced := t.began.Add(t.voice); voiced.After(at) { // turnComplete waits until it was played
			at = voiced
		}
	}
	return at.Add(patience + a.voice.QueuedDuration()), true
}
