package upstream

import (
	"context"
	"time"
)

const (
	// maxAge is the age at which a connection counts as old. Gemini closes connections after about ten minutes. The
	// goAway that it should send after nine minutes may be missing (js-genai #618).
	maxAge = 9*time.Minute + 15*time.Second

	// maxAgeSpare limits how long the replacement of an old connection waits for an idle moment.
	maxAgeSpare = 30 * time.Second
	// updateSpare limits how long a replacement for a new configuration waits for an idle moment.
	updateSpare = 30 * time.Second

	// reasonUpdate is the reason of a replacement that applies a new configuration. The client waits for such a
	// replacement.
	reasonUpdate = "update"

	// goAwaySpare is the minimum time between the replacement of a connection and the time at which Gemini will close
	// it.
	goAwaySpare = 5 * time.Second

	// goAwayLead limits how early a connection that Gemini will close is replaced. From this time before the close, it
	// is replaced as soon as it is idle. Google sends goAway a minute ahead.
	goAwayLead = 90 * time.Second

	// handleWait limits how long an idle connection waits for a handle that covers the last turn. Gemini sends it
	// within 100 ms.
	handleWait = 3 * time.Second
)

// IsReplacementPlanned reports whether the connection will be replaced at the next idle moment.
func (k *Keeper) IsReplacementPlanned() bool { return k.isServing() && k.planned.isPlanned() }

// onGoAway plans to replace the connection before Gemini closes it. Gemini will close it after the duration left. The
// replacement begins at most goAwayLead before that.
func (k *Keeper) onGoAway(ctx context.Context, left time.Duration) {
	if left > goAwayLead {
		k.clock.Set(alarmGoAway, left-goAwayLead)
		return
	}
	k.clock.Clear(alarmGoAway)
	k.planReplacement(ctx, "goAway", left-goAwaySpare)
}

// planReplacement plans to replace the connection at the next idle moment, but after maxDelay at the latest. If there
// is already a plan with an earlier deadline, that plan stays.
func (k *Keeper) planReplacement(ctx context.Context, reason string, maxDelay time.Duration) {
	if k.isParked {
		k.disconnect(ctx) // Unpark dials again
		return
	}
	earliest := k.earliestReplacement(reason)
	until := time.Now().Add(max(maxDelay, time.Until(earliest), 0))
	if k.planned.isPlanned() && k.planned.deadline.Before(until) {
		return
	}
	k.planned = replacement{reason: reason, earliest: earliest, deadline: until}
	k.clock.Set(alarmReplace, time.Until(until)) // a deadline of the keeper, because a server may stop responding after goAway
}

// earliestReplacement returns the earliest time at which the connection may be replaced for a reason. If earlier
// connections were short-lived, the current one stays in use for calmTime. Otherwise a server that sends goAway on
// every connection, or a client that changes its configuration all the time, would cause endless dials.
func (k *Keeper) earliestReplacement(reason string) time.Time {
	switch young := k.failures.shortLived; {
	case young == 0:
		return k.current.connectedAt
	case reason == reasonUpdate:
		// The client waits for the new configuration, so the delay is only as long as after failed dials.
		return k.current.connectedAt.Add(min(firstBackoff<<min(young-1, 10), lastBackoff))
	}
	return k.current.connectedAt.Add(calmTime)
}

// ReplaceIfIdle replaces the connection if a replacement is planned and the connection is idle. The owner's loop calls
// it after each event.
func (k *Keeper) ReplaceIfIdle(ctx context.Context) {
	if k.IsReplacementPlanned() && k.prepareReplacement() {
		k.replaceNow(ctx)
	}
}

// prepareReplacement reports whether the connection can be replaced now without interrupting anything, and with a
// handle that covers everything. If not, it sets an alarm for the next check.
func (k *Keeper) prepareReplacement() (isReady bool) {
	if k.Uplink.HasUnanswered() || k.stall.trigger != forNothing || !k.IsIdle() {
		k.clock.Clear(alarmNoHandle)
		return false
	}
	if left := time.Until(k.planned.earliest); left > 0 {
		k.clock.Set(alarmEarliest, left)
		return false
	}
	if k.handle.event > k.lastEvent || !k.config.Options.Resumption || k.mustReuseHandle() { // no newer handle is needed, or none will come
		return true
	}
	if !k.clock.IsSet(alarmNoHandle) {
		k.clock.Set(alarmNoHandle, handleWait)
	}
	return false
}

// replaceNow closes the connection and dials the next one with the newest handle. Meanwhile the uplink queues input.
func (k *Keeper) replaceNow(ctx context.Context) {
	if k.isParked {
		k.disconnect(ctx) // Unpark dials again
	}
	if !k.isServing() {
		return
	}
	k.Logger.Info("connection replaced", "why", k.planned.reason, "age", time.Since(k.current.connectedAt).Round(time.Millisecond))
	k.disconnect(ctx)
	k.beginWait()
	k.dialPaced(ctx)
}

// dialPaced dials at once. If earlier connections have ended early, it first pauses. The time since the previous
// connection began counts as part of that pause.
func (k *Keeper) dialPaced(ctx context.Context) {
	if pause := k.reserveDial() - time.Since(k.current.connectedAt); pause > 0 {
		k.current.isDialing, k.current.hasWebSocket = true, false
		k.clock.Set(alarmRetry, pause)
		return
	}
	k.dialNext(ctx)
}

// reserveDial returns how long to wait before the next dial. The wait grows with failed dials and short-lived
// connections. After short-lived connections it also reserves a dial in Breakers, which limit the dials of all
// conversations together.
func (k *Keeper) reserveDial() (delay time.Duration) {
	next, _ := k.nextConfig()
	if next.Profile.IsTextModel {
		return 0
	}
	pause := k.failures.backoff()
	if k.failures.shortLived > 1 {
		pause = max(pause, k.Breakers.ForModel(next.Model).reserveRedial())
	}
	return pause
}
