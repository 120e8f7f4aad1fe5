package main

import (
	"context"
	"log/slog"
	"time"

	"voxgate/bridge"
	"voxgate/gateway/tracing"
	"voxgate/signaling/rtc"
)

// observers receive the observations of all conversations.
type observers []func(id string, o bridge.Observation)

// tracesTimeout bounds the sending of the last traces.
const tracesTimeout = 5 * time.Second

// openObservers creates the observers that the settings and the environment ask for. Without a private listener there are no metrics. stop
// sends the traces that are still queued.
func openObservers(ctx context.Context, s *settings, webrtc *rtc.API, log *slog.Logger) (
	m *metrics, list observers, stop func(), err error,
) {
	if s.privateAddr != "" {
		m = newMetrics()
		list, s.access.OnRefused = append(list, m.observe), m.countRefusal
		webrtc.OnQuality(m.observeQuality)
	}
	traces, err := tracing.New(ctx, log)
	if traces == nil || err != nil {
		return m, list, func() {}, err
	}
	return m, append(list, traces.Observe), func() {
		ctx, cancel := context.WithTimeout(context.Background(), tracesTimeout)
		defer cancel()
		if err := traces.Close(ctx); err != nil {
			log.Warn("traces not sent", "err", err)
		}
	}, nil
}

// merge returns a function that calls each observer, or nil without observers, so that observations need not be created.
func (list observers) merge() func(id string, o bridge.Observation) {
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
