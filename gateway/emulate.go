package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"

	"voxgate/bridge/gemini/emulator"
)

// emulate runs the emulator alone until ctx is done.
func emulate(ctx context.Context, args []string, stderr io.Writer, log *slog.Logger) error {
	f := flag.NewFlagSet("gateway emulate", flag.ContinueOnError)
	f.SetOutput(stderr)
	addr := f.String("addr", "127.0.0.1:3002", "`host:port` to listen on; a loopback address, for it asks nobody who they are")
	persona := f.String("persona", "parrot", "who answers: parrot (says back what it hears) or beep (answers the first loud 20 ms at once)")
	if err := f.Parse(args); err != nil {
		return err
	}
	options := emulator.Options{Logger: log}
	switch *persona {
	case "parrot":
	case "beep":
		options.Persona = emulator.Beep
	default:
		return fmt.Errorf("persona: %q is neither parrot nor beep", *persona)
	}
	if host, _, err := net.SplitHostPort(*addr); err != nil || !isLoopback(host) {
		return fmt.Errorf("addr: %q is not a loopback address and port", *addr)
	}
	url, ended, stop, err := startEmulator(*addr, options)
	if err != nil {
		return err
	}
	defer stop()
	log.Info("emulator listening", "url", url, "use", "GOOGLE_GEMINI_BASE_URL")
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}
