package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// What an operator sees of a conversation: how long its answer took, and the process, at an address of their own.
func TestMetrics(t *testing.T) {
	p := start(t, []string{"serve", "--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"}, func(string) string { return "" })
	p.ask(`{}`)
	at := p.waitFor(`msg=metrics at=(\S+)`)
	get := func(url string) (int, string) {
		t.Helper()
		r, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	_, text := get(at)
	for _, want := range []string{
		`voxgate_answer_seconds_count{part="total"} 1`, `voxgate_answer_seconds_count{part="model"} 1`,
		`voxgate_answer_seconds_bucket{part="gateway",le="0.04"} 1`, "process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if code, text := get(p.url + "/metrics"); code == http.StatusOK && strings.Contains(text, "voxgate_answer") {
		t.Error("everybody gets the metrics")
	}
}

func TestRecordingsNeedAFolder(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"record-all: name a folder": {"--record-all"},
		"recordings: ":              {"--recordings", t.TempDir() + "/none"},
		"is not a folder":           {"--recordings", file},
	} {
		if _, err := parseSettings(args, func(string) string { return "" }, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
