package upstream

import (
	"context"
	"time"
)

const (
	// parkedTime is the time that a parked conversation keeps its connection. A reloaded page returns sooner, and an
	// abandoned session costs money.
	parkedTime = 5 * time.Second

	// firstConfigTime limits the delay of the first dial for a client that configures late. Clients of OpenAI's
	// protocol need one round trip.
	firstConfigTime = 800 * time.Millisecond
)

// Start dials the first connection. With awaitConfig it first waits up to firstConfigTime for the first call of
// ChangeConfig. It does not block.
func (k *Keeper) Start(ctx context.Context, awaitConfig bool) {
	if awaitConfig {
		k.clock.Set(alarmFirstConfig, firstConfigTime)
		return
	}
	k.dialNext(ctx)
}

// RestoreHandle replaces Start for a conversation that began at another gateway. handleText is the handle of its last
// session, or "". Unpark starts the dial.
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

// Park records that the caller has left. The connection is kept for parkedTime.
func (k *Keeper) Park(ctx context.Context) {
	k.isParked = true
	k.endWait(ctx)
	if k.clock.IsSet(alarmRetry) {
		k.current.isDialing = false
	}
	k.clock.Clear(alarmStall, alarmRetry, alarmNoHandle)
	k.clock.Set(alarmIdle, parkedTime)
}

// Unpark records that a caller is present again. It dials if there is currently no connection.
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

// SetHold records whether the caller is on hold. A caller on hold does not wait for answers.
func (k *Keeper) SetHold(ctx context.Context, on bool) {
	k.onHold = on
	switch {
	case on:
		k.stopExpecting(ctx)
	case k.stall.trigger != forNothing: // something was asked during the hold
		k.setStallAlarm(k.AnswerTimeout())
	}
}

// IsQuiet reports whether a move to another gateway would interrupt nothing. With covered, the newest handle must also
// cover everything.
func (k *Keeper) IsQuiet(covered bool) bool {
	return k.isServing() && !k.Uplink.HasUnanswered() && k.stall.trigger == forNothing && k.IsIdle() &&
		(!covered || k.handle.event > k.lastEvent || k.isHandleReused())
}

// OnAlarm handles all alarms that are due.
func (k *Keeper) OnAlarm(ctx context.Context) {
	for !k.hasFailed {
		which, ok := k.clock.Due()
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
			k.onStall(ctx)
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

// onWaitAlarm reports how long the wait has lasted, and ends the conversation after too long without a connection.
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
