package signaling_test

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
)

// sendID sends a message with an id.
func (c *client) sendID(id, kind, payload string) {
	c.t.Helper()
	c.raw(websocket.TextMessage, []byte(`{"type":"`+kind+`","id":"`+id+`","payload":`+payload+`}`))
}

// entries waits for the next CONTEXT.
func (c *client) entries() []contextEntry {
	c.t.Helper()
	var p struct{ Entries []contextEntry }
	c.expect("CONTEXT").read(c.t, &p)
	return p.Entries
}

type contextEntry struct {
	Role, Content       string
	Timestamp, PlayedMs int64
	Cut                 bool
}

// typedSoFar asks what the person has said.
func (c *client) typedSoFar() []string {
	c.t.Helper()
	c.send("GET_CONTEXT", "")
	var texts []string
	for _, e := range c.entries() {
		if e.Role == "user" {
			texts = append(texts, strings.TrimSpace(e.Content))
		}
	}
	return texts
}

func TestContextIsTheConversation(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	before := time.Now()
	c.ask("hello")
	c.send("GET_CONTEXT", "")
	said := c.entries()
	if len(said) != 2 || said[0].Role != "user" || strings.TrimSpace(said[0].Content) != "hello" ||
		said[1].Role != "assistant" || said[1].Content != "You said: hello" || said[1].PlayedMs < 200 || said[1].Cut {
		t.Errorf("the context is %+v", said)
	}
	for _, e := range said {
		if at := time.UnixMilli(e.Timestamp); at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("%q began at %v", e.Content, at)
		}
	}
	c.send("CLEAR_CONTEXT", "")
	if said := c.entries(); len(said) != 0 {
		t.Errorf("after CLEAR_CONTEXT: %+v", said)
	}
	c.send("SEND_MESSAGE", typed("/history"))
	c.expectTranscript("I remember 1 turns")
	c.expect("TURN_COMPLETE")
	if got := c.typedSoFar(); !slices.Equal(got, []string{"/history"}) {
		t.Errorf("after that: %q", got)
	}
}

// TestEachIDIsActedOnOnce sends again what arrived, as a client does that cannot know, within a connection and after a
// resume, which says what arrived.
func TestEachIDIsActedOnOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	first := dial(t, g.url)
	first.sendID("ignored", "CONNECT_GEMINI", `{"initialConfig":`+weatherTool+`,"resumable":true}`)
	_, token := setup(t, first.expect("SETUP_COMPLETE"), false)
	first.sendID("m1", "SEND_MESSAGE", typed("one"))
	first.sendID("m1", "SEND_MESSAGE", typed("one"))
	first.expect("TURN_COMPLETE")
	first.sendID("m2", "SEND_MESSAGE", typed(`/tool get_weather {"location":"London"}`))
	id, _ := first.expectCall("get_weather")
	answer := `{"toolResponse":{"functionResponses":[{"id":"` + id + `","name":"get_weather","response":{"a":"15C"}}]}}`
	first.sendID("t1", "SEND_TOOL_RESPONSE", answer)
	first.sendID("t1", "SEND_TOOL_RESPONSE", answer)
	first.expectTranscript("15C")
	first.expect("TURN_COMPLETE")
	first.sendID("u1", "UPDATE_CONFIG", weatherTool)
	first.sendID("u1", "UPDATE_CONFIG", weatherTool)
	first.expect("SETUP_COMPLETE")
	first.send("GET_CONTEXT", "")
	first.entries()
	for kind, want := range map[string]int{"SETUP_COMPLETE": 2, "TURN_COMPLETE": 3, "GEMINI_ERROR": 0} { // the call is a turn
		if n := first.count(kind); n != want {
			t.Errorf("%d times %s, want %d", n, kind, want)
		}
	}
	first.conn.Close()
	<-first.done

	second := dial(t, g.url)
	second.send("CONNECT_GEMINI", `{"resumeToken":"`+token+`"}`)
	m := second.expect("SETUP_COMPLETE")
	_, _ = setup(t, m, true)
	var p struct{ Received []string }
	if err := json.Unmarshal(m.Payload, &p); err != nil || !slices.Equal(p.Received, []string{"m1", "m2", "t1", "u1"}) {
		t.Errorf("received is %q, %v", p.Received, err)
	}
	second.sendID("m1", "SEND_MESSAGE", typed("one"))
	second.sendID("m3", "SEND_MESSAGE", typed("three"))
	second.expectTranscript("three")
	second.expect("TURN_COMPLETE")
	if got := second.typedSoFar(); !slices.Equal(got, []string{"one", `/tool get_weather {"location":"London"}`, "three"}) {
		t.Errorf("the model was asked %q", got)
	}
	if n := second.count("TURN_COMPLETE"); n != 1 {
		t.Errorf("%d answers", n)
	}
}

// TestAWaitForGeminiIsTold cuts the connection to the model and lets the next dial take its time.
func TestAWaitForGeminiIsTold(t *testing.T) {
	t.Parallel()
	links := make(chan net.Conn, 8)
	slow := make(chan struct{})
	g := newGateway(t, func(_ *doors, o *bridge.Options) {
		var dials atomic.Int32
		o.Client.NetDial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				select {
				case <-slow:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				links <- conn
			}
			return conn, err
		}
	})
	c := connect(t, g, `{}`)
	c.at = 0
	var p struct{ State, Message string }
	for _, want := range []string{"setup", "live"} {
		if err := json.Unmarshal(c.expect("SESSION_STATE").Payload, &p); err != nil || p.State != want {
			t.Errorf("the state is %q, want %q", p.State, want)
		}
	}
	stillWorks(t, c)
	(<-links).Close()
	for p.Message == "" {
		c.expect("SESSION_STATE").read(t, &p)
		if p.State != "resuming" && p.State != "reseeding" {
			t.Errorf("the state is %q", p.State)
		}
	}
	close(slow)
	for p.State != "live" || p.Message != "" {
		p.Message = ""
		c.expect("SESSION_STATE").read(t, &p)
	}
	stillWorks(t, c)
	if n := c.count("GEMINI_ERROR"); n != 0 {
		t.Errorf("%d errors", n)
	}
}
