package testkit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/internal/testkit"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/openai/openaitest"
	"voxgate/signaling/compat/whip/whiptest"
	"voxgate/signaling/phone/mediastream/mediastreamtest"
)

// TestPermissionsOnARunningCall tests who may control a call at each endpoint. The caller is ada, whose token has expired, and
// the requests come with all kinds of tokens and keys.
func TestPermissionsOnARunningCall(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, serveAll(t)...)
	keyOf := func(name string, may ...string) string { return testkit.Must(access.NewKey(l.File, name, may)) }
	other := keyOf("other", access.MayMint)
	support := keyOf("support", access.MayWatch)
	operator := keyOf("operator", access.MayWatchAll)
	l.EditKeys(func(map[string]any) {})
	mintBy := func(key, identity string) string {
		_, _, text := l.RequestToken(key, fmt.Sprintf(`{"identity":%q,"once":false,"expiresIn":60}`, identity))
		var minted access.TokenResponse
		if err := json.Unmarshal([]byte(text), &minted); err != nil {
			t.Fatal(err)
		}
		return minted.Token
	}
	ada := mintBy(l.Key, "ada")
	c := testkit.DialWebSocket(t, l.URL)
	session, resume := testkit.EnterConversation(t, c, testkit.ConnectPayload(ada, `,"resumable":true`))
	_, _, call := openaitest.DialCall(t, l.Gateway, ada, nil)
	whip := whiptest.DialAs(t, l.Gateway, "desk", ada)
	type endpoint struct {
		name string
		acts func(token string) bool
	}
	var endpoints []endpoint
	secrets := "" // protocols in which the secret address of a call suffices to control it
	for _, p := range protocols {
		if p.DialCallControl != nil {
			endpoints = append(endpoints, endpoint{p.Name, p.DialCallControl(t, l, ada)})
			secrets += p.Name + " "
		}
	}
	l.AdvanceClock(2 * time.Minute)

	endpoints = append(endpoints, []endpoint{
		{"openai", func(token string) bool {
			c := openaitest.Dial(t, l.Gateway, "?call_id="+call, http.Header{"Authorization": {"Bearer " + token}})
			m, _ := c.AwaitMatch(0, "an answer", func(m testkit.Message) bool { return m.Type == "session.created" || m.Type == "error" })
			c.Conn.Close()
			return m.Type == "session.created"
		}},
		{"web", func(token string) bool {
			c := testkit.DialWebSocket(t, l.URL)
			defer c.Conn.Close()
			c.Send("CONNECT_GEMINI", testkit.ConnectPayload(token, fmt.Sprintf(`,"resumable":true,"resumeToken":%q`, resume)))
			var p struct{ SessionID, ResumeToken string }
			if err := json.Unmarshal(c.AwaitEvent("SETUP_COMPLETE").Payload, &p); err != nil {
				t.Fatal(err)
			}
			if p.SessionID != session {
				return false
			}
			resume = p.ResumeToken
			return true
		}},
		{"sideband", func(token string) bool {
			_, list := l.SendRequest("GET", "/v1/sessions", token)
			at := strings.TrimSuffix(l.URL, "/") + "/v1/sessions/" + session + "/events"
			conn, _, err := websocket.DefaultDialer.Dial(at, http.Header{"Authorization": {"Bearer " + token}})
			if err == nil {
				conn.Close()
			}
			if listed := strings.Contains(list, session); listed != (err == nil) {
				t.Errorf("listed %v, watched: %v", listed, err)
			}
			return err == nil
		}},
	}...)
	check := func(who, token, may string) {
		t.Helper()
		for _, e := range endpoints {
			if got := e.acts(token); got != strings.Contains(secrets+may, e.name) {
				t.Errorf("%s at %s: %v", who, e.name, got)
			}
		}
	}
	check("ada, whose token has expired", ada, "openai web")
	check("ada", mintBy(l.Key, "ada"), "openai web")
	check("eve", mintBy(l.Key, "eve"), "")
	check("another key's ada", mintBy(other, "ada"), "")
	check("nobody", "", "")
	check("who has changed the token", ada[:len(ada)-6]+"AAAAAA", "")
	check("the key of her token", l.Key, "openai")
	check("another key", other, "")
	check("a key that may watch its own", support, "")
	check("the operator", operator, "openai sideband")
	l.EditKeys(testkit.EditFirstKey(func(key map[string]any) { key["may"] = []string{access.MayMint, access.MayWatch} }))
	check("the key of her token, which may watch", l.Key, "openai sideband")

	hangUp := func(token string) int {
		return testkit.PostAs(t, l.HTTP+"/v1/realtime/calls/"+call+"/hangup", token, "", nil).StatusCode
	}
	if eve, her := hangUp(mintBy(l.Key, "eve")), hangUp(l.Key); eve != http.StatusNotFound || her != http.StatusOK {
		t.Errorf("eve hangs up: %d, her key: %d", eve, her)
	}
	below := strings.Replace(whip.Session, "/desk/", "/eager/", 1)
	if resp, _ := testkit.SendHTTP(t, http.MethodDelete, below, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("below another agent: %s", resp.Status)
	}
	resp, _ := testkit.SendHTTP(t, http.MethodDelete, whip.Session, "", "Authorization", "Bearer "+ada)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the encoder ends its call: %s", resp.Status)
	}
	if status, _ := l.SendRequest("DELETE", "/v1/sessions/"+session, support); status != http.StatusNotFound {
		t.Errorf("a key ends another one's: %d", status)
	}
	if status, _ := l.SendRequest("DELETE", "/v1/sessions/"+session+"?now=1", l.Key); status != http.StatusNoContent {
		t.Errorf("a key ends its own: %d", status)
	}
	testkit.Eventually(t, "the end", func() bool { return l.Host.Session(session) == nil })
}

// A key with the name of a telephone trunk does not see the trunk's calls: that requires the privilege sessions:all.
func TestKeyNamedLikeATrunk(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, mediastreamtest.Serve(t))
	trunks := newTrunks(t, l.Gateway)
	lines := map[string]string{"telephony": "exotel", "sip": "lab"}
	keys := map[string]string{}
	for _, name := range lines {
		keys[name] = testkit.Must(access.NewKey(l.File, name, []string{access.MayMint, access.MayWatch}))
	}
	operator := testkit.Must(access.NewKey(l.File, "operator", []string{access.MayWatchAll}))
	l.EditKeys(func(map[string]any) {})
	provider := mediastreamtest.Dial(t, l.Gateway, l.MintToken(`{}`))
	lab := newStranger(t, trunks, "127.0.0.5")
	defer lab.Close()
	lab.invite(t)
	calls := map[string]string{} // by protocol
	testkit.Eventually(t, "two calls", func() bool {
		for _, i := range l.Host.Sessions() {
			calls[i.Protocol] = i.ID
		}
		return len(calls) == len(lines)
	})
	for protocol, id := range calls {
		at := "/v1/sessions/" + id
		_, list := l.SendRequest("GET", "/v1/sessions", keys[lines[protocol]])
		status, _ := l.SendRequest("DELETE", at, keys[lines[protocol]])
		if strings.Contains(list, id) || status != http.StatusNotFound {
			t.Errorf("%s: the key %s gets %s, and %d when it ends the call", protocol, lines[protocol], list, status)
		}
		_, list = l.SendRequest("GET", "/v1/sessions", operator)
		status, _ = l.SendRequest("DELETE", at+"?now=1", operator)
		if !strings.Contains(list, id) || status != http.StatusNoContent {
			t.Errorf("%s: the operator gets %s, and %d when they end the call", protocol, list, status)
		}
	}
	lab.isHungUp(t)
	testkit.DropConnection(provider)
	testkit.Eventually(t, "the end", func() bool { return len(l.Host.Sessions()) == 0 })
}

// Requests are not parsed before their sender is authorized: a request of a few kilobytes could cost the gateway milliseconds.
func TestStrangersAreNotParsed(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, serveAll(t)...)
	paths := startPaths()
	paths["/v1/tokens"] = "application/json"
	for path, contentType := range paths {
		for _, token := range []string{"", "nonsense"} {
			resp := testkit.PostAs(t, l.HTTP+path, token, contentType, strings.NewReader("nothing of the kind"))
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %q: %s", path, token, resp.Status)
			}
		}
	}
}

// A flood of rejected requests does not fill the log: the gate logs the first 100 and then 10 per second.
func TestAFloodOfRefusalsIsNotLogged(t *testing.T) {
	t.Parallel()
	const many = 150
	l := testkit.StartLockedGateway(t, nil, serveAll(t)...)
	began, paths := time.Now(), startPaths()
	for path := range paths {
		for range many {
			resp := testkit.PostAs(t, l.HTTP+path, "nonsense", "application/sdp", strings.NewReader("x"))
			if resp.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%s: %s", path, resp.Status)
			}
		}
	}
	most := 101 + int(time.Since(began)/(100*time.Millisecond))
	if lines := strings.Count(l.Logs.String(), "request refused"); lines == 0 || lines > most {
		t.Errorf("%d lines for %d requests, want %d at most", lines, len(paths)*many, most)
	}
}

// startPaths returns the StartPaths of all protocols.
func startPaths() map[string]string {
	all := map[string]string{}
	for _, p := range protocols {
		maps.Copy(all, p.StartPaths)
	}
	return all
}
