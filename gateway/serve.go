package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/store"
	"voxgate/tools"
	"voxgate/tools/canvas"
	"voxgate/tools/catalogue"
	"voxgate/tools/guard"
)

// serve builds everything in order, runs until ctx is done, and stops it in reverse.
func serve(ctx context.Context, s settings, log *slog.Logger) (err error) {
	warnOfUnknownSettings(s, log)
	stopping := &ending{log: log}
	defer func() { err = errors.Join(err, stopping.run()) }()
	if s.access.Agents, err = openAgents(s, log); err != nil {
		return err
	}
	gemini, backend, stopBackend, err := openBackend(s, log)
	if err != nil {
		return err
	}
	stopping.then("backend", stopBackend)
	listener, webrtc, err := openPorts(s, log)
	if err != nil {
		return err
	}
	stopping.then("port", func() { listener.Close() })
	stopping.add("WebRTC", func(context.Context) error { return webrtc.Close() })
	measured, seen, stopTraces, err := observe(ctx, &s, webrtc, log)
	if err != nil {
		return err
	}
	stopping.then("traces", stopTraces)
	gate, shared, node, err := openGate(s, listener.Addr().(*net.TCPAddr), stopping, log)
	if err != nil {
		return err
	}
	own, err := openTools(ctx, s, stopping, log)
	if err != nil {
		return err
	}
	fetcher, chips := canvas.NewFetcher(guard.Client(guard.Options{})), canvas.NewChips()
	ends, seen, err := openReports(s, measured, seen, stopping, log)
	if err != nil {
		return err
	}
	admission := signaling.Options{
		Origins: s.origins, Hosts: append(s.tls.domains, s.hosts...), Access: gate,
		Refused: s.access.Refused, Logger: log,
	}
	options := bridge.Options{
		Client: gemini, Backend: backend, Park: s.park, Stall: s.stall, MaxTokens: s.maxTokens, Prices: s.prices, Findings: s.findings,
		Tools: own, SignPicture: fetcher.Sign, SuggestionsPage: chips.Add,
		Recordings: s.recordings, RecordAll: s.recordAll, Node: node, Observe: seen.all(), Logger: log,
	}
	if node != "" {
		options.Store = shared
	}
	if ends.hooks != nil {
		options.Admit = measured.admitting(ends.hooks.admit)
	}
	host := bridge.NewHost(options)
	stopping.before("conversations", host.Shutdown) // the callers get their goodbye, then leave
	generate, err := openREST(s, host, gemini, admission, stopping, log)
	if err != nil {
		return err
	}
	ends.write = generate.Generate
	state := healthOf(ctx, host, shared, s.url(listener.Addr().(*net.TCPAddr)))
	stopPrivate, err := measured.serve(s, admission, host, state, log)
	if err != nil {
		return err
	}
	stopping.add("private address", stopPrivate)
	conversations, err := openDoors(s, host, webrtc, generate, gate, shared, measured.dialling(ends.hooks.call), stopping, log)
	if err != nil {
		return err
	}
	doors := signaling.NewServer(admission, append(conversations, otherDoors(gate, fetcher, chips)...)...)
	server := newServer(doors, log)
	stopping.add("requests", server.Shutdown)
	stopping.add("doors", doors.Close)
	announce(s, listener.Addr().(*net.TCPAddr), backend, log)
	return serveRequests(ctx, server, listener, host, s.drain, log, func(ctx context.Context) {
		s.tls.fetch(ctx, listener.Addr())
		checkGemini(ctx, gemini, backend, log)
	})
}

// serveRequests serves requests until ctx is done, and then gives conversations time to end. check runs beside it.
func serveRequests(
	ctx context.Context, server *http.Server, at net.Listener, host *bridge.Host, most time.Duration, log *slog.Logger,
	check func(context.Context),
) error {
	err := serveUntil(ctx, server, at, check)
	if err == nil {
		drain(forceOf(ctx), host, most, log)
	}
	log.Info("shutting down")
	return err
}

// warnOfUnknownSettings logs the environment's names that are near those of a setting.
func warnOfUnknownSettings(s settings, log *slog.Logger) {
	for _, wrong := range s.unknown {
		log.Warn("unknown setting", "err", wrong)
	}
}

// openAgents reads who answers; nil: there is no folder.
func openAgents(s settings, log *slog.Logger) (*agents.Folder, error) {
	if s.agents == "" {
		return nil, nil
	}
	folder, err := agents.Open(s.agents, log)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	if names := folder.Names(); names == nil {
		log.Warn("the folder of agents has no file that ends in .md, so no agent answers", "folder", s.agents)
	} else {
		log.Info("agents read", "folder", s.agents, "agents", strings.Join(names, ", "))
	}
	return folder, nil
}

// warnOfMissingTools logs which agents name tools that no file and no server has.
func warnOfMissingTools(folder *agents.Folder, list func() []tools.Tool, log *slog.Logger) {
	names := []string{}
	if list != nil {
		for _, t := range list() {
			names = append(names, t.Name)
		}
	}
	if err := folder.CheckTools(names); err != nil {
		log.Warn("an agent names a tool that does not exist now", "err", err)
	}
}

// healthOf is the health of a host that serves a page, and the orders that it takes.
func healthOf(ctx context.Context, host *bridge.Host, shared store.Store, page string) health {
	return health{
		page:     page,
		ready:    func() bool { return ctx.Err() == nil && host.IsReady() },
		degraded: shared.IsDown,
		leave:    host.BeginDrain, running: func() int { return len(host.Sessions()) },
	}
}

// openStore is what this gateway shares with others, and its name among them; one that is alone has none.
func openStore(s settings, fleet access.Fleet, addr *net.TCPAddr, log *slog.Logger) (
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
	node = fleet.Node(name, s.nodeURL)
	return shared, node, func() { shared.Close() }, nil
}

// openBackend is what answers: Gemini, or the emulator, which runs until stop.
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

// openGate opens the access control and the store that gateways share, with the name of this one among them.
func openGate(s settings, at *net.TCPAddr, stopping *ending, log *slog.Logger) (
	gate *access.Gate, shared store.Store, node string, err error,
) {
	fleet, err := access.NewFleet(s.redisSecret)
	if err != nil {
		return nil, nil, "", err
	}
	shared, node, closeStore, err := openStore(s, fleet, at, log)
	if err != nil {
		return nil, nil, "", err
	}
	stopping.then("store", closeStore)
	s.access.Logger, s.access.Store, s.access.Node, s.access.Fleet = log, shared, node, fleet
	if gate, err = access.New(s.access); err != nil {
		return nil, nil, "", err
	}
	stopping.then("access", gate.Close)
	return gate, shared, node, nil
}

// drain gives conversations time to end by themselves, until ctx is done.
func drain(ctx context.Context, host *bridge.Host, most time.Duration, log *slog.Logger) {
	if most == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	log.Info("stopping: no new conversations; a second signal stops at once", "running", len(host.Sessions()), "until", most)
	host.Drain(ctx)
}

// openReports opens what learns of conversations that are over: the session webhook, the folder of calls; and what deletes old files.
func openReports(s settings, m *metrics, seen observers, stopping *ending, log *slog.Logger) (*reports, observers, error) {
	hooks, err := newHooks(s.sessionWebhook, s.webhookSecret, s.access.Agents, log)
	if err != nil {
		return nil, nil, fmt.Errorf("session-webhook: %w", err)
	}
	ends := &reports{hooks: hooks, model: s.appModel, log: log, places: make(chan struct{}, maxOutcomes), stopped: make(chan struct{})}
	if hooks != nil {
		ends.to = append(ends.to, hooks.ended)
		stopping.add("session webhook", hooks.close)
	}
	if s.calls != "" {
		files := newCallFiles(s.calls, m.unwritten, log)
		ends.to = append(ends.to, files.report)
		stopping.add("files of calls", files.close)
	}
	if ends.to != nil {
		ends.spent = seen.all()
		seen = append(seen, ends.observe)
		stopping.add("outcomes", ends.close)
	}
	if folders := slices.DeleteFunc([]string{s.recordings, s.calls}, func(f string) bool { return f == "" }); s.keep > 0 {
		stopping.then("old files", keepFor(s.keep, slices.Compact(folders), log))
	}
	return ends, seen, nil
}

// openTools opens the tools of the operator's file, which every conversation has, and returns nil if there is no file. It warns of agents
// that name other tools.
func openTools(ctx context.Context, s settings, stopping *ending, log *slog.Logger) (list func() []tools.Tool, err error) {
	if s.tools != "" {
		c, err := catalogue.Load(ctx, s.tools, log)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		stopping.then("tools", c.Close)
		list = c.Tools
	}
	warnOfMissingTools(s.access.Agents, list, log)
	return list, nil
}

// url is where the gateway is reached that listens at an address.
func (s *settings) url(addr *net.TCPAddr) string {
	host := "localhost"
	if !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
		host = addr.IP.String()
	}
	return s.tls.url(host, addr.Port)
}

// announce logs our address and what answers.
func announce(s settings, addr *net.TCPAddr, backend string, log *slog.Logger) {
	log.Info("listening", "url", s.url(addr))
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
		log.Info("the report of check google replaces assumptions", "model", model, "found", s.findings[model])
	}
	if s.access.Required {
		log.Info("Nobody talks without a token.", "keys", s.access.Keys)
	} else if s.insecure {
		log.Warn("Anybody who reaches this address can talk at your expense.")
	}
}

// checkGemini finds at the start what the first caller would run into.
func checkGemini(ctx context.Context, client *api.Client, backend string, log *slog.Logger) {
	if backend == "emulator" {
		return
	}
	if err := client.Check(ctx, api.DefaultModel); err != nil && ctx.Err() == nil {
		log.Warn("Gemini does not answer as it should; calls may fail.", "err", err)
	}
}
