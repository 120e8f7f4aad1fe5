// Command gateway is Voxgate: a media gateway between people and Google's Gemini Live API. gateway help shows its commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// command is a command of the program; serve is the default.
type command struct {
	name, does string
	run        func(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error
}

var commands = []command{
	{
		"serve", "connects people to Gemini, or to the built-in emulator when no key is set (the default)",
		func(ctx context.Context, args []string, environ variables, _, stderr io.Writer) error {
			s, err := parseSettings(args, environ, stderr)
			if err != nil {
				return err
			}
			return runServer(ctx, s, newLogger(stderr, s.log))
		},
	},
	{
		"emulate", "runs the emulator alone, for any client of the Live API",
		func(ctx context.Context, args []string, _ variables, _, stderr io.Writer) error {
			return runEmulator(ctx, args, stderr, newLogger(stderr, logFormat{}))
		},
	},
	{
		"key", "key new NAME creates a server key, adds its hash to the keys file and prints the key",
		func(_ context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
			return createKey(args, environ, stdout, stderr)
		},
	},
	{
		"health", "checks the health of the gateway that runs here with the same settings, for containers",
		func(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
			s, err := parseSettings(args, environ, stderr)
			if err != nil {
				return err
			}
			return checkHealth(ctx, s, stdout)
		},
	},
	{
		"check-config", "reads all files that serve would read with these settings, and reports every error",
		func(_ context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
			s, err := parseSettings(args, environ, stderr)
			if err != nil {
				return err
			}
			return checkConfig(s, stdout)
		},
	},
	{"check", "check google compares Google's servers with what this gateway assumes; check deployment URL tests a deployment", runCheck},
	{"record", "records the messages of one conversation with Google, without key, handles and sound", recordWire},
	{
		"version", "prints the commit and the Go version this program was built from",
		func(_ context.Context, _ []string, _ variables, stdout, _ io.Writer) error {
			_, err := fmt.Fprintln(stdout, describeVersion())
			return err
		},
	},
}

// formatUsage returns the text of gateway help.
func formatUsage() string {
	var b strings.Builder
	b.WriteString("Usage: gateway [COMMAND] [flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-12s %s\n", c.name, c.does)
	}
	b.WriteString("  help         prints this\n\ngateway COMMAND -h lists the flags of serve, emulate, key new, health, check-config, " +
		"record, check google and check deployment.\n")
	return b.String()
}

func main() {
	ctx, stop := notifyStop(context.Background(), stopSignals()...)
	err := run(ctx, os.Args[1:], readEnvironment(os.Environ()), os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// forceKey is the context key under which notifyStop stores the context that [forceContext] returns.
type forceKey struct{}

// forceContext returns a context that ends when the program must stop at once, without a drain. ctx is the context of notifyStop.
func forceContext(ctx context.Context) context.Context {
	if force, ok := ctx.Value(forceKey{}).(context.Context); ok {
		return force
	}
	return context.Background()
}

// notifyStop returns a context that the first signal ends. The second signal ends the context that [forceContext] returns for it.
// Both signals come by one channel, so that a second one right behind the first is not lost. stop frees both contexts. Signals
// are still caught after that, until the process exits, because a late one must not change the exit status.
func notifyStop(parent context.Context, signals ...os.Signal) (ctx context.Context, stop func()) {
	force, endForce := context.WithCancel(parent)
	ctx, end := context.WithCancel(context.WithValue(parent, forceKey{}, force))
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
	return ctx, func() {
		end()
		endForce()
	}
}

// stopSignals returns the signals that stop the program. They include SIGHUP if standard error is a terminal, which sends it when it is
// closed. Otherwise SIGHUP conventionally means "reload". The gateway reloads its files without it, so it ignores SIGHUP, and calls go on.
func stopSignals() []os.Signal {
	stopping := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if signal.Ignored(syscall.SIGHUP) { // by nohup
		return stopping
	}
	if out, err := os.Stderr.Stat(); err == nil && out.Mode()&os.ModeCharDevice != 0 {
		return append(stopping, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // ignored without signal.Ignore, which child processes would inherit
	return stopping
}

// run runs a command, as main does; tests call it.
func run(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
	name := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	} else if len(args) == 1 {
		switch args[0] {
		case "-h", "-help", "--help":
			name = "help"
		case "-version", "--version":
			name, args = "version", nil
		}
	}
	if name == "help" {
		_, err := fmt.Fprint(stdout, formatUsage())
		return err
	}
	for _, c := range commands {
		if c.name == name {
			return c.run(ctx, args, environ, stdout, stderr)
		}
	}
	return fmt.Errorf("unknown command %q\n\n%s", name, formatUsage())
}
