package upstream

import (
	"context"
	"time"
)

const (
	// maxAge is the age at which a connection counts as old. Gemini closes it after about ten minutes. A goAway after
	// nine minutes may be missing (js-genai #618).
	maxAge = 9*time.Minute + 15*time.Second

	// maxAgeSpare limits how long the replacement of an old connection waits for an idle moment.
	maxAgeSpare = 30 * time.Second
	// updateSpare limits how long a replacement for a new configuration waits for an idle moment.
	updateSpare = 30 * time.Second

	// reasonUpdate is the reason of a replacement for a new configuration. The client waits for it.
	reasonUpdate = "update"

	// goAwaySpare is the minimum time between a replacement and Gemini's deadline.
	goAwaySpare = 5 * time.Second

	// goAwayLead is the time before Gemini's deadline from which the connection is replaced at an idle moment. Google
	// sends goAway a minute ahead.
	goAwayLead = 90 * time.Second

	// handleWait limits how long an idle connection waits for a handle that covers the last turn. Gemini sends it
	// within 100 ms.
	handleWait = 3 * time.Second
)

// IsReplacementPlanned reports whether the connection will be replaced at the next idle moment.
func (k *Keeper) IsReplacementPlanned() bool { return k.isServing() && k.planned.isPlanned() }

// onGoAway plans to replace the connection before Gemini closes it, which is when the duration left has passed. The
// replacement begins goAwayLead before that time at the earliest.
func (k *Keeper) onGoAway(ctx context.Context, left time.Duration) {
	if left > goAwayLead {
		k.clock.Set(alarmGoAway, left-goAwayLead)
		return
	}
	k.clock.Clear(alarmGoAway)
	k.planReplacement(ctx, "goAway", left-goAwaySpare)
}

// planReplacement plans to replace the connection at the next idle moment, or at the latest when the duration within has
// passed. A plan with an earlier deadline stays.
func (k *Keeper) planReplacement(ctx context.Context, reason string, within time.Duration) {
	if k.isParked {
		k.disconnect(ctx) // Unpark dials again
		return
	}
	earliest := k.earliestReplacement(reason)
	until := time.Now().Add(max(within, time.Until(earliest), 0))
	if k.planned.isPlanned() && k.planned.deadline.Before(until) {
		return
	}
	k.planned = replacement{reason: reason, earliest: earliest, deadline: until}
	k.clock.Set(alarmReplace, time.Until(until)) // a deadline of the keeper, because a server may stop responding after goAway
}

// earliestReplacement returns the earliest time to replace the connection for a reason. After short-lived connections, the
// current connection stays in use for calmTime: the server may be sending goAway on every connection, or the client may be
// changing its configuration all the time.
func (k *Keeper) earliestReplacement(why string) time.Time {
	switch young := k.failures.shortLived; {
	case young == 0:
		return k.current.connectedAt
	case why == reasonUpdate:
		// The client waits for the update, so the delay is only that of a dial after a failure.
		return k.current.connectedAt.Add(min(firstBackoff<<min(young-1, 10), lastBackoff))
	}
	return k.current.connectedAt.Add(calmTime)
}

// ReplaceIfIdle carries out a planned replacement if the connection is idle. The owner calls it after each of its
// steps.
func (k *Keeper) ReplaceIfIdle(ctx context.Context) {
	if k.IsReplacementPlanned() && k.canReplace() {
		k.replaceNow(ctx)
	}
}

// canReplace reports whether the connection can be replaced without an interruption, with a handle that covers
// everything.
func (k *Keeper) canReplace() bool {
	if k.Uplink.HasUnanswered() || k.stall.trigger != forNothing || !k.IsIdle() {
		k.clock.Clear(alarmNoHandle)
		return false
	}
	if left := time.Until(k.planned.earliest); left > 0 {
		k.clock.Set(alarmEarliest, left)
		return false
	}
	if k.handle.event > k.lastEvent || !k.config.Options.Resumption || k.isHandleReused() { // no newer handle is needed, or none will come
		return true
	}
	if !k.clock.IsSet(alarmNoHandle) {
		k.clock.Set(alarmNoHandle, handleWait)
	}
	return false
}

// replaceNow closes the connection and dials the next one with the newest handle. Meanwhile input waits in the uplink.
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

// dialPaced dials at once, or after a pause if connections have ended early. The previous connection's lifetime counts
// towards the pause.
func (k *Keeper) dialPaced(ctx context.Context) {
	if pause := k.dialPause() - time.Since(k.current.connectedAt); pause > 0 {
		k.current.isDialing, k.current.hasWebSocket = true, false
		k.clock.Set(alarmRetry, pause)
		return
	}
	k.dialNext(ctx)
}

// dialPause returns the delay of the next dial. It grows with failed dials and short-lived connections. Breakers also
// limits the dials of all conversations together.
func (k *Keeper) dialPause() time.Duration {
	next, _ := k.nextConfig()
	if next.Profile.IsTextModel {
		return 0
	}
	pause := k.failures.backoff()
	if k.failures.shortLived > 1 {
		pause = max(pause, k.Breakers.ForModel(next.Model).redialDelay())
	}
	return pause
}
