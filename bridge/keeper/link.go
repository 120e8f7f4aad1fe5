package keeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
)

// dialled is the outcome of a dial.
type dialled struct {
	epoch     int
	config    setup.Config
	handle    string
	turns     int  // of the history
	update    bool // config is a new one
	isRenewal bool // the session is fresh although there is a handle: see [Keeper.isHandleOutdated]
	conn      Conn
	err       error
	kind      LinkKind
	began     time.Time

	dropped []string // sentences about fields that the server did not take
}

// Phase is where the connection stands now.
func (k *Keeper) Phase() Phase {
	next, _ := k.nextConfig()
	switch {
	case k.link.conn != nil:
		return Up
	case !k.link.setUp && k.link.upgraded:
		return SettingUp
	case !k.link.setUp:
		return Dialing
	case k.nextHandle(next) == "":
		return Reseeding
	}
	return Resuming
}

// nextConfig is the configuration that the next dial is for, and whether it is a new one.
func (k *Keeper) nextConfig() (config setup.Config, update bool) {
	for _, u := range k.updates {
		if u.refused == nil {
			return u.config, true
		}
	}
	return k.config, false
}

// nextHandle is the handle for a configuration; none if it takes a fresh session. The model cannot change on a resume.
func (k *Keeper) nextHandle(config setup.Config) string {
	if config.Model != k.config.Model || !config.Options.Resumption || k.clears > 0 || k.isHandleOutdated(config) {
		return ""
	}
	return k.handle.text
}

// isHandleReused reports whether the next resume uses the same handle as this connection. Handles received on a resumed
// connection may restore less. A handle can be used several times, and a model that Appends gets the later turns as text.
func (k *Keeper) isHandleReused() bool { return k.link.isResumed && k.config.Profile.ForgetfulHandles }

// isHandleOutdated reports whether a fresh session with the transcript would know more than a resumed one: later turns cannot be
// added to the resumed session, or it loses the conversation.
func (k *Keeper) isHandleOutdated(config setup.Config) bool {
	p := config.Profile
	if p.ForgetfulWithLongInstruction && p.Seeds && config.HasLongInstruction() {
		return true
	}
	return k.handle.isUsed && p.ForgetfulHandles && p.Seeds && !p.Appends && k.unsaved > k.handle.when
}

// dial dials with the configuration wanted next. The old connection must have been stopped.
func (k *Keeper) dial(parent context.Context) {
	k.clock.Clear(alarmLater)
	l := &k.link
	if l.setUp { // else SetUp comes first
		k.answerRefused(parent)
	}
	ctx, cancel := context.WithCancel(parent)
	l.epoch++
	l.busy, l.cancel, l.upgraded = true, cancel, false
	k.counts.Dials++
	d := dialled{epoch: l.epoch, began: time.Now(), kind: ResumedLink}
	d.config, d.update = k.nextConfig()
	d.handle, d.isRenewal = k.nextHandle(d.config), k.handle.text != "" && k.isHandleOutdated(d.config)
	switch {
	case !l.setUp:
		d.kind = FirstLink
	case d.handle == "":
		d.kind = FreshLink
	}
	var history []wire.Content
	if d.handle == "" && k.clears == 0 && k.failures.step < stepBare {
		history = k.History(true, k.failures.step.historyLimit())
		d.turns = len(history)
	}
	opening := d.config.Setup(d.handle, history)
	if !l.setUp {
		opening.Upgraded = func() {
			k.post(ctx, func(ctx context.Context) {
				if d.epoch == l.epoch {
					l.upgraded = true
				}
			})
		}
	}
	k.goContained(func() {
		defer cancel()
		d.conn, d.err = k.Dial(ctx, opening)
		if namesAField(d.err) {
			if known, dropped := d.config.Known(); dropped != nil {
				d.config, d.dropped = known, dropped
				again := known.Setup(d.handle, history)
				again.Upgraded = opening.Upgraded
				d.conn, d.err = k.Dial(ctx, again)
			}
		}
		if !k.post(ctx, func(ctx context.Context) { k.onDialled(ctx, d) }) && d.conn != nil {
			d.conn.Close()
		}
	})
}

// namesAField reports whether a setup was refused because of the name of a field (js-genai #696).
func namesAField(err error) bool {
	closed := (*wire.CloseError)(nil)
	return errors.As(err, &closed) && closed.Code == closeInvalidPayload && strings.Contains(closed.Reason, "Unknown name")
}

// post has the owner's loop run f, unless ctx ends before it takes it.
func (k *Keeper) post(ctx context.Context, f func(context.Context)) bool {
	select {
	case k.work <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// unlink closes the connection and forgets what only it knew.
func (k *Keeper) unlink(ctx context.Context) {
	switch {
	case k.link.conn == nil:
	case time.Since(k.link.since) >= calmTime:
		k.failures = failures{}
	default:
		k.failures.addYoung()
	}
	k.endLink(ctx)
	k.replace = replacement{}
	k.clock.Clear(alarmAge, alarmGoAway, alarmReplace, alarmHandle, alarmEarliest, alarmStall, alarmRetry)
	if !k.parked {
		k.clock.Clear(alarmStale) // what was said waits as long as the wait may last
	}
	if k.trial.before != nil { // the next connection finds out
		k.undo(ctx)
	}
	k.Tell(ctx, Unlinked{})
	if k.watch.what == forMore { // it will not come
		k.watch.what, k.watch.stage = forNothing, 0
	}
}

// endLink closes the connection, or ends the dial, and reports that.
func (k *Keeper) endLink(ctx context.Context) {
	l := &k.link
	was := l.conn != nil
	l.stop()
	if was {
		k.Tell(ctx, LinkEnd{Kind: l.outcome.Kind, Began: l.outcome.Began, Up: l.since, Cause: l.cause})
	}
}
