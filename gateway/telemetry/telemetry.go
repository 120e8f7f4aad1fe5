// Package telemetry observes the conversations of a gateway: metrics, traces, and reports of ended conversations by the session webhook and
// in call files, with an outcome that a model writes.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/gateway/telemetry/tracing"
	"voxgate/media/smartturn"
	"voxgate/signaling/rtc"
)

// tracesTimeout bounds the sending of the last traces.
const tracesTimeout = 5 * time.Second

// Options configures a Telemetry. Traces have settings of their own: the variables of OpenTelemetry's exporters.
type Options struct {
	Metrics     bool              // collects metrics for Prometheus
	BuildLabels map[string]string // labels of voxgate_build_info

	WebhookURL    string // the operator's endpoint; "": no session webhook
	WebhookSecret string
	Agents        *agents.Folder // the agents that the endpoint may select

	CallFolder      string // folder for call files; "": none
	RecordingFolder string // folder of recordings; "": none
	KeepDays        int    // age in days at which call files and recordings are deleted; 0 keeps them

	OutcomeModel string
	Generate     TextGenerator // sends requests to OutcomeModel

	Logger *slog.Logger
}

// Telemetry holds everything that observes conversations. Fields of parts that are not configured are nil.
type Telemetry struct {
	metrics   *metrics
	traces    *tracing.Tracer
	webhook   *sessionWebhook
	files     *callFileWriter
	reports   *endReporter
	observers []func(id string, o bridge.Observation)
	deleter   func() // stops the deletion of expired files
	log       *slog.Logger
}

// New opens the telemetry that the options request. The caller must close it.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{log: o.Logger, deleter: func() {}}
	var err error
	if t.webhook, err = newSessionWebhook(o.WebhookURL, o.WebhookSecret, o.Agents, o.Logger); err != nil {
		return nil, fmt.Errorf("session-webhook: %w", err)
	}
	if t.traces, err = tracing.New(ctx, o.Logger); err != nil {
		return nil, err
	}
	if o.Metrics {
		t.metrics = newMetrics(o.BuildLabels)
		t.observers = append(t.observers, t.metrics.observe)
	}
	if t.traces != nil {
		t.observers = append(t.observers, t.traces.Observe)
	}
	t.openReports(o)
	folders := slices.DeleteFunc([]string{o.RecordingFolder, o.CallFolder}, func(f string) bool { return f == "" })
	if o.KeepDays > 0 {
		t.deleter = deleteExpiredFiles(o.KeepDays, slices.Compact(folders), o.Logger)
	}
	return t, nil
}

// openReports opens the receivers of ended conversations.
func (t *Telemetry) openReports(o Options) {
	t.reports = newEndReporter(o.OutcomeModel, o.Generate, t.Observer(), o.Logger)
	if t.webhook != nil {
		t.observers = append(t.observers, t.webhook.observe)
		t.reports.receivers = append(t.reports.receivers, t.webhook.reportSessionEnd)
	}
	if o.CallFolder != "" {
		t.files = newCallFileWriter(o.CallFolder, t.metrics.countCallFileFailure, o.Logger)
		t.reports.receivers = append(t.reports.receivers, t.files.enqueue)
	}
	if t.reports.receivers != nil {
		t.observers = append(t.observers, t.reports.observe)
	}
}

// Close sends and writes what is pending, until ctx is done. The conversations must have ended.
func (t *Telemetry) Close(ctx context.Context) error {
	var errs []error
	t.reports.close(ctx)
	if t.files != nil {
		if err := t.files.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("files of calls: %w", err))
		}
	}
	if t.webhook != nil {
		t.webhook.close(ctx)
	}
	if t.traces != nil {
		ctx, cancel := context.WithTimeout(ctx, tracesTimeout)
		defer cancel()
		if err := t.traces.Close(ctx); err != nil {
			t.log.Warn("traces not sent", "err", err)
		}
	}
	t.deleter()
	return errors.Join(errs...)
}

// Observer returns a function that receives the observations of all conversations and each sip.CallStatus. It returns
// nil if nothing uses them.
func (t *Telemetry) Observer() func(id string, o bridge.Observation) {
	switch len(t.observers) {
	case 0:
		return nil
	case 1:
		return t.observers[0]
	}
	list := slices.Clone(t.observers)
	return func(id string, o bridge.Observation) {
		for _, observe := range list {
			observe(id, o)
		}
	}
}

// Admission returns the function that asks the session webhook whether a conversation may begin. The function also
// counts rejections. Admission returns nil if no webhook is configured.
func (t *Telemetry) Admission() func(ctx context.Context, id string, o *bridge.SessionRequest) error {
	if t.webhook == nil {
		return nil
	}
	return func(ctx context.Context, id string, o *bridge.SessionRequest) error {
		err := t.webhook.admitSession(ctx, id, o)
		if err != nil {
			t.CountRefusal("session webhook")
		}
		return err
	}
}

// CountRefusal counts a rejected client by the rule that rejected it.
func (t *Telemetry) CountRefusal(rule string) {
	if t.metrics != nil {
		t.metrics.refusals.WithLabelValues(rule).Inc()
	}
}

// ObserveQuality adds the packet counts, losses and jitter of an RTP stream.
func (t *Telemetry) ObserveQuality(q rtc.Quality) {
	if t.metrics != nil {
		t.metrics.observeQuality(q)
	}
}

// RegisterHostMetrics registers the metrics whose values are computed on each scrape. They come from the host and from
// isStoreDown, which reports whether the shared store is down.
func (t *Telemetry) RegisterHostMetrics(host *bridge.Host, isStoreDown func() bool) {
	if t.metrics != nil {
		t.metrics.registerHostMetrics(host, isStoreDown)
	}
}

// RegisterJudgeMetrics registers the metrics of the end-of-turn model, which are read on each scrape.
func (t *Telemetry) RegisterJudgeMetrics(stats func() smartturn.Stats) {
	if t.metrics != nil {
		t.metrics.registry.MustRegister(judgeCollector{stats})
	}
}

// Metrics returns the metrics, or nil if there are none.
func (t *Telemetry) Metrics() prometheus.Gatherer {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.registry
}

// ReadTodayCounts returns the conversations since midnight (UTC) or the start, and their cost. Both are 0 if metrics
// are not enabled.
func (t *Telemetry) ReadTodayCounts() (sessionsBegun int, dollars float64) {
	if t.metrics == nil {
		return 0, 0
	}
	return t.metrics.dayCounter.readCounts()
}
