package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/backend"
	"voxgate/signaling/client"
	"voxgate/signaling/compat/geminilive"
	"voxgate/signaling/compat/openai"
	"voxgate/signaling/compat/rtvi"
	"voxgate/signaling/compat/whip"
	"voxgate/signaling/phone/mediastream"
	"voxgate/signaling/phone/sip"
	"voxgate/vox"
	desk "voxgate/vox/assistant"
	files "voxgate/web"
)

// The embedded files are parsed once per process, because tests start a gateway a hundred times.
var (
	npmPackage = sync.OnceValues(func() ([]byte, error) { return client.BuildPackage(files.LibraryFiles(), packageVersion()) })
	pageSite   = sync.OnceValues(func() (*client.Site, error) { return client.ReadSite(files.ScriptBundles(), files.SiteFolders()...) })
)

// openEndpoints opens all endpoints of the page's port.
func (g *gateway) openEndpoints(context.Context) (end func(context.Context) error, err error) {
	page, err := g.newPage()
	if err != nil {
		return nil, err
	}
	assistant, err := g.openVOX()
	if err != nil {
		return nil, err
	}
	phones, err := g.openSIP()
	if err != nil {
		return nil, err
	}
	streams, err := mediastream.New(g.settings.telephony, mediastream.Options{
		Host: g.host, Agents: g.agents, Gate: g.gate, OnRefused: g.countRefusal, Logger: g.log,
	})
	if err != nil {
		return nil, fmt.Errorf("telephony: %w", err)
	}
	g.onClose("telephony", closeFunc(streams.Close))
	web := &client.Server{
		Host: g.host, RTC: g.webrtc, ICEServers: g.settings.iceServers, TURNSecret: g.settings.turnSecret,
		OpusDecoder: g.settings.opusDecoder, Logger: g.log,
	}
	operator := backend.Server{Host: g.host, Logger: g.log}
	secrets := &access.Secrets{Store: g.store, Logger: g.log}
	google := geminilive.Server{Host: g.host, Agents: g.agents, Secrets: secrets, Logger: g.log}
	realtime := openai.Server{
		Host: g.host, Agents: g.agents, RTC: g.webrtc, OpusDecoder: g.settings.opusDecoder, Secrets: secrets, Logger: g.log,
	}
	pipecat := rtvi.Server{Host: g.host, RTC: g.webrtc, OpusDecoder: g.settings.opusDecoder, ICEServers: g.listICEServers, Logger: g.log}
	var encoders []signaling.Endpoint
	if g.settings.agents != "" {
		encoder := whip.Server{
			Agents: g.agents, Host: g.host, RTC: g.webrtc, OpusDecoder: g.settings.opusDecoder, ICEServers: g.listICEServers,
			Logger: g.log,
		}
		encoders = encoder.Endpoints()
	}
	g.endpoints = slices.Concat(
		operator.Endpoints(), g.models.Endpoints(), google.Endpoints(), realtime.Endpoints(), pipecat.Endpoints(), assistant.Endpoints(),
		phones, streams.Endpoints(), encoders, []signaling.Endpoint{
			{Pattern: "/ws", Socket: web},
			{Pattern: "/{$}", Socket: web, Handler: page, Public: true},
			{Pattern: "/", Handler: page, Public: true},
			// These start no conversation.
			{Pattern: "POST /v1/tokens", Handler: g.gate},
			{Pattern: "GET /canvas/image", Handler: g.fetcher, Public: true},
			{Pattern: "GET /canvas/chips", Handler: g.chips, Public: true},
		})
	return nil, nil
}

// newPage returns the handler of the page.
func (g *gateway) newPage() (http.Handler, error) {
	library, err := npmPackage()
	if err != nil {
		return nil, err
	}
	site, err := pageSite()
	if err != nil {
		return nil, err
	}
	return site.Handler(client.Status{Backend: g.host.Backend(), Models: g.host.Models()}, library), nil
}

// listICEServers returns the STUN and TURN servers for a client that connects now.
func (g *gateway) listICEServers() []signaling.ICEServer {
	return signaling.ICEServersFor(g.settings.iceServers, g.settings.turnSecret, time.Now())
}

// openSIP returns the endpoints for calls over SIP trunks. Without a SIP file there is one endpoint, which refuses outgoing calls.
func (g *gateway) openSIP() (endpoints []signaling.Endpoint, err error) {
	if g.settings.sip == "" {
		return []signaling.Endpoint{{Pattern: "/v1/calls", Handler: http.HandlerFunc(refuseCalls)}}, nil
	}
	c, err := sip.Load(g.settings.sip)
	if err != nil {
		return nil, fmt.Errorf("sip: %w", err)
	}
	server, err := sip.New(sip.Options{
		Config: c, Agents: g.agents, Host: g.host, Account: g.gate.TrunkAccount, OnQuality: g.webrtc.ReportQuality,
		Refused: g.countRefusal, Tell: g.telemetry.ReportCall, Logger: g.log,
	})
	if err != nil {
		return nil, fmt.Errorf("sip: %w", err)
	}
	g.onClose("telephones", closeFunc(server.Close))
	return server.Endpoints(), nil
}

// refuseCalls refuses a request for an outgoing call when no trunk is configured.
func refuseCalls(w http.ResponseWriter, _ *http.Request) {
	access.WriteNotFound(w, "This gateway cannot make calls: VOXGATE_SIP is not set.")
}

// openVOX opens the endpoint of the VOX assistant. Its typed messages and generated apps use the models of the REST API.
func (g *gateway) openVOX() (*vox.Server, error) {
	server := &vox.Server{
		Host: g.host, Generate: g.models.GenerateContent, CheckModel: g.models.CheckModel, AppModel: g.settings.appModel,
		MaxTokens: g.settings.maxTokens, Logger: g.log,
	}
	if g.settings.workspace == "" {
		return server, nil
	}
	var origins []string
	for _, o := range g.settings.origins {
		origins = append(origins, o.String())
	}
	workspace, err := desk.OpenWorkspace(g.settings.workspace, origins...)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	server.Workspace = workspace
	g.log.Info("VOX keeps projects and apps", "in", g.settings.workspace)
	g.onClose("workspace", closeFunc(func() { workspace.Close() }))
	return server, nil
}
