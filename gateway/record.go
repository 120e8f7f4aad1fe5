package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/probe"
	"voxgate/bridge/gemini/traces"
)

// recordWire implements gateway record: it holds one conversation with the Live API, and writes its messages for tests.
func recordWire(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("gateway record", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "Usage: gateway record [flags] STEP...\n\nEach STEP is one of: \"text WORDS\", speech, \"wait 5s\", "+
			"end (audioStreamEnd), mute, unmute.\nBehind words it waits for the answer. Without steps it says a sentence.\n\n")
		f.PrintDefaults()
	}
	out := f.String("out", "", "the `file` for the recording; none: standard output")
	config := f.String("config", "{}", "the LiveConfig of the conversation, as `JSON`: model, tools, systemInstruction and so on")
	emulated := f.Bool("emulator", false, "talk to the built-in emulator in place of Google")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !json.Valid([]byte(*config)) {
		return errors.New("config: is not JSON")
	}
	var s settings
	if err := s.readGoogleVariables(environ); err != nil {
		return err
	}
	server := serverName(s)
	if *emulated {
		url, _, stop, err := startEmulator("127.0.0.1:0", emulator.Options{})
		if err != nil {
			return err
		}
		defer stop()
		s, server = settings{apiKey: "none", baseURL: url}, "the emulator"
	}
	if s.apiKey == "" && s.baseURL == "" && !s.vertex {
		return errors.New("record needs a key: set GEMINI_API_KEY, or what Vertex AI wants (docs/settings.md#gemini), or try --emulator")
	}
	client, _, _, err := newGeminiClient(s, slog.New(slog.DiscardHandler)) // settings with a key or URL never start an emulator
	if err != nil {
		return err
	}
	to := stdout
	if *out != "" {
		file, openErr := os.OpenFile(*out, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		to = file
	}
	steps := f.Args()
	if len(steps) == 0 {
		steps = []string{"wait 1s", "speech", "wait 2s"}
	}
	return probe.Record(ctx, probe.Recording{
		Client: client, Config: json.RawMessage(*config), Steps: steps, To: to,
		Comment: traces.Comment{
			Source: "gateway record " + describeVersion(), Date: time.Now().UTC().Format(time.DateOnly), Backend: server,
			Real: "messages as they came and went", Clock: "since just before the dial",
			Audio: "sound of the server by its length in base64, of the client by its length in ms",
		},
	})
}
