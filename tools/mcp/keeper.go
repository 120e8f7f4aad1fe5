package mcp

import (
	"context"
	"fmt"
	"time"

	"voxgate/tools"
)

// keeper keeps the server's link. All of it is owned by run, and by Connect before.
type keeper struct {
	*Server
	legacy  bool          // the server takes no newer protocol than legacyVersion
	current *link         // what Server.link is
	pause   time.Duration // between the end of a link and the next start
	retry   time.Time     // no start before that
	why     error         // why there is no link
	listed  time.Time     // when the list of tools was read last because it had changed
}

// relistPause is between one reading of a changed list and the next: some servers announce a change whenever they are read.
const relistPause = 5 * time.Second

// run serves the calls' wishes for a link until ctx is done, and closes the link.
func (k *keeper) run(ctx context.Context) {
	defer func() { _ = k.set(nil) }()
	var due <-chan time.Time // the list has changed, and is read then
	for {
		var ended, changed <-chan struct{}
		if k.current != nil {
			ended, changed = k.current.ended, k.current.changed
		}
		if due != nil {
			changed = nil // it is known
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			k.fell()
		case <-changed:
			due = time.After(time.Until(k.listed.Add(relistPause)))
		case <-due:
			due = nil
			if k.current != nil { // else the list is read when there is a link again
				k.relist(ctx)
				k.listed = time.Now()
			}
		case w := <-k.wanted:
			l, err := k.grant(ctx, w.spent)
			w.reply <- granted{l, err}
		}
	}
}

// set makes l the link and closes the one before.
func (k *keeper) set(l *link) (err error) {
	k.mu.Lock()
	k.link = l
	k.mu.Unlock()
	if k.current != nil {
		err = k.current.close()
	}
	k.current = l
	return err
}

// fell ends a link that has ended by itself, or was given up.
func (k *keeper) fell() {
	k.o.Logger.Warn("the MCP server has ended; it is started again at the next call", "err", k.end(nil))
}

// end closes the link that has failed, and says how long none is started.
func (k *keeper) end(why error) error {
	if k.current != nil {
		if time.Since(k.current.since) >= maxPause {
			k.pause = 0
		}
		if err := k.set(nil); why == nil {
			why = err
		}
	}
	if why == nil {
		why = errEnded
	}
	k.why, k.retry = why, time.Now().Add(k.pause)
	k.pause = min(max(2*k.pause, minPause), maxPause)
	return why
}

// grant returns a link other than spent.
func (k *keeper) grant(ctx context.Context, spent *link) (*link, error) {
	if k.current != nil {
		switch {
		case !k.current.alive():
			k.fell()
		case k.current != spent:
			return k.current, nil
		default:
			_ = k.set(nil)
		}
	}
	if wait := time.Until(k.retry); wait > 0 {
		return nil, fmt.Errorf("the MCP server %q is down (%w); it is tried again in %v", k.o.Name, tools.Unaddressed(k.why), wait.Round(time.Second/10))
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	l, err := k.dial(limited)
	if err != nil {
		k.o.Logger.Error("the MCP server cannot be started again", "err", k.end(err))
		return nil, fmt.Errorf("the MCP server %q is down: %w", k.o.Name, tools.Unaddressed(err))
	}
	k.o.Logger.Info("the MCP server is back")
	return l, nil
}

// dial makes a link and reads the list of tools.
func (k *keeper) dial(ctx context.Context) (*link, error) {
	l, err := dial(ctx, k.Server, k.legacy)
	if err != nil && !k.legacy && ctx.Err() == nil {
		// The newest protocol begins with a request that ends some older servers.
		var older error
		if l, older = dial(ctx, k.Server, true); older == nil {
			k.legacy, err = true, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if err := l.list(ctx); err != nil {
		_ = l.close()
		return nil, err
	}
	_ = k.set(l)
	return l, nil
}

// relist reads the list of tools that the server says has changed.
func (k *keeper) relist(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := k.current.list(limited)
	if err == nil {
		err = k.missing()
	}
	if err != nil {
		k.o.Logger.Warn("the MCP server's tools have changed", "err", err)
		return
	}
	k.o.Logger.Info("the MCP server's tools have changed; conversations that begin from now on have the new ones", "tools", len(k.Tools()))
}
