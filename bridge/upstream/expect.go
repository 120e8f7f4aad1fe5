package upstream

import (
	"context"
	"time"
)

const (
	// answerExpiry limits how long the person's input waits for an answer, including all attempts to get one. An answer
	// that comes later is useless.
	answerExpiry = 25 * time.Second

	// thinkingFactor multiplies the timeouts of a model that thinks before it speaks.
	thinkingFactor = 5
)

// Times at which a waiting person is notified: after waitFirst, and then every waitEvery. After waitLong the wait
// counts as long. A wait shorter than waitFirst is not noticed. After some five seconds of silence, people ask
// "hello?".
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

// AnswerTimeout returns how long the model may send nothing when an answer is due; 0 means no limit.
func (k *Keeper) AnswerTimeout() time.Duration {
	if k.config.Profile.Slow {
		return thinkingFactor * k.StallTimeout
	}
	return k.StallTimeout
}

// pauseFactor multiplied by [Options].StallTimeout is the longest accepted pause within an answer: 9 s if StallTimeout
// is 6 s. gemini-3.8-live on Vertex AI paused for 7.0 s in 3 % of its answers (October 2026).
const pauseFactor = 1.5

// PauseTimeout returns the longest accepted pause within an answer. 0 means no limit.
func (k *Keeper) PauseTimeout() time.Duration {
	return max(k.AnswerTimeout(), time.Duration(pauseFactor*float64(k.StallTimeout)))
}

// HasUnderstood reports whether the model certainly knows the input that it has to answer: typed text, a tool's answer,
// or speech for which the model has sent a transcript or reported voice.
func (k *Keeper) HasUnderstood() bool {
	return k.stall.trigger == ForSpeech && (k.stall.isUnderstood || k.stall.understoodEarly) || k.stall.trigger == ForText ||
		k.stall.trigger == ForTool
}

// AnswerExpiry returns how long the person's input waits for its answer before the wait is given up.
func (k *Keeper) AnswerExpiry() time.Duration { return max(answerExpiry, 3*k.AnswerTimeout()) }

// ExpectReply starts waiting for the model's reaction to trigger. If an earlier question has not been answered, it may
// now count as missed: see countMissedQuestion.
func (k *Keeper) ExpectReply(trigger Trigger) {
	k.stall.countMissedQuestion()
	k.stall.trigger, k.stall.stage, k.stall.isUnderstood = trigger, 0, trigger == ForSpeech && k.stall.understoodEarly
	k.clock.Set(alarmStale, k.AnswerExpiry())
	k.setStallAlarm(k.AnswerTimeout())
}

// OnSpeechContinued must be called when the person speaks again. If the model has not answered earlier speech,
// wasAnswerDue is true, and the keeper no longer expects that answer.
func (k *Keeper) OnSpeechContinued(ctx context.Context) (wasAnswerDue bool) {
	if k.stall.trigger != ForSpeech {
		k.stall.understoodEarly = false
		return false
	}
	if k.stall.countMissedQuestion() {
		k.stall.understoodEarly = false
	}
	k.clock.Clear(alarmStale)
	k.stopExpecting(ctx)
	return true
}

// OnAnswerPart records that the model is answering. From now on the keeper watches for a stall within the answer.
func (k *Keeper) OnAnswerPart(ctx context.Context) {
	k.stall.trigger, k.stall.stage = forMore, 0
	if k.current.conn != nil {
		k.endWait(ctx)
	}
	k.setStallAlarm(k.PauseTimeout())
}

// OnAnswer records that the model has begun an answer and not only a thought. So nothing that was said so far needs a
// replay.
func (k *Keeper) OnAnswer() {
	k.Uplink.MarkAnswered()
	k.clock.Clear(alarmStale)
	k.stall.missedCount, k.stall.isNoise = 0, false
}

// OnModelActivity records a message that is not part of an answer. isFinal means that the message ends a turn or calls
// tools. isUnderstood means that it has a transcript of the person's speech, or reports that voice was detected.
// isUnanswered is true if an answer was expected and the turn has ended without it.
func (k *Keeper) OnModelActivity(ctx context.Context, isFinal, isUnderstood bool) (isUnanswered bool) {
	k.stall.understoodEarly = k.stall.understoodEarly || isUnderstood
	switch {
	case k.stall.trigger == forMore:
		k.onModelReacted(ctx)
	case k.stall.trigger == forNothing:
	case isFinal:
		k.onModelReacted(ctx)
		return true
	case isUnderstood:
		k.stall.isUnderstood = true
		k.setStallAlarm(k.AnswerTimeout())
	}
	return false
}

// ExpectedReply returns the trigger of the expected answer. ok is false if no answer is expected.
func (k *Keeper) ExpectedReply() (trigger Trigger, ok bool) {
	return k.stall.trigger, k.stall.trigger != forNothing && k.stall.trigger != forMore
}

// ReplyPending reports whether an answer is expected. If the input may have been noise, which needs no answer, it
// returns false after the first [WaitNotice].
func (k *Keeper) ReplyPending() bool {
	_, ok := k.ExpectedReply()
	return ok && (k.stall.stage == 0 || !k.wait.unsure || time.Since(k.wait.since) < waitFirst)
}

// DiscardReply ends the wait for an answer that has become unnecessary.
func (k *Keeper) DiscardReply(ctx context.Context) { k.giveUpReply(ctx, AnswerAbandoned{}) }

// setStallAlarm sets the time within which the model must react. It does nothing for a text model, because its
// connection has its own timeout.
func (k *Keeper) setStallAlarm(d time.Duration) {
	if k.StallTimeout > 0 && !k.config.Profile.IsTextModel && k.current.conn != nil && !k.onHold {
		k.clock.Set(alarmStall, d)
	}
}

// onModelReacted ends the wait for an answer because the model has reacted.
func (k *Keeper) onModelReacted(ctx context.Context) {
	if k.stall.stage > 0 {
		k.Logger.Info("model reacts again", "stage", k.stall.stage)
	}
	k.stall.missedCount, k.stall.isNoise = 0, false
	k.stopExpecting(ctx)
}

// giveUpReply ends the wait for an answer that will not come, and reports u to the owner.
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
