package keeper

import (
	"context"
	"time"
)

const (
	// staleTime is how long something said waits for its answer, whatever is tried. After that nobody wants it.
	staleTime = 25 * time.Second

	// slowly is how many times longer a model may take that thinks before it speaks.
	slowly = 5
)

// How long a person waits before each sign. Nobody notices waits shorter than the first; people ask "hello?" after some
// five seconds of silence.
const (
	waitFirst = time.Second
	waitLong  = 5 * time.Second
	waitEvery = 2 * time.Second
)

func (k *Keeper) beginWait() {
	if k.wait.since.IsZero() {
		k.wait.since = time.Now()
		k.clock.Set(alarmWait, waitFirst)
	}
}

func (k *Keeper) endWait(ctx context.Context) {
	if k.wait.since.IsZero() {
		return
	}
	took := time.Since(k.wait.since)
	k.Logger.Info("wait over", "took", took.Round(time.Millisecond))
	k.counts.LongestWait = max(k.counts.LongestWait, took)
	k.wait = wait{}
	k.clock.Clear(alarmWait)
	k.Tell(ctx, WaitOver{})
}

// Patience is how long the model may be silent where an answer is due; 0: for ever.
func (k *Keeper) Patience() time.Duration {
	if k.config.Profile.Slow {
		return slowly * k.Stall
	}
	return k.Stall
}

// pausePatience is the longest accepted pause within an answer, as a multiple of [Options].Stall: 9 s for a Stall of 6 s. Pauses of
// 7.0 s were reported for 3 % of the answers of gemini-3.8-live on Vertex AI (October 2026).
const pausePatience = 1.5

// PausePatience returns the longest accepted pause within an answer. 0 means no limit.
func (k *Keeper) PausePatience() time.Duration {
	return max(k.Patience(), time.Duration(pausePatience*float64(k.Stall)))
}

// IsUnderstood reports whether the model is known to have understood what it is to answer.
func (k *Keeper) IsUnderstood() bool {
	return k.watch.what == ForSpeech && (k.watch.heard || k.watch.early) || k.watch.what == ForText || k.watch.what == ForTool
}

// ShelfLife is how long something said is worth an answer.
func (k *Keeper) ShelfLife() time.Duration { return max(staleTime, 3*k.Patience()) }

// Expect begins to wait for the model's answer.
func (k *Keeper) Expect(what Awaited) {
	k.watch.superseded()
	k.watch.what, k.watch.stage, k.watch.heard = what, 0, what == ForSpeech && k.watch.early
	k.clock.Set(alarmStale, k.ShelfLife())
	k.await(k.Patience())
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

// Answering notes that the model is giving an answer, and begins to watch that it does not stop in the middle.
func (k *Keeper) Answering(ctx context.Context) {
	k.watch.what, k.watch.stage = forMore, 0
	if k.link.conn != nil {
		k.endWait(ctx)
	}
	k.await(k.PausePatience())
}

// Answers notes an answer, not only a thought: nothing of what was said need be said again.
func (k *Keeper) Answers() {
	k.Uplink.MarkAnswered()
	k.clock.Clear(alarmStale)
	k.watch.missed, k.watch.noise = 0, false
}

// Reacted notes a message that is no part of an answer. over: it ends a turn, or calls tools; understood: it shows that
// the model has understood speech. It reports whether the model has ended its turn without the answer that was waited
// for.
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
		k.await(k.Patience())
	}
	return false
}

// Expects reports whether an answer is waited for, and to what.
func (k *Keeper) Expects() (what Awaited, ok bool) {
	return k.watch.what, k.watch.what != forNothing && k.watch.what != forMore
}

// Due reports whether an answer is waited for, as far as is known: what sounded like speech may have been noise, and a
// model may choose not to answer. It does not end before the person has been asked to wait.
func (k *Keeper) Due() bool {
	_, ok := k.Expects()
	return ok && (k.watch.stage == 0 || !k.wait.unsure || time.Since(k.wait.since) < waitFirst)
}

// ExpectNothing ends the wait for an answer: it is not wanted any more.
func (k *Keeper) ExpectNothing(ctx context.Context) { k.abandon(ctx, Unanswered{}) }

// await sets the time by which the model must have said something. For one that writes its server sees to that.
func (k *Keeper) await(d time.Duration) {
	if k.Stall > 0 && !k.config.Profile.Writes && k.link.conn != nil && !k.paused {
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

// abandon ends the wait for an answer that will not come.
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
