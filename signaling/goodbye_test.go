package signaling_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// A client that goes on talking after the goodbye, and does not answer it, is not listened to for more than a moment.
func TestNobodyOutstaysTheGoodbye(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	conn, _, err := websocket.DefaultDialer.Dial(g.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(text string) error { return conn.WriteMessage(websocket.TextMessage, []byte(text)) }
	if err := send(`{"type":"CONNECT_GEMINI","payload":{"initialConfig":{}}}`); err != nil {
		t.Fatal(err)
	}
	for {
		_, raw, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "SETUP_COMPLETE") {
			break
		}
	}
	if err := send(`{"type":"DISCONNECT_GEMINI"}`); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); send(`{"type":"PING"}`) == nil; <-tick.C {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it is still listened to")
		}
	}
}
