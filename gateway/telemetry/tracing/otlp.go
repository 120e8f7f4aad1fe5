package tracing

import (
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers are those of https://github.com/open-telemetry/opentelemetry-proto (collector/trace, trace, resource,
// common; v1).

// message is a protobuf message under construction.
type message []byte

func (m *message) appendBytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *message) appendText(field protowire.Number, s string) {
	if s != "" {
		m.appendBytes(field, []byte(s))
	}
}

func (m *message) appendVarint(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *message) appendFixed64(field protowire.Number, v uint64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), v)
}

func (m *message) appendDouble(field protowire.Number, v float64) {
	m.appendFixed64(field, math.Float64bits(v))
}

func (m *message) appendTime(field protowire.Number, t time.Time) {
	m.appendFixed64(field, uint64(t.UnixNano()))
}

func (m *message) appendAttributes(field protowire.Number, list []attribute.KeyValue) {
	for _, a := range list {
		var pair, value message
		switch a.Value.Type() {
		case attribute.BOOL:
			value.appendVarint(2, protowire.EncodeBool(a.Value.AsBool()))
		case attribute.INT64:
			value.appendVarint(3, uint64(a.Value.AsInt64()))
		case attribute.FLOAT64:
			value.appendDouble(4, a.Value.AsFloat64())
		default: // the tracer creates no lists; a list among the attributes of the resource is sent as text
			value.appendBytes(1, []byte(a.Value.String()))
		}
		pair.appendText(1, string(a.Key))
		pair.appendBytes(2, value)
		m.appendBytes(field, pair)
	}
}

// encodeRequest returns an ExportTraceServiceRequest with the spans. They all have the same resource and scope, because there is only one
// tracer.
func encodeRequest(spans []trace.ReadOnlySpan) []byte {
	var resource, scope, of, all message
	if len(spans) > 0 {
		resource.appendAttributes(1, spans[0].Resource().Attributes())
		scope.appendText(1, spans[0].InstrumentationScope().Name)
	}
	of.appendBytes(1, resource)
	var list message
	list.appendBytes(1, scope)
	for _, s := range spans {
		list.appendBytes(2, encodeSpan(s))
	}
	of.appendBytes(2, list)
	all.appendBytes(1, of)
	return all
}

func encodeSpan(s trace.ReadOnlySpan) (m message) {
	about, parent := s.SpanContext(), s.Parent()
	trace, id := about.TraceID(), about.SpanID()
	m.appendBytes(1, trace[:])
	m.appendBytes(2, id[:])
	m.appendText(3, about.TraceState().String())
	if above := parent.SpanID(); parent.HasSpanID() {
		m.appendBytes(4, above[:])
	}
	m.appendText(5, s.Name())
	m.appendVarint(6, uint64(s.SpanKind())) // the API's kinds have the protocol's numbers
	m.appendTime(7, s.StartTime())
	m.appendTime(8, s.EndTime())
	m.appendAttributes(9, s.Attributes())
	for _, e := range s.Events() {
		var event message
		event.appendTime(1, e.Time)
		event.appendText(2, e.Name)
		event.appendAttributes(3, e.Attributes)
		m.appendBytes(11, event)
	}
	var status message
	status.appendText(2, s.Status().Description)
	switch s.Status().Code {
	case codes.Ok:
		status.appendVarint(3, 1)
	case codes.Error:
		status.appendVarint(3, 2)
	}
	m.appendBytes(15, status)
	return m
}
