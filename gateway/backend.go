package main

import (
	"context"
	"log/slog"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
)

// openGemini opens the client of Gemini. Without an API key it starts the emulator, which replaces Gemini.
func (g *gateway) openGemini(context.Context) (end func(context.Context) error, err error) {
	var stop func()
	if g.gemini, g.backend, stop, err = newGeminiClient(g.settings, g.log); err != nil {
		return nil, err
	}
	return closeFunc(stop), nil
}

// newGeminiClient returns a client of Gemini, or of the emulator, which runs until stop is called. name is the kind of the
// backend: gemini, vertex or emulator.
func newGeminiClient(s settings, log *slog.Logger) (client *api.Client, name string, stop func(), err error) {
	client = &api.Client{APIKey: s.apiKey, BaseURL: s.baseURL}
	switch {
	case s.vertex:
		client.Vertex = &api.Vertex{Project: s.project, Location: s.location}
		return client, "vertex", func() {}, nil
	case s.apiKey != "" || s.baseURL != "":
		return client, "gemini", func() {}, nil
	}
	client.BaseURL, _, stop, err = startEmulator("127.0.0.1:0", emulator.Options{Logger: log.With("part", "emulator"), Guide: true})
	return client, "emulator", stop, err
}

// checkGemini asks Gemini at the start whether it accepts the credentials and has the model. It logs a warning if the
// first call would fail.
func checkGemini(ctx context.Context, client *api.Client, backend string, log *slog.Logger) {
	if backend == "emulator" {
		return
	}
	if err := client.Check(ctx, api.DefaultModel); err != nil && ctx.Err() == nil {
		log.Warn("Gemini does not answer as it should; calls may fail.", "err", err)
	}
}
