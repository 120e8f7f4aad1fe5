// Command gateway is Voxgate: a media gateway between people and Google's Gemini Live API.
//
//	gateway serve     browsers and apps talk to Gemini, or to the built-in emulator when no key is set (the default)
//	gateway emulate   the emulator alone, for anything that speaks the Live API
//	gateway key new   makes a server key and prints it
//	gateway health    asks the gateway that runs here whether it lives, for containers
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Usage: gateway [serve|emulate|key new|health] [flags]

  serve    browsers and apps talk to Gemini, or to the built-in emulator when no key is set (the default)
  emulate  the emulator alone, for anything that speaks the Live API
  key new  makes a server key, writes its hash into the keys file and prints it
  health   asks the gateway that runs here with the same settings whether it lives, for containers

gateway COMMAND -h lists the flags of a command.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run is the program without its process: tests call it.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	command := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve":
		s, err := parseSettings(args, getenv, stderr)
		if err != nil {
			return err
		}
		return serve(ctx, s, newLogger(stderr, s.log))
	case "emulate":
		return emulate(ctx, args, stderr, newLogger(stderr, logFormat{}))
	case "key":
		return key(args, getenv, stdout, stderr)
	case "health":
		s, err := parseSettings(args, getenv, stderr)
		if err != nil {
			return err
		}
		return checkHealth(ctx, s, stdout)
	case "help":
		fmt.Fprint(stderr, usage)
		return nil
	}
	return fmt.Errorf("there is no command %q\n\n%s", command, usage)
}
