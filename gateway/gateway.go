package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/gateway/console"
	"voxgate/gateway/telemetry"
	"voxgate/media/smartturn"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
	"voxgate/signaling/rtc"
	"voxgate/store"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

// gateway is a running gateway. [gateway.components] opens the fields in this order, so a component may use only the
// fields above its own.
type gateway struct {
	settings settings
	log      *slog.Logger

	agents  *agents.Folder // or nil
	gemini  *api.Client    // a client of Gemini, or of the emulator
	backend string         // the kind of the backend: gemini, vertex or emulator
	page    net.Listener
	webrtc  *rtc.API
	store   store.Store // shared with other gateways, or in memory
	node    string      // the name of this gateway in the store; "" if it has no shared store
	gate    *access.Gate
	tools   func() []tools.Tool // the operator's tools, or nil

	telemetry *telemetry.Telemetry
	history   *console.History // nil without a private address
	judge     *smartturn.Judge // judges the ends of turns, or nil
	fetcher   *canvas.Fetcher
	chips     *canvas.Chips
	host      *bridge.Host
	models    *geminirest.Server
	endpoints []signaling.Endpoint
	server    *http.Server

	shutdown
}

// component is a part of a gateway. open may block until ctx is done. If the component must be closed, open returns a
// function for that.
type component struct {
	name string
	open func(ctx context.Context) (end func(context.Context) error, err error)
}

// start opens a component, and keeps the function that closes it.
func (g *gateway) start(ctx context.Context, c component) error {
	end, err := c.open(ctx)
	if err == nil && end != nil {
		g.onClose(c.name, end)
	}
	return err
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

// countRefusal counts a rejected client. It must not be called before all components are open.
func (g *gateway) countRefusal(rule string) { g.telemetry.CountRefusal(rule) }

// admissionOptions returns the requirements that all HTTP servers for clients check in a request.
func (g *gateway) admissionOptions() signaling.Options {
	return signaling.Options{
		Origins: g.settings.origins, Hosts: append(g.settings.tls.domains, g.settings.hosts...),
		Access: g.gate, OnRefused: g.countRefusal, Logger: g.log,
	}
}

// generateText asks a text model. It must not be called before all components are open.
func (g *gateway) generateText(
	ctx context.Context, account bridge.Account, model string, request json.RawMessage, onPiece func(json.RawMessage) error,
) (bridge.Cost, error) {
	return g.models.GenerateContent(ctx, account, model, request, onPiece)
}
