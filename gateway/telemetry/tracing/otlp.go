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

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		m.bytes(field, []byte(s))
	}
}

func (m *message) varint(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *message) fixed(field protowire.Number, v uint64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), v)
}

func (m *message) double(field protowire.Number, v float64) { m.fixed(field, math.Float64bits(v)) }

func (m *message) at(field protowire.Number, t time.Time) { m.fixed(field, uint64(t.UnixNano())) }

func (m *message) attributes(field protowire.Number, list []attribute.KeyValue) {
	for _, a := range list {
		var pair, value message
		switch a.Value.Type() {
		case attribute.BOOL:
			value.varint(2, protowire.EncodeBool(a.Value.AsBool()))
		case attribute.INT64:
			value.varint(3, uint64(a.Value.AsInt64()))
		case attribute.FLOAT64:
			value.double(4, a.Value.AsFloat64())
		default: // the tracer creates no lists; a list among the attributes of the resource is sent as text
			value.bytes(1, []byte(a.Value.String()))
		}
		pair.text(1, string(a.Key))
		pair.bytes(2, value)
		m.bytes(field, pair)
	}
}

// request returns an ExportTraceServiceRequest with the spans. They all have the same resource and scope, because there is only one
// tracer.
func request(spans []trace.ReadOnlySpan) []byte {
	var resource, scope, of, all message
	if len(spans) > 0 {
		resource.attributes(1, spans[0].Resource().Attributes())
		scope.text(1, spans[0].InstrumentationScope().Name)
	}
	of.bytes(1, resource)
	var list message
	list.bytes(1, scope)
	for _, s := range spans {
		list.bytes(2, span(s))
	}
	of.bytes(2, list)
	all.bytes(1, of)
	return all
}

func span(s trace.ReadOnlySpan) (m message) {
	about, parent := s.SpanContext(), s.Parent()
	trace, id := about.TraceID(), about.SpanID()
	m.bytes(1, trace[:])
	m.bytes(2, id[:])
	m.text(3, about.TraceState().String())
	if above := parent.SpanID(); parent.HasSpanID() {
		m.bytes(4, above[:])
	}
	m.text(5, s.Name())
	m.varint(6, uint64(s.SpanKind())) // the API's kinds have the protocol's numbers
	m.at(7, s.StartTime())
	m.at(8, s.EndTime())
	m.attributes(9, s.Attributes())
	for _, e := range s.Events() {
		var event message
		event.at(1, e.Time)
		event.text(2, e.Name)
		event.attributes(3, e.Attributes)
		m.bytes(11, event)
	}
	var status message
	status.text(2, s.Status().Description)
	switch s.Status().Code {
	case codes.Ok:
		status.varint(3, 1)
	case codes.Error:
		status.varint(3, 2)
	}
	m.bytes(15, status)
	return m
}
