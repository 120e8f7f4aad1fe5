package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// forceKey is the context key under which notifyStop stores the context that [forceContext] returns.
type forceKey struct{}

// forceContext returns a context that ends when the program must stop at once, without a drain. ctx is the context of notifyStop.
func forceContext(ctx context.Context) context.Context {
	if force, ok := ctx.Value(forceKey{}).(context.Context); ok {
		return force
	}
	return context.Background()
}

// notifyStop returns a context that ends at the first signal. At the second, the context of [forceContext] ends. stop
// frees both.
func notifyStop(parent context.Context, signals ...os.Signal) (ctx context.Context, stop func()) {
	force, endForce := context.WithCancel(parent)
	ctx, end := context.WithCancel(context.WithValue(parent, forceKey{}, force))
	// one channel for both, so that a second signal right after the first is not lost
	received := make(chan os.Signal, 2)
	signal.Notify(received, signals...)
	go func() {
		for _, cancel := range []func(){end, endForce} {
			select {
			case <-received:
				cancel()
			case <-force.Done():
				return
			}
		}
	}()
	// Signals stay caught until the process exits: a late one must not change the exit status.
	return ctx, func() {
		end()
		endForce()
	}
}

// stopSignals returns the signals that stop the program. A terminal sends SIGHUP when it is closed. Without a terminal,
// SIGHUP means "reload". It is ignored then: the gateway reloads files by itself.
func stopSignals() []os.Signal {
	stopping := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if signal.Ignored(syscall.SIGHUP) { // the program was started by nohup or the like
		return stopping
	}
	if out, err := os.Stderr.Stat(); err == nil && out.Mode()&os.ModeCharDevice != 0 {
		return append(stopping, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // ignored without signal.Ignore, which child processes would inherit
	return stopping
}
