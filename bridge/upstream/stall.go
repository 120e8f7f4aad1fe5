package upstream

// Trigger is the kind of event to which the model should react.
type Trigger int

// The values of Trigger.
const (
	forNothing Trigger = iota
	ForSpeech          // the person has spoken
	ForText            // the person has typed
	ForTool            // a tool has answered
	forMore            // an answer has begun, and its rest should follow
)

// Remedy is a measure that is tried if the model does not answer.
type Remedy string

// Remedies for a model that sends nothing, in the order in which they are tried. If the model has ended its turn
// without an answer, Repeat is tried first instead.
const (
	Nudge   Remedy = "nudge"  // mark the end of speech again
	Resume  Remedy = "resume" // another connection, the same session
	Restart Remedy = "fresh"  // another session, with the transcript
	GiveUp  Remedy = "none"
	Repeat  Remedy = "again" // replay the input at once, where the model has ended its turn without an answer
)

// stallWatch tracks how a model that does not answer is handled. Each remedy gets some time before the next is tried.
type stallWatch struct {
	trigger         Trigger
	stage           int  // number of remedies tried
	isUnderstood    bool // the model has understood the speech; a proactive model may choose not to answer
	understoodEarly bool // the model has understood part of the speech in progress, perhaps before a short pause

	missedCount int  // consecutive questions without an answer despite all remedies
	isNoise     bool // all remedies have failed for speech that may be noise; for more of it only Nudge is tried
}

// nextRemedy returns the next remedy for a model that sends nothing. isCertain and maybeAside are Sure and Aside of
// [AnswerAbandoned].
func (w *stallWatch) nextRemedy(isCertain, maybeAside, canResume bool) Remedy {
	// The first unanswered question may have been a remark to another person. After two in a row the session counts as
	// dead and is restarted. The new session may be dead as well, so it is restarted again after four, eight and so on.
	// Restarts become rarer because a television may talk all day.
	suspect := isCertain && w.missedCount > 0 && (w.missedCount+1)&w.missedCount == 0
	switch w.stage++; {
	case w.stage == 1:
		return Nudge
	case suspect && w.stage == 2:
		w.stage = 3
		return Restart
	case w.missedCount > 0 || w.isNoise && !isCertain:
		return GiveUp
	case w.stage == 2 && canResume:
		return Resume
	case w.stage <= 3 && !maybeAside:
		w.stage = 3
		return Restart
	}
	return GiveUp
}

// nextRemedyAfterEmptyTurn returns the next remedy for a turn that has ended without an answer: Repeat, then Restart.
// If a restart has just failed, it returns GiveUp.
func (w *stallWatch) nextRemedyAfterEmptyTurn() Remedy {
	const repeated, restarted = 2, 3
	switch {
	case w.stage < repeated && w.trigger != ForTool:
		w.stage = repeated
		return Repeat
	case w.stage < restarted && (w.missedCount+1)&w.missedCount == 0:
		w.stage = restarted
		return Restart
	}
	return GiveUp
}

// countMissedQuestion is called when the person speaks or types again. It counts the previous question as missed if the
// model has not answered it. The question must be typed text, or speech that the model has understood, and a remedy
// beyond Nudge must have been tried. Otherwise the new speech may just continue the question.
func (w *stallWatch) countMissedQuestion() (isMissed bool) {
	if w.stage < 2 || w.trigger != ForText && (w.trigger != ForSpeech || !w.understoodEarly) {
		return false
	}
	w.missedCount++
	w.trigger, w.stage = forNothing, 0
	return true
}
