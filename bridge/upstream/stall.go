package upstream

// Trigger is the event that the model should react to.
type Trigger int

// The values of Trigger.
const (
	forNothing Trigger = iota
	ForSpeech          // the person has spoken
	ForText            // the person has typed
	ForTool            // a tool has answered
	forMore            // an answer has begun, and its rest should follow
)

// Remedy is a measure against a silent model.
type Remedy string

// Remedies for a silent model, in the order in which they are tried. Repeat is tried first after a turn without an
// answer.
const (
	Nudge   Remedy = "nudge"  // mark the end of speech again
	Resume  Remedy = "resume" // another connection, the same session
	Restart Remedy = "fresh"  // another session, with the transcript
	GiveUp  Remedy = "none"
	Repeat  Remedy = "again" // replay the input at once, where the model has ended its turn without an answer
)

// stallWatch tracks a model that has fallen silent. Each remedy is tried for a while before the next.
type stallWatch struct {
	trigger         Trigger
	stage           int  // number of remedies tried
	isUnderstood    bool // the model has understood the speech; a proactive model may choose not to answer
	understoodEarly bool // the model has understood part of the speech in progress, perhaps before a short pause

	missedCount int  // consecutive questions without an answer despite all remedies
	isNoise     bool // all remedies have failed for speech that may be noise; for more of it only Nudge is tried
}

// nextRemedy returns the next remedy for a silent model. sure and aside are those of [AnswerAbandoned]. handle means
// that the session can be resumed.
func (w *stallWatch) nextRemedy(sure, aside, handle bool) Remedy {
	// The first unanswered question may be a remark to another person. The session counts as dead after two in a row,
	// then after four, eight and so on. A fresh session may be dead as well, so there are more restarts. They become
	// rarer because a television may talk all day.
	suspect := sure && w.missedCount > 0 && (w.missedCount+1)&w.missedCount == 0
	switch w.stage++; {
	case w.stage == 1:
		return Nudge
	case suspect && w.stage == 2:
		w.stage = 3
		return Restart
	case w.missedCount > 0 || w.isNoise && !sure:
		return GiveUp
	case w.stage == 2 && handle:
		return Resume
	case w.stage <= 3 && !aside:
		w.stage = 3
		return Restart
	}
	return GiveUp
}

// nextAfterEmptyTurn returns the remedy for a turn without an answer: Repeat, then Restart. A restart that has just
// failed is not repeated.
func (w *stallWatch) nextAfterEmptyTurn() Remedy {
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

// countSuperseded counts a question as unanswered when the person asks the next one, and reports whether it did. The
// question must be typed text, or speech that the model has understood, and a remedy beyond Nudge was tried. Otherwise
// new speech may continue the same question.
func (w *stallWatch) countSuperseded() bool {
	if w.stage < 2 || w.trigger != ForText && (w.trigger != ForSpeech || !w.understoodEarly) {
		return false
	}
	w.missedCount++
	w.trigger, w.stage = forNothing, 0
	return true
}
