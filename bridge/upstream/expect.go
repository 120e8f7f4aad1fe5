package upstream

import (
	"context"
	"time"
)

const (
	// answerExpiry is the maximum wait for an answer to the person's input, including all attempts to get one. A later
	// answer is useless.
	answerExpiry = 25 * time.Second

	// thinkingFactor multiplies the timeouts of a model that thinks before it speaks.
	thinkingFactor = 5
)

// Delays before each notice to a waiting person. Waits shorter than waitFirst go unnoticed; people ask "hello?" after
// some five seconds of silence.
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
	k.Logger.Info("wait ended", "took", took.Round(time.Millisecond))
	k.counts.LongestWait = max(k.counts.LongestWait, took)
	k.wait = waitState{}
	k.clock.Clear(alarmWait)
	k.Notify(ctx, WaitOver{})
}

// AnswerTimeout returns how long the model may be silent when an answer is due; 0 means no limit.
func (k *Keeper) AnswerTimeout() time.Duration {
	if k.config.Profile.Slow {
		return thinkingFactor * k.StallTimeout
	}
	return k.StallTimeout
}

// pauseFactor times [Options].StallTimeout is the longest accepted pause within an answer: 9 s for 6 s. gemini-3.8-live
// on Vertex AI paused for 7.0 s in 3 % of its answers (October 2026).
const pauseFactor = 1.5

// PauseTimeout returns the longest accepted pause within an answer. 0 means no limit.
func (k *Keeper) PauseTimeout() time.Duration {
	return max(k.AnswerTimeout(), time.Duration(pauseFactor*float64(k.StallTimeout)))
}

// HasUnderstood reports whether a message of the model has shown that the model understood the input to be answered.
func (k *Keeper) HasUnderstood() bool {
	return k.stall.trigger == ForSpeech && (k.stall.isUnderstood || k.stall.understoodEarly) || k.stall.trigger == ForText ||
		k.stall.trigger == ForTool
}

// AnswerExpiry returns how long the person's input may wait for its answer.
func (k *Keeper) AnswerExpiry() time.Duration { return max(answerExpiry, 3*k.AnswerTimeout()) }

// ExpectReply starts waiting for the model's reaction to the trigger. An unanswered earlier question may then count as
// missed: see countSuperseded.
func (k *Keeper) ExpectReply(what Trigger) {
	k.stall.countSuperseded()
	k.stall.trigger, k.stall.stage, k.stall.isUnderstood = what, 0, what == ForSpeech && k.stall.understoodEarly
	k.clock.Set(alarmStale, k.AnswerExpiry())
	k.setStallAlarm(k.AnswerTimeout())
}

// OnSpeechContinued must be called when a person speaks again. It returns true if the model still owed an answer to
// earlier speech. The keeper no longer expects that answer.
func (k *Keeper) OnSpeechContinued(ctx context.Context) bool {
	if k.stall.trigger != ForSpeech {
		k.stall.understoodEarly = false
		return false
	}
	if k.stall.countSuperseded() {
		k.stall.understoodEarly = false
	}
	k.clock.Clear(alarmStale)
	k.stopExpecting(ctx)
	return true
}

// OnAnswerPart records that the model is answering, and starts to watch for a stall within the answer.
func (k *Keeper) OnAnswerPart(ctx context.Context) {
	k.stall.trigger, k.stall.stage = forMore, 0
	if k.current.conn != nil {
		k.endWait(ctx)
	}
	k.setStallAlarm(k.PauseTimeout())
}

// OnAnswer records an answer that is more than a thought: nothing said so far needs a replay.
func (k *Keeper) OnAnswer() {
	k.Uplink.MarkAnswered()
	k.clock.Clear(alarmStale)
	k.stall.missedCount, k.stall.isNoise = 0, false
}

// OnModelActivity records a message that is not part of an answer. final means that it ends a turn or calls tools.
// understood means that it has a transcript of the person's speech, or reports that voice was detected. unanswered
// reports whether the turn ended without the expected answer.
func (k *Keeper) OnModelActivity(ctx context.Context, final, understood bool) (unanswered bool) {
	k.stall.understoodEarly = k.stall.understoodEarly || understood
	switch {
	case k.stall.trigger == forMore:
		k.endExpecting(ctx)
	case k.stall.trigger == forNothing:
	case final:
		k.endExpecting(ctx)
		return true
	case understood:
		k.stall.isUnderstood = true
		k.setStallAlarm(k.AnswerTimeout())
	}
	return false
}

// ExpectedReply returns the trigger of the expected answer; ok is false if none is expected.
func (k *Keeper) ExpectedReply() (what Trigger, ok bool) {
	return k.stall.trigger, k.stall.trigger != forNothing && k.stall.trigger != forMore
}

// ReplyPending reports whether an answer is expected. If the input may be noise, which needs no answer, it returns false
// from the first [WaitNotice] on.
func (k *Keeper) ReplyPending() bool {
	_, ok := k.ExpectedReply()
	return ok && (k.stall.stage == 0 || !k.wait.unsure || time.Since(k.wait.since) < waitFirst)
}

// DiscardReply ends the wait for an answer that has become unnecessary.
func (k *Keeper) DiscardReply(ctx context.Context) { k.giveUpReply(ctx, AnswerAbandoned{}) }

// setStallAlarm sets the deadline for the model's reaction. It does nothing for a text model, whose connection has its
// own timeout.
func (k *Keeper) setStallAlarm(d time.Duration) {
	if k.StallTimeout > 0 && !k.config.Profile.IsTextModel && k.current.conn != nil && !k.onHold {
		k.clock.Set(alarmStall, d)
	}
}

// endExpecting ends the wait for an answer because the model has reacted.
func (k *Keeper) endExpecting(ctx context.Context) {
	if k.stall.stage > 0 {
		k.Logger.Info("model reacts again", "stage", k.stall.stage)
	}
	k.stall.missedCount, k.stall.isNoise = 0, false
	k.stopExpecting(ctx)
}

// giveUpReply ends the wait for an answer that will not come, and reports that.
func (k *Keeper) giveUpReply(ctx context.Context, u AnswerAbandoned) {
	k.stopExpecting(ctx)
	k.Notify(ctx, u)
}

// stopExpecting ends the wait for an answer.
func (k *Keeper) stopExpecting(ctx context.Context) {
	k.stall.trigger, k.stall.stage = forNothing, 0
	k.clock.Clear(alarmStall)
	if k.current.conn != nil {
		k.endWait(ctx)
	}
}
