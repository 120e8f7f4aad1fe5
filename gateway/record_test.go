package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/bridge/gemini/traces"
)

// The command record writes a conversation as a recording that can be read and replayed. It rejects invalid arguments.
func TestRecord(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	var out bytes.Buffer
	record := func(args ...string) error {
		out.Reset()
		return runCommand(t.Context(), append([]string{"record"}, args...), env("GEMINI_API_KEY", ""), &out, &out)
	}
	for want, args := range map[string][]string{
		"GEMINI_API_KEY": {},
		"config":         {"--emulator", "--config", "{"},
		"step 1":         {"--emulator", "sing"},
		"step 2":         {"--emulator", "speech", "wait long"},
	} {
		if err := record(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("record %q: %v, want %q", args, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "mine.jsonl")
	config := `{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"lookup"}]}]}`
	err := record("--emulator", "--out", file, "--config", config,
		"speech", "text /tool lookup {}", "wait 1s", "mute", "end", "text /close 1011 over", "wait 5s")
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := traces.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var kinds []string
	for _, l := range trace.Lines {
		kinds = append(kinds, l.Dir+" "+traces.Kind(l.Msg))
	}
	got := strings.Join(kinds, ", ")
	for _, want := range []string{"down setupComplete", "down voice", "down toolCall", "down turnComplete+usage", "close {}"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s\n%s", want, got, text)
		}
	}
	if trace.ModelName() != "gemini-3.8-live" {
		t.Errorf("the model is %q", trace.ModelName())
	}
	for _, want := range []string{" ms of speech>", " chars>", `"code":1011`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
