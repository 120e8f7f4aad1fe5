package main

import (
	"context"
	"time"

	"voxgate/signaling"
	"voxgate/signaling/access"
)

// startProtocols starts each protocol as a component of its own. It collects the endpoints of all protocols in
// g.endpoints. end is always nil, because each protocol registers its own close function.
func (g *gateway) startProtocols(ctx context.Context) (end func(context.Context) error, err error) {
	g.endpoints = append(g.models.Endpoints(), // besides the REST API, endpoints that start no conversation:
		signaling.Endpoint{Pattern: "POST /v1/tokens", Handler: g.gate},
		signaling.Endpoint{Pattern: "GET /canvas/image", Handler: g.fetcher, Public: true},
		signaling.Endpoint{Pattern: "GET /canvas/chips", Handler: g.chips, Public: true},
	)
	if g.history != nil && g.node != "" {
		g.endpoints = append(g.endpoints, g.history.Endpoint(g.host))
	}
	e := g.newEnvironment()
	for _, p := range g.settings.protocols {
		if err := g.start(ctx, component{p.Name, func(context.Context) (func(context.Context) error, error) {
			endpoints, end, err := p.Open(e)
			g.endpoints = append(g.endpoints, endpoints...)
			if end == nil {
				return nil, err
			}
			return closeFunc(end), err
		}}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// newEnvironment returns the components of the gateway that all protocols use.
func (g *gateway) newEnvironment() *signaling.Environment {
	return &signaling.Environment{
		Host: g.host, Agents: g.agents, Gate: g.gate, Secrets: &access.Secrets{Store: g.store, Logger: g.log}, Origins: g.settings.origins,
		RTC: g.webrtc, OpusDecoder: g.settings.opusDecoder, ICEServers: func() []signaling.ICEServer {
			return signaling.ICEServersFor(g.settings.iceServers, g.settings.turnSecret, time.Now())
		},
		TextModels: g.models, TextModel: g.settings.appModel, MaxTokens: g.settings.maxTokens,
		OnRefused: g.countRefusal, Observe: g.telemetry.Observer(), Logger: g.log,
	}
}
