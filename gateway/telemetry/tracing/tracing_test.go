package tracing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/gateway/telemetry/tracing"
	"voxgate/internal/testkit"
	"voxgate/media"
	"voxgate/tools"
)

func TestMain(m *testing.M) {
	// genai pulls in opencensus, which starts a worker when it is loaded and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// patience limits how long a test waits for an expected event.
const patience = time.Minute

// receiver is a collector that keeps the spans it receives.
type receiver struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	service string
	spans   []*otlp.Span
	raw     []byte
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t}
	server := httptest.NewServer(r)
	r.url = server.URL
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		server.Close()
	})
	return r
}

// ServeHTTP implements http.Handler: OTLP/HTTP, https://opentelemetry.io/docs/specs/otlp/#otlphttp.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || q.URL.Path != "/v1/traces" {
		r.t.Errorf("%s: %v", q.URL, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = append(r.raw, body...)
	for _, of := range sent.ResourceSpans {
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				r.service = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
}

// tree returns all spans below a parent as sorted text: name[attribute] (error) { … }.
func (r *receiver) tree(parent []byte, attributes ...string) string {
	r.mu.Lock()
	spans := slices.Clone(r.spans)
	r.mu.Unlock()
	var list []string
	for _, s := range spans {
		if string(s.ParentSpanId) != string(parent) {
			continue
		}
		text := s.Name
		for _, a := range s.Attributes {
			if slices.Contains(attributes, a.Key) {
				text += fmt.Sprintf("[%s%v]", a.Value.GetStringValue(), strings.TrimPrefix(fmt.Sprint(a.Value.GetIntValue()), "0"))
			}
		}
		if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
			text += "(" + s.Status.Message + ")"
		}
		if s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano == 0 {
			r.t.Errorf("%s ends before it begins", s.Name)
		}
		if below := r.tree(s.SpanId, attributes...); below != "" {
			text += " {" + below + "}"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// caller is a bridge.Caller that types its texts one after the other, and leaves after the last answer.
type caller struct {
	says  []string
	turns chan struct{} // receives a value at the end of each turn with speech; a turn may also end with a tool call
	spoke bool
}

func (c *caller) Serve(ctx context.Context, s *bridge.Session) error {
	s.AttachOutput(media.Output(silent{}))
	s.HoldVoice(false)
	for _, text := range c.says {
		if err := s.Do(bridge.Message{Parts: fmt.Appendf(nil, `[{"text":%q}]`, text), TurnComplete: true}); err != nil {
			return err
		}
		select {
		case <-c.turns:
		case <-time.After(patience):
			return errors.New("no answer")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.Do(bridge.Goodbye{})
}

func (c *caller) Notify(e bridge.Event) {
	switch e.Body.(type) {
	case bridge.Speaking:
		c.spoke = true
	case bridge.TurnComplete:
		if c.spoke {
			c.turns <- struct{}{}
		}
		c.spoke = false
	}
}

// silent is an output that discards the voice.
type silent struct{}

func (silent) Rate() int                      { return bridge.VoiceRate }
func (silent) MaxLead() time.Duration         { return 0 }
func (silent) WriteFrame(f media.Frame) error { return nil }

// A conversation with a tool call is exported as a tree of spans, without its content.
func TestAConversationIsATree(t *testing.T) {
	r := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.url)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	log := slog.New(slog.DiscardHandler)
	traced, err := tracing.New(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	model := testkit.StartModel(t, emulator.Options{Logger: log, Scenario: emulator.Scenario{
		Faults: []emulator.Fault{{On: emulator.OnHandshake, Connections: []int{1}, HTTP: http.StatusServiceUnavailable}},
	}})
	host := bridge.NewHost(bridge.Options{
		Client: model, Backend: "emulator", Logger: log, Observe: traced.Observe,
		Tools: func() []tools.Tool {
			return []tools.Tool{{Declaration: tools.Declaration{Name: "pay"}, Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return nil, errors.New("planted result")
			}}}
		},
	})
	c := &caller{says: []string{"planted words", `/tool pay {"to":"planted argument"}`}, turns: make(chan struct{}, 10)}
	open := bridge.SessionRequest{Config: []byte(`{}`), Origin: bridge.Origin{Protocol: "sip", Key: "shop", Identity: "planted@person"}}
	if err := host.Serve(t.Context(), c, open); !errors.Is(err, bridge.ErrGoodbye) {
		t.Errorf("ended with %v", err)
	}
	if err := host.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := traced.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want := "conversation[sip][shop][goodbye] {link[first] link[first](lost) turn[1] turn[2] {execute_tool pay[failed](failed)}}"
	if got := r.tree(nil, "voxgate.door", "voxgate.key", "voxgate.turn", "voxgate.link", "voxgate.outcome", "voxgate.reason"); got != want {
		t.Errorf("got\n  %s\nwant\n  %s", got, want)
	}
	if r.service != "voxgate" {
		t.Errorf("the service is %q", r.service)
	}
	if strings.Contains(string(r.raw), "planted") {
		t.Errorf("a span has what was said: %q", r.raw)
	}
}

// A tool call may begin before the first output of its turn, and end after the last one.
func TestCallsFindTheirTurn(t *testing.T) {
	r := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", r.url+"/v1/traces")
	traced, err := tracing.New(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ended := func(name string, turn int, took time.Duration) bridge.CallEnd {
		e := bridge.CallEnd{Turn: turn}
		e.Name, e.Outcome, e.Took = name, "done", took
		return e
	}
	for _, o := range []bridge.Observation{
		bridge.SessionStarted{Info: bridge.Info{Started: now.Add(-time.Minute), Step: "greet"}},
		bridge.StepStarted{Name: "book"},
		ended("early", 1, 30*time.Second),
		bridge.TurnEnd{Number: 1, StartedAt: now.Add(-10 * time.Second), InterruptedBy: bridge.ByVoice},
		ended("late", 1, time.Second), ended("none", 2, time.Second),
		bridge.SessionEnded{At: now, Reason: errors.New("a planted fault")},
	} {
		traced.Observe("a", o)
	}
	traced.Observe("b", ended("stray", 1, time.Second)) // of a conversation that has not begun
	if err := traced.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := r.tree(nil, "voxgate.cut", "voxgate.step"),
		"conversation(unknown_error) {execute_tool none turn[book][voice] {execute_tool early execute_tool late}}"; got != want {
		t.Errorf("got\n  %s\nwant\n  %s", got, want)
	}
}

// Without a collector New returns nil, and goleak finds no goroutine.
func TestNobodyIsTold(t *testing.T) {
	for name, environment := range map[string]map[string]string{
		"no endpoint": {},
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "True"},
		"no exporter": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range environment {
				t.Setenv(k, v)
			}
			if traced, err := tracing.New(t.Context(), slog.New(slog.DiscardHandler)); traced != nil || err != nil {
				t.Errorf("%v, %v", traced, err)
			}
		})
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	if _, err := tracing.New(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http/protobuf") {
		t.Errorf("gRPC: %v", err)
	}
}

// An invalid resource attribute in the environment disables neither the other attributes nor the start.
func TestOddResourceAttributes(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for _, attributes := range []string{"a=b", "a=b,c", ",", "=", "a=%zz", "a"} {
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", attributes)
		tracer, err := tracing.New(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil || tracer == nil {
			t.Errorf("%q: %v", attributes, err)
			continue
		}
		_ = tracer.Close(t.Context()) // no spans are waiting
	}
}
