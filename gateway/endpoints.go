package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/backend"
	"voxgate/signaling/client"
	"voxgate/signaling/compat/geminilive"
	"voxgate/signaling/compat/geminirest"
	"voxgate/signaling/compat/openai"
	"voxgate/signaling/compat/rtvi"
	"voxgate/signaling/compat/whip"
	"voxgate/signaling/phone/mediastream"
	"voxgate/signaling/phone/sip"
	"voxgate/signaling/rtc"
	"voxgate/store"
	"voxgate/vox"
	desk "voxgate/vox/assistant"
	files "voxgate/web"
)

// The embedded files are parsed once per process, because tests start a gateway a hundred times.
var (
	npmPackage = sync.OnceValues(func() ([]byte, error) { return client.BuildPackage(files.LibraryFiles(), packageVersion()) })
	pageSite   = sync.OnceValues(func() (*client.Site, error) { return client.ReadSite(files.ScriptBundles(), files.SiteFolders()...) })
)

// openEndpoints opens the endpoints that start conversations.
func openEndpoints(s settings, host *bridge.Host, webrtc *rtc.API, generate *geminirest.Server, gate *access.Gate,
	shared store.Store, tell func(sip.CallStatus), stopping *shutdown, log *slog.Logger,
) (endpoints []signaling.Endpoint, err error) {
	library, err := npmPackage()
	if err != nil {
		return nil, err
	}
	site, err := pageSite()
	if err != nil {
		return nil, err
	}
	page := site.Handler(client.Status{Backend: host.Backend(), Models: host.Models()}, library)
	assistant, err := openVOX(s, host, generate, stopping, log)
	if err != nil {
		return nil, err
	}
	phones, err := openSIP(s, host, webrtc, gate, tell, stopping, log)
	if err != nil {
		return nil, err
	}
	streams, err := mediastream.New(s.telephony, mediastream.Options{
		Host: host, Agents: s.access.Agents, Gate: gate, OnRefused: s.access.OnRefused, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("telephony: %w", err)
	}
	stopping.onCloseFunc("telephony", streams.Close)
	ice := func() []signaling.ICEServer { return signaling.ICEServersFor(s.iceServers, s.turnSecret, time.Now()) }
	client := &client.Server{
		Host: host, RTC: webrtc, ICEServers: s.iceServers, TURNSecret: s.turnSecret, OpusDecoder: s.opusDecoder, Logger: log,
	}
	beside := backend.Server{Host: host, Logger: log}
	secrets := &access.Secrets{Store: shared, Logger: log}
	google := geminilive.Server{Host: host, Agents: s.access.Agents, Secrets: secrets, Logger: log}
	realtime := openai.Server{Host: host, Agents: s.access.Agents, RTC: webrtc, OpusDecoder: s.opusDecoder, Secrets: secrets, Logger: log}
	pipecat := rtvi.Server{
		Host: host, RTC: webrtc, OpusDecoder: s.opusDecoder, Logger: log,
		ICEServers: ice,
	}
	var encoders []signaling.Endpoint
	if s.agents != "" {
		encoder := whip.Server{Agents: s.access.Agents, Host: host, RTC: webrtc, OpusDecoder: s.opusDecoder, ICEServers: ice, Logger: log}
		encoders = encoder.Endpoints()
	}
	endpoints = slices.Concat(
		beside.Endpoints(), generate.Endpoints(), google.Endpoints(), realtime.Endpoints(), pipecat.Endpoints(), assistant.Endpoints(), phones,
		streams.Endpoints(), encoders, []signaling.Endpoint{
			{Pattern: "/ws", Socket: client},
			{Pattern: "/{$}", Socket: client, Handler: page, Public: true},
			{Pattern: "/", Handler: page, Public: true},
		})
	return endpoints, nil
}

// otherEndpoints returns the endpoints that start no conversation: access tokens, and the images and search suggestions that clients show.
func otherEndpoints(gate, fetcher, chips http.Handler) []signaling.Endpoint {
	return []signaling.Endpoint{
		{Pattern: "POST /v1/tokens", Handler: gate},
		{Pattern: "GET /canvas/image", Handler: fetcher, Public: true},
		{Pattern: "GET /canvas/chips", Handler: chips, Public: true},
	}
}

// openSIP returns the endpoints for calls over SIP trunks. Without a SIP file there is one endpoint, which refuses outgoing calls.
func openSIP(s settings, host *bridge.Host, webrtc *rtc.API, gate *access.Gate, tell func(sip.CallStatus), stopping *shutdown,
	log *slog.Logger,
) (endpoints []signaling.Endpoint, err error) {
	if s.sip == "" {
		return []signaling.Endpoint{{Pattern: "/v1/calls", Handler: http.HandlerFunc(refuseCalls)}}, nil
	}
	c, err := sip.Load(s.sip)
	if err != nil {
		return nil, fmt.Errorf("sip: %w", err)
	}
	server, err := sip.New(sip.Options{
		Config: c, Agents: s.access.Agents, Host: host, Account: gate.TrunkAccount, OnQuality: webrtc.ReportQuality,
		Refused: s.access.OnRefused, Tell: tell, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("sip: %w", err)
	}
	stopping.onCloseFunc("telephones", server.Close)
	return server.Endpoints(), nil
}

// refuseCalls refuses a request for an outgoing call when no trunk is configured.
func refuseCalls(w http.ResponseWriter, _ *http.Request) {
	access.WriteNotFound(w, "This gateway cannot make calls: VOXGATE_SIP is not set.")
}

// openREST opens the REST API, and its separate listener if one is configured.
func openREST(s settings, host *bridge.Host, gemini *api.Client, admission signaling.Options, stopping *shutdown,
	log *slog.Logger,
) (server *geminirest.Server, err error) {
	var routes []geminirest.Route
	if s.models != "" {
		if routes, err = geminirest.ReadRoutes(s.models); err != nil {
			return nil, fmt.Errorf("models: %w", err)
		}
	}
	server = geminirest.New(host, gemini, routes, log)
	stopping.onCloseFunc("connections to models", server.Close)
	return server, serveREST(s.restAddr, admission, server, stopping, log)
}

// serveREST serves the REST API alone at addr, unless addr is empty.
func serveREST(addr string, admission signaling.Options, models *geminirest.Server, stopping *shutdown, log *slog.Logger) error {
	if addr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for REST at VOXGATE_REST_ADDR: %w", err)
	}
	endpoints := signaling.NewServer(admission, models.Endpoints()...)
	server := newServer(endpoints, log)
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(logAcceptErrors(listener, log)) })
	log.Info("REST", "at", "http://"+listener.Addr().String()+"/v1beta/models")
	stopping.onCloseFunc("REST address", func() {
		server.Close()
		serving.Wait()
	})
	stopping.onClose("REST calls", endpoints.Close)
	return nil
}

// openVOX opens the endpoint of the VOX assistant. Its typed messages and generated apps use the models of the REST API.
func openVOX(s settings, host *bridge.Host, models *geminirest.Server, stopping *shutdown, log *slog.Logger) (
	server *vox.Server, err error,
) {
	server = &vox.Server{
		Host: host, Generate: models.GenerateContent, CheckModel: models.CheckModel, AppModel: s.appModel, MaxTokens: s.maxTokens, Logger: log,
	}
	if s.workspace == "" {
		return server, nil
	}
	var origins []string
	for _, o := range s.origins {
		origins = append(origins, o.String())
	}
	if server.Workspace, err = desk.OpenWorkspace(s.workspace, origins...); err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	log.Info("VOX keeps projects and apps", "in", s.workspace)
	stopping.onCloseFunc("workspace", func() { server.Workspace.Close() })
	return server, nil
}
