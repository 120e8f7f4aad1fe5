package telemetry

import (
	"log/slog"
	"testing"
)

// Observations are not even made if nothing is configured that takes them.
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
