package keeper

import (
	"context"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
)

// maxUpdates bounds the updates that wait for a connection.
const maxUpdates = 16

// trialTime is how long a change in place counts as not yet accepted. Gemini does not answer it, but closes the
// connection at once for what it refuses.
const trialTime = 500 * time.Millisecond

// Update changes the configuration: in place where the model can, else by another connection when nobody needs the one
// there is. Each is answered by [Updated], in order. With an error it is refused when its turn comes.
func (k *Keeper) Update(ctx context.Context, config setup.Config, refused error) {
	k.change(ctx, update{config: config, refused: refused})
}

// Adjust is Update for a change that the conversation itself brings about, which has a name. It reports whether the change is on its way to
// the model, before anything that is sent from now on; else it waits for another connection.
func (k *Keeper) Adjust(ctx context.Context, config setup.Config, name string) (sent bool) {
	k.change(ctx, update{config: config, name: name})
	return k.link.conn != nil && len(k.updates) == k.trial.of
}

func (k *Keeper) change(ctx context.Context, next update) {
	if len(k.updates) >= maxUpdates {
		next.refused = ErrTooManyUpdates
	}
	k.updates = append(k.updates, next)
	if k.clock.IsSet(alarmLater) && next.refused == nil {
		k.dial(ctx)
	}
	k.update(ctx)
}

// update goes on with the updates that wait, while there is a connection.
func (k *Keeper) update(ctx context.Context) {
	for k.link.conn != nil {
		if k.trial.before == nil {
			k.answerRefused(ctx)
		}
		if k.trial.single && (k.trial.before != nil || len(k.updates) == 0) {
			k.trial.single = len(k.updates) > 0
			return
		}
		if len(k.updates) == k.trial.of || k.updates[k.trial.of].refused != nil { // the trial is answered first
			return
		}
		next := k.updates[k.trial.of].config
		change, ok := k.config.InPlace(next)
		switch {
		case !ok && k.trial.before == nil:
			k.replaceSoon(ctx, whyUpdate, updateSpare)
			return
		case !ok:
			return
		case change != nil && !k.Uplink.QueueMessage(wire.ClientMessage{ContextUpdate: change}):
			k.updates[k.trial.of].refused = ErrTooManyMessages
			continue
		case change == nil && k.trial.before == nil:
			k.adopt(ctx, next)
			k.answerUpdate(ctx, nil)
			continue
		case k.trial.before == nil:
			old := k.config
			k.trial.before = &old
		}
		k.trial.of++
		k.adopt(ctx, next)
		k.clock.Set(alarmTrial, trialTime)
	}
}

// accepted ends a trial: Gemini has gone on.
func (k *Keeper) accepted(ctx context.Context) {
	of := k.trial.of
	k.trial.before, k.trial.of = nil, 0
	for range of {
		k.answerUpdate(ctx, nil)
	}
	k.update(ctx)
}

// Clear goes on in a fresh session that knows nothing. It is answered by [Cleared].
func (k *Keeper) Clear(ctx context.Context) {
	k.Uplink.Clear()
	k.ExpectNothing(ctx)
	k.clears++
	if k.link.setUp { // else the first session has nothing to forget
		k.unlink(ctx)
		k.beginWait()
		k.dialPaced(ctx)
	}
}
