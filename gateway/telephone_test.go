package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// startWebhook starts a webhook that answers every request with answer. next waits for the next message whose type is kind;
// "" means messages without a type.
func startWebhook(t *testing.T, answer string) (url string, next func(kind string) webhookRequest) {
	t.Helper()
	var mu sync.Mutex
	got := map[string]chan webhookRequest{}
	of := func(kind string) chan webhookRequest {
		mu.Lock()
		defer mu.Unlock()
		if got[kind] == nil {
			got[kind] = make(chan webhookRequest, 64)
		}
		return got[kind]
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct{ Type string }
		if err := json.Unmarshal(body, &m); err != nil || !strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,") {
			t.Errorf("not signed, or no JSON: %s", body)
		}
		io.WriteString(w, answer)
		of(m.Type) <- webhookRequest{r.Header.Get("Webhook-Id"), string(body)}
	}))
	t.Cleanup(server.Close)
	return server.URL, func(kind string) webhookRequest {
		t.Helper()
		select {
		case one := <-of(kind):
			return one
		case <-time.After(patience):
			t.Fatalf("no %s came", kind)
			return webhookRequest{}
		}
	}
}

// webhookRequest is a request that the webhook has received: the ID of the message, and its body.
type webhookRequest struct{ id, body string }

// The attributes of a call reach the operator's remote tools, the session webhook and the call file.
func TestWhatComesWithACall(t *testing.T) {
	t.Parallel()
	sessions, told := startWebhook(t, "")
	orders, asked := startWebhook(t, "{}")
	folder, calls := t.TempDir(), t.TempDir()
	const agent = "---\nnumbers: [\"500\"]\ngreeting: '/tool order {}'\n---\nYou take orders."
	if err := os.WriteFile(filepath.Join(folder, "desk.md"), []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startGateway(t, []string{"serve"}, env(
		"VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_AGENTS", folder, "VOXGATE_CALLS", calls,
		"VOXGATE_SESSION_WEBHOOK", sessions, "VOXGATE_WEBHOOK_SECRET", "top-secret",
		"VOXGATE_TOOLS", writeTempFile(t, fmt.Sprintf(`{"webhooks":[{"name":"order","description":"Orders.","url":%q,"secret":"hush"}]}`,
			orders)),
		"VOXGATE_SIP", writeTempFile(t,
			`{"listen":[{"transport":"udp","address":"127.0.0.1:0"}],"trunks":[{"name":"line","from":["127.0.0.1"]}]}`),
	))
	p.ringTrunk(p.awaitLog(`transport=UDP at=(\S+)`), "500")
	tool := asked("").body
	p.stopGateway()
	files, err := filepath.Glob(filepath.Join(calls, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	file, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{
		"the tool": tool, "session.start": told("session.start").body, "session.end": told("session.end").body, "the file": string(file),
	} {
		var body struct {
			Session struct{ Attributes map[string]string }
		}
		err := json.Unmarshal([]byte(text), &body)
		got := body.Session.Attributes
		want := map[string]string{"x-order": "17", "history-info": "<sip:desk@192.0.2.1>;index=1", "call-id": "a-500", "trunk": "line"}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s has %s", where, text)
		}
	}
}

// Each change of an outgoing call is reported with its own message ID, and the report of the conversation's end names the
// call.
func TestReportsOfCalls(t *testing.T) {
	t.Parallel()
	url, told := startWebhook(t, "")
	trunk, sound := listenUDP(t), listenUDP(t)
	p, key := startDialler(t, trunk, "VOXGATE_SESSION_WEBHOOK", url, "VOXGATE_WEBHOOK_SECRET", "top-secret")
	made := make(chan string, 1)
	go func() {
		made <- p.requestWithKey(key, http.MethodPost, "/v1/calls", `{"to":"+49302","trunk":"line","machine":{}}`)
	}()
	awaitAndReply(t, trunk, "INVITE", "200 OK", fmt.Sprintf(callSDP, sound.LocalAddr().(*net.UDPAddr).Port))
	var call struct{ ID string }
	if text := <-made; json.Unmarshal([]byte(text), &call) != nil || call.ID == "" {
		t.Fatalf("no call: %s", text)
	}
	ids := map[string]bool{}
	states := make([]string, 3)
	for i := range states {
		one := told("call.status")
		var body struct {
			Call struct {
				ID, State, AnsweredBy string
				Change                int
				Seconds               float64
				SessionID             string
			}
		}
		if err := json.Unmarshal([]byte(one.body), &body); err != nil || body.Call.ID != call.ID || ids[one.id] {
			t.Errorf("%s: %s", one.id, one.body)
		}
		ids[one.id] = true
		states[body.Call.Change-1] = strings.TrimSpace(body.Call.State + " " + body.Call.AnsweredBy)
		if i == 1 { // the callee does not speak: hang up
			p.requestWithKey(key, http.MethodDelete, "/v1/calls/"+call.ID, "")
			awaitAndReply(t, trunk, "BYE", "200 OK", "")
		}
		if ended := body.Call.State == "ended"; ended != (body.Call.Seconds > 0) || ended && body.Call.SessionID == "" {
			t.Errorf("%s", one.body)
		}
	}
	if want := []string{"answered", "answered silence", "ended silence"}; !slices.Equal(states, want) {
		t.Errorf("reported %q, want %q", states, want)
	}
	if end := told("session.end").body; !strings.Contains(end, `"call-id":"`+call.ID+`"`) {
		t.Errorf("the conversation's end is %s", end)
	}
}
