package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/gateway/telemetry"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
	"voxgate/signaling/rtc"
	"voxgate/store"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

// gateway is a running gateway. Its fields are its components, in the order in which [gateway.components] opens them; each may use those
// above it.
type gateway struct {
	settings settings
	log      *slog.Logger

	agents  *agents.Folder // or nil
	gemini  *api.Client    // a client of Gemini, or of the emulator
	backend string         // which of them: gemini, vertex or emulator
	page    net.Listener
	webrtc  *rtc.API
	store   store.Store // shared with other gateways, or in memory
	node    string      // the name of this gateway in the store; "" without others
	gate    *access.Gate
	tools   func() []tools.Tool // the operator's tools, or nil

	telemetry *telemetry.Telemetry
	fetcher   *canvas.Fetcher
	chips     *canvas.Chips
	host      *bridge.Host
	models    *geminirest.Server
	endpoints []signaling.Endpoint
	server    *http.Server

	shutdown
}

// component is a part of a gateway. open may return a function that closes it, and may block until its context is done.
type component struct {
	name string
	open func(ctx context.Context) (end func(context.Context) error, err error)
}

// components lists the components in the order in which they are opened. They are closed in reverse order, except
// for the conversations, which are closed first: callers get their goodbye while their endpoints still run.
func (g *gateway) components() []component {
	return []component{
		{"agents", g.openAgents},
		{"backend", g.openBackend},
		{"ports", g.openPorts},
		{"store", g.openStore},
		{"access", g.openGate},
		{"tools", g.openTools},
		{"telemetry", g.openTelemetry},
		{"conversations", g.openHost},
		{"connections to models", g.openModels},
		{"REST address", g.openREST},
		{"private address", g.openPrivate},
		{"endpoints", g.openEndpoints},
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
		g.drain(forceContext(ctx))
	}
	log.Info("shutting down")
	return err
}

// start opens a component and registers its end.
func (g *gateway) start(ctx context.Context, c component) error {
	end, err := c.open(ctx)
	if err == nil && end != nil {
		g.onClose(c.name, end)
	}
	return err
}

// serveUntil serves until ctx is done or the server fails. Certificates are fetched and Gemini is checked at the same time.
func (g *gateway) serveUntil(ctx context.Context) (err error) {
	failed := make(chan error, 1)
	go func() { failed <- g.server.Serve(g.page) }()
	debug.FreeOSMemory() // parsing and bundling the page's scripts takes several times the memory that stays in use
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

// drain lets conversations end by themselves, for the time that is configured or until ctx is done. It blocks.
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

// pageAddr returns the address of the page.
func (g *gateway) pageAddr() *net.TCPAddr { return g.page.Addr().(*net.TCPAddr) }

// pageURL returns the URL of the page.
func (g *gateway) pageURL() string {
	addr, host := g.pageAddr(), "localhost"
	if !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
		host = addr.IP.String()
	}
	return g.settings.tls.pageURL(host, addr.Port)
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
