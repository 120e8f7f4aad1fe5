package upstream

import (
	"context"
	"errors"
	"strings"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
)

// dialResult is the outcome of a dial.
type dialResult struct {
	epoch        int
	config       liveconfig.Config
	handle       string
	historyTurns int  // number of turns in the history
	isUpdate     bool // the dial uses a new configuration
	isRenewal    bool // a fresh session although there is a handle: see [Keeper.isHandleOutdated]
	conn         Conn
	err          error
	kind         ConnKind
	startedAt    time.Time

	droppedFields []string // sentences about fields that the server rejected
}

// Phase returns the state of the connection.
func (k *Keeper) Phase() Phase {
	next, _ := k.nextConfig()
	switch {
	case k.current.conn != nil:
		return Up
	case !k.current.hadSession && k.current.hasWebSocket:
		return SettingUp
	case !k.current.hadSession:
		return Dialing
	case k.nextHandle(next) == "":
		return Reseeding
	}
	return Resuming
}

// nextConfig returns the configuration for the next dial. isChange reports whether it differs from the current one.
func (k *Keeper) nextConfig() (config liveconfig.Config, isChange bool) {
	for _, change := range k.changes {
		if change.Rejection == nil {
			return change.Config, true
		}
	}
	return k.config, false
}

// nextHandle returns the handle with which the next connection resumes the session, or "" if config needs a new
// session. For example, a resumed session cannot change its model.
func (k *Keeper) nextHandle(config liveconfig.Config) string {
	if config.Model != k.config.Model || !config.Options.Resumption || len(k.pendingClears) > 0 || k.isHandleOutdated(config) {
		return ""
	}
	return k.handle.value
}

// mustReuseHandle reports whether the next resume must use the same handle as this connection did. With some models,
// handles that are sent on a resumed connection restore less than the first handle.
func (k *Keeper) mustReuseHandle() bool {
	return k.current.isResumed && k.config.Profile.ForgetfulHandles
}

// isHandleOutdated reports whether a new session that gets the transcript would know more of the conversation than a
// resumed session.
func (k *Keeper) isHandleOutdated(config liveconfig.Config) bool {
	p := config.Profile
	// If the instruction is long, such a model forgets the conversation at a resume.
	if p.ForgetfulWithLongInstruction && p.Seeds && config.HasLongInstruction() {
		return true
	}
	// The turns after the handle could not be added to the resumed session.
	return k.handle.isUsed && p.ForgetfulHandles && p.Seeds && !p.Appends && k.lastEvent > k.handle.event
}

// dialNext dials with the next configuration. The old connection must have been stopped before.
func (k *Keeper) dialNext(parent context.Context) {
	k.clock.Clear(alarmFirstConfig)
	l := &k.current
	if l.hadSession { // otherwise the answers must wait until SetupComplete was reported
		k.answerRejectedChanges(parent)
	}
	ctx, cancel := context.WithCancel(parent)
	l.epoch++
	l.isDialing, l.cancel, l.hasWebSocket = true, cancel, false
	k.counts.Dials++
	d := dialResult{epoch: l.epoch, startedAt: time.Now(), kind: ResumedConn}
	d.config, d.isUpdate = k.nextConfig()
	d.handle, d.isRenewal = k.nextHandle(d.config), k.handle.value != "" && k.isHandleOutdated(d.config)
	switch {
	case !l.hadSession:
		d.kind = FirstConn
	case d.handle == "":
		d.kind = FreshConn
	}
	var history []wire.Content
	if d.handle == "" && len(k.pendingClears) == 0 && k.failures.step < stepBare {
		history = k.History(true, k.failures.step.historyLimit())
		d.historyTurns = len(history)
	}
	opening := d.config.Setup(d.handle, history)
	if !l.hadSession {
		opening.OnUpgrade = func() {
			k.runInLoop(ctx, func(ctx context.Context) {
				if d.epoch == l.epoch {
					l.hasWebSocket = true
				}
			})
		}
	}
	k.goRecovered(func() {
		defer cancel()
		d.conn, d.err = k.Dial(ctx, opening)
		if isUnknownField(d.err) {
			if known, dropped := d.config.WithoutNewerFields(); dropped != nil {
				d.config, d.droppedFields = known, dropped
				again := known.Setup(d.handle, history)
				again.OnUpgrade = opening.OnUpgrade
				d.conn, d.err = k.Dial(ctx, again)
			}
		}
		if !k.runInLoop(ctx, func(ctx context.Context) { k.onDialResult(ctx, d) }) && d.conn != nil {
			d.conn.Close()
		}
	})
}

// isUnknownField reports whether Gemini has rejected a setup because it does not know the name of a field (js-genai
// #696).
func isUnknownField(err error) bool {
	closed := (*wire.CloseError)(nil)
	return errors.As(err, &closed) && closed.Code == closeInvalidPayload && strings.Contains(closed.Reason, "Unknown name")
}

// runInLoop makes the owner's loop run f. It blocks until the loop takes f. isAccepted is false if ctx is done first.
func (k *Keeper) runInLoop(ctx context.Context, f func(context.Context)) (isAccepted bool) {
	select {
	case k.work <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// disconnect closes the connection and resets the state that belongs to it.
func (k *Keeper) disconnect(ctx context.Context) {
	switch {
	case k.current.conn == nil:
	case time.Since(k.current.connectedAt) >= calmTime:
		k.failures = failures{}
	default:
		k.failures.addShortLived()
	}
	k.endConnection(ctx)
	k.planned = replacement{}
	k.clock.Clear(alarmMaxAge, alarmGoAway, alarmReplace, alarmNoHandle, alarmEarliest, alarmStall, alarmRetry)
	if !k.isParked {
		k.clock.Clear(alarmStale) // without a connection, input does not expire
	}
	k.rollBackTrial(ctx) // the next connection tries the changes again
	k.Notify(ctx, Disconnected{})
	if k.stall.trigger == forMore { // the rest of the answer will not come
		k.stall.trigger, k.stall.stage = forNothing, 0
	}
}

// endConnection closes the connection and reports its end. If a dial is in progress instead, it cancels the dial.
func (k *Keeper) endConnection(ctx context.Context) {
	l := &k.current
	was := l.conn != nil
	l.stopAndWait()
	if was {
		k.Notify(ctx, ConnectionEnd{Kind: l.dialOutcome.Kind, StartedAt: l.dialOutcome.StartedAt, ConnectedAt: l.connectedAt, Cause: l.cause})
	}
}
