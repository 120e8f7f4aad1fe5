package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
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

// startGCPercent is the garbage collector's percentage during the start, which parses, bundles and compresses the
// scripts of the pages. Where garbage is collected so often, the heap stays small and has few gaps: on a busy machine
// the program then takes 10.4 to 11.4 MB of memory. With the usual percentage it takes 10.9 to 13.4.
const startGCPercent = 25

// usualGCPercent returns the percentage that the program was started with. Tests start several gateways at once.
var usualGCPercent = sync.OnceValue(func() int { return debug.SetGCPercent(startGCPercent) })

// runServer opens all components, serves until ctx is done, and closes them.
func runServer(ctx context.Context, s settings, log *slog.Logger) (err error) {
	g := &gateway{settings: s, log: log, shutdown: shutdown{log: log}}
	for _, wrong := range s.unknown {
		log.Warn("unknown setting", "err", wrong)
	}
	defer func() { err = errors.Join(err, g.closeAll()) }()
	if err := g.openAll(ctx); err != nil {
		return err
	}
	g.logStart()
	err = g.serveUntil(ctx)
	if err == nil {
		g.drain(forcedStopContext(ctx))
	}
	log.Info("shutting down")
	return err
}

// openAll opens all components.
func (g *gateway) openAll(ctx context.Context) error {
	usual := usualGCPercent()
	debug.SetGCPercent(startGCPercent)
	defer debug.SetGCPercent(usual)
	for _, c := range g.components() {
		if err := g.start(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// serveUntil serves until ctx is done or the server fails. While it begins to serve, it also fetches certificates and
// checks Gemini.
func (g *gateway) serveUntil(ctx context.Context) (err error) {
	failed := make(chan error, 1)
	go func() { failed <- g.server.Serve(g.page) }()
	// What the start took is given back.
	runtime.GC() // the second collection, in FreeOSMemory, empties what is still in a sync.Pool after the first
	debug.FreeOSMemory()
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
