package signaling_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/signaling/access"
)

// ask sends a request with a key.
func (l *locked) ask(method, path, key string) (status int, body string) {
	l.t.Helper()
	r, err := http.NewRequest(method, l.http+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	text := new(strings.Builder)
	if err := resp.Write(text); err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, text.String()
}

func (l *locked) watcherKey() string {
	l.t.Helper()
	key, err := access.NewKey(l.file, "support", []string{access.MayWatchAll})
	if err != nil {
		l.t.Fatal(err)
	}
	l.edit(func(map[string]any) {})
	return key
}

// A backend watches a conversation, changes it, answers its tools and ends it.
func TestTheBackendHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil)
	key := l.watcherKey()
	c := dial(t, l.url)
	id, _ := enters(t, c, hello(l.mint(`{"identity":"ada","grant":{"agent":{"prompt":"You sell shoes."}}}`), `,"resumable":true`))
	c.ask("The first thing.")

	if status, list := l.ask("GET", "/v1/sessions", key); status != 200 || !strings.Contains(list, id) || !strings.Contains(list, `"identity":"ada"`) ||
		!strings.Contains(list, `"door":"web"`) || !strings.Contains(list, `"turns":1`) {
		t.Errorf("%d %s", status, list)
	}
	w := dialAs(t, strings.TrimSuffix(l.url, "/")+"/v1/sessions/"+id+"/events", http.Header{"Authorization": {"Bearer " + key}})
	if m := w.expect("SETUP_COMPLETE"); strings.Contains(string(m.Payload), "resumeToken") || !strings.Contains(string(m.Payload), id) {
		t.Errorf("the backend got %s", m.Payload)
	}
	if m := w.expect("CONTEXT"); !strings.Contains(string(m.Payload), "The first thing.") {
		t.Errorf("%v", m)
	}

	c.ask("The second thing.")
	m, _ := w.wait(0, "what the model said", func(m message) bool {
		return m.Type == "TRANSCRIPT" && strings.Contains(string(m.Payload), `"assistant"`) && strings.Contains(string(m.Payload), `"final":true`)
	})
	if !strings.Contains(string(m.Payload), "The second thing.") {
		t.Errorf("%v", m)
	}

	w.send("STEER", `{"prompt":"You sell hats.","functions":[{"name":"find_hat"}]}`)
	for _, both := range []*client{w, c} {
		if m := both.expect("SETUP_COMPLETE"); !strings.Contains(string(m.Payload), "You sell hats.") || !strings.Contains(string(m.Payload), "find_hat") {
			t.Errorf("%v", m)
		}
	}
	c.send("UPDATE_CONFIG", `{"systemInstruction":"You do homework."}`)
	if m := c.expect("SETUP_COMPLETE"); !strings.Contains(string(m.Payload), "You sell hats.") || !strings.Contains(string(m.Payload), "find_hat") {
		t.Errorf("the client has undone it: %s", m.Payload)
	}

	c.send("SEND_MESSAGE", typed(`/tool find_hat {"size":58}`))
	var call struct {
		ToolCall struct{ FunctionCalls []struct{ ID, Name string } }
	}
	if err := json.Unmarshal(w.expect("TOOL_CALL").Payload, &call); err != nil || len(call.ToolCall.FunctionCalls) != 1 {
		t.Fatal(err, call)
	}
	w.send("SEND_TOOL_RESPONSE", `{"toolResponse":{"functionResponses":[{"id":"`+call.ToolCall.FunctionCalls[0].ID+`","name":"find_hat","response":{"hat":"a bowler"}}]}}`)
	w.wait(0, "the tool's answer, spoken", func(m message) bool {
		return m.Type == "TRANSCRIPT" && strings.Contains(string(m.Payload), `"final":true`) && strings.Contains(string(m.Payload), "bowler")
	})
	if n := c.count("TOOL_CALL"); n != 0 {
		t.Errorf("the client was asked %d times", n)
	}

	w.send("RESPOND", `{"instruction":"Offer a discount."}`)
	c.expect("TURN_COMPLETE")
	for wrong, field := range map[string]string{
		`{"type":"SING"}`:                                    "type",
		`{"type":"STEER","payload":{"prompt":5}}`:            "payload.prompt",
		`{"type":"STEER","payload":{"functions":5}}`:         "payload.functions",
		`{"type":"STEER","payload":{"functions":[{"x":1}]}}`: "payload.tools[0].functionDeclarations[0].name",
		`{"type":"RESPOND"}`:                                 "payload",
	} {
		w.raw(websocket.TextMessage, []byte(wrong))
		if m := w.expect("GEMINI_ERROR"); !strings.Contains(string(m.Payload), `"field":"`+field) {
			t.Errorf("%s: %v", wrong, m)
		}
	}

	if status, _ := l.ask("DELETE", "/v1/sessions/"+id, key); status != http.StatusNoContent {
		t.Errorf("DELETE: %d", status)
	}
	for _, both := range []*client{c, w} {
		both.expect("GEMINI_DISCONNECTED")
		if code := both.closeCode(); code != websocket.CloseNormalClosure {
			t.Errorf("closed with %d", code)
		}
	}
	if status, _ := l.ask("DELETE", "/v1/sessions/"+id, key); status != http.StatusNotFound {
		t.Errorf("DELETE again: %d", status)
	}
}

// Who watches needs a key for it.
func TestWhoMayWatch(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil)
	c := dial(t, l.url)
	id, _ := enters(t, c, hello(l.mint(`{}`), ""))
	for _, request := range []string{"GET /v1/sessions", "DELETE /v1/sessions/" + id} {
		method, path, _ := strings.Cut(request, " ")
		for key, want := range map[string]int{"": 401, "vgk_x": 401, l.key: 403, l.mint(`{}`): 401} {
			if status, body := l.ask(method, path, key); status != want {
				t.Errorf("%s: %d %s, want %d", request, status, body, want)
			}
		}
	}
	_, resp, err := websocket.DefaultDialer.Dial(strings.TrimSuffix(l.url, "/")+"/v1/sessions/"+id+"/events", nil)
	if err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v, %v", resp, err)
	}
	c.ask("Still there?")
}
