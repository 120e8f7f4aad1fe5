package keeper

import (
	"context"
	"time"
)

// When a person who waits is told, by how long the wait is. Shorter waits than the first are not noticed in a conversation;
// people ask "hello?" after some five seconds of silence.
const (
	waitFirst = time.Second
	waitLong  = 5 * time.Second
	waitEvery = 2 * time.Second
)

// wait is a time in which the model cannot answer.
type wait struct {
	since  time.Time // zero: none
	unsure bool      // perhaps nobody waits
}

func (k *Keeper) beginWait() {
	if k.wait.since.IsZero() {
		k.wait.since = time.Now()
		k.clock.Set(alarmWait, waitFirst)
	}
}

func (k *Keeper) endWait(ctx context.Context) {
	if k.wait.since.IsZero() {
		return
	}
	took := time.Since(k.wait.since)
	k.Logger.Info("wait over", "took", took.Round(time.Millisecond))
	k.counts.LongestWait = max(k.counts.LongestWait, took)
	k.wait = wait{}
	k.clock.Clear(alarmWait)
	k.Tell(ctx, WaitOver{})
}

// onWait tells the owner how long the wait is by now, and ends the conversation when there was no connection for too long.
func (k *Keeper) onWait(ctx context.Context) {
	if k.parked {
		return
	}
	waiting := time.Since(k.wait.since)
	if waiting >= waitEnd && !k.serving() {
		k.fail(ctx, k.failures.last)
		return
	}
	k.Tell(ctx, Waiting{Long: waiting >= waitLong, Unsure: k.wait.unsure})
	next := waitEvery
	for _, at := range []time.Duration{waitLong, waitEnd} {
		if waiting < at {
			next = min(next, at-waiting)
		}
	}
	k.clock.Set(alarmWait, next)
}
