package client_test

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
	"voxgate/internal/testkit"
)

// sendWithID sends a message with an id.
func sendWithID(c *testkit.Client, id, kind, payload string) {
	c.T.Helper()
	c.SendTextFrame(`{"type":"` + kind + `","id":"` + id + `","payload":` + payload + `}`)
}

// entries waits for the next CONTEXT, and returns its entries.
func entries(c *testkit.Client) []contextEntry {
	c.T.Helper()
	var p struct{ Entries []contextEntry }
	c.AwaitEvent("CONTEXT").DecodePayload(c.T, &p)
	return p.Entries
}

type contextEntry struct {
	Role, Content       string
	Timestamp, PlayedMs int64
	Cut                 bool
}

// typedTexts returns the texts that the person has typed or said so far.
func typedTexts(c *testkit.Client) []string {
	c.T.Helper()
	c.Send("GET_CONTEXT", "")
	var texts []string
	for _, e := range entries(c) {
		if e.Role == "user" {
			texts = append(texts, strings.TrimSpace(e.Content))
		}
	}
	return texts
}

func TestContextIsTheConversation(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	before := time.Now()
	c.AskText("hello")
	c.Send("GET_CONTEXT", "")
	said := entries(c)
	if len(said) != 2 || said[0].Role != "user" || strings.TrimSpace(said[0].Content) != "hello" ||
		said[1].Role != "assistant" || said[1].Content != "You said: hello" || said[1].PlayedMs < 200 || said[1].Cut {
		t.Errorf("the context is %+v", said)
	}
	for _, e := range said {
		if at := time.UnixMilli(e.Timestamp); at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("%q began at %v", e.Content, at)
		}
	}
	c.Send("CLEAR_CONTEXT", "")
	if said := entries(c); len(said) != 0 {
		t.Errorf("after CLEAR_CONTEXT: %+v", said)
	}
	c.Send("SEND_MESSAGE", testkit.TextPayload("/history"))
	expectTranscript(c, "I remember 1 turns")
	c.AwaitEvent("TURN_COMPLETE")
	if got := typedTexts(c); !slices.Equal(got, []string{"/history"}) {
		t.Errorf("after that: %q", got)
	}
}

// TestEachIDIsActedOnOnce repeats messages that have arrived, like a client that does not know that. It does so within a
// connection, and after a resume, which reports the IDs that have arrived.
func TestEachIDIsActedOnOnce(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t)
	first := testkit.DialWebSocket(t, g.URL)
	sendWithID(first, "ignored", "CONNECT_GEMINI", `{"initialConfig":`+testkit.WeatherTool+`,"resumable":true}`)
	_, token := testkit.ParseSetup(t, first.AwaitEvent("SETUP_COMPLETE"), false)
	sendWithID(first, "m1", "SEND_MESSAGE", testkit.TextPayload("one"))
	sendWithID(first, "m1", "SEND_MESSAGE", testkit.TextPayload("one"))
	first.AwaitEvent("TURN_COMPLETE")
	sendWithID(first, "m2", "SEND_MESSAGE", testkit.TextPayload(`/tool get_weather {"location":"London"}`))
	id, _ := expectCall(first, "get_weather")
	answer := `{"toolResponse":{"functionResponses":[{"id":"` + id + `","name":"get_weather","response":{"a":"15C"}}]}}`
	sendWithID(first, "t1", "SEND_TOOL_RESPONSE", answer)
	sendWithID(first, "t1", "SEND_TOOL_RESPONSE", answer)
	expectTranscript(first, "15C")
	first.AwaitEvent("TURN_COMPLETE")
	sendWithID(first, "u1", "UPDATE_CONFIG", testkit.WeatherTool)
	sendWithID(first, "u1", "UPDATE_CONFIG", testkit.WeatherTool)
	first.AwaitEvent("SETUP_COMPLETE")
	first.Send("GET_CONTEXT", "")
	entries(first)
	for kind, want := range map[string]int{"SETUP_COMPLETE": 2, "TURN_COMPLETE": 3, "GEMINI_ERROR": 0} { // the call is a turn
		if n := first.CountMessages(kind); n != want {
			t.Errorf("%d times %s, want %d", n, kind, want)
		}
	}
	first.Conn.Close()
	<-first.Done

	second := testkit.DialWebSocket(t, g.URL)
	second.Send("CONNECT_GEMINI", `{"resumeToken":"`+token+`"}`)
	m := second.AwaitEvent("SETUP_COMPLETE")
	_, _ = testkit.ParseSetup(t, m, true)
	var p struct{ Received []string }
	if err := json.Unmarshal(m.Payload, &p); err != nil || !slices.Equal(p.Received, []string{"m1", "m2", "t1", "u1"}) {
		t.Errorf("received is %q, %v", p.Received, err)
	}
	sendWithID(second, "m1", "SEND_MESSAGE", testkit.TextPayload("one"))
	sendWithID(second, "m3", "SEND_MESSAGE", testkit.TextPayload("three"))
	expectTranscript(second, "three")
	second.AwaitEvent("TURN_COMPLETE")
	if got := typedTexts(second); !slices.Equal(got, []string{"one", `/tool get_weather {"location":"London"}`, "three"}) {
		t.Errorf("the model was asked %q", got)
	}
	if n := second.CountMessages("TURN_COMPLETE"); n != 1 {
		t.Errorf("%d answers", n)
	}
}

// TestWaitForGeminiIsReported cuts the connection to the model and delays the next dial.
func TestWaitForGeminiIsReported(t *testing.T) {
	t.Parallel()
	links := make(chan net.Conn, 8)
	slow := make(chan struct{})
	g := testkit.StartGateway(t, func(_ *testkit.Endpoints, o *bridge.Options) {
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
	c := testkit.OpenConversation(t, g, `{}`)
	c.At = 0
	var p struct{ State, Message string }
	for _, want := range []string{"setup", "live"} {
		if err := json.Unmarshal(c.AwaitEvent("SESSION_STATE").Payload, &p); err != nil || p.State != want {
			t.Errorf("the state is %q, want %q", p.State, want)
		}
	}
	checkStillWorks(t, c)
	(<-links).Close()
	for p.Message == "" {
		c.AwaitEvent("SESSION_STATE").DecodePayload(t, &p)
		if p.State != "resuming" && p.State != "reseeding" {
			t.Errorf("the state is %q", p.State)
		}
	}
	close(slow)
	for p.State != "live" || p.Message != "" {
		p.Message = ""
		c.AwaitEvent("SESSION_STATE").DecodePayload(t, &p)
	}
	checkStillWorks(t, c)
	if n := c.CountMessages("GEMINI_ERROR"); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// TestWhoSendsAsClientsDoIsNotHeldBack sends the messages that a busy client has queued in 10 s without a connection, and
// then those of two more seconds. The client is not throttled.
func TestWhoSendsAsClientsDoIsNotHeldBack(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	picture := encodePicture(t, 300<<10)
	second := func(pictures int) {
		for n := range 50 {
			c.SendAudio(testkit.MakeSilence(20*time.Millisecond, 48000), 48000)
			if n < pictures {
				c.Send("SEND_REALTIME_INPUT", `{"video":{"mimeType":"image/png","data":"`+picture+`"}}`)
			}
		}
	}
	for range 10 {
		second(1)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range 2 {
		<-tick.C
		second(1)
	}
	c.Send("GET_CONTEXT", "")
	c.AwaitEvent("CONTEXT")
	if n := c.CountWarnings("Too much comes"); n != 0 {
		t.Error("it was held back")
	}
}

// A client that continues to send after the close message, and does not answer it, is read only for a moment.
func TestNobodyOutstaysTheGoodbye(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t)
	conn, _, err := websocket.DefaultDialer.Dial(g.URL, nil)
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
