package sip_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/media/mediatest"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/phone"
	"voxgate/signaling/sip"
)

// calling is an office whose trunk takes calls to a telephone.
func calling(t *testing.T, to *baresip, more map[string]any) *office {
	t.Helper()
	trunk := map[string]any{"outbound": map[string]any{"server": "sip:" + to.at, "from": "+49301", "to": []string{"alice"}}}
	for name, value := range more {
		trunk[name] = value
	}
	return newOffice(t, ofTrunk(t, trunk))
}

var talker = phone.Agent{Agent: bridge.Agent{Prompt: "You remind people."}}

// A person is called, the agent begins, and what they answer is heard.
func TestCallingSomebody(t *testing.T) {
	for name, more := range map[string]map[string]any{"in the clear": nil, "in secret": {"srtp": "required"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := "audio_codecs=PCMU/8000/1;answermode=auto"
			if more != nil {
				account += ";mediaenc=srtp-mand"
			}
			p := newBaresip(t, account)
			o := calling(t, p, more)
			if _, err := o.door.Call(t.Context(), sip.Dial{To: "alice", Trunk: "lab", Agent: talker}); err != nil {
				t.Fatal(err)
			}
			p.expect("CALL_ESTABLISHED")
			o.answered(2) // the greeting, and the answer to the tone
			p.do("hangup", "")
			p.expect("CALL_CLOSED")
			o.logged("call ended")
			pcm, rate := p.heard()
			if level := mediatest.ToneLevel(pcm, rate, 440); level < 0.2 {
				t.Errorf("the tone is %.3f of what was heard", level)
			}
		})
	}
}

// A call that is declined does not connect, and a number that may not be called is not tried.
func TestCallsThatAreNotMade(t *testing.T) {
	t.Parallel()
	p := newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=manual")
	o := calling(t, p, nil)
	var own *bridge.Error
	for _, what := range []sip.Dial{{To: "+900123", Trunk: "lab"}, {To: "alice", Trunk: "nobody's"}} {
		if _, err := o.door.Call(t.Context(), what); !errors.As(err, &own) {
			t.Errorf("%+v: %v", what, err)
		}
	}
	if _, err := o.door.Call(t.Context(), sip.Dial{To: "alice", Trunk: "lab", Agent: talker}); err != nil {
		t.Fatal(err) // it rings
	}
	p.expect("CALL_INCOMING")
	p.do("hangup", "")
	o.logged("not answered: 4")
	if n := len(o.host.Sessions()); n > 0 {
		t.Errorf("%d conversations", n)
	}
}

// A backend has somebody called, with a key that may.
func TestCallsByHTTP(t *testing.T) {
	t.Parallel()
	p := newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=auto")
	o := calling(t, p, nil)
	file := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(file, "app", []string{access.MayCall})
	if err != nil {
		t.Fatal(err)
	}
	other, err := access.NewKey(file, "other", []string{access.MayTalk})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := access.New(access.Options{Required: true, Keys: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	server := signaling.NewServer(
		signaling.Options{Access: gate, Logger: slog.New(slog.DiscardHandler)},
		signaling.Door{Pattern: "POST /v1/calls", Handler: o.door},
	)
	defer server.Close(context.Background())
	front := httptest.NewServer(server)
	defer front.Close()
	for _, test := range []struct {
		key, body string
		status    int
		says      string
	}{
		{"", `{"to":"alice","trunk":"lab"}`, 401, "unauthorized"},
		{other, `{"to":"alice","trunk":"lab"}`, 403, "calls"},
		{key, `{"to":"alice","trunk":"lab","agnt":{}}`, 400, "agnt"},
		{key, `{"to":"+900","trunk":"lab"}`, 403, "may not be called"},
		{key, `{"to":"alice","trunk":"lab","agent":{"prompt":"You remind people."}}`, 200, `"id"`},
	} {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, front.URL+"/v1/calls", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		if test.key != "" {
			r.Header.Set("Authorization", "Bearer "+test.key)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.status || !strings.Contains(string(text), test.says) || !json.Valid(text) {
			t.Errorf("%s: %d %s", test.body, resp.StatusCode, text)
		}
	}
	p.expect("CALL_ESTABLISHED")
	p.do("hangup", "")
	p.expect("CALL_CLOSED")
	http.DefaultClient.CloseIdleConnections()
}

// Where a trunk wants it we register, with the password, and unregister at the end.
func TestRegistering(t *testing.T) {
	t.Parallel()
	at := freePort(t)
	registers := func(s *scenario) *scenario {
		return s.receives("REGISTER", "").
			replies("401 Unauthorized", `WWW-Authenticate: Digest realm="lab", nonce="n1", algorithm=SHA-256, qop="auth"`).
			receives("REGISTER", `Authorization: Digest username=.voxgate.*algorithm=SHA-256.*qop=auth`).
			replies("200 OK", "Expires: 10")
	}
	answer := registers(&scenario{}).receives("OPTIONS", "").replies("405 Method Not Allowed").receives("OPTIONS", "").replies("200 OK")
	wait := registers(answer).serve(t, at, 1)
	o := newOffice(t, ofTrunk(t, map[string]any{"outbound": map[string]any{
		"server": fmt.Sprintf(
			"sip:127.0.0.1:%d",
			at,
		), "from": "sip:voxgate@127.0.0.1", "username": "voxgate", "password": "open sesame", "register": true, "expires": 60,
		"to": []string{"*"},
	}}))
	o.logged("msg=registered")
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) { // sipp reports nothing else
		said, _ := os.ReadFile(answer.book)
		if bytes.Count(said, []byte("CSeq: 4 OPTIONS")) == 2 { // and its answer
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no second OPTIONS: %s", said)
		}
	}
	o.door.Close()
	if said := wait(); strings.Count(said, "REGISTER sip:") != 4 || strings.Count(said, "\nExpires: 0") != 2 {
		t.Errorf("%s", said)
	}
}

// The operator's endpoint decides about each call.
func TestAsking(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	answers := make(chan string, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(string(body) + r.Header.Get("Webhook-Signature"))
		io.WriteString(w, <-answers)
	}))
	defer endpoint.Close()
	o := newOffice(t, edited(t, func(c map[string]any) {
		c["webhook"] = map[string]any{"url": endpoint.URL, "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}
	}))
	usual := sdp("[media_ip]", "sendrecv", plain)
	for answer, want := range map[string]*scenario{
		`{"action":"accept","agent":{"prompt":"You are another."}}`: call(usual).pause(200).bye(2),
		`{"action":"reject","status":486}`:                          (&scenario{}).request("INVITE", 1, usual).ringing().expect(486, "").request("ACK", 1, ""),
		`{"action":"refer","to":"sip:desk@192.0.2.1"}`:              (&scenario{}).request("INVITE", 1, usual).ringing().expect(302, "Contact: .sip:desk@192.0.2.1").request("ACK", 1, ""),
		`{"action":"dance"}`:                                        (&scenario{}).request("INVITE", 1, usual).ringing().expect(503, "").request("ACK", 1, ""),
	} {
		answers <- answer
		want.run(t, o)
	}
	if said, _ := asked.Load().(string); !strings.Contains(said, `"number":"ada"`) || !strings.Contains(said, "v1,") {
		t.Errorf("asked with %s", said)
	}
}
