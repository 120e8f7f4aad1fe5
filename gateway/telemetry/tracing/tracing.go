// Package tracing sends a trace of each conversation to an OpenTelemetry collector.
//
// conversation              from its start to its end
//
//	├── link                  a connection to the model, from its dial to its end, or a dial that has failed
//	└── turn                  from the end of a question to the end of its answer
//	    └── execute_tool NAME
//
// Spans hold times, numbers and names, but no content: neither speech and text nor arguments and results of tools. A
// turn and its tool calls become spans at the end of the turn, because only then is its start known.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"voxgate/bridge"
)

// Tracer turns observations into spans.
type Tracer struct {
	provider *trace.TracerProvider
	tracer   api.Tracer

	mu      sync.Mutex
	running map[string]*conversation
}

// conversation is the state of a conversation that has not ended.
type conversation struct {
	span  api.Span
	calls []call // tool calls that ended, kept until the end of their turn
	last  int    // number of the newest ended turn, whose span is in the field turn
	turn  api.Span
	step  string // the agent's current step
}

// call is a tool call that has ended, and the time of its end.
type call struct {
	bridge.CallEnd
	at time.Time
}

// maxCalls limits the ended tool calls that are kept until their turn ends. Further calls of the turn get no span.
const maxCalls = 100

// New returns a Tracer. It returns nil if neither OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set,
// or traces are disabled. New reads the environment variables of the exporter; OpenTelemetry's SDK reads the others.
func New(ctx context.Context, log *slog.Logger) (*Tracer, error) {
	if exporterSetting("ENDPOINT") == "" ||
		strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if p := exporterSetting("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("traces: the protocol %q is not spoken here; http/protobuf is", p)
	}
	exporter, err := newExporter()
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "voxgate")),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	switch {
	case about == nil:
		return nil, fmt.Errorf("traces: %w", err)
	case err != nil: // an invalid attribute must not disable the valid ones, or the gateway
		log.Warn("traces: OTEL_RESOURCE_ATTRIBUTES cannot be read whole", "err", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "err", err) }))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return &Tracer{provider: provider, tracer: provider.Tracer("voxgate"), running: map[string]*conversation{}}, nil
}

// Close sends the remaining spans, until ctx is done.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Observe records an observation of a conversation. It does not block.
func (t *Tracer) Observe(id string, o bridge.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b, ok := o.(bridge.SessionStarted); ok {
		t.running[id] = &conversation{step: b.Step, span: t.startSpan(nil, "conversation", api.SpanKindServer, b.Started,
			attribute.String("gen_ai.conversation.id", id), attribute.String("gen_ai.request.model", b.Model),
			attribute.String("voxgate.door", b.Protocol), attribute.String("voxgate.key", b.Key))}
		return
	}
	c := t.running[id]
	if c == nil {
		return
	}
	switch o := o.(type) {
	case bridge.TurnEnd:
		t.onTurn(c, o, time.Now())
	case bridge.StepStarted:
		c.step = o.Name
		c.span.AddEvent("step", api.WithAttributes(attribute.String("voxgate.step", o.Name)))
	case bridge.CallEnd:
		t.onCall(c, call{o, time.Now()})
	case bridge.DialOutcome:
		if o.Cause != "" {
			t.recordConnectionSpan(c, bridge.ConnectionEnd{Kind: o.Kind, StartedAt: o.StartedAt, Cause: o.Cause})
		}
	case bridge.ConnectionEnd:
		t.recordConnectionSpan(c, o)
	case bridge.SessionEnded:
		delete(t.running, id)
		t.onEnd(c, o)
	}
}

// startSpan starts a span; parent is nil for the root span.
func (t *Tracer) startSpan(parent api.Span, name string, kind api.SpanKind, at time.Time, attributes ...attribute.KeyValue) api.Span {
	ctx := context.Background()
	if parent != nil {
		ctx = api.ContextWithSpan(ctx, parent)
	}
	_, span := t.tracer.Start(ctx, name, api.WithSpanKind(kind), api.WithTimestamp(at), api.WithAttributes(attributes...))
	return span
}

func (t *Tracer) onTurn(c *conversation, e bridge.TurnEnd, at time.Time) {
	began := e.StartedAt
	for _, o := range c.calls { // a tool may be called before the first output of the turn
		if start := o.at.Add(-o.Took); start.Before(began) {
			began = start
		}
	}
	span := t.startSpan(c.span, "turn", api.SpanKindInternal, began, attribute.Int("voxgate.turn", e.Number))
	if c.step != "" {
		span.SetAttributes(attribute.String("voxgate.step", c.step))
	}
	if e.InterruptedBy != "" {
		span.SetAttributes(attribute.String("voxgate.cut", string(e.InterruptedBy)))
	}
	if l := e.Latency; l != (bridge.Latency{}) {
		span.SetAttributes(attribute.Float64("voxgate.latency.model", l.Model.Seconds()),
			attribute.Float64("voxgate.latency.gateway", l.Gateway.Seconds()), attribute.Float64("voxgate.latency.roundtrip", l.RoundTrip.Seconds()))
	}
	for _, o := range c.calls {
		t.recordCallSpan(span, o)
	}
	span.End(api.WithTimestamp(at))
	c.calls, c.last, c.turn = nil, e.Number, span
}

// onCall keeps a call until its turn ends, or adds its span at once if the turn has already ended.
func (t *Tracer) onCall(c *conversation, o call) {
	switch {
	case c.turn != nil && o.Turn == c.last:
		t.recordCallSpan(c.turn, o)
	case len(c.calls) < maxCalls:
		c.calls = append(c.calls, o)
	}
}

// recordCallSpan adds the span of a tool call that has ended.
func (t *Tracer) recordCallSpan(parent api.Span, o call) {
	span := t.startSpan(parent, "execute_tool "+o.Name, api.SpanKindInternal, o.at.Add(-o.Took),
		attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", o.Name), attribute.String("voxgate.where", o.Where), attribute.String("voxgate.outcome", o.Outcome))
	if o.Outcome == "failed" || o.Outcome == "timeout" {
		span.SetStatus(codes.Error, o.Outcome)
	}
	span.End(api.WithTimestamp(o.at))
}

// recordConnectionSpan adds the span of a connection that has ended, or of a dial that has failed.
func (t *Tracer) recordConnectionSpan(c *conversation, e bridge.ConnectionEnd) {
	span := t.startSpan(c.span, "link", api.SpanKindClient, e.StartedAt, attribute.String("voxgate.link", string(e.Kind)))
	if !e.ConnectedAt.IsZero() {
		span.AddEvent("set up", api.WithTimestamp(e.ConnectedAt))
	}
	if e.Cause != "" {
		span.SetStatus(codes.Error, e.Cause)
	}
	span.End()
}

func (t *Tracer) onEnd(c *conversation, e bridge.SessionEnded) {
	for _, o := range c.calls {
		t.recordCallSpan(c.span, o)
	}
	c.span.SetAttributes(attribute.String("voxgate.reason", e.Code()), attribute.Int("voxgate.turns", e.Turns),
		attribute.Int("gen_ai.usage.input_tokens", e.Counts.Tokens.Prompt), attribute.Int("gen_ai.usage.output_tokens", e.Counts.Tokens.Response))
	if e.HasFailed() {
		c.span.SetStatus(codes.Error, e.Code())
	}
	c.span.End(api.WithTimestamp(e.At))
}
