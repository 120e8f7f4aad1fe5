package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/gateway/telemetry"
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
	folder, err := agents.Open(g.settings.agents, g.log)
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

// openStore opens the store that gateways share, and names this gateway there. Without Redis the store is in memory.
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

// countRefusal counts a rejected client. It must not be called before all components are open.
func (g *gateway) countRefusal(rule string) { g.telemetry.CountRefusal(rule) }

// admission returns what all HTTP servers for clients demand of a request.
func (g *gateway) admission() signaling.Options {
	return signaling.Options{
		Origins: g.settings.origins, Hosts: append(g.settings.tls.domains, g.settings.hosts...),
		Access: g.gate, OnRefused: g.countRefusal, Logger: g.log,
	}
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

// openTelemetry opens what observes the conversations. Metrics need the private address.
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

// generateText asks a text model. It must not be called before all components are open.
func (g *gateway) generateText(
	ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
) (bridge.Cost, error) {
	return g.models.GenerateContent(ctx, account, model, request, piece)
}

// openHost opens the host of the conversations, and the pictures and search suggestions that clients show.
func (g *gateway) openHost(context.Context) (end func(context.Context) error, err error) {
	g.fetcher, g.chips = canvas.NewFetcher(guard.Client(guard.Options{})), canvas.NewChips()
	s := &g.settings
	o := bridge.Options{
		Client: g.gemini, Backend: g.backend, Park: s.park, Stall: s.stall, MaxTokens: s.maxTokens, Prices: s.prices, Findings: s.findings,
		Tools: g.tools, SignPicture: g.fetcher.Sign, SuggestionsPage: g.chips.Add, Recordings: s.recordings, RecordAll: s.recordAll,
		Node: g.node, Observe: g.telemetry.Observer(), Admit: g.telemetry.Admission(), Logger: g.log,
	}
	if g.node != "" {
		o.Store = g.store
	}
	g.host = bridge.NewHost(o)
	g.closeFirst("conversations", g.host.Shutdown)
	return nil, nil
}

// openModels opens the REST API, which the VOX assistant and the outcomes of conversations use as well.
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
