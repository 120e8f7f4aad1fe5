package upstream

import (
	"context"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
)

// maxUpdates limits the updates that wait for a connection.
const maxUpdates = 16

// trialTime is the duration of the trial of an in-place change. Gemini does not acknowledge a change, but closes the
// connection at once if it rejects it.
const trialTime = 500 * time.Millisecond

// UpdateConfig changes the configuration: in place if the model supports that, otherwise with a new connection once the
// current one is idle. Each call is answered by [UpdateResult], in order. A rejection that is not nil becomes the
// result of this update.
func (k *Keeper) UpdateConfig(ctx context.Context, config liveconfig.Config, rejection error) {
	k.queueUpdate(ctx, pendingUpdate{config: config, rejection: rejection})
}

// AdjustConfig is UpdateConfig for a named change that the conversation itself causes. It reports whether the change is
// sent now, before anything that is queued later; otherwise it waits for a new connection.
func (k *Keeper) AdjustConfig(ctx context.Context, config liveconfig.Config, name string) (sent bool) {
	k.queueUpdate(ctx, pendingUpdate{config: config, name: name})
	return k.current.conn != nil && len(k.updates) == k.trial.count
}

func (k *Keeper) queueUpdate(ctx context.Context, next pendingUpdate) {
	if len(k.updates) >= maxUpdates {
		next.rejection = ErrTooManyUpdates
	}
	k.updates = append(k.updates, next)
	if k.clock.IsSet(alarmFirstConfig) && next.rejection == nil {
		k.dialNext(ctx)
	}
	k.applyUpdates(ctx)
}

// applyUpdates processes pending updates while there is a connection.
func (k *Keeper) applyUpdates(ctx context.Context) {
	for k.current.conn != nil {
		if k.trial.previous == nil {
			k.answerRejectedUpdates(ctx)
		}
		if k.trial.single && (k.trial.previous != nil || len(k.updates) == 0) {
			k.trial.single = len(k.updates) > 0
			return
		}
		if len(k.updates) == k.trial.count || k.updates[k.trial.count].rejection != nil { // the trial is answered first
			return
		}
		next := k.updates[k.trial.count].config
		change, ok := k.config.InPlace(next)
		switch {
		case !ok && k.trial.previous == nil:
			k.planReplacement(ctx, reasonUpdate, updateSpare)
			return
		case !ok:
			return
		case change != nil && !k.Uplink.QueueMessage(wire.ClientMessage{ContextUpdate: change}):
			k.updates[k.trial.count].rejection = ErrTooManyMessages
			continue
		case change == nil && k.trial.previous == nil:
			k.applyConfig(ctx, next)
			k.answerUpdate(ctx, nil)
			continue
		case k.trial.previous == nil:
			old := k.config
			k.trial.previous = &old
		}
		k.trial.count++
		k.applyConfig(ctx, next)
		k.clock.Set(alarmTrialEnd, trialTime)
	}
}

// onTrialAccepted ends a trial: Gemini has not rejected the changes.
func (k *Keeper) onTrialAccepted(ctx context.Context) {
	of := k.trial.count
	k.trial.previous, k.trial.count = nil, 0
	for range of {
		k.answerUpdate(ctx, nil)
	}
	k.applyUpdates(ctx)
}

// ClearContext continues in a fresh session without history. [ContextCleared] reports the completion.
func (k *Keeper) ClearContext(ctx context.Context) {
	k.Uplink.DiscardAll()
	k.DiscardReply(ctx)
	k.pendingClears++
	if k.current.hadSession { // otherwise the first session has nothing to forget
		k.disconnect(ctx)
		k.beginWait()
		k.dialPaced(ctx)
	}
}
