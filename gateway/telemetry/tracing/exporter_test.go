package tracing_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"voxgate/bridge"
	"voxgate/gateway/telemetry/tracing"
)

// The exporter follows the standard environment variables, and sends again if the collector was busy.
func TestTheExporterFollowsTheStandard(t *testing.T) {
	r := &receiver{t: t}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if asked++; asked == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		if q.Header.Get("Authorization") != "Bearer a token" || q.Header.Get("X-Team") != "voice" || q.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("headers: %v", q.Header)
		}
		zipped, err := gzip.NewReader(q.Body)
		if err != nil {
			t.Error(err)
			return
		}
		plain, err := io.ReadAll(zipped)
		if err != nil {
			t.Error(err)
		}
		q.Body = io.NopCloser(bytes.NewReader(plain))
		r.ServeHTTP(w, q)
	}))
	defer server.Close()
	for name, value := range map[string]string{
		"ENDPOINT": server.URL + "/", "HEADERS": "authorization=Bearer%20a%20token, x-team=voice", "COMPRESSION": "gzip",
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
	}
	t.Setenv("OTEL_SERVICE_NAME", "desk")
	traced, err := tracing.New(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-time.Minute)
	traced.Observe("a", bridge.SessionStarted{Info: bridge.Info{Started: began, Protocol: "web"}})
	traced.Observe("a", bridge.TurnEnd{Number: 1, StartedAt: began, Latency: bridge.Latency{Model: 1500 * time.Millisecond}})
	traced.Observe("a", bridge.SessionEnded{At: began.Add(time.Second), Reason: bridge.ErrGoodbye})
	if err := traced.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked != 2 || r.service != "desk" || len(r.spans) != 2 {
		t.Fatalf("asked %d times; the service is %q; %d spans", asked, r.service, len(r.spans))
	}
	turn, whole := r.spans[0], r.spans[1]
	if whole.Kind != otlp.Span_SPAN_KIND_SERVER || whole.StartTimeUnixNano != uint64(began.UnixNano()) ||
		whole.EndTimeUnixNano != uint64(began.Add(time.Second).UnixNano()) || string(turn.TraceId) != string(whole.TraceId) {
		t.Errorf("%v\n%v", whole, turn)
	}
	for _, a := range turn.Attributes {
		if a.Key == "voxgate.latency.model" && a.Value.GetDoubleValue() == 1.5 {
			return
		}
	}
	t.Errorf("no latency in %v", turn)
}

// The log shows the answer of a collector that rejects spans, but not its URL, which may contain a token.
func TestACollectorThatRefuses(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for name, endpoint := range map[string]string{"the collector answers 404": server.URL, "connection refused": "http://127.0.0.1:1"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint+"/planted")
		var log bytes.Buffer
		traced, err := tracing.New(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		traced.Observe("a", bridge.SessionStarted{Info: bridge.Info{Started: time.Now()}})
		traced.Observe("a", bridge.SessionEnded{At: time.Now(), Reason: errors.New("over")})
		if text := fmt.Sprint(traced.Close(t.Context()), log.String()); !strings.Contains(text, name) || strings.Contains(text, "planted") {
			t.Errorf("%s: %s", name, text)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
	if _, err := tracing.New(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http://") {
		t.Error(err)
	}
}
