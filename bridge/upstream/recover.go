package upstream

import (
	"context"
	"errors"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

// onConnectionLost handles the loss of a connection that was in use.
func (k *Keeper) onConnectionLost(ctx context.Context, err error) {
	young := time.Since(k.current.connectedAt) < calmTime
	cause, _ := causeOf(err)
	if k.trialCount() > 0 && cause == wire.Fatal { // Gemini has rejected the change, not the conversation
		k.onTrialRejected(ctx, err)
		cause = wire.Lost
	}
	k.disconnect(ctx) // resets the failures after a calm time
	f := &k.failures
	f.lastErr = err
	closed := (*wire.CloseError)(nil)
	byGemini := errors.As(err, &closed) && closed.Code >= closeInvalidPayload
	f.noCloseFrame = !errors.As(err, &closed) || closed.Code == closeAbnormal
	if cause == wire.Quota || cause == wire.Fatal || cause == wire.Auth {
		k.failConversation(ctx, err)
		return
	}
	if young {
		f.addRejection()
		if byGemini {
			f.instantCloses++
		}
		if f.mustReduceSetup() {
			k.reduceSetup(ctx)
		}
	}
	k.scheduleRedial(ctx, 0)
}

// onDialFailed handles a failed dial.
func (k *Keeper) onDialFailed(ctx context.Context, d dialResult) {
	f := &k.failures
	f.addFailure(d.err)
	f.dials++
	cause, reached := causeOf(d.err)
	k.Logger.Warn("dial failed", "err", d.err, "cause", cause)
	switch {
	case cause == wire.StaleHandle && d.handle != "":
		k.forgetHandle(ctx)
	case d.isUpdate && cause != wire.Quota && (cause != wire.Lost || f.dials >= maxRejections):
		k.answerRejectedChanges(ctx)
		k.answerChange(ctx, d.err) // the old configuration continues with the current handle
		f.dials = 0
	case cause == wire.Quota && k.current.hadSession: // Google may still count the last connection of this gateway
		k.openBreaker(d.config.Model, d.err)
		k.scheduleRedial(ctx, max(quotaRetry, retryDelay(d.err)))
		return
	case cause == wire.Quota, cause == wire.Auth:
		k.failConversation(ctx, d.err)
		return
	case cause == wire.Lost:
		if reached {
			f.addRejection()
		}
		if f.mustReduceSetup() {
			k.reduceSetup(ctx)
		}
	case d.handle == "" && d.historyTurns == 0: // the setup cannot be made smaller
		k.failConversation(ctx, d.err)
		return
	default: // the identical setup would be rejected again
		k.reduceSetup(ctx)
	}
	delay := retryDelay(d.err)
	if !k.current.hadSession && (f.dials >= firstDials || delay > lastBackoff) { // do not let the person wait longer for the error
		k.failConversation(ctx, d.err)
	}
	k.scheduleRedial(ctx, min(delay, lastRetry))
}

// reduceSetup makes the next setup contain less of the conversation.
func (k *Keeper) reduceSetup(ctx context.Context) {
	f := &k.failures
	if f.instantCloses >= maxInstantCloses { // the input may be the cause
		k.Uplink.MarkAnswered()
		k.giveUpReply(ctx, AnswerAbandoned{})
		k.Notify(ctx, InputDropped{})
	}
	f.rejections, f.instantCloses = 0, 0
	switch {
	case f.step < stepSeeded && k.ResumptionHandle() != "":
		f.step = stepSeeded
	case f.step < stepShort:
		f.step = stepShort
	case f.step < stepBare:
		f.step = stepBare
	case time.Since(f.firstAt) >= waitEnd:
		k.failConversation(ctx, f.lastErr)
	}
	k.forgetHandle(ctx)
}

// forgetHandle drops the handle, so that the next dial begins a new session.
func (k *Keeper) forgetHandle(ctx context.Context) {
	k.handle = handle{}
	k.Notify(ctx, HandleChanged{})
}

// failConversation ends the conversation because of a failure between the gateway and Gemini.
func (k *Keeper) failConversation(ctx context.Context, err error) {
	if cause, _ := causeOf(err); cause == wire.Quota {
		next, _ := k.nextConfig()
		k.openBreaker(next.Model, err)
	}
	k.hasFailed = true
	k.Notify(ctx, ConversationFailed{Err: err, WasConnected: k.current.hadSession})
}

// openBreaker makes the model's breaker reject new conversations, because Google has refused this one for lack of
// quota.
func (k *Keeper) openBreaker(model string, err error) {
	k.Breakers.ForModel(model).openFor(k.Caller, QuotaDelay(err), k.IsProbe)
	k.IsProbe = false
}

// scheduleRedial dials again after a pause. pause is the minimum. With more failures the pause gets longer.
func (k *Keeper) scheduleRedial(ctx context.Context, pause time.Duration) {
	if k.hasFailed || k.isParked { // Unpark dials for a parked conversation
		return
	}
	k.current.hasWebSocket = false
	if k.current.hadSession {
		k.beginWait()
		k.wait.unsure = false // the person waits for certain, because the model receives nothing now
	}
	k.current.isDialing = true
	k.clock.Set(alarmRetry, max(pause, k.reserveDial()))
}

// tryNextRemedy tries the next remedy, because the model has not answered.
func (k *Keeper) tryNextRemedy(ctx context.Context) {
	w := &k.stall
	if w.trigger == forNothing || !k.isServing() || k.WaitsForTool() {
		return
	}
	speech := w.trigger == ForSpeech
	if w.stage == 0 && (!speech || k.config.Options.Manual) {
		w.stage = 1 // skip Nudge, which repeats the end of speech that the gateway has detected
	}
	sure := w.isUnderstood || !speech
	aside := w.isUnderstood && k.config.Profile.Proactive && speech
	remedy := w.nextRemedy(sure, aside, k.handle.value != "")
	k.beginWait()
	k.wait.unsure = aside || remedy == Nudge && !w.isUnderstood // the input may be noise
	k.Logger.Warn("model is silent", "tried", remedy, "waits_for", w.trigger)
	k.tryRemedy(ctx, remedy, sure, aside)
}

// AskAgain repeats a question whose turn has ended without an answer: first on the same connection, then in a new
// session. hasAsked is false if both were tried before.
func (k *Keeper) AskAgain(ctx context.Context) (hasAsked bool) {
	remedy := k.stall.nextRemedyAfterEmptyTurn()
	k.Logger.Warn("model ended its turn without an answer", "tried", remedy, "waits_for", k.stall.trigger)
	k.beginWait()
	k.wait.unsure = false
	k.tryRemedy(ctx, remedy, true, false)
	return remedy != GiveUp
}

// RestartSession replaces the session by a new one, which gets the transcript.
func (k *Keeper) RestartSession(ctx context.Context) { k.tryRemedy(ctx, Restart, true, false) }

// tryRemedy applies a remedy. isCertain and maybeAside become Sure and Aside of [AnswerAbandoned].
func (k *Keeper) tryRemedy(ctx context.Context, remedy Remedy, isCertain, maybeAside bool) {
	w := &k.stall
	k.Notify(ctx, ModelStalled{remedy})
	switch remedy {
	case Repeat:
		k.counts.Repeats++
		replayed, lost, hasSpeechStart := k.Uplink.QueueReplay(false)
		k.Notify(ctx, Replayed{Speech: replayed, Lost: lost, Partial: hasSpeechStart})
		k.setStallAlarm(k.AnswerTimeout() + replayed/uplink.ReplaySpeed)
	case Nudge:
		k.counts.Nudges++
		if err := k.Uplink.RepeatSpeechEnd(); err != nil {
			k.Logger.Warn("nudge dropped", "err", err)
		}
		k.setStallAlarm(k.AnswerTimeout() / 2)
	case Resume:
		k.counts.Resumes++
		k.planned.reason = "stall"
		k.replaceNow(ctx)
	case Restart:
		k.counts.Restarts++
		k.planned.reason = "stall"
		k.forgetHandle(ctx)
		k.replaceNow(ctx)
	case GiveUp:
		if isCertain {
			w.missedCount++
		} else {
			w.isNoise = true
		}
		k.Uplink.MarkAnswered()
		k.giveUpReply(ctx, AnswerAbandoned{GaveUp: true, Sure: isCertain, Aside: maybeAside})
	}
}
