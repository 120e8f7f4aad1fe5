package rtvi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/compat/rtvi/rtvitest"
)

// TestRTVIConversation holds a conversation by voice and by text, and makes the model call a function of the client.
func TestRTVIConversation(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, rtvitest.Serve)
	c := rtvitest.Dial(t, g, "", `{"config":`+testkit.WeatherTool+`}`)
	ready := c.Messages()[0]
	if string(ready.Payload) != `{"about":{"library":"voxgate"},"version":"2.1.0"}` {
		t.Errorf("ready: %s", ready.Payload)
	}
	c.Phone.Talk <- testkit.MakeSentence(440, time.Second, 48000)
	c.AwaitEvent("user-started-speaking")
	c.AwaitEvent("user-stopped-speaking")
	if c.Phone.AwaitToneShare(440) < 0.5 {
		t.Error("the voice is another one")
	}
	c.AwaitEvent("bot-stopped-speaking")
	loud := 0
	for _, sample := range c.Phone.ReceivedVoice() {
		if sample > 1000 || sample < -1000 {
			loud++
		}
	}
	if loud < 24_000*7/10 {
		t.Errorf("bot-stopped-speaking came after %d loud samples of a second of voice", loud)
	}
	c.AwaitEvent("bot-llm-stopped")

	c.SendText(`/tool get_weather {"location": "Rome"}`)
	var call struct {
		Name      string `json:"function_name"`
		ID        string `json:"tool_call_id"`
		Arguments map[string]string
	}
	c.AwaitEvent("llm-function-call-in-progress").DecodePayload(t, &call)
	if call.Name != "get_weather" || call.Arguments["location"] != "Rome" {
		t.Errorf("%+v", call)
	}
	c.Send(`{"label":"rtvi-ai","type":"llm-function-call-result","id":"3","data":{"function_name":"get_weather","tool_call_id":"` + call.ID +
		`","arguments":{},"result":{"weather":"sunny"}}}`)
	if m := c.AwaitEvent("llm-function-call-stopped"); !strings.Contains(string(m.Payload), `"cancelled":false`) ||
		!strings.Contains(string(m.Payload), "sunny") {
		t.Errorf("%v", m)
	}
	expectOutput(c, "sunny")

	c.SendText("One. 2.5 is two! And three")
	expectOutput(c, "You said: One.|2.5 is two!|And three")
	for _, test := range []struct{ send, kind, has string }{
		{`{"label":"rtvi-ai","type":"client-message","id":"7","data":{"t":"interrupt"}}`, "server-response", `"success":true`},
		{`{"label":"rtvi-ai","type":"client-message","id":"7","data":{"t":"dance"}}`, "error-response", "not served"},
		{`{"label":"rtvi-ai","type":"ui-event","id":"7","data":{"event":"x"}}`, "error-response", "not served"},
		{`{"label":"rtvi-ai","type":"append-to-context","id":"7","data":{"role":"user","content":"Ada"}}`, "append-to-context-result", "ok"},
		{`{"label":"other","type":"send-text","id":"7","data":{}}`, "error-response", "label"},
		{`{"label":"rtvi-ai","type":"send-text","id":"7","data":[]}`, "error-response", "cannot be read"},
		{`{"label":"rtvi-ai","type":"send-text","id":"7","data":{}}`, "error-response", "must be a string"},
		{`{"label":"rtvi-ai","type":"send-text","id":"7","data":{"content":7}}`, "error-response", "must be a string"},
		{`{`, "error-response", "cannot be read"},
	} {
		c.Send(test.send)
		if m := c.AwaitEvent(test.kind); !strings.Contains(string(m.Payload), test.has) || test.send != "{" &&
			!strings.Contains(m.Connection, `"id":"7"`) {
			t.Errorf("%s: %s", test.send, m.Connection)
		}
	}
	c.Send(`{"label":"rtvi-ai","type":"dtmf","id":"8","data":{"buttons":["1","#"]}}`)
	expectOutput(c, "1#")
	c.Send(`{"type":"signalling","message":{"type":"trackStatus","receiver_index":0,"enabled":false}}`)
	c.Send(`{"label":"rtvi-ai","type":"disconnect-bot","id":"9","data":{}}`)
	if m := c.AwaitEvent("signalling"); m.Connection != `{"message":{"type":"peerLeft"},"type":"signalling"}` {
		t.Errorf("%s", m.Connection)
	}
	testkit.Eventually(t, "the end", func() bool { return len(g.Host.Sessions()) == 0 })
	if status, text := rtvitest.New(t).PostOffer(g, "/api/offer", "", fmt.Sprintf(`,"pc_id":%q`, c.ID)); status != http.StatusNotFound {
		t.Errorf("an offer to what has ended: %d %s", status, text)
	}
}

// expectOutput waits until these sentences, separated by bars, were played.
func expectOutput(c *rtvitest.Client, want string) {
	c.T.Helper()
	said := ""
	ok := testkit.PollUntil(testkit.Patience, func() bool {
		var texts []string
		for _, m := range c.Messages() {
			var b struct {
				Text   string
				Status string `json:"spoken_status"`
			}
			if m.Type == "bot-output" && json.Unmarshal(m.Payload, &b) == nil && b.Status == "completed" {
				texts = append(texts, b.Text)
			}
		}
		said = strings.Join(texts, "|")
		return strings.Contains(said, want)
	})
	if !ok {
		c.T.Fatalf("said %q, not %q", said, want)
	}
}

// A client that has lost its peer continues its conversation with another one, without a token: the id of its call is
// a secret.
func TestClientReconnects(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, rtvitest.Serve)
	c := rtvitest.Dial(t, l.Gateway, l.MintToken(`{"expiresIn":60}`), "")
	l.AdvanceClock(2 * time.Minute)
	session := l.Host.Sessions()[0].ID
	patch := func(id, candidates string) int {
		body := fmt.Sprintf(`{"pc_id":%q,"candidates":[%s]}`, id, candidates)
		r, _ := http.NewRequest(http.MethodPatch, l.HTTP+"/api/offer", strings.NewReader(body))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	const one = `{"candidate":"candidate:1 1 udp 1 127.0.0.1 9 typ host","sdp_mid":"0","sdp_mline_index":0}`
	if got := patch(c.ID, one+`,{"candidate":""}`); got != http.StatusOK {
		t.Errorf("candidates: %d", got)
	}
	if got := patch(c.ID, `{"candidate":"nonsense"}`); got != http.StatusBadRequest {
		t.Errorf("bad candidates: %d", got)
	}
	if got := patch("none", ""); got != http.StatusNotFound {
		t.Errorf("another's candidates: %d", got)
	}
	c.Phone.DropNetwork()
	next := rtvitest.New(t)
	status, text := next.PostOffer(l.Gateway, "/sessions/any/api/offer", "", fmt.Sprintf(`,"restart_pc":true,"pc_id":%q`, c.ID))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if next.ID != c.ID || l.Host.Sessions()[0].ID != session {
		t.Errorf("call %s, not %s", next.ID, c.ID)
	}
	next.SendText("Are you there?")
	expectOutput(next, "You said: Are you there?")
	testkit.Eventually(t, "voice", func() bool { return len(testkit.TrimSilence(next.Phone.ReceivedVoice())) > 4800 })
	next.Phone.HangUp()
	testkit.Eventually(t, "the end", func() bool { return len(l.Host.Sessions()) == 0 })
}

// Rejections have the format that Pipecat's clients read.
func TestRTVIRefusals(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, rtvitest.Serve)
	token := l.MintToken(`{"once":false}`)
	sdp := func(offer string) string {
		return string(testkit.Must(json.Marshal(map[string]string{"sdp": offer, "type": "offer"})))
	}
	good := testkit.BuildOffer(t)
	for _, test := range []struct {
		path, token, body string
		status            int
	}{
		{"/start", "", `{}`, http.StatusUnauthorized},
		{"/start", token, `{"enableDefaultIceServers":true,"body":{"config":{}}}`, http.StatusOK},
		{"/start", token, `{"body":"` + strings.Repeat("x", 5000) + `"}`, http.StatusBadRequest},
		{"/api/offer", "", sdp(good), http.StatusUnauthorized},
		{"/api/offer", "", `{"pc_id":"none"}`, http.StatusUnauthorized},
		{"/api/offer", token, `{`, http.StatusBadRequest},
		{"/api/offer", token, sdp("v=0"), http.StatusBadRequest},
		{"/api/offer", token, sdp(strings.ReplaceAll(good, "a=sendrecv", "a=inactive")), http.StatusBadRequest},
		{"/api/offer", token, `{"sdp":"` + strings.Repeat("x", 100_000) + `"}`, http.StatusRequestEntityTooLarge},
		{"/api/offer", token, sdp(good)[:len(sdp(good))-1] + `,"requestData":7}`, http.StatusBadRequest},
		{"/api/offer", token, sdp(good)[:len(sdp(good))-1] + `,"requestData":{"config":{"generationConfig":7}}}`, http.StatusBadRequest},
		{"/sessions/a.~/api/offer", token, sdp(good), http.StatusNotFound},
	} {
		resp := testkit.PostAs(t, l.HTTP+test.path, test.token, "application/json", strings.NewReader(test.body))
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != test.status || test.status != http.StatusOK && !strings.Contains(string(text), `"detail":"`) {
			t.Errorf("%s %.80s: %s %s", test.path, test.body, resp.Status, text)
		}
	}
}

// An offer proxied by another gateway is for an existing call: if that has ended, no call begins, and no token is
// consumed.
func TestProxiedOfferForEndedCall(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, rtvitest.Serve)
	token := l.MintToken(`{"once":true}`)
	body := string(testkit.Must(json.Marshal(map[string]string{"sdp": testkit.BuildOffer(t), "type": "offer", "pc_id": "gone_other"})))
	r, _ := http.NewRequest(http.MethodPost, l.HTTP+"/api/offer", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set(signaling.ProxiedHeader, "by another gateway")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound || len(l.Host.Sessions()) != 0 {
		t.Errorf("%s, %d conversations", resp.Status, len(l.Host.Sessions()))
	}
	if status, text := rtvitest.New(t).PostOffer(l.Gateway, "/api/offer", token, ""); status != http.StatusOK {
		t.Errorf("the token after that: %d %s", status, text)
	}
}

// Data that a client sends to /start is available at its offer.
func TestStartCreatesSession(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, rtvitest.Serve)
	resp := testkit.PostAs(t, g.HTTP+"/start", "", "application/json", strings.NewReader(`{"body":{"config":`+testkit.WeatherTool+`}}`))
	var started struct {
		SessionID string
		IceConfig struct{ IceServers []any }
	}
	if err := json.NewDecoder(resp.Body).Decode(&started); err != nil || started.IceConfig.IceServers == nil {
		t.Fatalf("%+v: %v", started, err)
	}
	c := rtvitest.New(t)
	if status, text := c.PostOffer(g, "/sessions/"+started.SessionID+"/api/offer", "", `,"request_data":{}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	c.Send(`{"label":"rtvi-ai","type":"client-ready","id":"1","data":{}}`)
	c.SendText(`/tool get_weather {}`)
	c.AwaitEvent("llm-function-call-in-progress")
	if err := g.Server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	c.AwaitEvent("signalling")
	testkit.Eventually(t, "the end of the peer", func() bool { return c.Phone.PC.ConnectionState() != webrtc.PeerConnectionStateConnected })
}
