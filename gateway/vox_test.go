package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The gateway serves the VOX assistant: a text model generates an app, which is stored in the workspace and served.
func TestVOXIsServed(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "apps")
	p := startGateway(t, []string{"serve", "-addr", "127.0.0.1:0", "-workspace", folder}, nil)
	c := p.dialWebSocket("/api/vox/live", `{"type":"start","model":"gemini-3.8-flash","questions":true}`,
		`{"type":"text","text":"/tool generate_app {\"prompt\":\"a counter\"}"}`)
	question := awaitVOXEvent(c, func(m voxMessage) bool { return m.Type == "question" })
	c.SendTextFrame(`{"type":"answer","id":"` + question.ID + `","yes":true}`)
	m := awaitVOXEvent(c, func(m voxMessage) bool { return m.Action == "app_ready" })
	resp, err := http.Get(p.url + "/" + m.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if kept, err := os.ReadDir(folder); resp.StatusCode != http.StatusOK || err != nil || len(kept) != 2 || // app and project
		!strings.Contains(m.URL, kept[0].Name()) || !strings.HasPrefix(kept[1].Name(), "project-") {
		t.Errorf("%d, %v in the folder, %v", resp.StatusCode, kept, err)
	}
	if err := runCommand(t.Context(), []string{"serve", "-addr", "127.0.0.1:0", "-workspace", os.Args[0]}, nil,
		os.Stderr, os.Stderr); err == nil ||
		!strings.Contains(err.Error(), "workspace") {
		t.Errorf("a file as a workspace: %v", err)
	}
}
