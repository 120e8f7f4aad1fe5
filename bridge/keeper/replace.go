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

	// goAwaySpare is how long before Gemini's deadline a connection is replaced at the latest.
	goAwaySpare = 5 * time.Second

	// handleTime is how long a quiet connection is kept for a handle that knows the last turn. Gemini gives one within 100
	// ms.
	handleTime = 3 * time.Second
)

// Replacing reports whether the connection will be replaced as soon as nobody needs it.
func (k *Keeper) Replacing() bool { return k.serving() && k.replace.wanted() }

// replaceSoon plans to replace the connection at the next quiet moment, and within a time.
func (k *Keeper) replaceSoon(ctx context.Context, why string, within time.Duration) {
	if k.parked {
		k.unlink(ctx) // nobody listens
		return
	}
	within = max(within, 0)
	until := time.Now().Add(within)
	if k.replace.wanted() && k.replace.until.Before(until) {
		return
	}
	k.replace = replacement{why: why, until: until}
	k.clock.Set(alarmReplace, within) // our own deadline: a server may fall silent after goAway
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
	if k.Uplink.Unanswered() || k.watch.what != forNothing || !k.Idle() {
		k.clock.Clear(alarmHandle)
		return false
	}
	if k.handle.when > k.unsaved || !k.config.Options.Resumption {
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
	k.dial(ctx)
}
