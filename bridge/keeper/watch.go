package keeper

// Awaited is what the model should react to.
type Awaited int

// The values of Awaited.
const (
	forNothing Awaited = iota
	ForSpeech          // the person has spoken
	ForText            // the person has typed
	ForTool            // a tool has answered
	forMore            // the model was in the middle of its answer
)

// Remedy is what is tried when the model is silent.
type Remedy string

// The remedies for a silent model in the order in which they are tried, and the first one for a turn without an answer.
const (
	Nudge   Remedy = "nudge"  // a mark says that the speech is over
	Resume  Remedy = "resume" // another connection, the same session
	Restart Remedy = "fresh"  // another session, with what was said
	GiveUp  Remedy = "none"
	Repeat  Remedy = "again" // what was said is said again at once, where the model has ended its turn without an answer
)

// watch notices a model that has fallen silent. Each remedy is tried for a while before the next.
type watch struct {
	what  Awaited
	stage int  // how many remedies were tried
	heard bool // the model has understood the speech; a proactive one may choose not to answer
	early bool // it has understood some of what is being said, perhaps before a breath

	// missed counts the questions in a row that got no answer whatever was tried. What sounds like speech here may be
	// noise, which is no question; noise is set once everything was tried for it. So not everything is tried each time.
	missed int
	noise  bool
}

// next is the remedy for a model that is silent now. sure: it was certainly asked; aside: it may have understood that
// it was not meant; handle: the session can be resumed.
func (w *watch) next(sure, aside, handle bool) Remedy {
	// The first unanswered question may be a remark to somebody else. After two in a row the model is taken for dead, and
	// again after four, eight and so on: a fresh session may be dead as well, but a television talks all day.
	suspect := sure && w.missed > 0 && (w.missed+1)&w.missed == 0
	switch w.stage++; {
	case w.stage == 1:
		return Nudge
	case suspect && w.stage == 2:
		w.stage = 3
		return Restart
	case w.missed > 0 || w.noise && !sure:
		return GiveUp
	case w.stage == 2 && handle:
		return Resume
	case w.stage <= 3 && !aside:
		w.stage = 3
		return Restart
	}
	return GiveUp
}

// nextAfterEmptyTurn returns the remedy for a turn without an answer: Repeat, then Restart, unless a restart has failed for the
// previous question.
func (w *watch) nextAfterEmptyTurn() Remedy {
	const repeated, restarted = 2, 3
	switch {
	case w.stage < repeated && w.what != ForTool:
		w.stage = repeated
		return Repeat
	case w.stage < restarted && (w.missed+1)&w.missed == 0:
		w.stage = restarted
		return Restart
	}
	return GiveUp
}

// superseded counts a question that had no answer, though more than a nudge was tried, when the person asks the next
// one. It reports whether there was one: what is said after less is taken for the rest of the same question.
func (w *watch) superseded() bool {
	if w.stage < 2 || w.what != ForText && (w.what != ForSpeech || !w.early) {
		return false
	}
	w.missed++
	w.what, w.stage = forNothing, 0
	return true
}
