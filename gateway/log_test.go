package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/signaling/access"
)

// TestTheLogHasNoSecrets holds a conversation with many kinds of secrets, and searches for them in the debug log.
func TestTheLogHasNoSecrets(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	secrets := map[string]string{
		"what was said": "planted-said", "what was typed": "planted-typed", "a tool's argument": "planted-argument",
		"a tool's result": "planted-result",
		"the API key":     "planted-api-key", "the webhook's secret": "planted-hush", "what the backend said": "planted-steer",
		"a bad token":                      "planted.bad.token",
		"what cannot be read of the model": "planted-garbage", "a query": "planted-query",
	}
	model := startGateway(t, []string{"emulate", "-addr", "127.0.0.1:0", "-scenario", `{"faults":[
		{"on":"speechEnd","times":1,"send":"{\"serverContent\":{\"inputTranscription\":{\"text\":\"planted-said\"}}}"},
		{"on":"text","nth":1,"times":1,"send":"{\"serverContent\":{\"planted-garbage\":"}]}`}, env())
	hook := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"found":"planted-result"}`) }),
	)
	defer hook.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	folder := t.TempDir()
	tools, keys := filepath.Join(folder, "tools.json"), filepath.Join(folder, "keys.json")
	if err := os.WriteFile(tools, fmt.Appendf(nil, `{"webhooks":[{"name":"find","description":"Finds.",
		"parameters":{"type":"object","properties":{"q":{"type":"string"}}},"url":%q,"secret":"planted-hush"}]}`, hook.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := access.NewKey(keys, "shop", []string{access.MayMint, access.MayWatch})
	if err != nil {
		t.Fatal(err)
	}
	secrets["the server key"] = key
	file, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	granted := strings.Replace(string(file), `"grant": {}`, `"grant": {"tools": ["find"]}`, 1)
	if err := os.WriteFile(keys, []byte(granted), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startGateway(t, []string{"serve", "--log", "json,debug"}, env(
		"VOXGATE_ADDR",
		"127.0.0.1:0",
		"VOXGATE_TOOLS",
		tools,
		"VOXGATE_KEYS",
		keys,
		"GEMINI_API_KEY",
		"planted-api-key",
		"GOOGLE_GEMINI_BASE_URL",
		model.url,
		"VOXGATE_SESSION_WEBHOOK",
		hook.URL,
		"VOXGATE_WEBHOOK_SECRET",
		"planted-hush",
	))

	mint := func() string {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, p.url+"/v1/tokens", strings.NewReader(`{"grant":{"tools":["find"]}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var made struct{ Token string }
		if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || made.Token == "" {
			t.Fatalf("no token: %s %v", answer.Status, err)
		}
		return made.Token
	}
	if got := p.askOnce(`{},"token":"planted.bad.token"`); !strings.Contains(got, "unauthorized") {
		t.Errorf("with a bad token: %.500s", got)
	}
	getURL(t, p.url+"/v1/sessions?key=planted-query")
	token := mint()
	secrets["a session token"] = token[strings.LastIndex(token, ".")+1:]
	c := p.openConversation(fmt.Sprintf(`{},"resumable":true,"token":%q`, token))
	c.AwaitEvent("SETUP_COMPLETE")
	of := func(pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(c.Text())
		if m == nil {
			t.Fatalf("no %s in %s", pattern, c.Text())
		}
		return m[1]
	}
	resume, id := of(`"resumeToken":"([^"]+)"`), of(`"sessionId":"([^"]+)"`)
	secrets["a resume token"] = resume

	watcher := testkit.DialWebSocketWith(t, p.webSocketURL("/v1/sessions/"+id+"/events"), http.Header{"Authorization": {"Bearer " + key}})
	watcher.AwaitEvent("SETUP_COMPLETE")
	watcher.Send("STEER", `{"prompt":"planted-steer"}`)
	watcher.AwaitEventWith("SETUP_COMPLETE", "planted-steer")

	c.SendText("planted-typed")
	c.AwaitEvent("TURN_COMPLETE")
	c.SendText(`/tool find {"q":"planted-argument"}`)
	c.AwaitEventWith("TOOL_STATUS", `"done"`)
	c.AwaitEventWith("CONTENT_MESSAGE", "planted-result")
	c.AwaitEvent("TURN_COMPLETE")
	for _, wrong := range []string{
		`{"type":"SEND_MESSAGE","payload":{"parts":"planted-typed"}}`, `{"type":"planted-typed"}`, `planted-typed`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"id":"planted-typed"}}`,
	} {
		c.SendTextFrame(wrong)
		c.AwaitEvent("GEMINI_ERROR")
	}

	speech := media.AppendBytes(nil, append(mediatest.SynthesizeSpeech(1500*time.Millisecond, 16000), make([]int16, 2*16000)...))
	secrets["sound"] = base64.StdEncoding.EncodeToString(speech[24000:24030])
	for chunk := range bytesOf(speech, 24000) { // a multiple of 3, so that base64 has no padding between the pieces
		c.SendTextFrame(
			`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"` + base64.StdEncoding.EncodeToString(
				chunk,
			) + `"}}}`,
		)
	}
	c.AwaitEventWith("CONTENT_MESSAGE", "planted-said")
	c.AwaitEvent("TURN_COMPLETE")

	ours, theirs := exchangeICEPasswords(c)
	secrets["our ice-pwd"], secrets["the client's ice-pwd"] = ours, theirs

	c.SendText("/drop")
	p.awaitLog("connection resumed")
	c.Conn.Close() // without a goodbye
	p.awaitLog("conversation parked")
	c = p.openConversation(fmt.Sprintf(`{},"resumable":true,"resumeToken":%q,"token":%q`, resume, mint()))
	c.AwaitEventWith("SETUP_COMPLETE", `"resumed":true`)
	secrets["the next resume token"] = of(`"resumeToken":"([^"]+)"`)
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	c.Conn.Close()
	watcher.AwaitEvent("GEMINI_DISCONNECTED")
	p.stopGateway()

	logged := p.logged()
	for what, secret := range secrets {
		if i := strings.Index(logged, secret); i >= 0 {
			t.Errorf("the log has %s: …%s…", what, logged[max(0, i-200):min(len(logged), i+100)])
		}
	}
	ofCall, before := 0, regexp.MustCompile(
		`^(listening|tools|refused|token minted|conversation refused|Gemini answers.*|Gemini does not.*|shutting down|`+
			`Authentication is required.*|stopping.*|REST|pion: .*|http: .*)$`,
	)
	for line := range strings.Lines(logged) {
		var fields struct{ Msg, Call string }
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		switch {
		case fields.Call == id:
			ofCall++
		case fields.Call == "" && !before.MatchString(fields.Msg):
			t.Errorf("a line of a call without its id: %s", line)
		}
	}
	if ofCall < 15 {
		t.Errorf("only %d lines of the call:\n%s", ofCall, logged)
	}
}

// bytesOf iterates over the pieces of a text, of size bytes each; the last may be shorter.
func bytesOf(all []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for rest := all; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if !yield(rest[:min(size, len(rest))]) {
				return
			}
		}
	}
}

// calls connects the conversation by WebRTC for a moment, and returns the ICE passwords of the gateway and of the caller.
func exchangeICEPasswords(c *testkit.Client) (ours, theirs string) {
	c.T.Helper()
	caller, answer := offerWebRTC(c, webrtc.NetworkTypeUDP4)
	defer caller.Close()
	if err := caller.SetAnswer(answer); err != nil {
		c.T.Fatal(err)
	}
	select {
	case <-caller.Connected():
	case <-time.After(patience):
		c.T.Fatal("WebRTC does not connect")
	}
	password := regexp.MustCompile(`a=ice-pwd:(\S+)`)
	return password.FindStringSubmatch(answer)[1], password.FindStringSubmatch(caller.PC.LocalDescription().SDP)[1]
}
