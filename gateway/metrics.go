package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"voxgate/bridge"
)

// metrics are what Prometheus is told.
type metrics struct {
	registry *prometheus.Registry
	answer   *prometheus.HistogramVec
	calls    *prometheus.HistogramVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		answer: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "voxgate_answer_seconds",
			Help: "From the end of what a person said to the answer, by part: model (to its first audio), gateway (to the first frame sent), roundtrip (the client's), total.",
			// From what the gateway adds (ms) to what a thinking model takes (10 s).
			Buckets: []float64{.001, .0025, .005, .01, .02, .04, .08, .16, .32, .64, 1, 1.5, 2.5, 5, 10},
		}, []string{"part"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "voxgate_tool_call_seconds",
			Help: "Tool calls by where they ran (client, gateway, canvas) and how they ended (done, failed, timeout, cancelled).",
			// From what the gateway does itself (ms) to a person who is asked (5 min).
			Buckets: []float64{.005, .02, .08, .32, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"where", "outcome"}),
	}
	m.registry.MustRegister(m.answer, m.calls, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe takes what happens in a conversation.
func (m *metrics) observe(_ string, o bridge.Observation) {
	switch o := o.(type) {
	case bridge.TurnEnd:
		m.answered(o.Latency)
	case bridge.CallEnd:
		m.calls.WithLabelValues(o.Where, o.Outcome).Observe(o.Took.Seconds())
	}
}

// answered takes the latency of an answer.
func (m *metrics) answered(l bridge.Latency) {
	if l == (bridge.Latency{}) {
		return
	}
	m.answer.WithLabelValues("model").Observe(l.Model.Seconds())
	m.answer.WithLabelValues("gateway").Observe(l.Gateway.Seconds())
	m.answer.WithLabelValues("total").Observe(l.Total().Seconds())
	if l.RoundTrip > 0 {
		m.answer.WithLabelValues("roundtrip").Observe(l.RoundTrip.Seconds())
	}
}

// serve answers at addr until stop is called.
func (m *metrics) serve(addr string) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, WriteTimeout: pageTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(listener)
	}()
	return "http://" + listener.Addr().String() + "/metrics", func() {
		server.Close()
		<-done
	}, nil
}
