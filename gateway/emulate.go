package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"voxgate/bridge/gemini/emulator"
)

// emulateHelp is the end of the command's help, after the list of flags.
const emulateHelp = `
By itself nothing goes wrong. A scenario is a JSON object, for example

  {"connectionAge": "10m", "goAwayLead": "60s", "slowPongs": "20s", "faults": [
    {"on": "handshake", "connections": [2], "http": 429},
    {"on": "answer", "after": "300ms", "times": 1, "close": 1011, "reason": "Internal error encountered."}]}

A fault strikes "on" handshake, setup, ready, speechStart, speechEnd, text, answer, turnComplete, toolCall or toolResponse;
"after" so long, the "nth" time, on these "connections", so many "times".
It does one of http (401, 403, 429, 503), close (a code, with a reason), drop, stall (true,
with deaf), goAway ("5s") and send (a text). All fields: go doc ./bridge/gemini/emulator Scenario.

People in a conversation can type /goaway 5s, /close 1011 and /drop.
`

// runEmulator runs the emulator alone until ctx is done.
func runEmulator(ctx context.Context, args []string, stderr io.Writer, log *slog.Logger) error {
	addr, options, err := parseEmulateFlags(args, stderr)
	if err != nil {
		return err
	}
	options.Logger = log
	url, ended, stop, err := startEmulator(addr, options)
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

// parseEmulateFlags reads the flags of emulate.
func parseEmulateFlags(args []string, stderr io.Writer) (addr string, o emulator.Options, err error) {
	f := flag.NewFlagSet("gateway emulate", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&addr, "addr", "127.0.0.1:3002", "`host:port` to listen on; a loopback address, for it lets everybody in")
	file := f.String("scenario", "", "how long things last and what goes wrong: a JSON `file`, or the JSON object itself")
	f.Usage = func() {
		fmt.Fprintln(stderr, "Usage of gateway emulate:")
		f.PrintDefaults()
		fmt.Fprint(stderr, emulateHelp)
	}
	if err := f.Parse(args); err != nil {
		return "", o, err
	}
	if f.NArg() > 0 {
		return "", o, fmt.Errorf("unexpected argument %q; a scenario is given by --scenario", f.Arg(0))
	}
	if host, _, err := net.SplitHostPort(addr); err != nil || !isLoopback(host) {
		return "", o, fmt.Errorf("addr: %q is not a loopback address and port", addr)
	}
	if *file != "" {
		if o.Scenario, err = readScenario(*file); err != nil {
			return "", o, err
		}
	}
	return addr, o, nil
}

func readScenario(fileOrJSON string) (emulator.Scenario, error) {
	data := []byte(fileOrJSON)
	if !strings.HasPrefix(strings.TrimSpace(fileOrJSON), "{") {
		var err error
		if data, err = os.ReadFile(fileOrJSON); err != nil {
			return emulator.Scenario{}, fmt.Errorf("scenario: %w", err)
		}
	}
	return emulator.ParseScenario(data)
}

// startEmulator starts the emulator at addr, and returns its base URL for clients of Google's API. stop ends it. ended
// receives the error that has ended it.
func startEmulator(addr string, o emulator.Options) (url string, ended <-chan error, stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, nil, fmt.Errorf("listen for the emulator: %w", err)
	}
	e := emulator.New(o)
	server := &http.Server{Handler: e, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader}
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- server.Serve(listener) })
	return "http://" + listener.Addr().String(), failed, func() {
		server.Close()
		e.Close()
		serving.Wait()
	}, nil
}
