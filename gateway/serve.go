package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
)

// components lists the components in the order in which they are opened. They are closed in reverse order, but the
// conversations are ended before that, so that callers get the close message while the endpoints still run.
func (g *gateway) components() []component {
	return []component{
		{"agents", g.openAgents},
		{"backend", g.openGemini},
		{"ports", g.openPorts},
		{"store", g.openStore},
		{"access", g.openGate},
		{"tools", g.openTools},
		{"telemetry", g.openTelemetry},
		{"end-of-turn model", g.openJudge},
		{"conversations", g.openHost},
		{"connections to models", g.openModels},
		{"REST address", g.openREST},
		{"private address", g.openPrivate},
		{"endpoints", g.startProtocols},
		{"requests", g.openServer},
	}
}

// runServer opens all components, serves until ctx is done, and closes them.
func runServer(ctx context.Context, s settings, log *slog.Logger) (err error) {
	g := &gateway{settings: s, log: log, shutdown: shutdown{log: log}}
	for _, wrong := range s.unknown {
		log.Warn("unknown setting", "err", wrong)
	}
	defer func() { err = errors.Join(err, g.closeAll()) }()
	for _, c := range g.components() {
		if err := g.start(ctx, c); err != nil {
			return err
		}
	}
	g.logStart()
	err = g.serveUntil(ctx)
	if err == nil {
		g.drain(forcedStopContext(ctx))
	}
	log.Info("shutting down")
	return err
}

// serveUntil serves until ctx is done or the server fails. While it begins to serve, it also fetches certificates and
// checks Gemini.
func (g *gateway) serveUntil(ctx context.Context) (err error) {
	failed := make(chan error, 1)
	go func() { failed <- g.server.Serve(g.page) }()
	debug.FreeOSMemory() // parsing and bundling the page's scripts took several times the memory that is still in use
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	var checks sync.WaitGroup
	checks.Go(func() {
		g.settings.tls.fetchCertificates(checking, g.page.Addr())
		checkGemini(checking, g.gemini, g.backend, g.log)
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	checks.Wait()
	return err
}

// drain waits until all conversations have ended by themselves, for the configured time or until ctx is done.
func (g *gateway) drain(ctx context.Context) {
	most := g.settings.drain
	if most == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	g.log.Info("stopping: no new conversations; a second signal stops at once", "running", len(g.host.Sessions()), "until", most)
	g.host.Drain(ctx)
}

// logStart logs the address and the backend.
func (g *gateway) logStart() {
	g.log.Info("listening", "url", g.pageURL())
	who := []any{}
	if g.settings.vertex {
		who = append(who, "project", g.settings.project)
		if g.settings.location != "" {
			who = append(who, "location", g.settings.location)
		}
	}
	if g.settings.baseURL != "" {
		who = append(who, "at", g.settings.baseURL)
	}
	switch {
	case g.backend == "emulator":
		g.log.Info("No GEMINI_API_KEY is set: the built-in emulator answers and repeats what you say.")
	case g.settings.vertex:
		g.log.Info("Gemini answers, by Vertex AI.", who...)
	default:
		g.log.Info("Gemini answers.", who...)
	}
	for _, model := range slices.Sorted(maps.Keys(g.settings.findings)) {
		g.log.Info("report of check google replaces assumptions", "model", model, "found", g.settings.findings[model])
	}
	if g.settings.access.Required {
		g.log.Info("Authentication is required.", "keys", g.settings.access.Keys)
	} else if g.settings.insecure {
		g.log.Warn("No authentication: everyone who reaches this address can talk at your expense.")
	}
}
