package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/gateway/console"
	"voxgate/gateway/telemetry"
	"voxgate/media/smartturn"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
	"voxgate/store"
	"voxgate/tools/canvas"
	"voxgate/tools/catalogue"
	"voxgate/tools/guard"
)

// openAgents reads the folder of agents.
func (g *gateway) openAgents(context.Context) (end func(context.Context) error, err error) {
	if g.settings.agents == "" {
		return nil, nil
	}
	folder, err := agents.Open(g.settings.agents, g.settings.vertexProject(), g.log)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	if names := folder.Names(); names == nil {
		g.log.Warn("no agents: the folder has no files that end in .md", "folder", g.settings.agents)
	} else {
		g.log.Info("agents read", "folder", g.settings.agents, "agents", strings.Join(names, ", "))
	}
	g.agents = folder
	return nil, nil
}

// openStore opens the store that gateways share, and registers this gateway's name in it. Without Redis the store is in
// memory.
func (g *gateway) openStore(context.Context) (end func(context.Context) error, err error) {
	if g.settings.access.ClusterKey, err = access.NewClusterKey(g.settings.redisSecret); err != nil {
		return nil, err
	}
	if g.settings.redis == "" {
		g.store = store.NewMemory()
		return nil, nil
	}
	if g.store, err = store.OpenRedis(g.settings.redis, g.settings.redisSecret, g.log); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	url, addr := g.settings.nodeURL, g.pageAddr()
	if url == "" && !addr.IP.IsUnspecified() && g.settings.tls.cert == "" && len(g.settings.tls.domains) == 0 {
		url = "http://" + addr.String()
	}
	name := rand.Text()[:10]
	g.log.Info("conversations are shared with other gateways", "node", name, "at", url)
	g.node = g.settings.access.ClusterKey.SignNode(name, url)
	return closeFunc(func() { g.store.Close() }), nil
}

// openGate opens the access control.
func (g *gateway) openGate(context.Context) (end func(context.Context) error, err error) {
	o := g.settings.access
	o.Agents, o.Store, o.Node, o.OnRefused, o.Logger = g.agents, g.store, g.node, g.countRefusal, g.log
	if g.gate, err = access.New(o); err != nil {
		return nil, err
	}
	return closeFunc(g.gate.Close), nil
}

// openTools opens the operator's tools, which every conversation has. It logs a warning about agents that name missing tools.
func (g *gateway) openTools(ctx context.Context) (end func(context.Context) error, err error) {
	names := []string{}
	if g.settings.tools != "" {
		c, err := catalogue.Load(ctx, g.settings.tools, g.log)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		end, g.tools = closeFunc(c.Close), c.Tools
		for _, t := range g.tools() {
			names = append(names, t.Name)
		}
	}
	if err := g.agents.CheckTools(names); err != nil {
		g.log.Warn("tool of an agent does not exist", "err", err)
	}
	return end, nil
}

// openTelemetry opens the metrics, traces and reports of conversations. It opens metrics only if a private address is
// configured, because only that address serves them.
func (g *gateway) openTelemetry(ctx context.Context) (end func(context.Context) error, err error) {
	g.telemetry, err = telemetry.New(ctx, telemetry.Options{
		Metrics: g.settings.privateAddr != "", BuildLabels: buildLabels(),
		WebhookURL: g.settings.sessionWebhook, WebhookSecret: g.settings.webhookSecret, Agents: g.agents,
		CallFolder: g.settings.calls, RecordingFolder: g.settings.recordings, KeepDays: g.settings.keep,
		OutcomeModel: g.settings.appModel, Generate: g.generateText, Logger: g.log,
	})
	if err != nil {
		return nil, err
	}
	if g.telemetry.Metrics() != nil {
		g.webrtc.OnQuality(g.telemetry.ObserveQuality)
	}
	return g.telemetry.Close, nil
}

// openJudge opens the model that judges the ends of turns, if one is configured.
func (g *gateway) openJudge(context.Context) (end func(context.Context) error, err error) {
	s := &g.settings
	if s.turnModel == "" {
		return nil, nil
	}
	if g.judge, err = smartturn.Load(s.onnxRuntime, s.turnModel, s.turnCPU); err != nil {
		return nil, fmt.Errorf("turn-model: %w", err)
	}
	g.log.Info("end-of-turn model", "file", s.turnModel, "cores", s.turnCPU)
	return closeFunc(g.judge.Close), nil
}

// openHost opens the host of the conversations. It also opens the fetcher of pictures and the store of search
// suggestions that clients show.
func (g *gateway) openHost(context.Context) (end func(context.Context) error, err error) {
	g.fetcher, g.chips = canvas.NewFetcher(guard.NewClient(guard.Options{})), canvas.NewChips()
	s := &g.settings
	o := bridge.Options{
		Client: g.gemini, Backend: g.backend, Park: s.park, Stall: s.stall, MaxTokens: s.maxTokens, Prices: s.prices, Findings: s.findings,
		Tools: g.tools, SignPicture: g.fetcher.SignURL, SuggestionsPage: g.chips.AddPage, Recordings: s.recordings, RecordAll: s.recordAll,
		Node: g.node, Observe: g.telemetry.Observer(), Admit: g.telemetry.Admission(), Logger: g.log,
		OnQuotaRefusal: func() { g.countRefusal("quota") },
	}
	if g.node != "" {
		o.Store = g.store
	}
	if s.privateAddr != "" {
		g.history = console.NewHistory(s.calls)
		observe := o.Observe // not nil, because a private address enables metrics
		o.Observe = func(id string, x bridge.Observation) {
			observe(id, x)
			g.history.Observe(id, x)
		}
	}
	if g.judge != nil {
		o.TurnJudge = g.judge
	}
	g.host = bridge.NewHost(o)
	g.onCloseFirst("conversations", g.host.Shutdown)
	return nil, nil
}

// openModels opens the REST API. The VOX assistant and the outcomes of conversations also use it.
func (g *gateway) openModels(context.Context) (end func(context.Context) error, err error) {
	var routes []geminirest.Route
	if g.settings.models != "" {
		if routes, err = geminirest.ReadRoutes(g.settings.models); err != nil {
			return nil, fmt.Errorf("models: %w", err)
		}
	}
	g.models = geminirest.New(g.host, g.gemini, routes, g.log)
	return closeFunc(g.models.Close), nil
}

// openServer opens the HTTP server of the page's port, with all endpoints.
func (g *gateway) openServer(context.Context) (end func(context.Context) error, err error) {
	endpoints := signaling.NewServer(g.admissionOptions(), g.endpoints...)
	g.server = newServer(endpoints, g.log)
	return func(ctx context.Context) error { return errors.Join(endpoints.Close(ctx), g.server.Shutdown(ctx)) }, nil
}

// openREST opens a second HTTP server with only the REST API, if an address is configured for it.
func (g *gateway) openREST(context.Context) (end func(context.Context) error, err error) {
	if g.settings.restAddr == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", g.settings.restAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for REST at VOXGATE_REST_ADDR: %w", err)
	}
	endpoints := signaling.NewServer(g.admissionOptions(), g.models.Endpoints()...)
	stop := serveInBackground(logAcceptErrors(listener, g.log), newServer(endpoints, g.log))
	g.log.Info("REST", "at", "http://"+listener.Addr().String()+"/v1beta/models")
	return func(ctx context.Context) error {
		defer stop()
		return endpoints.Close(ctx)
	}, nil
}

// openPrivate serves the operator's console at the private address, if one is configured.
func (g *gateway) openPrivate(ctx context.Context) (end func(context.Context) error, err error) {
	if g.settings.privateAddr == "" {
		return nil, nil
	}
	g.telemetry.RegisterHostMetrics(g.host, g.store.IsDown)
	g.telemetry.RegisterJudgeMetrics(g.judge.Stats)
	// The console shows conversations without a key only if there are no server keys, and only this machine can reach the
	// address.
	at, _, err := net.SplitHostPort(g.settings.privateAddr)
	requiresKey := err != nil || !isLoopback(at) || g.settings.access.Keys != ""
	page, err := console.New(console.Options{
		Host: g.host, Admission: g.admissionOptions(), RequiresKey: requiresKey,
		IsReady:  func() bool { return ctx.Err() == nil && g.host.IsReady() },
		HasStore: g.settings.redis != "", IsStoreDown: g.store.IsDown,
		Metrics: g.telemetry.Metrics(), ReadTodayCounts: g.telemetry.ReadTodayCounts, History: g.history,
		Agents: g.agents, RecordingFolder: g.settings.recordings, CallFolder: g.settings.calls,
		PageURL: g.pageURL(), Logger: g.log,
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", g.settings.privateAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the operator at VOXGATE_PRIVATE_ADDR: %w", err)
	}
	server := newServer(page, g.log)
	server.WriteTimeout = console.ResponseTimeout
	stop := serveInBackground(listener, server)
	at = "http://" + listener.Addr().String()
	g.log.Info("private", "at", at, "serves", "the operator's page, metrics and health")
	return func(ctx context.Context) error {
		defer stop()
		return page.Close(ctx)
	}, nil
}
