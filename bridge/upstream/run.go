package upstream

import (
	"context"
	"time"
)

const (
	// parkedTime limits how long a parked conversation keeps its connection. A page that is reloaded returns sooner,
	// and an abandoned session costs money.
	parkedTime = 5 * time.Second

	// firstConfigTime limits how long the first dial waits for a client that sends its configuration after connecting.
	// Clients of OpenAI's protocol need one round trip for that.
	firstConfigTime = 800 * time.Millisecond
)

// Start dials the first connection. If waitsForConfig is true, it dials after the first call of ChangeConfig, or after
// firstConfigTime. It does not block.
func (k *Keeper) Start(ctx context.Context, waitsForConfig bool) {
	if waitsForConfig {
		k.clock.Set(alarmFirstConfig, firstConfigTime)
		return
	}
	k.dialNext(ctx)
}

// RestoreHandle replaces Start for a conversation that began at another gateway. handleText is the handle of the
// conversation's last session, or "". It does not dial: Unpark does.
func (k *Keeper) RestoreHandle(handleText string) {
	k.current.hadSession, k.isParked = true, true
	k.setupConfig = k.config
	k.eventCount = 1
	k.handle = handle{value: handleText, event: 1}
	k.failures.noCloseFrame = true // Gemini may still consider the last connection open
}

// Close ends the connection and waits for the keeper's goroutines.
func (k *Keeper) Close() {
	k.clock.Stop()
	if k.IsProbe {
		k.Breakers.ForModel(k.config.Model).PassProbe()
	}
	k.endConnection(context.Background())
}

// KeepForReturn records that the caller has left. It keeps the connection for parkedTime, because the caller may
// return.
func (k *Keeper) KeepForReturn(ctx context.Context) {
	k.isParked = true
	k.endWait(ctx)
	if k.clock.IsSet(alarmRetry) {
		k.current.isDialing = false
	}
	k.clock.Clear(alarmStall, alarmRetry, alarmNoHandle)
	k.clock.Set(alarmIdle, parkedTime)
}

// Unpark records that a caller is present again. It dials unless the model is connected already.
func (k *Keeper) Unpark(ctx context.Context) {
	wasParked := k.isParked
	k.isParked = false
	k.clock.Clear(alarmIdle)
	switch {
	case k.current.conn != nil && wasParked:
		k.applyChanges(ctx)
		if k.stall.trigger != forNothing {
			k.setStallAlarm(k.AnswerTimeout())
		}
	case k.current.conn != nil || k.clock.IsSet(alarmFirstConfig):
	default:
		if wasParked {
			k.beginWait()
		}
		if !k.current.isDialing {
			k.dialPaced(ctx)
		}
	}
}

// SetHold records whether the caller is on hold. During a hold, the caller does not wait for answers.
func (k *Keeper) SetHold(ctx context.Context, on bool) {
	k.onHold = on
	switch {
	case on:
		k.stopExpecting(ctx)
	case k.stall.trigger != forNothing: // something was asked during the hold
		k.setStallAlarm(k.AnswerTimeout())
	}
}

// IsQuiet reports whether a move to another gateway would interrupt nothing. If needsHandle is true, the newest handle
// must also cover everything that has happened.
func (k *Keeper) IsQuiet(needsHandle bool) bool {
	return k.isServing() && !k.Uplink.HasUnanswered() && k.stall.trigger == forNothing && k.IsIdle() &&
		(!needsHandle || k.handle.event > k.lastEvent || k.mustReuseHandle())
}

// OnAlarm handles all alarms that are due.
func (k *Keeper) OnAlarm(ctx context.Context) {
	for !k.hasFailed {
		which, ok := k.clock.TakeDue()
		if !ok {
			return
		}
		switch which {
		case alarmFirstConfig, alarmRetry:
			k.dialNext(ctx)
		case alarmMaxAge:
			k.planReplacement(ctx, "age", maxAgeSpare)
		case alarmGoAway:
			k.onGoAway(ctx, goAwayLead)
		case alarmReplace, alarmNoHandle:
			k.replaceNow(ctx)
		case alarmEarliest: // the owner calls ReplaceIfIdle after OnAlarm
		case alarmTrialEnd:
			k.onTrialAccepted(ctx)
		case alarmStall:
			k.tryNextRemedy(ctx)
		case alarmStale:
			k.Uplink.MarkAnswered()
			k.giveUpReply(ctx, AnswerAbandoned{})
		case alarmWait:
			k.onWaitAlarm(ctx)
		case alarmIdle:
			k.disconnect(ctx)
		}
	}
}

// onWaitAlarm reports to the owner how long the wait has lasted. If there was no connection for too long, it ends the
// conversation.
func (k *Keeper) onWaitAlarm(ctx context.Context) {
	if k.isParked {
		return
	}
	waiting := time.Since(k.wait.since)
	if waiting >= waitEnd && !k.isServing() {
		k.failConversation(ctx, k.failures.lastErr)
		return
	}
	k.Notify(ctx, WaitNotice{Long: waiting >= waitLong, Unsure: k.wait.unsure})
	next := waitEvery
	for _, at := range []time.Duration{waitLong, waitEnd} {
		if waiting < at {
			next = min(next, at-waiting)
		}
	}
	k.clock.Set(alarmWait, next)
}
