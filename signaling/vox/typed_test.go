package vox_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/signaling"
	"voxgate/signaling/vox"
)

// typedTalk is a conversation with a model that writes, which answers each request by a script.
func typedTalk(t *testing.T, answer func(request json.RawMessage) (parts string)) *websocket.Conn {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	host := bridge.NewHost(bridge.Options{Client: &api.Client{}, Logger: log})
	door := &vox.Door{Host: host, Logger: log, Generate: func(
		_ context.Context, _ bridge.Account, _ string, request json.RawMessage, piece func(json.RawMessage) error,
	) (bridge.Cost, error) {
		return bridge.Cost{}, piece(json.RawMessage(`{"candidates":[{"content":{"parts":[` + answer(request) + `]},"finishReason":"STOP"}]}`))
	}}
	doors := signaling.NewServer(signaling.Options{Logger: log}, door.Doors()...)
	server := httptest.NewServer(doors)
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http")+"/api/vox/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		if err := host.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		doors.Close(context.Background())
		server.Close()
	})
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	send(t, conn, `{"type":"start","model":"gemini-3.8-flash"}`)
	return conn
}

func send(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// A model that calls too many tools at once gets a result for each call that it knows of: Google refuses a request with a call that has
// no result, and all that come after it.
func TestEachCallHasAResult(t *testing.T) {
	t.Parallel()
	calls := make(chan [2]int, 1)
	asked := 0
	conn := typedTalk(t, func(request json.RawMessage) string {
		if asked++; asked == 1 {
			call := `{"functionCall":{"name":"get_project_status","args":{}}}`
			return call + strings.Repeat(","+call, 19)
		}
		text := string(request)
		calls <- [2]int{strings.Count(text, `"functionCall"`), strings.Count(text, `"functionResponse"`)}
		return `{"text":"Done."}`
	})
	send(t, conn, `{"type":"text","text":"go"}`)
	for said := ""; !strings.Contains(said, "Done."); {
		_, raw, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		said = string(raw)
	}
	if got := <-calls; got[0] != got[1] || got[0] != 16 {
		t.Errorf("the model knows of %d calls and %d results", got[0], got[1])
	}
}
