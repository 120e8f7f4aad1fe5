package liveconfig_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/tools"
)

// TestRules: the settings of a function are adapted to the model.
func TestRules(t *testing.T) {
	const function = `{"tools":[{"functionDeclarations":[` +
		`{"name":"f","title":"Doing it…","timeout":"20s","behavior":"BEHAVIOR","scheduling":"SILENT"}]}]}`
	for _, c := range []struct {
		model, behavior                string
		vertex                         bool
		blocking, schedules, continues bool
		sent                           string // of the declaration
	}{
		{"gemini-3.8-live", "", false, false, true, true, `{"name":"f"}`},
		{"gemini-3.8-live", "BLOCKING", false, true, false, false, `{"behavior":"BLOCKING","name":"f"}`},
		{"gemini-3.8-live", "NON_BLOCKING", true, false, true, false, `{"behavior":"NON_BLOCKING","name":"f"}`},
		{"gemini-2.5-flash-native-audio-latest", "", false, true, false, false, `{"name":"f"}`},
		{"gemini-2.5-flash-native-audio-latest", "non_blocking", false, false, true, true, `{"behavior":"NON_BLOCKING","name":"f"}`},
		{"gemini-3.1-flash-live-preview", "NON_BLOCKING", false, true, false, false, `{"name":"f"}`},
		{"gemini-3.8-live-extended-thinking", "BLOCKING", false, false, false, false, `{"name":"f"}`},
		{"gemini-live-2.5-flash-native-audio", "NON_BLOCKING", true, true, false, false, `{"name":"f"}`},
		{"gemini-9", "", false, false, true, true, `{"name":"f"}`},
	} {
		config := parse(t, door(c.vertex), named(c.model, strings.Replace(function, "BEHAVIOR", c.behavior, 1)))
		f, ok := config.Functions.Find("f")
		if !ok || f.Blocking != c.blocking || f.Schedules != c.schedules || f.Continues != c.continues {
			t.Errorf("%s %q: %+v", c.model, c.behavior, f)
		}
		said, unsaid := strings.Contains(strings.Join(config.Warnings, " "), "behavior was dropped"), !strings.Contains(c.sent, "behavior")
		if said != (c.behavior != "" && unsaid) {
			t.Errorf("%s %q: warnings %q", c.model, c.behavior, config.Warnings)
		}
		if f.Title != "Doing it…" || f.Timeout != 20*time.Second || (f.Scheduling == tools.Silent) != c.schedules ||
			f.Where != liveconfig.InClient {
			t.Errorf("%s %q: %+v", c.model, c.behavior, f)
		}
		if want := `[{"functionDeclarations":[` + c.sent + `]}]`; field(t, config.Effective(), "tools") != want {
			t.Errorf("%s %q: sent %s, want %s", c.model, c.behavior, field(t, config.Effective(), "tools"), want)
		}
	}
}

// TestHiddenCanvasTools: a step may hide canvas tools. What is declared to Gemini then has no empty declarations.
func TestHiddenCanvasTools(t *testing.T) {
	emptyElement := regexp.MustCompile(`[\[,]\{\}`)
	scope := liveconfig.Scope{
		Screen: true, Canvas: []tools.Declaration{{Name: "show", Description: "Shows."}, {Name: "ask", Description: "Asks."}},
	}
	for hidden, want := range map[string]string{"": "show ask", "show": "ask", "show ask": ""} {
		scope.Hides = func(name string) bool { return slices.Contains(strings.Fields(hidden), name) }
		config, err := liveconfig.Parse(json.RawMessage(`{"voxgate":{"canvas":true}}`), "c", scope)
		if err != nil {
			t.Fatal(err)
		}
		setup, err := json.Marshal(config.Setup("", nil).Object)
		if names := strings.Join(namesOf(config), " "); err != nil || names != want || emptyElement.Match(setup) {
			t.Errorf("%s hidden: has %s; sent %s", hidden, names, setup)
		}
	}
}

// TestGatewayTools: the gateway's own tools come first and cannot be replaced; canvas tools are declared for clients
// with a canvas.
func TestGatewayTools(t *testing.T) {
	scope := liveconfig.Scope{
		Screen: true,
		Tools: []tools.Declaration{
			{
				Name:       "refund",
				Title:      "Paying back…",
				Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}`),
				Timeout:    time.Minute,
			},
			{Name: "loops", Parameters: json.RawMessage(`{"type":"array"}`)},
			{Name: ""},
		},
		Canvas: []tools.Declaration{{Name: "show", Description: "Shows."}},
	}
	for _, c := range []struct {
		config, sent, warnings string
		screen                 bool
	}{
		{`{}`, `refund`, `"loops" cannot; "" was left out`, true},
		{
			`{"tools":[{"functionDeclarations":[{"name":"refund"},{"name":"mine"}]}]}`, `refund mine`,
			`"loops"; ""; gateway has a tool "refund"`, true,
		},
		{`{"voxgate":{"canvas":true},"tools":[{"googleSearch":{}}]}`, `refund show`, `"loops"; ""`, true},
		{
			`{"voxgate":{"canvas":true},"tools":[{"functionDeclarations":[{"name":"show","description":"My own."}]}]}`, `refund show`,
			`"loops"; ""`, true,
		},
		{`{"voxgate":{"canvas":true}}`, `refund`, `"loops"; ""; nothing can be shown here`, false},
		{
			`{"tools":[{"functionDeclarations":[{"name":"show"},{"name":"mine"}]}]}`, `refund mine`,
			`"loops"; ""; nothing can be shown here`, false,
		},
	} {
		scope.Screen = c.screen
		config, err := liveconfig.Parse(json.RawMessage(c.config), "c", scope)
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if got := strings.Join(namesOf(config), " "); got != c.sent {
			t.Errorf("%s: has %s, want %s", c.config, got, c.sent)
		}
		for i, w := range strings.Split(c.warnings, "; ") {
			if len(config.Warnings) <= i || !strings.Contains(config.Warnings[i], strings.TrimSuffix(w, " cannot")) {
				t.Errorf("%s: warnings %q, want %s", c.config, config.Warnings, w)
			}
		}
		refund, _ := config.Functions.Find("refund")
		if refund.Where != liveconfig.InGateway || refund.Check(json.RawMessage(`{"n":9007199254740993}`)) != nil ||
			refund.Check(json.RawMessage(`{"n":9007199254740994}`)) == nil {
			t.Errorf("%s: %+v", c.config, refund)
		}
		if show, ok := config.Functions.Find("show"); ok && show.Where != liveconfig.OnCanvas {
			t.Errorf("%s: %+v", c.config, show)
		}
	}
}
