package phone

import (
	"context"
	"log/slog"
	"time"

	"voxgate/bridge"
)

// keyGap is the pause that ends a number: longer than most people take from one key to the next, and short enough that an answer to a
// single key does not seem to be missing.
const keyGap = 1200 * time.Millisecond

// MaxKeys bounds a number.
const MaxKeys = 64

// Keys sends the model what is pressed, as one turn: up to a #, or until nothing more comes for 1.2 s. It returns when ctx is done.
func Keys(ctx context.Context, log *slog.Logger, pressed <-chan byte, do func(bridge.Command) error) {
	var keys []byte
	var late <-chan time.Time // nil: nothing is pressed
	for {
		over := true
		select {
		case <-ctx.Done():
			return
		case key := <-pressed:
			keys, late = append(keys, key), time.After(keyGap)
			over = key == '#' || len(keys) == MaxKeys
		case <-late:
		}
		if !over {
			continue
		}
		log.Info("keys pressed", "count", len(keys)) // not which: they may be a secret
		if err := do(Pressed(string(keys))); err != nil {
			log.Warn("keys lost", "err", err)
		}
		keys, late = nil, nil
	}
}
