package upstream

import (
	"context"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
)

// maxChanges limits the changes of the configuration that wait for a result.
const maxChanges = 16

// trialTime is the time after which a change that was sent in place counts as accepted. Gemini does not acknowledge
// such a change. If it rejects the change, it closes the connection at once.
const trialTime = 500 * time.Millisecond

// ConfigChange is a change of the configuration, to be sent to Gemini. A [ConfigResult] answers it.
type ConfigChange struct {
	Config liveconfig.Config
	// Rejection is the reason why the owner itself rejects the change, or nil. It becomes the result of this change,
	// which is reported after the results of earlier changes.
	Rejection error
	Origin    any // any value of the owner; the keeper does not use it
}

// ChangeConfig changes the configuration. If the model cannot do this in place, the connection is replaced. One
// [ConfigResult] answers each call, in order. isSent means that Gemini gets the change before everything that is queued
// later. Otherwise the change waits.
func (k *Keeper) ChangeConfig(ctx context.Context, change ConfigChange) (isSent bool) {
	if len(k.changes) >= maxChanges {
		change.Rejection = ErrTooManyChanges
	}
	k.changes = append(k.changes, pendingChange{ConfigChange: change})
	if k.clock.IsSet(alarmFirstConfig) && change.Rejection == nil {
		k.dialNext(ctx)
	}
	k.applyChanges(ctx)
	return k.current.conn != nil && len(k.changes) == k.trialCount()
}

// PendingChanges returns the number of calls of ChangeConfig whose results are still to come.
func (k *Keeper) PendingChanges() int { return len(k.changes) }

// PendingClears returns the number of calls of ClearContext that are not complete.
func (k *Keeper) PendingClears() int { return len(k.pendingClears) }

// trialCount returns the number of changes on trial, which come first in k.changes. They were sent, and Gemini may
// still reject them.
func (k *Keeper) trialCount() (n int) {
	for n < len(k.changes) && k.changes[n].previous != nil {
		n++
	}
	return n
}

// applyChanges processes the pending changes as far as possible while there is a connection.
func (k *Keeper) applyChanges(ctx context.Context) {
	for k.current.conn != nil {
		tried := k.trialCount()
		if tried == 0 {
			k.answerRejectedChanges(ctx)
		}
		if k.trySingly && (tried > 0 || len(k.changes) == 0) {
			k.trySingly = len(k.changes) > 0
			return
		}
		if len(k.changes) == tried || k.changes[tried].Rejection != nil { // the changes in the trial are answered first
			return
		}
		next := &k.changes[tried]
		update, ok := k.config.InPlaceUpdate(next.Config)
		switch {
		case !ok && tried == 0:
			k.planReplacement(ctx, reasonUpdate, updateSpare)
			return
		case !ok:
			return
		case update != nil && !k.Uplink.QueueMessage(wire.ClientMessage{ContextUpdate: update}):
			next.Rejection = ErrTooManyMessages
			continue
		case update == nil && tried == 0:
			k.applyConfig(ctx, next.Config)
			k.answerChange(ctx, nil)
			continue
		}
		previous := k.config
		next.previous = &previous
		k.applyConfig(ctx, next.Config)
		k.clock.Set(alarmTrialEnd, trialTime)
	}
}

// answerChange reports the result of the oldest change. If the change was rejected, err is the reason, otherwise nil.
func (k *Keeper) answerChange(ctx context.Context, err error) {
	change := k.changes[0].ConfigChange
	k.changes = k.changes[1:]
	k.Notify(ctx, ConfigResult{change, err})
}

// answerRejectedChanges reports the results of the changes at the front of the queue that have a Rejection.
func (k *Keeper) answerRejectedChanges(ctx context.Context) {
	for len(k.changes) > 0 && k.changes[0].Rejection != nil {
		k.answerChange(ctx, k.changes[0].Rejection)
	}
}

// onTrialAccepted ends a trial because Gemini has not rejected the changes in time.
func (k *Keeper) onTrialAccepted(ctx context.Context) {
	for range k.trialCount() {
		k.answerChange(ctx, nil)
	}
	k.applyChanges(ctx)
}

// onTrialRejected ends a trial because Gemini has closed the connection. If the trial had several changes, the next
// connection tries each separately.
func (k *Keeper) onTrialRejected(ctx context.Context, err error) {
	if k.trialCount() == 1 {
		defer k.answerChange(ctx, err)
	}
	k.rollBackTrial(ctx)
}

// rollBackTrial ends a trial, if one is running, and restores the configuration from before it.
func (k *Keeper) rollBackTrial(ctx context.Context) {
	tried := k.trialCount()
	if tried == 0 {
		return
	}
	previous := *k.changes[0].previous
	for i := range tried {
		k.changes[i].previous = nil
	}
	k.clock.Clear(alarmTrialEnd)
	k.trySingly = tried > 1
	k.applyConfig(ctx, previous)
}

// ClearContext continues the conversation in a new session without history. [ContextCleared] reports that this is done.
func (k *Keeper) ClearContext(ctx context.Context, origin any) {
	k.Uplink.DiscardAll()
	k.DiscardReply(ctx)
	k.pendingClears = append(k.pendingClears, origin)
	if k.current.hadSession { // otherwise the history is empty
		k.disconnect(ctx)
		k.beginWait()
		k.dialPaced(ctx)
	}
}
