package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/gateway/console"
	"voxgate/gateway/telemetry"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
	"voxgate/store"
	"voxgate/tools"
	"voxgate/tools/canvas"
	"voxgate/tools/catalogue"
	"voxgate/tools/guard"
)

// runServer starts all components in order, serves until ctx is done, and stops them in reverse order.
func runServer(ctx context.Context, s settings, log *slog.Logger) (err error) {
	warnOfUnknownSettings(s, log)
	stopping := &shutdown{log: log}
	defer func() { err = errors.Join(err, stopping.closeAll()) }()
	if s.access.Agents, err = openAgents(s, log); err != nil {
		return err
	}
	gemini, backend, stopBackend, err := openBackend(s, log)
	if err != nil {
		return err
	}
	stopping.onCloseFunc("backend", stopBackend)
	listener, webrtc, err := openPorts(s, log)
	if err != nil {
		return err
	}
	stopping.onCloseFunc("port", func() { listener.Close() })
	stopping.onClose("WebRTC", func(context.Context) error { return webrtc.Close() })
	var monitoring *telemetry.Telemetry // opened later, but before the first client can be refused
	s.access.OnRefused = func(rule string) { monitoring.CountRefusal(rule) }
	gate, shared, node, err := openGate(s, listener.Addr().(*net.TCPAddr), stopping, log)
	if err != nil {
		return err
	}
	operatorTools, err := openTools(ctx, s, stopping, log)
	if err != nil {
		return err
	}
	fetcher, chips := canvas.NewFetcher(guard.Client(guard.Options{})), canvas.NewChips()
	var generate *geminirest.Server // opened before the first conversation ends
	if monitoring, err = openTelemetry(ctx, s, func(
		ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
	) (bridge.Cost, error) {
		return generate.GenerateContent(ctx, account, model, request, piece)
	}, log); err != nil {
		return err
	}
	stopping.onClose("telemetry", monitoring.Close)
	if monitoring.Metrics() != nil {
		webrtc.OnQuality(monitoring.ObserveQuality)
	}
	admission := signaling.Options{
		Origins: s.origins, Hosts: append(s.tls.domains, s.hosts...), Access: gate,
		OnRefused: s.access.OnRefused, Logger: log,
	}
	options := bridge.Options{
		Client: gemini, Backend: backend, Park: s.park, Stall: s.stall, MaxTokens: s.maxTokens, Prices: s.prices, Findings: s.findings,
		Tools: operatorTools, SignPicture: fetcher.Sign, SuggestionsPage: chips.Add,
		Recordings: s.recordings, RecordAll: s.recordAll, Node: node,
		Observe: monitoring.Observer(), Admit: monitoring.Admission(), Logger: log,
	}
	if node != "" {
		options.Store = shared
	}
	host := bridge.NewHost(options)
	stopping.closeFirst("conversations", host.Shutdown) // the callers get their goodbye, then leave
	generate, err = openREST(s, host, gemini, admission, stopping, log)
	if err != nil {
		return err
	}
	stopPrivate, err := openPrivate(s, console.Options{
		Host: host, Admission: admission, PageURL: s.pageURL(listener.Addr().(*net.TCPAddr)), Logger: log,
		IsReady: func() bool { return ctx.Err() == nil && host.IsReady() }, IsStoreDown: shared.IsDown,
	}, monitoring)
	if err != nil {
		return err
	}
	stopping.onClose("private address", stopPrivate)
	conversations, err := openEndpoints(s, host, webrtc, generate, gate, shared, monitoring.ReportCall, stopping, log)
	if err != nil {
		return err
	}
	doors := signaling.NewServer(admission, append(conversations, otherEndpoints(gate, fetcher, chips)...)...)
	server := newServer(doors, log)
	stopping.onClose("requests", server.Shutdown)
	stopping.onClose("doors", doors.Close)
	logStart(s, listener.Addr().(*net.TCPAddr), backend, log)
	return serveRequests(ctx, server, listener, host, s.drain, log, func(ctx context.Context) {
		s.tls.fetchCertificates(ctx, listener.Addr())
		checkGemini(ctx, gemini, backend, log)
	})
}

// serveRequests serves requests until ctx is done, and then drains the conversations. check runs at the same time.
func serveRequests(
	ctx context.Context, server *http.Server, at net.Listener, host *bridge.Host, most time.Duration, log *slog.Logger,
	check func(context.Context),
) error {
	err := serveUntil(ctx, server, at, check)
	if err == nil {
		drainHost(forceContext(ctx), host, most, log)
	}
	log.Info("shutting down")
	return err
}

// warnOfUnknownSettings logs environment variables that look like settings but are not.
func warnOfUnknownSettings(s settings, log *slog.Logger) {
	for _, wrong := range s.unknown {
		log.Warn("unknown setting", "err", wrong)
	}
}

// openAgents reads the folder of agents. It returns nil if none is configured.
func openAgents(s settings, log *slog.Logger) (*agents.Folder, error) {
	if s.agents == "" {
		return nil, nil
	}
	folder, err := agents.Open(s.agents, log)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	if names := folder.Names(); names == nil {
		log.Warn("no agents: the folder has no files that end in .md", "folder", s.agents)
	} else {
		log.Info("agents read", "folder", s.agents, "agents", strings.Join(names, ", "))
	}
	return folder, nil
}

// warnOfMissingTools logs the tools of agents that neither the tools file nor a tool server has.
func warnOfMissingTools(folder *agents.Folder, list func() []tools.Tool, log *slog.Logger) {
	names := []string{}
	if list != nil {
		for _, t := range list() {
			names = append(names, t.Name)
		}
	}
	if err := folder.CheckTools(names); err != nil {
		log.Warn("tool of an agent does not exist", "err", err)
	}
}

// openStore opens the store that gateways share, and registers this one as a node. Without Redis the store is in memory and node is "".
func openStore(s settings, clusterKey access.ClusterKey, addr *net.TCPAddr, log *slog.Logger) (
	shared store.Store, node string, stop func(), err error,
) {
	if s.redis == "" {
		return store.NewMemory(), "", func() {}, nil
	}
	if shared, err = store.OpenRedis(s.redis, s.redisSecret, log); err != nil {
		return nil, "", nil, fmt.Errorf("redis: %w", err)
	}
	if s.nodeURL == "" && !addr.IP.IsUnspecified() && s.tls.cert == "" && len(s.tls.domains) == 0 {
		s.nodeURL = "http://" + addr.String()
	}
	name := rand.Text()[:10]
	log.Info("conversations are shared with other gateways", "node", name, "at", s.nodeURL)
	node = clusterKey.SignNode(name, s.nodeURL)
	return shared, node, func() { shared.Close() }, nil
}

// openBackend returns a client of Gemini, or of the emulator, which runs until stop is called.
func openBackend(s settings, log *slog.Logger) (client *api.Client, name string, stop func(), err error) {
	client = &api.Client{APIKey: s.apiKey, BaseURL: s.baseURL}
	switch {
	case s.vertex:
		client.Vertex = &api.Vertex{Project: s.project, Location: s.location}
		return client, "vertex", func() {}, nil
	case s.apiKey != "" || s.baseURL != "":
		return client, "gemini", func() {}, nil
	}
	client.BaseURL, _, stop, err = startEmulator("127.0.0.1:0", emulator.Options{Logger: log.With("part", "emulator")})
	return client, "emulator", stop, err
}

// openGate opens the access control and the shared store, and returns the name of this node.
func openGate(s settings, at *net.TCPAddr, stopping *shutdown, log *slog.Logger) (
	gate *access.Gate, shared store.Store, node string, err error,
) {
	clusterKey, err := access.NewClusterKey(s.redisSecret)
	if err != nil {
		return nil, nil, "", err
	}
	shared, node, closeStore, err := openStore(s, clusterKey, at, log)
	if err != nil {
		return nil, nil, "", err
	}
	stopping.onCloseFunc("store", closeStore)
	s.access.Logger, s.access.Store, s.access.Node, s.access.ClusterKey = log, shared, node, clusterKey
	if gate, err = access.New(s.access); err != nil {
		return nil, nil, "", err
	}
	stopping.onCloseFunc("access", gate.Close)
	return gate, shared, node, nil
}

// drainHost lets conversations end by themselves, for most at the longest or until ctx is done. It blocks.
func drainHost(ctx context.Context, host *bridge.Host, most time.Duration, log *slog.Logger) {
	if most == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	log.Info("stopping: no new conversations; a second signal stops at once", "running", len(host.Sessions()), "until", most)
	host.Drain(ctx)
}

// openTelemetry opens what observes the conversations. Metrics need the private address.
func openTelemetry(ctx context.Context, s settings, generate telemetry.TextGenerator, log *slog.Logger) (*telemetry.Telemetry, error) {
	return telemetry.New(ctx, telemetry.Options{
		Metrics: s.privateAddr != "", BuildLabels: buildLabels(),
		WebhookURL: s.sessionWebhook, WebhookSecret: s.webhookSecret, Agents: s.access.Agents,
		CallFolder: s.calls, RecordingFolder: s.recordings, KeepDays: s.keep,
		OutcomeModel: s.appModel, Generate: generate, Logger: log,
	})
}

// openPrivate serves the operator's private address until stop is called. Without the address it serves nothing.
func openPrivate(s settings, o console.Options, monitoring *telemetry.Telemetry) (stop func(context.Context) error, err error) {
	if s.privateAddr == "" {
		return func(context.Context) error { return nil }, nil
	}
	monitoring.WatchHost(o.Host, o.IsStoreDown)
	o.Metrics, o.CountToday = monitoring.Metrics(), monitoring.CountToday
	o.Agents, o.RecordingFolder, o.CallFolder, o.HasStore = s.access.Agents, s.recordings, s.calls, s.redis != ""
	at, _, err := net.SplitHostPort(s.privateAddr)
	o.RequiresKey = err != nil || !isLoopback(at) || s.access.Keys != "" // else only this machine reaches the page, and there are no keys
	page, err := console.New(o)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", s.privateAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the operator at VOXGATE_PRIVATE_ADDR: %w", err)
	}
	server := newServer(page, o.Logger)
	server.WriteTimeout = console.ResponseTimeout
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(listener) })
	o.Logger.Info("private", "at", "http://"+listener.Addr().String())
	return func(ctx context.Context) error {
		defer serving.Wait()
		defer server.Close()
		return page.Close(ctx)
	}, nil
}

// openTools opens the operator's tools, which every conversation has. It returns nil without a tools file. It logs a warning about agents
// that name missing tools.
func openTools(ctx context.Context, s settings, stopping *shutdown, log *slog.Logger) (list func() []tools.Tool, err error) {
	if s.tools != "" {
		c, err := catalogue.Load(ctx, s.tools, log)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		stopping.onCloseFunc("tools", c.Close)
		list = c.Tools
	}
	warnOfMissingTools(s.access.Agents, list, log)
	return list, nil
}

// pageURL returns the URL of the page of a gateway that listens at addr.
func (s *settings) pageURL(addr *net.TCPAddr) string {
	host := "localhost"
	if !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
		host = addr.IP.String()
	}
	return s.tls.pageURL(host, addr.Port)
}

// logStart logs the address and the backend.
func logStart(s settings, addr *net.TCPAddr, backend string, log *slog.Logger) {
	log.Info("listening", "url", s.pageURL(addr))
	who := []any{}
	if s.vertex {
		who = append(who, "project", s.project)
		if s.location != "" {
			who = append(who, "location", s.location)
		}
	}
	if s.baseURL != "" {
		who = append(who, "at", s.baseURL)
	}
	switch {
	case backend == "emulator":
		log.Info("No GEMINI_API_KEY is set: the built-in emulator answers and repeats what you say.")
	case s.vertex:
		log.Info("Gemini answers, by Vertex AI.", who...)
	default:
		log.Info("Gemini answers.", who...)
	}
	for _, model := range slices.Sorted(maps.Keys(s.findings)) {
		log.Info("report of check google replaces assumptions", "model", model, "found", s.findings[model])
	}
	if s.access.Required {
		log.Info("Authentication is required.", "keys", s.access.Keys)
	} else if s.insecure {
		log.Warn("No authentication: everyone who reaches this address can talk at your expense.")
	}
}

// checkGemini logs at the start if Gemini would refuse the first call.
func checkGemini(ctx context.Context, client *api.Client, backend string, log *slog.Logger) {
	if backend == "emulator" {
		return
	}
	if err := client.Check(ctx, api.DefaultModel); err != nil && ctx.Err() == nil {
		log.Warn("Gemini does not answer as it should; calls may fail.", "err", err)
	}
}
