package backend_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/backend"
	"voxgate/signaling/rtc"
)

func watcherKey(l *testkit.LockedGateway) string {
	l.T.Helper()
	key, err := access.NewKey(l.File, "support", []string{access.MayWatchAll})
	if err != nil {
		l.T.Fatal(err)
	}
	l.EditKeys(func(map[string]any) {})
	return key
}

// A backend watches a conversation, changes it, answers its tools and ends it.
func TestTheBackendHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	key := watcherKey(l)
	c := testkit.DialWebSocket(t, l.URL)
	id, _ := testkit.EnterConversation(
		t,
		c,
		testkit.ConnectPayload(l.MintToken(`{"identity":"ada","grant":{"agent":{"prompt":"You sell shoes."}}}`), `,"resumable":true`),
	)
	c.AskText("The first thing.")

	if status, list := l.SendRequest("GET", "/v1/sessions", key); status != 200 || !strings.Contains(list, id) ||
		!strings.Contains(list, `"identity":"ada"`) || !strings.Contains(list, `"door":"web"`) || !strings.Contains(list, `"turns":1`) ||
		!strings.Contains(list, `"newest":{"role":"assistant","text":"You said: The first thing."}`) {
		t.Errorf("%d %s", status, list)
	}
	w := testkit.DialWebSocketWith(
		t, strings.TrimSuffix(l.URL, "/")+"/v1/sessions/"+id+"/events", http.Header{"Authorization": {"Bearer " + key}},
	)
	if m := w.AwaitEvent("SETUP_COMPLETE"); strings.Contains(string(m.Payload), "resumeToken") || !strings.Contains(string(m.Payload), id) {
		t.Errorf("the backend got %s", m.Payload)
	}
	if m := w.AwaitEvent("CONTEXT"); !strings.Contains(string(m.Payload), "The first thing.") {
		t.Errorf("%v", m)
	}

	c.AskText("The second thing.")
	w.AwaitMatch(0, "what the person typed", func(m testkit.Message) bool {
		return m.Type == "TRANSCRIPT" && strings.Contains(string(m.Payload), `"user","turn":2,"text":"The second thing.","final":true`)
	})
	m, _ := w.AwaitMatch(0, "what the model said", func(m testkit.Message) bool {
		return m.Type == "TRANSCRIPT" && strings.Contains(string(m.Payload), `"assistant"`) && strings.Contains(string(m.Payload), `"final":true`)
	})
	if !strings.Contains(string(m.Payload), "The second thing.") {
		t.Errorf("%v", m)
	}

	w.Send("STEER", `{"prompt":"You sell hats.","functions":[{"name":"find_hat"}]}`)
	for _, both := range []*testkit.Client{w, c} {
		if m := both.AwaitEvent("SETUP_COMPLETE"); !strings.Contains(string(m.Payload), "You sell hats.") ||
			!strings.Contains(string(m.Payload), "find_hat") {
			t.Errorf("%v", m)
		}
	}
	c.Send("UPDATE_CONFIG", `{"systemInstruction":"You do homework."}`)
	if m := c.AwaitEvent("SETUP_COMPLETE"); !strings.Contains(string(m.Payload), "You sell hats.") ||
		!strings.Contains(string(m.Payload), "find_hat") {
		t.Errorf("the client has undone it: %s", m.Payload)
	}

	c.Send("SEND_MESSAGE", testkit.TextPayload(`/tool find_hat {"size":58}`))
	var call struct {
		ToolCall struct{ FunctionCalls []struct{ ID, Name string } }
	}
	if err := json.Unmarshal(w.AwaitEvent("TOOL_CALL").Payload, &call); err != nil || len(call.ToolCall.FunctionCalls) != 1 {
		t.Fatal(err, call)
	}
	for _, forged := range []string{`"name":"find_hat"`, `"id":"` + call.ToolCall.FunctionCalls[0].ID + `"`} {
		c.Send("SEND_TOOL_RESPONSE", `{"toolResponse":{"functionResponses":[{`+forged+`,"response":{"hat":"a crown"}}]}}`)
		if m := c.AwaitEvent("GEMINI_ERROR"); !strings.Contains(string(m.Payload), "invalid_state") {
			t.Errorf("the client has answered by %s: %v", forged, m)
		}
	}
	w.Send(
		"SEND_TOOL_RESPONSE",
		`{"toolResponse":{"functionResponses":[{"id":"`+call.ToolCall.FunctionCalls[0].ID+`","name":"find_hat","response":{"hat":"a bowler"}}]}}`,
	)
	w.AwaitMatch(0, "the tool's answer, spoken", func(m testkit.Message) bool {
		return m.Type == "TRANSCRIPT" && strings.Contains(string(m.Payload), `"final":true`) && strings.Contains(string(m.Payload), "bowler")
	})
	if n := c.CountMessages("TOOL_CALL"); n != 0 {
		t.Errorf("the client was asked %d times", n)
	}

	w.Send("PAUSE_RECORDING", `{"paused":true}`)
	if m := w.AwaitEvent("GEMINI_ERROR"); !strings.Contains(string(m.Payload), "not recorded") {
		t.Errorf("%v", m)
	}
	w.Send("RESPOND", `{"instruction":"Offer a discount."}`)
	c.AwaitEvent("TURN_COMPLETE")
	for wrong, field := range map[string]string{
		`{"type":"SING"}`:                                    "type",
		`{"type":"STEER","payload":{"prompt":5}}`:            "payload.prompt",
		`{"type":"STEER","payload":{"functions":5}}`:         "payload.functions",
		`{"type":"STEER","payload":{"functions":[{"x":1}]}}`: "payload.tools[0].functionDeclarations[0].name",
		`{"type":"RESPOND"}`:                                 "payload",
	} {
		w.SendTextFrame(wrong)
		if m := w.AwaitEvent("GEMINI_ERROR"); !strings.Contains(string(m.Payload), `"field":"`+field) {
			t.Errorf("%s: %v", wrong, m)
		}
	}

	if status, _ := l.SendRequest("DELETE", "/v1/sessions/"+id, key); status != http.StatusNoContent {
		t.Errorf("DELETE: %d", status)
	}
	for _, both := range []*testkit.Client{c, w} {
		both.AwaitEvent("GEMINI_DISCONNECTED")
		if code := both.AwaitCloseCode(); code != websocket.CloseNormalClosure {
			t.Errorf("closed with %d", code)
		}
	}
	if status, _ := l.SendRequest("DELETE", "/v1/sessions/"+id, key); status != http.StatusNotFound {
		t.Errorf("DELETE again: %d", status)
	}
}

// Watching requires a key.
func TestWhoMayWatch(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil)
	c := testkit.DialWebSocket(t, l.URL)
	id, _ := testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{}`), ""))
	for _, request := range []string{"GET /v1/sessions", "DELETE /v1/sessions/" + id} {
		method, path, _ := strings.Cut(request, " ")
		for key, want := range map[string]int{"": 401, "vgk_x": 401, l.Key: 403, l.MintToken(`{}`): 401} {
			if status, body := l.SendRequest(method, path, key); status != want {
				t.Errorf("%s: %d %s, want %d", request, status, body, want)
			}
		}
	}
	_, resp, err := websocket.DefaultDialer.Dial(strings.TrimSuffix(l.URL, "/")+"/v1/sessions/"+id+"/events", nil)
	if err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v, %v", resp, err)
	}
	c.AskText("Still there?")
}

// TestNewWords: the words fit on one line of a list, and a shortened text begins with a whole word.
func TestNewWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		" \n":                                  "",
		" Until\ttwo\no'clock. ":               "Until two o'clock.",
		strings.Repeat("ä", 120):               strings.Repeat("ä", 120),
		strings.Repeat("ä", 121):               "…" + strings.Repeat("ä", 119),
		"Well " + strings.Repeat("so ", 50):    "…" + strings.TrimSpace(strings.Repeat("so ", 39)),
		strings.Repeat("much ", 30) + "later.": "…" + strings.Repeat("much ", 22) + "later.",
	} {
		got := backend.NewWords("user", text)
		if got == nil {
			got = &backend.Words{}
		}
		if got.Text != want || len([]rune(got.Text)) > 120 {
			t.Errorf("%q: %q, want %q", text, got.Text, want)
		}
	}
}

// FuzzSideband sends arbitrary messages over the backend's connection to a conversation, which continues unless it
// was asked to end.
func FuzzSideband(f *testing.F) {
	for _, seed := range []string{
		`{"type":"STEER","payload":{"prompt":"Be brief.","voice":"Puck","language":"de-DE","model":"gemini-3.8-live"}}`,
		`{"type":"STEER","payload":{"functions":[{"name":"f","parameters":{"type":"object"}}]}}`,
		`{"type":"STEER","payload":{"functions":{}}}`, `{"type":"STEER"}`,
		`{"type":"RESPOND","payload":{"instruction":"Say hello."}}`, `{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"x"}]}}`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{}}]}}}`, `{"type":"INTERRUPT"}`,
		`{"type":"DISCONNECT_GEMINI"}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	g := testkit.StartGateway(f, func(d *testkit.Endpoints, _ *bridge.Options) {
		d.AddEndpoints(func(host *bridge.Host, _ *rtc.API) []signaling.Endpoint {
			return (&backend.Server{Host: host, Logger: slog.New(slog.DiscardHandler)}).Endpoints()
		})
	})
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer g.Logs.ClearLog()
		caller := testkit.OpenConversation(t, g, `{}`)
		watcher := testkit.DialWebSocket(t, strings.TrimSuffix(g.URL, "/")+"/v1/sessions/"+g.Host.Sessions()[0].ID+"/events")
		watcher.SendFrame(websocket.TextMessage, raw)
		watcher.Mu.Lock()
		_ = watcher.Conn.WriteMessage(websocket.TextMessage, testkit.EncodeMessage("PING", "")) // unless the message has ended the conversation
		watcher.Mu.Unlock()
		watcher.AwaitMatch(0, "answer", func(m testkit.Message) bool { return m.Type == "PONG" || m.Type == "GEMINI_DISCONNECTED" })
		testkit.CheckNoUnknownError(t, watcher)
		testkit.DropConnection(watcher)
		testkit.DropConnection(caller)
		testkit.Eventually(t, "end of the conversation", func() bool { return len(g.Host.Sessions()) == 0 })
	})
}

// A supervisor listens to both sides of a conversation from a moment to its end. That requires a key with the
// privilege.
func TestASupervisorListens(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, func(d *testkit.Endpoints, _ *bridge.Options) {
		d.AddEndpoints(func(host *bridge.Host, _ *rtc.API) []signaling.Endpoint {
			doors := (&backend.Server{Host: host, Logger: slog.New(slog.DiscardHandler)}).Endpoints()
			return []signaling.Endpoint{{Pattern: "GET /late/{id}", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now()) // the server's own deadline for an answer has passed
				doors[3].Handler.ServeHTTP(w, r)
			})}}
		})
	})
	deaf := watcherKey(l)
	key, err := access.NewKey(l.File, "supervisor", []string{access.MayWatchAll, access.MayListen})
	if err != nil {
		t.Fatal(err)
	}
	l.EditKeys(func(map[string]any) {})
	c := testkit.DialWebSocket(t, l.URL)
	id, _ := testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{}`), `,"resumable":true`))
	path := "/v1/sessions/" + id + "/audio"
	if status, text := l.SendRequest("GET", path, deaf); status != 403 || !strings.Contains(text, `listen`) {
		t.Errorf("without listen: %d %s", status, text)
	}
	if status, _ := l.SendRequest("GET", "/v1/sessions/unknown/audio", key); status != 404 {
		t.Errorf("nothing to hear: %d", status)
	}
	listen := func(path string) io.ReadCloser {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http"+strings.TrimSuffix(strings.TrimPrefix(l.URL, "ws"), "/")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "audio/ogg" {
			t.Fatalf("%v %v", answer, err)
		}
		return answer.Body
	}
	first, second := listen(path), listen("/late/"+id)
	for range 2 {
		listen(path)
	}
	if status, text := l.SendRequest("GET", path, key); status != 429 && status != 503 {
		t.Errorf("a fifth listener: %d %s", status, text)
	}
	first.Close()
	c.AskText("A sentence that takes a while to say.")
	if status, _ := l.SendRequest("DELETE", "/v1/sessions/"+id+"?now=1", key); status != 204 {
		t.Errorf("%d", status)
	}
	heard, err := io.ReadAll(second) // until the conversation has ended
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "heard.ogg")
	if err := os.WriteFile(file, heard, 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := exec.CommandContext(t.Context(), "opusdec", "--quiet", "--rate", "8000", file, "-").Output() // Debian's opus-tools
	if err != nil {
		t.Fatal(err)
	}
	loudest := 0.0
	for block := range slices.Chunk(media.AppendSamples(nil, raw), 320) { // of both channels
		loudest = max(loudest, media.RMS(block))
	}
	if loudest < 500 {
		t.Errorf("in %d bytes the loudest of what was heard is %.0f", len(raw), loudest)
	}
}
