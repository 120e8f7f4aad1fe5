package signaling_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
)

// A gateway that ends the visits of its doors tells each client that talks why it goes, in the door's words and by the close code.
func TestTheGoodbyeIsWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		door option
		call func(*testing.T, *gateway) *client
		last string // message; empty: the door has none for this
	}{
		"web": {withWHIP, func(t *testing.T, g *gateway) *client { return connect(t, g, `{}`) }, "GEMINI_DISCONNECTED"},
		"VOX": {withVOX(t, nil, nil), func(t *testing.T, g *gateway) *client {
			c := dialVOX(t, g, nil)
			c.start("")
			return c.client
		}, "session_end"},
		"OpenAI": {withOpenAI, func(t *testing.T, g *gateway) *client {
			c := dialRealtime(t, g, "?model=gpt-realtime", nil)
			c.client.expect("session.created")
			return c.client
		}, ""},
		"Live": {withLive(t, emulator.Scenario{}, nil), func(t *testing.T, g *gateway) *client {
			c := dialLive(t, g, "", nil)
			c.raw(websocket.TextMessage, []byte(`{"setup":{}}`))
			c.expect("setupComplete")
			return c
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, test.door)
			c := test.call(t, g)
			if err := g.server.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if code := c.closeCode(); code != websocket.CloseGoingAway {
				t.Errorf("closed with %d", code)
			}
			if test.last != "" && c.count(test.last) != 1 {
				t.Errorf("told %v", c.all())
			}
		})
	}
}

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
