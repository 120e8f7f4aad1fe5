package keeper

import (
	"context"
	"errors"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

// onLost acts on the end of a connection that was used.
func (k *Keeper) onLost(ctx context.Context, err error) {
	young := time.Since(k.link.since) < calmTime
	cause, _ := causeOf(err)
	if k.trial.before != nil && cause == wire.Fatal { // the change was refused, not the conversation
		k.rejected(ctx, err)
		cause = wire.Lost
	}
	k.unlink(ctx) // forgives after a calm time
	f := &k.failures
	f.last = err
	closed := (*wire.CloseError)(nil)
	byGemini := errors.As(err, &closed) && closed.Code >= closeInvalidPayload
	f.silent = !errors.As(err, &closed) || closed.Code == closeAbnormal
	if cause == wire.Quota || cause == wire.Fatal || cause == wire.Auth {
		k.fail(ctx, err)
		return
	}
	if young {
		f.strike()
		if byGemini {
			f.deaths++ // not by the network
		}
		if f.exhausted() {
			k.sendLess(ctx)
		}
	}
	k.redial(ctx, 0)
}

// onDialFailed acts on a dial that failed.
func (k *Keeper) onDialFailed(ctx context.Context, d dialled) {
	f := &k.failures
	f.add(d.err)
	f.dials++
	cause, reached := causeOf(d.err)
	k.Logger.Warn("dial failed", "err", d.err, "cause", cause)
	switch {
	case cause == wire.StaleHandle && d.handle != "":
		k.forgetHandle(ctx)
	case d.update && cause != wire.Quota && (cause != wire.Lost || f.dials >= maxStrikes):
		k.answerRefused(ctx)
		k.answerUpdate(ctx, d.err) // the old configuration goes on with the handle there is
		f.dials = 0
	case cause == wire.Quota && k.link.setUp: // Google may still count our own last connection
		k.openBreaker(d.config.Model, d.err)
		k.redial(ctx, max(quotaRetry, retryDelay(d.err)))
		return
	case cause == wire.Quota, cause == wire.Auth:
		k.fail(ctx, d.err)
		return
	case cause == wire.Lost:
		if reached {
			f.strike()
		}
		if f.exhausted() {
			k.sendLess(ctx)
		}
	case d.handle == "" && d.turns == 0: // it got the least there is
		k.fail(ctx, d.err)
		return
	default: // the identical set-up would be refused again
		k.sendLess(ctx)
	}
	wanted := retryDelay(d.err)
	if !k.link.setUp && (f.dials >= firstDials || wanted > lastBackoff) { // the person learns of it sooner than the server wants us back
		k.fail(ctx, d.err)
	}
	k.redial(ctx, min(wanted, lastRetry))
}

// sendLess makes the next dial give Gemini less.
func (k *Keeper) sendLess(ctx context.Context) {
	f := &k.failures
	if f.deaths >= maxDeaths { // what was said may be why they died
		k.Uplink.MarkAnswered()
		k.abandon(ctx, Unanswered{})
		k.Tell(ctx, Dropped{})
	}
	f.strikes, f.deaths = 0, 0
	switch {
	case f.step < stepSeeded && k.Handle() != "":
		f.step = stepSeeded
	case f.step < stepShort:
		f.step = stepShort
	case f.step < stepBare:
		f.step = stepBare
	case time.Since(f.first) >= waitEnd:
		k.fail(ctx, f.last)
	}
	k.forgetHandle(ctx)
}

// forgetHandle has the next dial begin a fresh session.
func (k *Keeper) forgetHandle(ctx context.Context) {
	k.handle = handle{}
	k.Tell(ctx, HandleChanged{})
}

// fail ends the conversation because of a failure between us and Gemini.
func (k *Keeper) fail(ctx context.Context, err error) {
	if cause, _ := causeOf(err); cause == wire.Quota {
		next, _ := k.nextConfig()
		k.openBreaker(next.Model, err)
	}
	k.failed = true
	k.Tell(ctx, Failed{Err: err, Used: k.link.setUp})
}

// openBreaker keeps new conversations with a model away, because Google has refused this one for want of quota.
func (k *Keeper) openBreaker(model string, err error) {
	k.Breakers.For(model).open(k.Caller, QuotaDelay(err), k.IsProbe)
	k.IsProbe = false
}

// redial dials once more, after a pause that grows with the failures and is at least pause.
func (k *Keeper) redial(ctx context.Context, pause time.Duration) {
	if k.failed || k.parked { // parked: when somebody is back
		return
	}
	k.link.upgraded = false
	if k.link.setUp {
		k.beginWait()
		k.wait.unsure = false // whatever the wait was for, the model hears nobody now
	}
	k.link.busy = true
	k.clock.Set(alarmRetry, max(pause, k.pause()))
}

// onStall tries the next remedy for a model that does not answer.
func (k *Keeper) onStall(ctx context.Context) {
	w := &k.watch
	if w.what == forNothing || !k.serving() || k.Calling() {
		return
	}
	speech := w.what == ForSpeech
	if w.stage == 0 && (!speech || k.config.Options.Manual) {
		w.stage = 1 // there is nothing to nudge with
	}
	sure := w.heard || !speech
	aside := w.heard && k.config.Profile.Proactive && speech
	remedy := w.next(sure, aside, k.handle.text != "")
	k.beginWait()
	k.wait.unsure = aside || remedy == Nudge && !w.heard // which may be noise
	k.Logger.Warn("the model is silent", "tried", remedy, "waits_for", w.what)
	k.tryRemedy(ctx, remedy, sure, aside)
}

// AskAgain repeats a question after the model has ended its turn without an answer: first on the same connection, then in a fresh
// session. It reports false when no attempt is left.
func (k *Keeper) AskAgain(ctx context.Context) bool {
	remedy := k.watch.nextAfterEmptyTurn()
	k.Logger.Warn("the model has ended its turn without an answer", "tried", remedy, "waits_for", k.watch.what)
	k.beginWait()
	k.wait.unsure = false
	k.tryRemedy(ctx, remedy, true, false)
	return remedy != GiveUp
}

// RestartSession replaces the session by a fresh one, which gets the transcript.
func (k *Keeper) RestartSession(ctx context.Context) { k.tryRemedy(ctx, Restart, true, false) }

// tryRemedy tries a remedy. sure and aside are those of [Unanswered].
func (k *Keeper) tryRemedy(ctx context.Context, remedy Remedy, sure, aside bool) {
	w := &k.watch
	k.Tell(ctx, Stalled{remedy})
	switch remedy {
	case Repeat:
		k.counts.Repeats++
		replayed, lost, rest := k.Uplink.QueueReplay(false)
		k.Tell(ctx, Rewound{Replayed: replayed, Lost: lost, Rest: rest})
		k.await(k.Patience() + replayed/uplink.ReplaySpeed)
	case Nudge:
		k.counts.Nudges++
		if err := k.Uplink.RepeatSpeechEnd(); err != nil {
			k.Logger.Warn("nudge dropped", "err", err)
		}
		k.await(k.Patience() / 2)
	case Resume:
		k.counts.Resumes++
		k.replace.why = "stall"
		k.replaceNow(ctx)
	case Restart:
		k.counts.Restarts++
		k.replace.why = "stall"
		k.forgetHandle(ctx)
		k.replaceNow(ctx)
	case GiveUp:
		if sure {
			w.missed++
		} else {
			w.noise = true
		}
		k.Uplink.MarkAnswered()
		k.abandon(ctx, Unanswered{GaveUp: true, Sure: sure, Aside: aside})
	}
}
