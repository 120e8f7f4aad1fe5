package keeper

import (
	"context"
	"time"

	"voxgate/bridge/uplink"
)

const (
	// staleTime is how long something said waits for its answer, whatever is tried. Later nobody wants it any more.
	staleTime = 25 * time.Second

	// slowly is how much more time a model gets that thinks before it speaks.
	slowly = 5
)

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

// The remedies, in their order.
const (
	Nudge   Remedy = "nudge"  // it is told that the speech is over
	Resume  Remedy = "resume" // another connection, the same session
	Restart Remedy = "fresh"  // another session, which is told what was said
	GiveUp  Remedy = "none"
)

// watch notices a model that has fallen silent. Each remedy is tried for a while before the next.
type watch struct {
	what  Awaited
	stage int  // how many remedies were tried
	heard bool // the model has understood the speech; a proactive one may choose not to answer
	early bool // it has understood some of what is being said, perhaps before a breath

	// missed counts the questions in a row to which there was no answer whatever was tried. What sounds like speech here may
	// be noise: that is no question, and noise is set when everything was tried for it. So not everything is tried each time.
	missed int
	noise  bool
}

// next is the remedy for a model that is silent now. sure: it was certainly asked; aside: it may have understood that it was not
// meant; handle: the session can be resumed.
func (w *watch) next(sure, aside, handle bool) Remedy {
	// The first question without an answer may be a remark to somebody else. After two in a row the model is taken for dead,
	// and again after four, eight and so on: each fresh session may be dead as well, and a television talks all day.
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

// patience is how long the model may be silent.
func (k *Keeper) patience() time.Duration {
	if k.config.Profile.Slow {
		return slowly * k.Stall
	}
	return k.Stall
}

// ShelfLife is how long something said is worth an answer.
func (k *Keeper) ShelfLife() time.Duration { return max(staleTime, 3*k.patience()) }

// Expect begins to wait for the model's answer.
func (k *Keeper) Expect(what Awaited) {
	k.watch.superseded()
	k.watch.what, k.watch.stage, k.watch.heard = what, 0, what == ForSpeech && k.watch.early
	k.clock.Set(alarmStale, k.ShelfLife())
	k.await(k.patience())
}

// SpeaksOn ends the wait for the answer to what was said so far, and reports whether there was one: either the sentence
// was only interrupted by a breath, or the person has waited long enough and asks again.
func (k *Keeper) SpeaksOn(ctx context.Context) bool {
	if k.watch.what != ForSpeech {
		k.watch.early = false
		return false
	}
	if k.watch.superseded() {
		k.watch.early = false
	}
	k.clock.Clear(alarmStale)
	k.stopExpecting(ctx)
	return true
}

// Answering notes that the model makes an answer, which may not stop in its middle.
func (k *Keeper) Answering(ctx context.Context) {
	k.watch.what, k.watch.stage = forMore, 0
	if k.link.conn != nil {
		k.endWait(ctx)
	}
	k.await(k.patience())
}

// Answers notes that something is an answer now and not a thought: nothing of what was said need be said again.
func (k *Keeper) Answers() {
	k.Uplink.Answered()
	k.clock.Clear(alarmStale)
	k.watch.missed, k.watch.noise = 0, false
}

// Reacted notes a message that is no part of an answer. over: it ends a turn, or calls tools; understood: it shows that the
// model has understood speech. It reports whether the model has nothing to say to what it was waited for with.
func (k *Keeper) Reacted(ctx context.Context, over, understood bool) (settled bool) {
	k.watch.early = k.watch.early || understood
	switch {
	case k.watch.what == forMore:
		k.reacted(ctx)
	case k.watch.what == forNothing:
	case over:
		k.reacted(ctx)
		return true
	case understood:
		k.watch.heard = true
		k.await(k.patience())
	}
	return false
}

// Expects tells whether an answer is waited for, and to what.
func (k *Keeper) Expects() (what Awaited, ok bool) {
	return k.watch.what, k.watch.what != forNothing && k.watch.what != forMore
}

// Due tells whether an answer is waited for, as far as is known: what sounded like speech may have been noise, and a model may
// choose not to answer.
func (k *Keeper) Due() bool {
	_, ok := k.Expects()
	return ok && (k.watch.stage == 0 || !k.wait.unsure)
}

// ExpectNothing ends the wait for an answer: it is not wanted any more.
func (k *Keeper) ExpectNothing(ctx context.Context) { k.abandon(ctx, Unanswered{}) }

// await sets the time by which the model must have said something.
func (k *Keeper) await(d time.Duration) {
	if k.Stall > 0 && k.link.conn != nil && !k.paused {
		k.clock.Set(alarmStall, d)
	}
}

// reacted ends the wait for an answer: the model has reacted.
func (k *Keeper) reacted(ctx context.Context) {
	if k.watch.stage > 0 {
		k.Logger.Info("the model answers again", "stage", k.watch.stage)
	}
	k.watch.missed, k.watch.noise = 0, false
	k.stopExpecting(ctx)
}

// abandon ends the wait for an answer: there will be none.
func (k *Keeper) abandon(ctx context.Context, u Unanswered) {
	k.stopExpecting(ctx)
	k.Tell(ctx, u)
}

// stopExpecting ends the wait for an answer.
func (k *Keeper) stopExpecting(ctx context.Context) {
	k.watch.what, k.watch.stage = forNothing, 0
	k.clock.Clear(alarmStall)
	if k.link.conn != nil {
		k.endWait(ctx)
	}
}

// onStall does the next thing that may help a model that does not answer.
func (k *Keeper) onStall(ctx context.Context) {
	w := &k.watch
	if w.what == forNothing || !k.serving() || k.Calling() {
		return
	}
	speech := w.what == ForSpeech
	if w.stage == 0 && (!speech || k.config.Options.Manual) {
		w.stage = 1 // there is nothing to nudge with
	}
	sure := w.heard || !speech
	aside := w.heard && k.config.Profile.Proactive && speech
	remedy := w.next(sure, aside, k.handle.text != "")
	k.beginWait()
	k.wait.unsure = aside || remedy == Nudge && !w.heard // which may be noise
	k.Logger.Warn("the model is silent", "tried", remedy, "waits_for", w.what)
	k.Tell(ctx, Stalled{remedy})
	switch remedy {
	case Nudge:
		k.counts.Nudges++
		if err := k.Uplink.Mark(uplink.Pause); err != nil {
			k.Logger.Warn("nudge dropped", "err", err)
		}
		k.await(k.patience() / 2)
	case Resume:
		k.counts.Resumes++
		k.replace.why = "stall"
		k.replaceNow(ctx)
	case Restart:
		k.counts.Restarts++
		k.replace.why = "stall"
		k.forgetHandle(ctx)
		k.replaceNow(ctx)
	case GiveUp:
		if sure {
			w.missed++
		} else {
			w.noise = true
		}
		k.Uplink.Answered()
		k.abandon(ctx, Unanswered{GaveUp: true, Sure: sure, Aside: aside})
	}
}
