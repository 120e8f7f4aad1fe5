package emulator_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/api"
)

// raw is a WebSocket without a client: the test writes and reads the raw messages.
type raw struct {
	t  *testing.T
	ws *websocket.Conn
}

func newRaw(t *testing.T, client *api.Client, path string, header http.Header) *raw {
	t.Helper()
	dialer := websocket.Dialer{NetDialContext: client.NetDial}
	ws, resp, err := dialer.DialContext(t.Context(), "ws://gemini.test"+path, header)
	if err != nil {
		t.Fatalf("%v %+v", err, resp)
	}
	t.Cleanup(func() { _ = ws.Close() })
	return &raw{t, ws}
}

func (r *raw) write(text string) {
	r.t.Helper()
	if err := r.ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

// turn returns all messages of the server until a turn is complete, their transcripts joined in front.
func (r *raw) turn() string {
	r.t.Helper()
	var said, all strings.Builder
	for {
		_, data, err := r.ws.ReadMessage()
		if err != nil {
			r.t.Fatal(err)
		}
		var m struct {
			ServerContent struct {
				TurnComplete        bool
				OutputTranscription struct{ Text string }
			}
		}
		if err := json.Unmarshal(data, &m); err != nil {
			r.t.Fatalf("%s: %v", data, err)
		}
		said.WriteString(m.ServerContent.OutputTranscription.Text)
		all.Write(data)
		if m.ServerContent.TurnComplete {
			return said.String() + "\n" + all.String()
		}
	}
}

// closes waits for the end of the session, and checks its close code and reason.
func (r *raw) closes(code int, reason string) {
	r.t.Helper()
	for {
		_, _, err := r.ws.ReadMessage()
		if err == nil {
			continue
		}
		closed, ok := errors.AsType[*websocket.CloseError](err)
		if !ok || closed.Code != code || !strings.Contains(closed.Text, reason) {
			r.t.Errorf("%v, want %d %s", err, code, reason)
		}
		return
	}
}
