package signaling_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// lookUpConfig declares the only tool of the clients of [pcmDoor].
var lookUpConfig = json.RawMessage(
	`{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"look_up","parameters":{"type":"OBJECT"}}]}]}`,
)

// pcmClient is a client of [pcmDoor].
type pcmClient struct {
	*testkit.Client
	ear sync.Mutex
	pcm []int16 // the voice received so far
}

func dialPCM(t *testing.T, g *testkit.Gateway, first string) *pcmClient {
	t.Helper()
	c := &pcmClient{}
	c.Client = testkit.DialProtocol(t, strings.TrimSuffix(g.URL, "/")+"/pcm", nil, func(kind int, raw []byte) testkit.Message {
		if kind == websocket.BinaryMessage {
			c.ear.Lock()
			defer c.ear.Unlock()
			c.pcm = media.AppendSamples(c.pcm, raw)
			return testkit.Message{}
		}
		var m struct {
			Event string
			Is    json.RawMessage
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("not JSON: %s", raw)
		}
		return testkit.Message{Type: m.Event, Payload: m.Is}
	})
	c.send(first)
	return c
}

func (c *pcmClient) send(text string) { c.T.Helper(); c.SendTextFrame(text) }

func (c *pcmClient) say(pcm []int16) {
	c.T.Helper()
	for part := range slices.Chunk(pcm, pcmRate/50) {
		c.SendFrame(websocket.BinaryMessage, media.AppendBytes(nil, part))
	}
}

// expect waits for the next event of a kind, and decodes it.
func (c *pcmClient) expect(kind string, is any) {
	c.T.Helper()
	var e struct{ Body json.RawMessage }
	c.Client.AwaitEvent(kind).DecodePayload(c.T, &e)
	if err := json.Unmarshal(e.Body, is); err != nil {
		c.T.Fatalf("%s: %v", e.Body, err)
	}
}

func withPCM(d *testkit.Endpoints, _ *bridge.Options) {
	d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
		return []signaling.Endpoint{
			{Pattern: "/pcm", Socket: &pcmDoor{host: host}},
			{Pattern: "POST /offer", Handler: &offerDoor{host: host, rtc: api}},
		}
	})
}

// exampleHost returns a host whose model is the emulator. stop closes both.
func exampleHost() (host *bridge.Host, stop func()) {
	log := slog.New(slog.DiscardHandler)
	model := emulator.New(emulator.Options{Logger: log, Espeak: emulator.NoVoice})
	upstream := httptest.NewServer(model)
	host = bridge.NewHost(bridge.Options{Client: &api.Client{BaseURL: upstream.URL}, Backend: "emulator", Logger: log})
	return host, func() {
		if err := host.Shutdown(context.Background()); err != nil {
			panic(err)
		}
		model.Close()
		upstream.Close()
	}
}

// exampleConn is a client of pcmDoor for the example, which has no testing.T.
type exampleConn struct{ *websocket.Conn }

func exampleClient(url string) exampleConn {
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http"), nil)
	if err != nil {
		panic(err)
	}
	return exampleConn{conn}
}

func (c exampleConn) Say(text string) {
	if err := c.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		panic(err)
	}
}

// Answer waits for the complete text of an answer.
func (c exampleConn) Answer() string {
	for {
		var event struct {
			Event string
			Is    struct{ Body bridge.AssistantText }
		}
		kind, raw, err := c.ReadMessage()
		if err != nil {
			panic(err)
		}
		if kind == websocket.TextMessage && json.Unmarshal(raw, &event) == nil && event.Event == "AssistantText" && event.Is.Body.Final {
			return event.Is.Body.Text
		}
	}
}

// An endpoint of fewer than 95 lines, which starts no goroutine and does not use Gemini's terms, holds a
// conversation.
func TestADoorIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	door, _, _ := strings.Cut(string(source), "\n// A door of one's own")
	if lines := strings.Count(door, "\n"); err != nil || lines >= 95 {
		t.Errorf("the door has %d lines, %v", lines, err)
	}
	c := dialPCM(t, testkit.StartGateway(t, withPCM), `{"prompt":"Be brief.","voice":"Puck"}`)
	var complete bridge.SetupComplete
	c.expect("SetupComplete", &complete)
	if config := string(complete.EffectiveConfig); !strings.Contains(config, "Be brief.") || !strings.Contains(config, "Puck") {
		t.Errorf("the agent became %s", config)
	}
	c.say(testkit.MakeSentence(440, time.Second, pcmRate))
	var turn bridge.TurnComplete
	var text bridge.AssistantText
	c.expect("Speaking", &struct{}{})
	c.expect("TurnComplete", &turn)
	c.ear.Lock()
	voice := testkit.TrimSilence(c.pcm)
	c.ear.Unlock()
	if level := mediatest.ToneLevel(voice, pcmRate, 440); turn.Turn != 1 || len(voice) < pcmRate*9/10 || level < 0.5 {
		t.Errorf("turn %d is %d samples, share of 440 Hz %.2f", turn.Turn, len(voice), level)
	}
	c.say(testkit.MakeSentence(300, 6*time.Second, pcmRate))
	c.expect("Speaking", &struct{}{})
	c.send(`{"command":"interrupt"}`)
	var cut bridge.Interrupted
	c.expect("Interrupted", &cut)
	if cut.Turn != 2 || cut.By != bridge.ByClient || cut.Played > 3*time.Second {
		t.Errorf("interrupted: %+v", cut)
	}
	c.send(`{"command":"type","text":"/tool look_up {\"what\":\"tides\"}"}`)
	var call bridge.ToolCall
	c.expect("ToolCall", &call)
	if len(call.Calls) != 1 || call.Calls[0].Name != "look_up" || string(call.Calls[0].Args) != `{"what":"tides"}` {
		t.Fatalf("called %+v", call)
	}
	c.send(fmt.Sprintf(`{"command":"answer","id":%q,"result":{"high":"at nine"}}`, call.Calls[0].ID))
	for !text.Final || text.Turn <= cut.Turn {
		c.expect("AssistantText", &text)
	}
	if !strings.Contains(text.Text, "at nine") {
		t.Errorf("the answer is %q", text.Text)
	}
	c.expect("TurnComplete", &turn)
	c.send(`{"command":"sing"}`)
	c.AwaitMatch(0, "error", func(m testkit.Message) bool {
		return m.Type == "ErrorEvent" && strings.Contains(string(m.Payload), "sing")
	})
	c.say(testkit.MakeSentence(440, 2*time.Second, pcmRate))
	c.expect("Speaking", &struct{}{})
	c.send(`{"command":"hang up"}`)
	c.expect("AssistantText", &text)
	c.expect("TurnComplete", &turn)
	if code := c.AwaitCloseCode(); code != websocket.CloseNormalClosure {
		t.Errorf("the door closed with %d", code)
	}
}

// A WebRTC peer that begins with one HTTP request gets its answer in the response, and transports audio in both
// directions.
func TestADoorOfOneRequest(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, withPCM)
	p := testkit.NewPhone(t, &testkit.Client{Inbox: testkit.NewInbox(t)}, testkit.PhoneOptions{})
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(p.PC)
	if err := p.PC.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	<-gathered
	resp, err := http.Post(g.HTTP+"/offer", "application/sdp", strings.NewReader(p.PC.LocalDescription().SDP))
	if err != nil {
		t.Fatal(err)
	}
	sdp, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s", resp.Status, sdp)
	}
	if err := p.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(sdp)}); err != nil {
		t.Fatal(err)
	}
	p.AwaitConnected()
	p.Talk <- testkit.MakeSentence(440, time.Second, 48000)
	testkit.Eventually(p.T, "the answer", func() bool { return p.AwaitToneShare(440) > 0.5 })
	resp, err = http.Post(g.HTTP+"/offer", "application/sdp", strings.NewReader("v=0"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an offer that is none: %s", resp.Status)
	}
}

// A page of a listed origin may send requests, and others may not.
func TestRequestsOfOtherOrigins(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, withPCM, func(d *testkit.Endpoints, _ *bridge.Options) { d.Origins = []string{"https://app.example"} })
	for _, test := range []struct {
		method, origin, allows string
		status                 int
	}{
		{http.MethodPost, "https://app.example", "https://app.example", 400},
		{http.MethodPost, "https://evil.example", "", 403},
		{http.MethodPost, "", "", 400},
		{http.MethodGet, "https://evil.example", "", 200}, // the page, which it cannot read
		{http.MethodGet, "https://app.example", "https://app.example", 200},
		{http.MethodOptions, "https://app.example", "https://app.example", 204}, // a preflight
		{http.MethodOptions, "https://evil.example", "", 405},
	} {
		path := "/offer"
		if test.method == http.MethodGet {
			path = "/"
		}
		r, _ := http.NewRequest(test.method, g.HTTP+path, strings.NewReader("v=0"))
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if test.method == http.MethodOptions {
			r.Header.Set("Access-Control-Request-Method", "POST")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != test.status || got != test.allows {
			t.Errorf("%s from %q: %s, allows %q", test.method, test.origin, resp.Status, got)
		}
	}
}

// A close reason is never cut inside a character; otherwise the frame would be invalid and the reason lost.
func TestLongReasonsStayReadable(t *testing.T) {
	t.Parallel()
	for extra := range 4 {
		reason := strings.Repeat("x", extra) + strings.Repeat("ö€", 40)
		server := signaling.NewServer(
			signaling.Options{},
			signaling.Endpoint{Pattern: "/", Socket: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				o := signaling.SocketOptions{CloseReason: func(error) (int, string) { return signaling.ClosePolicy, reason }}
				signaling.ServeSocket(w, r, o, func(context.Context, *signaling.Socket) error { return nil })
			})},
		)
		_, err := readOnce(t, server)
		closed, ok := err.(*websocket.CloseError)
		if !ok || closed.Code != 1008 || !strings.HasPrefix(reason, closed.Text) || len(closed.Text) < 118 {
			t.Errorf("%v", err)
		}
	}
}

// readOnce reads one message of a server.
func readOnce(t *testing.T, h http.Handler) ([]byte, error) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, raw, err := conn.ReadMessage()
	return raw, err
}
