package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// forceKey is the context key under which notifyStop stores the context that [forcedStopContext] returns.
type forceKey struct{}

// forcedStopContext returns a context that ends when the program must stop at once, without a drain. ctx is the context of notifyStop.
func forcedStopContext(ctx context.Context) context.Context {
	if force, ok := ctx.Value(forceKey{}).(context.Context); ok {
		return force
	}
	return context.Background()
}

// notifyStop returns a context that ends at the first signal. At the second signal, the context of [forcedStopContext]
// ends. stop releases both contexts.
func notifyStop(parent context.Context, signals ...os.Signal) (ctx context.Context, stop func()) {
	force, endForce := context.WithCancel(parent)
	ctx, end := context.WithCancel(context.WithValue(parent, forceKey{}, force))
	// The channel has room for two signals, so that a second signal right after the first is not lost.
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
	// stop does not call signal.Stop, because a signal during the shutdown would then end the process and change its
	// exit status.
	return ctx, func() {
		end()
		endForce()
	}
}

// stopSignals returns the signals that stop the program. SIGHUP stops it only at a terminal, which sends SIGHUP when it
// is closed. Otherwise SIGHUP means "reload" and is ignored, because the gateway reloads files by itself.
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
