package probe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/probe"
	"voxgate/bridge/pricing"
	"voxgate/internal/testkit/mediatest"
)

const key = "AIza-do-not-print-this"

// retractedEnd is the name of the probe that speaks again at most retractedPause after the end of its activity. A busy machine speaks too
// late, and two turns are heard.
const (
	retractedEnd   = "an end that the client retracts"
	retractedPause = 100 * time.Millisecond
)

func emulate(t *testing.T, s emulator.Scenario) *httptest.Server {
	e := emulator.New(emulator.Options{Scenario: s})
	server := httptest.NewServer(e)
	t.Cleanup(func() { server.Close(); e.Close() })
	return server
}

func ask(t *testing.T, url string, models ...string) []probe.Result {
	return askAs(t, &api.Client{APIKey: key, BaseURL: url}, models...)
}

func askAs(t *testing.T, client *api.Client, models ...string) []probe.Result {
	return probe.Run(t.Context(), probe.Options{
		Client: client, Models: models, Dollars: 100, Prices: pricing.Default, Parallel: 48, // they wait for sound
	})
}

// TestEmulatorMatchesAssumptions runs every probe with the emulator: it behaves as our tables assume of Google, and as
// the reports in ../testdata/google have found.
func TestEmulatorMatchesAssumptions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	machine := mediatest.MeasureLateness(t)
	url := emulate(t, emulator.Scenario{}).URL
	var results, vertex []probe.Result
	var both sync.WaitGroup
	both.Go(func() { results = ask(t, url) })
	both.Go(func() {
		vertex = askAs(t, &api.Client{Vertex: api.Emulated(), BaseURL: url}, api.DefaultModel, "gemini-3.8-flash") // the rest is alike
	})
	both.Wait()
	if len(results) < 100 {
		t.Errorf("%d probes were held", len(results))
	}
	for _, r := range slices.Concat(results, vertex) {
		if r.Verdict == probe.AsAssumed || r.Verdict == probe.Learned {
			continue
		}
		if strings.HasSuffix(r.ID(), retractedEnd) && !machine.CanJudge(t, retractedPause) {
			continue
		}
		if late := machine.Longest(); late > time.Second { // what should interrupt an answer comes after its end
			t.Logf("not judged: this machine was late by %v at once: %s: %s", late, r.ID(), r.Verdict)
		} else {
			t.Errorf("%s: %s: found %q, assumed %q %q", r.ID(), r.Verdict, r.Found, r.Assumed, r.Notes)
		}
	}
	files, err := filepath.Glob("../testdata/google/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var report probe.Report
		if err := json.Unmarshal(text, &report); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		different, _ := probe.CompareResults(report.Results, results)
		for _, d := range different {
			t.Errorf("%s: %s", file, d)
		}
	}
}

// deviation is a way in which a server is not what is assumed. Each of its functions changes a message, or drops it (nil).
type deviation struct {
	name       string
	foundBy    string
	fromClient func(string) string
	fromServer func(string) string
	closes     func(code int, reason string) int
}

func replace(old, with string) func(string) string {
	return func(m string) string { return strings.ReplaceAll(m, old, with) }
}

func drop(having string) func(string) string {
	return func(m string) string {
		if strings.Contains(m, having) {
			return ""
		}
		return m
	}
}

var deviations = []deviation{
	{name: "another code for an unknown field", foundBy: "a field that does not exist", closes: func(code int, reason string) int {
		if strings.Contains(reason, "nonsense") {
			return websocket.ClosePolicyViolation
		}
		return code
	}},
	{
		name: "another rate", foundBy: "speaks and writes down what it says",
		fromServer: replace("audio/pcm;rate=24000", "audio/pcm;rate=16000"),
	},
	{name: "no temperature", foundBy: "a temperature", fromClient: replace(`"temperature":`, `"temperament":`)},
	{name: "affective dialog", foundBy: "affective dialog", fromClient: replace(`"enableAffectiveDialog":true,`, "")},
	{name: "stale handles are fresh sessions", foundBy: "a handle that is none", fromClient: replace(`"handle":"no-handle-of-anybody"`, "")},
	{name: "search beside functions", foundBy: "search and functions in one tool", fromClient: func(m string) string {
		if strings.Contains(m, "functionDeclarations") {
			return strings.ReplaceAll(m, `"googleSearch":{}`, `"functionDeclarations":[]`)
		}
		return m
	}},
	{name: "no interruptions", foundBy: "typed text interrupts", fromServer: drop(`"interrupted"`)},
	{name: "no transcript of the question", foundBy: "hears and writes down what it heard", fromServer: drop(`"inputTranscription"`)},
	{name: "updates are ignored", foundBy: "tools change in place", fromClient: drop(`"contextUpdate"`)},
	{name: "empty results are taken", foundBy: "an empty result", fromClient: replace(`"response":{}`, `"response":{"a":"b"}`)},
}

// TestDeviationsAreFound asks a server that deviates in each of these ways at once.
func TestDeviationsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	behind := emulate(t, emulator.Scenario{})
	server := httptest.NewServer(deviating(t, behind.URL))
	t.Cleanup(server.Close)
	results := ask(t, server.URL, "gemini-3.8-live")
	for _, d := range deviations {
		i := slices.IndexFunc(results, func(r probe.Result) bool { return r.Name == d.foundBy })
		switch {
		case i < 0:
			t.Errorf("%s: there is no probe %q", d.name, d.foundBy)
		case results[i].Verdict != probe.Different || len(results[i].Messages) == 0:
			t.Errorf("%s was not found: %+v", d.name, results[i])
		}
	}
	encoded, err := json.Marshal(probe.Report{Results: results}.WithoutPrivateDetails())
	if err != nil || bytes.Contains(encoded, []byte(key)) || bytes.Contains(encoded, []byte("AAAAAAAAAAAAAAAAAAAAAAAA")) {
		t.Errorf("the report has the key or sound in it, or is none: %v", err)
	}
}

// deviating is a proxy for the Live API that changes what passes.
func deviating(t *testing.T, behind string) http.Handler {
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer client.Close()
		url := "ws" + strings.TrimPrefix(behind, "http") + r.URL.Path
		server, answer, err := websocket.DefaultDialer.DialContext(t.Context(), url, http.Header{"X-Goog-Api-Key": {key}})
		if err != nil {
			t.Error(err)
			return
		}
		answer.Body.Close()
		defer server.Close()
		up := make(chan struct{})
		go func() {
			defer close(up)
			pass(client, server, func(d deviation) func(string) string { return d.fromClient })
		}()
		pass(server, client, func(d deviation) func(string) string { return d.fromServer })
		_ = client.Close()
		<-up
	})
}

// pass hands on what comes from one side, changed, and how it ends.
func pass(from, to *websocket.Conn, change func(deviation) func(string) string) {
	for {
		kind, data, err := from.ReadMessage()
		if err != nil {
			code, reason := websocket.CloseGoingAway, ""
			if closed, ok := errors.AsType[*websocket.CloseError](err); ok {
				code, reason = closed.Code, closed.Text
			}
			for _, d := range deviations {
				if d.closes != nil {
					code = d.closes(code, reason)
				}
			}
			if code == websocket.CloseNoStatusReceived || code == websocket.CloseAbnormalClosure {
				code = websocket.CloseNormalClosure
			}
			_ = to.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
			_ = to.Close()
			return
		}
		var compact bytes.Buffer // the server's messages are indented
		if json.Compact(&compact, data) != nil {
			compact.Write(data)
		}
		message := compact.String()
		for _, d := range deviations {
			if f := change(d); f != nil {
				message = f(message)
			}
		}
		if message != "" {
			_ = to.WriteMessage(kind, []byte(message))
		}
	}
}

// TestReplay compares a report with a run of the emulator.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	here := ask(t, emulate(t, emulator.Scenario{}).URL, "gemini-3.5-live-translate")
	if len(here) != 1 || here[0].Verdict != probe.AsAssumed {
		t.Fatalf("%+v", here)
	}
	reported := slices.Clone(here)
	if different, n := probe.CompareResults(reported, here); len(different) != 0 || n != 1 {
		t.Errorf("%v, %d compared", different, n)
	}
	reported[0].Found = []string{"refused with 1007"}
	reported = append(reported, probe.Result{Model: "gemini-9", Name: "flies", Verdict: probe.Different})
	different, n := probe.CompareResults(reported, here)
	if len(different) != 1 || n != 1 || !strings.Contains(different[0].String(), "refused with 1007") {
		t.Errorf("%v, %d compared", different, n)
	}
}

// TestUnavailableModels: results of a model without quota are unavailable, and those of an unreachable server find and
// cost nothing.
func TestUnavailableModels(t *testing.T) {
	t.Parallel()
	quota := emulator.Fault{On: emulator.OnHandshake, HTTP: http.StatusTooManyRequests}
	for _, r := range ask(t, emulate(t, emulator.Scenario{Faults: []emulator.Fault{quota}}).URL, "gemini-3.8-live") {
		if r.Verdict != probe.Unavailable {
			t.Fatalf("%+v", r)
		}
	}
	for _, r := range probe.Run(t.Context(), probe.Options{
		Client: &api.Client{APIKey: key, BaseURL: "http://127.0.0.1:1"}, Models: []string{"gemini-3.8-live"}, Prices: pricing.Default,
	}) {
		if r.Verdict == probe.AsAssumed && r.Found[0] == "answers" || r.Dollars != 0 {
			t.Errorf("%+v", r)
		}
	}
}
