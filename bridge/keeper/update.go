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
	if len(k.updates) >= maxUpdates {
		refused = ErrTooManyUpdates
	}
	k.updates = append(k.updates, update{config, refused})
	if k.clock.IsSet(alarmLater) && refused == nil {
		k.dial(ctx)
	}
	k.update(ctx)
}

// update goes on with the updates that wait, while there is a connection.
func (k *Keeper) update(ctx context.Context) {
	for k.link.conn != nil && k.trial == nil {
		k.answerRefused(ctx)
		if len(k.updates) == 0 {
			return
		}
		next := k.updates[0].config
		change, ok := k.config.InPlace(next)
		if !ok {
			k.replaceSoon(ctx, "update", updateSpare)
			return
		}
		if change != nil {
			if !k.Uplink.Send(wire.ClientMessage{ContextUpdate: change}) {
				k.updates[0].refused = ErrTooManyMessages
				continue
			}
			old := k.config
			k.trial = &old
			k.adopt(ctx, next)
			k.clock.Set(alarmTrial, trialTime)
			return
		}
		k.adopt(ctx, next)
		k.answerUpdate(ctx, nil)
	}
}

// accepted ends a trial: Gemini has gone on.
func (k *Keeper) accepted(ctx context.Context) {
	if k.trial == nil {
		return
	}
	k.trial = nil
	k.answerUpdate(ctx, nil)
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
		k.dial(ctx)
	}
}
