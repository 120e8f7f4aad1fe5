package main

import (
	"context"
	"log/slog"
	"time"

	"voxgate/bridge"
	"voxgate/gateway/tracing"
	"voxgate/signaling/rtc"
)

// observers get what happens in conversations.
type observers []func(id string, o bridge.Observation)

// tracesTimeout bounds the sending of the last traces.
const tracesTimeout = 5 * time.Second

// observe makes the observers that the settings and the environment ask for. Without a private listener there are no metrics. stop sends
// the traces that were not sent yet.
func observe(ctx context.Context, s *settings, webrtc *rtc.API, log *slog.Logger) (m *metrics, list observers, stop func(), err error) {
	if s.privateAddr != "" {
		m = newMetrics()
		list, s.access.Refused = append(list, m.observe), m.refused
		webrtc.Observe(m.heard)
	}
	traces, err := tracing.New(ctx, log)
	if traces == nil || err != nil {
		return m, list, func() {}, err
	}
	return m, append(list, traces.Observe), func() {
		ctx, cancel := context.WithTimeout(context.Background(), tracesTimeout)
		defer cancel()
		if err := traces.Close(ctx); err != nil {
			log.Warn("traces left unsent", "err", err)
		}
	}, nil
}

// all calls each of them; nil if there is none, and then nothing is made for them.
func (list observers) all() func(id string, o bridge.Observation) {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return func(id string, o bridge.Observation) {
		for _, observe := range list {
			observe(id, o)
		}
	}
}
