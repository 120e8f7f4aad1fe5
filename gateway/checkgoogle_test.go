package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/probe"
)

// The command check google tests the server that the environment names, and check replay tests the emulator.
func TestCheckGoogle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	var out bytes.Buffer
	check := func(environment []string, args ...string) (string, error) {
		out.Reset()
		err := runCommand(t.Context(), append([]string{"check"}, args...), env(environment...), &out, &out)
		return out.String(), err
	}
	for _, args := range [][]string{{}, {"gogle"}, {"replay"}, {"google", "x"}} {
		if _, err := check(nil, args...); err == nil {
			t.Errorf("check %q was run", args)
		}
	}
	if _, err := check(nil, "google"); err == nil || !strings.Contains(err.Error(), "GEMINI_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
	url, _, stop, err := startEmulator("127.0.0.1:0", emulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	file, server := filepath.Join(t.TempDir(), "report.json"), []string{"GEMINI_API_KEY", "AIza-do-not-print", "GOOGLE_GEMINI_BASE_URL", url}
	said, err := check(server, "google", "--models", "gemini-3.5-live-translate,gemini-9-none", "--out", file)
	if err != nil || !strings.Contains(said, "as assumed                gemini-3.5-live-translate: hears\n") {
		t.Errorf("%v\n%s", err, said)
	}
	text, err := os.ReadFile(file)
	var report probe.Report
	if err != nil || json.Unmarshal(text, &report) != nil || report.Server != "another server" ||
		strings.Contains(string(text), "do-not-print") {
		t.Fatalf("%v\n%s", err, text)
	}
	if said, err = check(nil, "replay", file); err != nil || !strings.Contains(said, "0 differ") {
		t.Errorf("%v\n%s", err, said)
	}
	report.Results[0].Found = []string{"refused with 1007"}
	if text, err = json.Marshal(report); err != nil || os.WriteFile(file, text, 0o600) != nil {
		t.Fatal(err)
	}
	if said, err = check(nil, "replay", file); err == nil || !strings.Contains(said, "gemini-3.5-live-translate: hears") {
		t.Errorf("%v\n%s", err, said)
	}
	if said, err = check(server, "google", "--budget", "0", "--models", "gemini-3.8-live"); err != nil ||
		!strings.Contains(said, "Cost: $0.000") || !strings.Contains(said, "not run                   gemini-3.8-live: resumes\n") {
		t.Errorf("without a budget: %v\n%s", err, said)
	}
}
