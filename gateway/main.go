// Command gateway is Voxgate: a media gateway between people and Google's Gemini Live API. gateway help shows its commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
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
	{
		"check", "check google compares Google's servers with what this gateway assumes; check deployment URL tests a deployment",
		runCheckCommand,
	},
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
	err := runCommand(ctx, os.Args[1:], readEnvironment(os.Environ()), os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// runCommand runs a command, as main does; tests call it.
func runCommand(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
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
