package keeper

import (
	"context"
	"time"
)

const (
	// idleTime is how long a parked conversation keeps its connection. A reloaded page is back sooner, and an abandoned
	// session costs money.
	idleTime = 5 * time.Second

	// laterTime is how long the dial waits for a client that configures after connecting. Clients of OpenAI's protocol
	// send their session.update with the first round trip.
	laterTime = 800 * time.Millisecond
)

// Start dials. With later it waits for the first Update, but not for long.
func (k *Keeper) Start(ctx context.Context, later bool) {
	if later {
		k.clock.Set(alarmLater, laterTime)
		return
	}
	k.dial(ctx)
}

// Restore, called instead of Start, goes on with a conversation of another keeper from its newest handle; empty: there
// is none. It dials at Return.
func (k *Keeper) Restore(handleText string) {
	k.link.setUp, k.parked = true, true
	k.opened = k.config
	k.now = 1
	k.handle = handle{text: handleText, when: 1}
	k.failures.silent = true // Gemini may still take the last connection for open
}

// Close ends the connection and waits for what the keeper has started.
func (k *Keeper) Close() {
	k.clock.Stop()
	if k.IsProbe {
		k.Breakers.For(k.config.Model).Release()
	}
	k.endLink(context.Background())
}

// Park is called when there is no caller any more. The connection is kept for a while.
func (k *Keeper) Park(ctx context.Context) {
	k.parked = true
	k.endWait(ctx)
	if k.clock.IsSet(alarmRetry) {
		k.link.busy = false
	}
	k.clock.Clear(alarmStall, alarmRetry, alarmHandle)
	k.clock.Set(alarmIdle, idleTime)
}

// Return is called when there is a caller again, or another one. It dials if there is no connection.
func (k *Keeper) Return(ctx context.Context) {
	was := k.parked
	k.parked = false
	k.clock.Clear(alarmIdle)
	switch {
	case k.link.conn != nil && was:
		k.update(ctx)
		if k.watch.what != forNothing {
			k.await(k.Patience())
		}
	case k.link.conn != nil || k.clock.IsSet(alarmLater):
	default:
		if was {
			k.beginWait()
		}
		if !k.link.busy {
			k.dialPaced(ctx)
		}
	}
}

// Pause says that the caller is on hold, and waits for no answer, or is not any more.
func (k *Keeper) Pause(ctx context.Context, on bool) {
	k.paused = on
	switch {
	case on:
		k.stopExpecting(ctx)
	case k.watch.what != forNothing: // it was asked while on hold
		k.await(k.Patience())
	}
}

// Quiet reports whether the conversation could go on elsewhere without anything being cut off. With known the newest
// handle must know of all, too.
func (k *Keeper) Quiet(known bool) bool {
	return k.serving() && !k.Uplink.HasUnanswered() && k.watch.what == forNothing && k.Idle() &&
		(!known || k.handle.when > k.unsaved || k.isHandleReused())
}

// OnAlarm does what is due, if anything.
func (k *Keeper) OnAlarm(ctx context.Context) {
	for !k.failed {
		which, ok := k.clock.Due()
		if !ok {
			return
		}
		switch which {
		case alarmLater, alarmRetry:
			k.dial(ctx)
		case alarmAge:
			k.replaceSoon(ctx, "age", ageSpare)
		case alarmGoAway:
			k.onGoAway(ctx, goAwayLead)
		case alarmReplace, alarmHandle:
			k.replaceNow(ctx)
		case alarmEarliest: // Settle follows
		case alarmTrial:
			k.accepted(ctx)
		case alarmStall:
			k.onStall(ctx)
		case alarmStale:
			k.Uplink.MarkAnswered()
			k.abandon(ctx, Unanswered{})
		case alarmWait:
			k.onWait(ctx)
		case alarmIdle:
			k.unlink(ctx)
		}
	}
}

// onWait reports how long the wait has lasted, and ends the conversation after too long without a connection.
func (k *Keeper) onWait(ctx context.Context) {
	if k.parked {
		return
	}
	waiting := time.Since(k.wait.since)
	if waiting >= waitEnd && !k.serving() {
		k.fail(ctx, k.failures.last)
		return
	}
	k.Tell(ctx, Waiting{Long: waiting >= waitLong, Unsure: k.wait.unsure})
	next := waitEvery
	for _, at := range []time.Duration{waitLong, waitEnd} {
		if waiting < at {
			next = min(next, at-waiting)
		}
	}
	k.clock.Set(alarmWait, next)
}
