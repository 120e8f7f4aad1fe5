package keeper

import (
	"context"
	"time"
)

const (
	// maxAge is when a connection counts as old: Gemini closes it after about ten minutes and does not always send goAway
	// (js-genai #618). It sends goAway at nine, so only connections without one get so old.
	maxAge = 9*time.Minute + 15*time.Second

	// ageSpare is how long the replacement of an old connection waits for a quiet moment, and updateSpare that for another
	// configuration.
	ageSpare    = 30 * time.Second
	updateSpare = 30 * time.Second

	// whyUpdate is the reason for a replacement that the client waits for.
	whyUpdate = "update"

	// goAwaySpare is how long before Gemini's deadline a connection is replaced at the latest.
	goAwaySpare = 5 * time.Second

	// goAwayLead is how long before Gemini's deadline the first quiet moment is used. Google says goAway a minute ahead.
	goAwayLead = 90 * time.Second

	// handleTime is how long a quiet connection is kept for a handle that knows the last turn. Gemini gives one within 100
	// ms.
	handleTime = 3 * time.Second
)

// Replacing reports whether the connection will be replaced as soon as nobody needs it.
func (k *Keeper) Replacing() bool { return k.serving() && k.replace.wanted() }

// onGoAway plans to replace the connection before Gemini closes it. While that is far away the connection serves on.
func (k *Keeper) onGoAway(ctx context.Context, left time.Duration) {
	if left > goAwayLead {
		k.clock.Set(alarmGoAway, left-goAwayLead)
		return
	}
	k.clock.Clear(alarmGoAway)
	k.replaceSoon(ctx, "goAway", left-goAwaySpare)
}

// replaceSoon plans to replace the connection at the next quiet moment, and within a time.
func (k *Keeper) replaceSoon(ctx context.Context, why string, within time.Duration) {
	if k.parked {
		k.unlink(ctx) // nobody listens
		return
	}
	earliest := k.earliestReplacement(why)
	until := time.Now().Add(max(within, time.Until(earliest), 0))
	if k.replace.wanted() && k.replace.until.Before(until) {
		return
	}
	k.replace = replacement{why: why, earliest: earliest, until: until}
	k.clock.Set(alarmReplace, time.Until(until)) // our own deadline: a server may fall silent after goAway
}

// earliestReplacement is when a connection may be replaced because of why. The first that is young when it has to go is
// replaced at once. If the next one is young as well, the server may say goAway to each connection, or the client may
// change its configuration all the time: then the connection serves on until calmTime, or until the server closes it. A
// client that waits for another configuration waits no longer than for a dial after a failure.
func (k *Keeper) earliestReplacement(why string) time.Time {
	switch young := k.failures.young; {
	case young == 0:
		return k.link.since
	case why == whyUpdate:
		return k.link.since.Add(min(firstBackoff<<min(young-1, 10), lastBackoff))
	}
	return k.link.since.Add(calmTime)
}

// Settle replaces a connection that is to be replaced, if nobody needs it now. The owner calls it whenever it has done
// something.
func (k *Keeper) Settle(ctx context.Context) {
	if k.Replacing() && k.idle() {
		k.replaceNow(ctx)
	}
}

// idle reports whether the connection can be replaced without cutting anything off: nobody speaks, no answer is due, no
// tool runs, and the handle knows everything.
func (k *Keeper) idle() bool {
	if k.Uplink.HasUnanswered() || k.watch.what != forNothing || !k.Idle() {
		k.clock.Clear(alarmHandle)
		return false
	}
	if left := time.Until(k.replace.earliest); left > 0 {
		k.clock.Set(alarmEarliest, left)
		return false
	}
	if k.handle.when > k.unsaved || !k.config.Options.Resumption || k.isHandleReused() { // then none is to come
		return true
	}
	if !k.clock.IsSet(alarmHandle) {
		k.clock.Set(alarmHandle, handleTime)
	}
	return false
}

// replaceNow closes the connection and dials the next one with the newest handle. What is said meanwhile waits in the
// uplink.
func (k *Keeper) replaceNow(ctx context.Context) {
	if k.parked {
		k.unlink(ctx) // nobody listens
	}
	if !k.serving() {
		return
	}
	k.Logger.Info("link replaced", "why", k.replace.why, "age", time.Since(k.link.since).Round(time.Millisecond))
	k.unlink(ctx)
	k.beginWait()
	k.dialPaced(ctx)
}

// dialPaced dials, at once unless connections have ended right after their set-up. The time for which the last one has
// served is a pause, too.
func (k *Keeper) dialPaced(ctx context.Context) {
	if pause := k.pause() - time.Since(k.link.since); pause > 0 {
		k.link.busy, k.link.upgraded = true, false
		k.clock.Set(alarmRetry, pause)
		return
	}
	k.dial(ctx)
}

// pause is how long the next dial waits, whatever it is for: it grows with the connections that ended soon after their
// set-up and the dials that failed, and all conversations share what many of them may do.
func (k *Keeper) pause() time.Duration {
	next, _ := k.nextConfig()
	if next.Profile.Writes {
		return 0
	}
	pause := k.failures.backoff()
	if k.failures.young > 1 {
		pause = max(pause, k.Breakers.For(next.Model).redialDelay())
	}
	return pause
}
