package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/live"
	"voxgate/signaling/openai"
	"voxgate/signaling/rest"
	"voxgate/signaling/rtc"
	"voxgate/signaling/sideband"
	"voxgate/signaling/sip"
	"voxgate/signaling/telephony"
	"voxgate/signaling/whip"
	"voxgate/store"
	"voxgate/tools"
	"voxgate/tools/canvas"
	"voxgate/tools/catalogue"
	"voxgate/tools/guard"
	"voxgate/web"
)

const (
	// headerTimeout bounds a request's headers: a slow sender costs a connection.
	headerTimeout = 5 * time.Second
	// pageTimeout bounds the sending of a page; a WebSocket has its own deadlines from its upgrade on.
	pageTimeout = 30 * time.Second
	// maxHeader is far above what a browser sends.
	maxHeader = 16 << 10
	// checkTimeout bounds the question to Google at the start.
	checkTimeout = 10 * time.Second
)

// serve builds everything in order, runs until ctx is done, and stops it in reverse.
func serve(ctx context.Context, s settings, log *slog.Logger) (err error) {
	stopping := &ending{log: log}
	defer func() { err = errors.Join(err, stopping.run()) }()
	gemini, backend, stopBackend, err := openBackend(s, log)
	if err != nil {
		return err
	}
	stopping.then("backend", stopBackend)
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
	}
	listener, webrtc, err := openPorts(s, heard(listener, log), log)
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
	own, stopTools, err := operatorsTools(ctx, s.tools, log)
	if err != nil {
		return err
	}
	stopping.then("tools", stopTools)
	fetcher, chips := canvas.NewFetcher(guard.Client(guard.Options{})), canvas.NewChips()
	told, err := newHooks(s.sessionWebhook, s.webhookSecret, log)
	if err != nil {
		return err
	}
	admission := signaling.Options{Origins: s.origins, Hosts: append(s.tls.domains, s.hosts...), Access: gate, Refused: s.access.Refused, Logger: log}
	options := bridge.Options{
		Client: gemini, Backend: backend, Park: s.park, Stall: s.stall, MaxTokens: s.maxTokens,
		Tools: own, SignPicture: fetcher.Sign, Chips: chips.Add,
		Recordings: s.recordings, RecordAll: s.recordAll, Node: node, Logger: log,
	}
	if node != "" {
		options.Store = shared
	}
	if told != nil {
		options.Admit, seen = measured.admitting(told.admit), append(seen, told.observe)
		stopping.add("session webhook", told.close)
	}
	options.Observe = seen.all()
	host := bridge.NewHost(options)
	generate, err := openREST(s, host, gemini, admission, stopping, log)
	if err != nil {
		return errors.Join(err, host.Shutdown(ctx))
	}
	stopPrivate, err := measured.serve(s.privateAddr, admission.Hosts, host, healthOf(ctx, host, shared), log)
	if err != nil {
		return errors.Join(err, host.Shutdown(ctx))
	}
	stopping.then("private address", stopPrivate)
	conversations, err := openDoors(s, host, webrtc, generate, gate, shared, stopping, log)
	if err != nil {
		return errors.Join(err, host.Shutdown(ctx))
	}
	doors := signaling.NewServer(admission, append(conversations, otherDoors(gate, fetcher, chips)...)...)
	server := newServer(doors, log)
	stopping.add("requests", server.Shutdown)
	stopping.add("doors", doors.Close)
	stopping.add("conversations", host.Shutdown) // first: the callers are told, then leave
	announce(s, listener.Addr().(*net.TCPAddr), backend, log)
	check := func(ctx context.Context) {
		s.tls.fetch(ctx, listener.Addr())
		checkGemini(ctx, gemini, backend, log)
	}
	if err = serveUntil(ctx, server, listener, check); err == nil {
		drain(host, s.drain, log)
	}
	log.Info("shutting down")
	return err
}

// healthOf is what the operator asks a host, and tells it.
func healthOf(ctx context.Context, host *bridge.Host, shared store.Store) health {
	return health{
		ready:    func() bool { return ctx.Err() == nil && host.Ready() },
		degraded: shared.Down,
		leave:    host.Leave, running: func() int { return len(host.Sessions()) },
	}
}

// otherDoors are what conversations need beside them: tokens, and what their canvases show.
func otherDoors(gate, fetcher, chips http.Handler) []signaling.Door {
	return []signaling.Door{
		{Pattern: "POST /v1/tokens", Handler: gate},
		{Pattern: "GET /canvas/image", Handler: fetcher, Public: true},
		{Pattern: "GET /canvas/chips", Handler: chips, Public: true},
	}
}

// openDoors are the doors to conversations.
func openDoors(s settings, host *bridge.Host, webrtc *rtc.API, generate *rest.Door, gate *access.Gate, shared store.Store, stopping *ending, log *slog.Logger) (doors []signaling.Door, err error) {
	page, err := signaling.Page(web.Files, signaling.Status{Backend: host.Backend(), Models: host.Models()})
	if err != nil {
		return nil, err
	}
	assistant, err := openVOX(s, host, generate, stopping, log)
	if err != nil {
		return nil, err
	}
	phones, err := openSIP(s, host, webrtc, gate, stopping, log)
	if err != nil {
		return nil, err
	}
	encoders, err := openWHIP(s, host, webrtc, log)
	if err != nil {
		return nil, err
	}
	streams, err := telephony.New(s.telephony, telephony.Options{Host: host, Gate: gate, Refused: s.access.Refused, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("telephony: %w", err)
	}
	stopping.then("telephony", streams.Close)
	client := &signaling.WebDoor{Host: host, RTC: webrtc, ICEServers: s.iceServers, TURNSecret: s.turnSecret, OpusDecoder: s.opusDecoder, Logger: log}
	beside := sideband.Door{Host: host, Logger: log}
	google := live.Door{Host: host, Logger: log}
	realtime := openai.Door{Host: host, RTC: webrtc, OpusDecoder: s.opusDecoder, Store: shared, Logger: log}
	doors = slices.Concat(beside.Doors(), generate.Doors(), google.Doors(), realtime.Doors(), assistant.Doors(), phones, streams.Doors(), encoders, []signaling.Door{
		{Pattern: "/ws", Socket: client},
		{Pattern: "/{$}", Socket: client, Handler: page, Public: true},
		{Pattern: "/", Handler: page, Public: true},
	})
	return doors, nil
}

// openStore is what this gateway shares with others, and its name among them; one that is alone has none.
func openStore(s settings, fleet access.Fleet, addr *net.TCPAddr, log *slog.Logger) (shared store.Store, node string, stop func(), err error) {
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

// serveUntil serves until ctx is done or the server fails. Meanwhile it checks what the first caller would find out.
func serveUntil(ctx context.Context, server *http.Server, at net.Listener, check func(context.Context)) (err error) {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(at) }()
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	var checks sync.WaitGroup
	checks.Go(func() { check(checking) })
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	checks.Wait()
	return err
}

// newServer serves the doors.
func newServer(doors http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: doors, ReadHeaderTimeout: headerTimeout, WriteTimeout: pageTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// openGate is who may come in, with what gateways know together and the name of this one among them.
func openGate(s settings, at *net.TCPAddr, stopping *ending, log *slog.Logger) (gate *access.Gate, shared store.Store, node string, err error) {
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

// openREST is the REST API, also at an address of its own, if there is one.
func openREST(s settings, host *bridge.Host, gemini *api.Client, admission signaling.Options, stopping *ending, log *slog.Logger) (door *rest.Door, err error) {
	var routes []rest.Route
	if s.models != "" {
		if routes, err = rest.ReadRoutes(s.models); err != nil {
			return nil, fmt.Errorf("models: %w", err)
		}
	}
	door = rest.New(host, gemini, routes, log)
	stopping.then("connections to models", door.Close)
	return door, serveREST(s.restAddr, admission, door, stopping, log)
}

// serveREST serves the REST API alone at an address of its own, if there is one.
func serveREST(addr string, admission signaling.Options, door *rest.Door, stopping *ending, log *slog.Logger) error {
	if addr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for REST: %w", err)
	}
	doors := signaling.NewServer(admission, door.Doors()...)
	server := newServer(doors, log)
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(heard(listener, log)) })
	log.Info("REST", "at", "http://"+listener.Addr().String()+"/v1beta/models")
	stopping.then("REST address", func() {
		server.Close()
		serving.Wait()
	})
	stopping.add("REST calls", doors.Close)
	return nil
}

// openSIP answers telephones, if there is a file of them: those of trunks, and those in pages.
func openSIP(s settings, host *bridge.Host, webrtc *rtc.API, gate *access.Gate, stopping *ending, log *slog.Logger) (doors []signaling.Door, err error) {
	if s.sip == "" {
		return nil, nil
	}
	c, err := sip.Load(s.sip)
	if err != nil {
		return nil, fmt.Errorf("sip: %w", err)
	}
	door, err := sip.New(sip.Options{Config: c, Host: host, Account: gate.Trunk, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("sip: %w", err)
	}
	stopping.then("telephones", door.Close)
	return []signaling.Door{
		{Pattern: "POST /v1/calls", Handler: door},
		{Pattern: "/sip", Socket: &sip.Page{Config: c, Host: host, RTC: webrtc, Decoder: s.opusDecoder, Logger: log}},
	}, nil
}

// openWHIP is for clients of WHIP, if there is a file of who answers them.
func openWHIP(s settings, host *bridge.Host, webrtc *rtc.API, log *slog.Logger) ([]signaling.Door, error) {
	if s.whip == "" {
		return nil, nil
	}
	c, err := whip.Load(s.whip)
	if err != nil {
		return nil, fmt.Errorf("whip: %w", err)
	}
	door := whip.Door{
		Config: c, Host: host, RTC: webrtc, OpusDecoder: s.opusDecoder, Logger: log,
		ICEServers: func() []signaling.ICEServer { return signaling.TellICE(s.iceServers, s.turnSecret, time.Now()) },
	}
	return door.Doors(), nil
}

// drain gives conversations time to end by themselves, until the second signal.
func drain(host *bridge.Host, most time.Duration, log *slog.Logger) {
	if most == 0 {
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, most)
	defer cancel()
	log.Info("stopping: no conversation begins any more", "running", len(host.Sessions()), "until", most)
	host.Drain(ctx)
}

// operatorsTools are the tools of a file, which every conversation has.
func operatorsTools(ctx context.Context, file string, log *slog.Logger) (list func() []tools.Tool, stop func(), err error) {
	if file == "" {
		return nil, func() {}, nil
	}
	c, err := catalogue.Load(ctx, file, log)
	if err != nil {
		return nil, nil, fmt.Errorf("tools: %w", err)
	}
	return c.Tools, c.Close, nil
}

// startEmulator runs the emulator on the loopback, where the same client code reaches it as Google's servers. It ends with
// stop; when it ends by itself, ended says why.
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

// announce says where we are and who answers.
func announce(s settings, addr *net.TCPAddr, backend string, log *slog.Logger) {
	host := "localhost"
	if !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
		host = addr.IP.String()
	}
	log.Info("listening", "url", s.tls.url(host, addr.Port))
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
	if s.access.Required {
		log.Info("Nobody talks without a token.", "keys", s.access.Keys)
	} else if s.insecure {
		log.Warn("Anybody who reaches this address can talk at your expense.")
	}
}

// checkGemini tells the operator at the start what the first caller would find out.
func checkGemini(ctx context.Context, client *api.Client, backend string, log *slog.Logger) {
	if backend == "emulator" {
		return
	}
	if err := client.Check(ctx, api.DefaultModel); err != nil && ctx.Err() == nil {
		log.Warn("Gemini does not answer as it should; calls may fail.", "err", err)
	}
}
