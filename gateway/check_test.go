package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/signaling/access"
)

// A model in an agent's file is checked for the backend that answers: an endpoint of the project is a model of Vertex AI only.
func TestAgentModelFitsBackend(t *testing.T) {
	t.Parallel()
	gemini, vertex := []string{"GEMINI_API_KEY", "k"}, []string{"GOOGLE_GENAI_USE_VERTEXAI", "1", "GOOGLE_CLOUD_PROJECT", "p"}
	for _, test := range []struct {
		backend     []string
		model, want string // want: "" if the model is accepted
	}{
		{vertex, "projects/p/locations/us-central1/endpoints/7", ""},
		{vertex, "projects/other/locations/us-central1/endpoints/7", "is not a model of the gateway's project"},
		{gemini, "projects/p/locations/us-central1/endpoints/7", "is not a model of the Gemini API"},
		{vertex, "gemini-live-2.5-flash-native-audio", ""},
		{gemini, "gemini-3.8-live-extended-thinking", ""},
		{vertex, "gemini-3.8-live-extended-thinking", "is not a model of Vertex AI"},
	} {
		folder := writeAgents(t, map[string]string{"desk": "---\nconfig:\n  model: " + test.model + "\n---\nBe brief."})
		var out bytes.Buffer
		err := runCommand(t.Context(), []string{"check-config"}, env(append(test.backend, "VOXGATE_AGENTS", folder)...), &out, &out)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %v: %v, want %q", test.model, test.backend, err, test.want)
		}
	}
}

// check-config reads all files, and names the mistakes in each, with their places. It opens no port and starts no server of
// tools.
func TestCheckConfig(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	if _, err := access.NewKey(keys, "shop", []string{access.MayTalk}); err != nil {
		t.Fatal(err)
	}
	const trunk = `"listen":[{"transport":"udp","address":"127.0.0.1:5060"}],"trunks":[{"name":"a","from":["192.0.2.1"]}]`
	const till = `"collect":[{"name":"PIN","max":4,"url":"https://a.example/","secret":"s"}]`
	check := func(settings ...string) (string, error) {
		var out bytes.Buffer
		err := runCommand(t.Context(), []string{"check-config"}, env(settings...), &out, &out)
		return out.String(), err
	}
	out, err := check(
		"VOXGATE_KEYS", keys,
		"VOXGATE_AGENTS", writeAgents(t, map[string]string{"desk": "---\nnumbers: ['*']\ncollect: [PIN]\n---\nBe brief."}),
		"VOXGATE_SIP", writeTempFile(t, "{"+trunk+","+till+"}"),
		"VOXGATE_TOOLS", writeTempFile(t, `{"mcp":[{"name":"none","command":["/no/such/program"]}]}`),
		"VOXGATE_TELEPHONY", writeTempFile(t, `{"providers":[{"profile":"jambonz","password":"x"}],`+till+`}`),
		"VOXGATE_MODELS", writeTempFile(t, `{"models":[]}`),
	)
	if err != nil || strings.Count(out, " is good\n") != 6 || !strings.HasSuffix(out, "\nthe settings are good\n") {
		t.Errorf("%v\n%s", err, out)
	}
	agents, file := writeAgents(t, map[string]string{"desk": "---\nvoize: Kore\n---"}), writeTempFile(t, `{`)
	out, err = check("VOXGATE_KEYS", file, "VOXGATE_AGENTS", agents, "VOXGATE_TOOLS", file, "VOXGATE_TELEPHONY", file, "VOXGATE_MODELS", file,
		"VOXGATE_SIP", writeTempFile(t, "{"+trunk+`,"agents":[{"to":["*"]}]}`), "VOXGATE_TLS_CERT", file, "VOXGATE_TLS_KEY", file)
	for _, want := range []string{
		"agents: " + filepath.Join(agents, "desk.md") + ":2: voize", "keys: " + file, "tools: " + file, "telephony: " + file, "models: " + file,
		`unknown field "agents"`, "tls-cert: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v\n%s", want, err, out)
		}
	}
	folder := writeAgents(t, map[string]string{"desk": "---\nnumbers: ['*']\ncollect: [card]\n---"})
	if _, err = check("VOXGATE_AGENTS", folder, "VOXGATE_SIP", writeTempFile(t, "{"+trunk+","+till+"}")); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(folder, "desk.md")+`: collect[0]: there is no "card"`) {
		t.Errorf("%v", err)
	}
	folder = writeAgents(t, map[string]string{"desk": `Be brief.

## Step: greet
tools: [get_time]
next: look

## Step: look
tools: [look_up]`})
	if _, err = check("VOXGATE_AGENTS", folder, "VOXGATE_TOOLS", writeTempFile(t, `{"builtin":["get_time"]}`)); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(folder, "desk.md")+`:8: step "look": unknown tool "look_up": not in the tools file`) {
		t.Errorf("%v", err)
	}
	for _, test := range []struct {
		want     string
		settings []string
	}{
		{"VOXGATE_AGNETS is not a setting; did you mean VOXGATE_AGENTS?", []string{"VOXGATE_AGNETS", "agents"}},
		{"agents: open " + file, []string{"VOXGATE_AGENTS", file}},
		{" has no agents: files that end in .md", []string{"VOXGATE_AGENTS", t.TempDir()}},
		{
			`desk.md:2: tools[0]: unknown tool "nope"`,
			[]string{"VOXGATE_AGENTS", writeAgents(t, map[string]string{"desk": "---\ntools: [nope]\n---"})},
		},
		{"turn-model: set VOXGATE_ONNXRUNTIME as well", []string{"VOXGATE_TURN_MODEL", file}},
		{"onnxruntime: set VOXGATE_TURN_MODEL as well", []string{"VOXGATE_ONNXRUNTIME", file}},
		{
			"turn-model: " + file + ": not the ONNX file of smart-turn v3 for CPUs",
			[]string{"VOXGATE_TURN_MODEL", file, "VOXGATE_ONNXRUNTIME", file},
		},
		{"set VOXGATE_WEBHOOK_SECRET", []string{"VOXGATE_SESSION_WEBHOOK", "https://a.example/hook"}},
		{"session-webhook: must be http", []string{"VOXGATE_SESSION_WEBHOOK", "ftp://a.example/hook", "VOXGATE_WEBHOOK_SECRET", "s"}},
		{"desk.md:2: record: must be true or false", []string{"VOXGATE_AGENTS", writeAgents(t,
			map[string]string{"desk": "---\nrecord: yes\n---"})}},
	} {
		out, err := check(test.settings...)
		if err == nil || strings.Count(err.Error(), test.want) != 1 || strings.Contains(out, "good") {
			t.Errorf("%v: %v\n%s", test.settings, err, out)
		}
	}
	for _, name := range []string{"a", "b"} { // the mistakes of both files are named
		folder = writeAgents(t, map[string]string{"a": "---\nvoize: x\n---", "b": "---\nmodle: x\n---"})
		if _, err := check("VOXGATE_AGENTS", folder); err == nil || strings.Count(err.Error(), name+".md:2: ") != 1 {
			t.Errorf("%v", err)
		}
	}
	if out, err := check(); err != nil || out != "the settings are good\n" {
		t.Errorf("no file at all: %v, %s", err, out)
	}
	if _, err := check("VOXGATE_WHIP", file); err == nil || !strings.Contains(err.Error(), "VOXGATE_AGENTS") {
		t.Errorf("%v", err)
	}
}
