package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// The gateway serves the VOX assistant: a text model generates an app, which is stored in the workspace and served.
func TestVOXIsServed(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "apps")
	p := startGateway(t, []string{"serve", "-addr", "127.0.0.1:0", "-workspace", folder}, nil)
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(p.url, "http")+"/api/vox/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	said := func(text string) {
		t.Helper()
		if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	said(`{"type":"start","model":"gemini-3.8-flash","questions":true}`)
	said(`{"type":"text","text":"/tool generate_app {\"prompt\":\"a counter\"}"}`)
	var m struct{ Type, ID, Action, URL string }
	for m.Action != "app_ready" {
		_, raw, err := conn.ReadMessage()
		if err != nil || json.Unmarshal(raw, &m) != nil {
			t.Fatal(err, string(raw))
		}
		if m.Type == "question" {
			said(`{"type":"answer","id":"` + m.ID + `","yes":true}`)
		}
	}
	resp, err := http.Get(p.url + "/" + m.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if kept, err := os.ReadDir(folder); resp.StatusCode != http.StatusOK || err != nil || len(kept) != 2 || // app and project
		!strings.Contains(m.URL, kept[0].Name()) || !strings.HasPrefix(kept[1].Name(), "project-") {
		t.Errorf("%d, %v in the folder, %v", resp.StatusCode, kept, err)
	}
	if err := run(t.Context(), []string{"serve", "-addr", "127.0.0.1:0", "-workspace", os.Args[0]}, nil,
		os.Stderr, os.Stderr); err == nil ||
		!strings.Contains(err.Error(), "workspace") {
		t.Errorf("a file as a workspace: %v", err)
	}
}
