package telemetry

import (
	"log/slog"
	"testing"
)

// If nothing that uses observations is configured, the observer is nil, and no observation is created.
func TestNothingIsObservedUnlessConfigured(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	none, err := New(t.Context(), Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if none.Observer() != nil || none.Admission() != nil || none.Metrics() != nil {
		t.Error("conversations are observed for nobody")
	}
	if err := none.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
