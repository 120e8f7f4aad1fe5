package upstream

// Trigger is the event that the model should react to.
type Trigger int

// The values of Trigger.
const (
	forNothing Trigger = iota
	ForSpeech          // the person has spoken
	ForText            // the person has typed
	ForTool            // a tool has answered
	forMore            // the model paused within an answer
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
	understoodEarly bool // the model has understood part of the speech in progress, perhaps before a breath

	// missedCount counts consecutive questions without an answer despite all remedies. What sounds like speech may be
	// noise. isNoise is set once all remedies were tried for such input, so that they are not tried each time.
	missedCount int
	isNoise     bool
}

// nextRemedy returns the next remedy for a silent model. sure means that the person certainly addressed the model.
// aside means that the model may have decided otherwise. handle means that the session can be resumed.
func (w *stallWatch) nextRemedy(sure, aside, handle bool) Remedy {
	// The first unanswered question may be a remark to another person. After two such questions in a row the session
	// counts as dead, and again after four, eight and so on. It does so again because a fresh session may be dead as well,
	// but ever more rarely because a television talks all day.
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

// nextAfterEmptyTurn returns the remedy for a turn without an answer: Repeat, then Restart, unless a restart has failed
// for the previous question.
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

// countSuperseded counts a question as unanswered when the person asks the next one, if more than a nudge was tried.
// After fewer remedies it does not, because then the new speech counts as the rest of the same question. It returns
// true if it has counted the question.
func (w *stallWatch) countSuperseded() bool {
	if w.stage < 2 || w.trigger != ForText && (w.trigger != ForSpeech || !w.understoodEarly) {
		return false
	}
	w.missedCount++
	w.trigger, w.stage = forNothing, 0
	return true
}
