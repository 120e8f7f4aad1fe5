package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
	"voxgate/signaling/sideband"
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
	// shutdownTimeout is how long the end may take: goodbyes are one write each.
	shutdownTimeout = 10 * time.Second
	// checkTimeout bounds the question to Google at the start.
	checkTimeout = 10 * time.Second
)

// serve builds everything in order, runs until ctx is done, and stops it in reverse.
func serve(ctx context.Context, s settings, log *slog.Logger) (err error) {
	gemini := &api.Client{APIKey: s.apiKey, BaseURL: s.baseURL}
	backend := "gemini"
	switch {
	case s.vertex:
		backend = "vertex"
		gemini.Vertex = &api.Vertex{Project: s.project, Location: s.location}
	case s.apiKey == "" && s.baseURL == "":
		backend = "emulator"
		url, _, stop, err := startEmulator("127.0.0.1:0", emulator.Options{Logger: log.With("part", "emulator")})
		if err != nil {
			return err
		}
		defer stop()
		gemini.BaseURL = url
	}
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
	}
	defer listener.Close()
	webrtc, err := newRTC(s, listener.Addr().(*net.TCPAddr), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, webrtc.Close()) }()
	measured, seen, stopTraces, err := observe(ctx, &s, webrtc, log)
	if err != nil {
		return err
	}
	defer stopTraces()
	s.access.Logger = log
	gate, err := access.New(s.access)
	if err != nil {
		return err
	}
	defer gate.Close()
	own, stop, err := operatorsTools(ctx, s.tools, log)
	if err != nil {
		return err
	}
	defer stop()
	fetcher, chips := canvas.NewFetcher(guard.Client(guard.Options{})), canvas.NewChips()
	told, err := newHooks(s.sessionWebhook, s.webhookSecret, log)
	if err != nil {
		return err
	}
	options := bridge.Options{
		Client: gemini, Backend: backend, Park: s.park, Stall: s.stall, MaxTokens: s.maxTokens,
		Tools: own, SignPicture: fetcher.Sign, Chips: chips.Add,
		Recordings: s.recordings, RecordAll: s.recordAll, Logger: log,
	}
	if told != nil {
		options.Admit, seen = measured.admitting(told.admit), append(seen, told.observe)
	}
	options.Observe = seen.all()
	host := bridge.NewHost(options)
	stopPrivate, err := measured.serve(s.privateAddr, host, func() bool { return ctx.Err() == nil && !host.Closed() }, log)
	if err != nil {
		return errors.Join(err, host.Shutdown(ctx))
	}
	defer stopPrivate()
	client := &signaling.WebDoor{Host: host, RTC: webrtc, ICEServers: s.iceServers, OpusDecoder: s.opusDecoder, Logger: log}
	page := signaling.Page(web.Files, backend)
	beside := sideband.Door{Host: host, Logger: log}
	doors := signaling.NewServer(signaling.Options{Origins: s.origins, Hosts: s.hosts, Access: gate, Logger: log}, append(beside.Doors(), []signaling.Door{
		{Pattern: "/ws", Socket: client},
		{Pattern: "/{$}", Socket: client, Handler: page, Public: true},
		{Pattern: "/", Handler: page, Public: true},
		{Pattern: "POST /v1/tokens", Handler: gate},
		{Pattern: "GET /canvas/image", Handler: fetcher, Public: true},
		{Pattern: "GET /canvas/chips", Handler: chips, Public: true},
	}...)...)
	server := &http.Server{
		Handler: doors, ReadHeaderTimeout: headerTimeout, WriteTimeout: pageTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	announce(s, listener.Addr().(*net.TCPAddr), backend, log)
	checked := make(chan struct{})
	checking, cancelCheck := context.WithTimeout(ctx, checkTimeout)
	go func() {
		defer close(checked)
		checkGemini(checking, gemini, backend, log)
	}()
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	log.Info("shutting down")
	cancelCheck()
	<-checked
	ending, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err = errors.Join(err, host.Shutdown(ending)) // the callers are told, then leave
	doors.Close()
	if told != nil {
		told.close(ending)
	}
	return errors.Join(err, server.Shutdown(ending))
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

// newRTC opens the WebRTC ports on the host of addr.
func newRTC(s settings, addr *net.TCPAddr, log *slog.Logger) (*rtc.API, error) {
	at := func(port int) string { return net.JoinHostPort(addr.IP.String(), strconv.Itoa(port)) }
	o := rtc.Options{UDPAddr: at(s.udpPort), PublicIPs: s.publicIPs, Logger: log}
	if s.udpPort == 0 {
		o.UDPAddr = at(addr.Port)
	}
	if s.tcpPort != 0 {
		o.TCPAddr = at(s.tcpPort)
	}
	return rtc.New(o)
}

// announce says where we are and who answers.
func announce(s settings, addr *net.TCPAddr, backend string, log *slog.Logger) {
	host := "localhost"
	if !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
		host = addr.IP.String()
	}
	log.Info("listening", "url", "http://"+net.JoinHostPort(host, strconv.Itoa(addr.Port))+"/")
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
	if s.insecure && !s.access.Required {
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
