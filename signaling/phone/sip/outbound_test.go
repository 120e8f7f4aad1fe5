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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media/g711"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/phone/sip"
)

// gatewayWithPhone returns a gateway with a trunk to a phone.
func gatewayWithPhone(t *testing.T, to *baresip, more map[string]any) *testGateway {
	t.Helper()
	trunk := map[string]any{"outbound": map[string]any{"server": "sip:" + to.at, "from": "+49301", "to": []string{"alice"}}}
	for name, value := range more {
		trunk[name] = value
	}
	return startGateway(t, trunkConfig(t, trunk))
}

var talker = agents.Choice{Agent: &agents.Agent{Prompt: "You remind people."}}

// After an outgoing call is answered, the agent speaks first, and the model hears the person's response.
func TestOutboundCall(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]map[string]any{"in the clear": nil, "in secret": {"srtp": "required"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := "audio_codecs=PCMU/8000/1;answermode=auto"
			if more != nil {
				account += ";mediaenc=srtp-mand"
			}
			machine := mediatest.MeasureLateness(t)
			p := newBaresip(t, account)
			o := gatewayWithPhone(t, p, more)
			if _, err := o.server.CallUntilRinging(t.Context(), "app", sip.Dial{To: "alice", Trunk: "lab", Agent: talker}); err != nil {
				t.Fatal(err)
			}
			p.awaitEvent("CALL_ESTABLISHED")
			o.awaitTurns(2) // the greeting, and the answer to the tone
			p.runCommand("hangup", "")
			p.awaitEvent("CALL_CLOSED")
			o.awaitLog("call ended")
			pcm, rate := p.playedAudio()
			if level := mediatest.ToneLevel(pcm, rate, 440); level < 0.2 && machine.CanJudge(t, soundLate) {
				t.Errorf("the tone is %.3f of what was heard", level)
			}
		})
	}
}

// A declined call fails, and a forbidden number is not dialled.
func TestOutboundCallRefused(t *testing.T) {
	t.Parallel()
	p := newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=manual")
	o := gatewayWithPhone(t, p, nil)
	var own *bridge.Error
	for _, what := range []sip.Dial{{To: "+900123", Trunk: "lab"}, {To: "alice", Trunk: "nobody's"}} {
		if _, err := o.server.CallUntilRinging(t.Context(), "app", what); !errors.As(err, &own) {
			t.Errorf("%+v: %v", what, err)
		}
	}
	if _, err := o.server.CallUntilRinging(t.Context(), "app", sip.Dial{To: "alice", Trunk: "lab", Agent: talker}); err != nil {
		t.Fatal(err) // it rings
	}
	p.awaitEvent("CALL_INCOMING")
	p.runCommand("hangup", "")
	o.awaitLog("not answered: 4")
	if n := len(o.host.Sessions()); n > 0 {
		t.Errorf("%d conversations", n)
	}
}

// backend is a client of a gateway's HTTP API.
type backend struct {
	t         testing.TB
	url       string
	key, mate string // both may make calls; key may also listen to conversations
	stranger  string // may not make calls
}

func startBackend(t testing.TB, o *testGateway) *backend {
	t.Helper()
	b := &backend{t: t}
	file := filepath.Join(t.TempDir(), "keys.json")
	for name, key := range map[string]*string{"app": &b.key, "mate": &b.mate, "other": &b.stranger} {
		may := map[string][]string{
			"app": {access.MayCall, access.MayWatchAll, access.MayListen}, "mate": {access.MayCall, access.MayWatchAll}, "other": {access.MayTalk},
		}
		var err error
		if *key, err = access.NewKey(file, name, may[name]); err != nil {
			t.Fatal(err)
		}
	}
	gate, err := access.New(access.Options{Required: true, Keys: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := signaling.NewServer(signaling.Options{Access: gate, Logger: slog.New(slog.DiscardHandler)}, o.server.Endpoints()...)
	front := httptest.NewServer(server)
	b.url = front.URL
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		front.Close()
		server.Close(context.Background())
		gate.Close()
	})
	return b
}

func (b *backend) sendRequest(key, method, path, body string) (status int, answer string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || len(text) > 0 && !json.Valid(text) {
		b.t.Errorf("%s %s: %s %v", method, path, text, err)
	}
	return resp.StatusCode, string(text)
}

// A backend can make a call with a permitted server key.
func TestOutboundCallByHTTP(t *testing.T) {
	t.Parallel()
	p := newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=auto")
	b := startBackend(t, gatewayWithPhone(t, p, nil))
	for _, test := range []struct {
		key, body string
		status    int
		says      string
	}{
		{"", `{"to":"alice","trunk":"lab"}`, 401, "unauthorized"},
		{b.stranger, `{"to":"alice","trunk":"lab"}`, 403, "calls"},
		{b.key, `{"to":"alice","trunk":"lab","agnt":{}}`, 400, "agnt"},
		{b.key, `{"to":"+900","trunk":"lab"}`, 403, "may not be called"},
		{b.key, `{"to":"alice","trunk":"lab","from":"+49666"}`, 403, "outbound.callers"},
		{b.key, `{"to":"alice","trunk":"lab","ringSeconds":900}`, 400, "ringSeconds"},
		{b.key, `{"to":"alice","trunk":"lab","agent":{"collect":["PIN"]}}`, 400, `no \"PIN\" in the file`},
		{b.key, `{"to":"alice","trunk":"lab","agent":"nobody"}`, 400, `no agent \"nobody\"`},
		{b.key, `{"to":"alice","trunk":"lab","agent":"agent-0","variables":{"guest":"Ada"}}`, 400, "variables.guest: the prompt has no"},
		{b.key, `{"to":"alice","trunk":"lab","agent":{"prompt":"Call {{guest}}."}}`, 400, "variables.guest: is missing"},
		{b.key, `{"to":"alice","trunk":"lab","headers":{"Via":"x"}}`, 400, "Via"},
		{b.key, `{"to":"alice","trunk":"lab","headers":{"X-A":"1\r\nVia: x"}}`, 400, "X-A"},
		{b.key, `{"to":"alice","trunk":"lab","agent":{"prompt":"You remind people."}}`, 200, `"id"`},
	} {
		if status, text := b.sendRequest(test.key, "POST", "/v1/calls", test.body); status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s", test.body, status, text)
		}
	}
	p.awaitEvent("CALL_ESTABLISHED")
	p.runCommand("hangup", "")
	p.awaitEvent("CALL_CLOSED")
}

// A backend receives each status of its calls.
func TestCallStatusReports(t *testing.T) {
	t.Parallel()
	told := make(chan sip.CallStatus, 64)
	h, o := startCarrier(t, nil, map[string]any{"callers": []string{"+4930*"}}, func(s sip.CallStatus) { told <- s })
	b := startBackend(t, o)
	const asked = "INVITE.*From: <sip:\\+49305@.*(X-Order: 7.*User-to-User: 3456;encoding=hex|User-to-User: 3456;encoding=hex.*X-Order: 7)"
	for name, test := range map[string]struct {
		goes   func(id func() string, invite string)
		states string
		sip    int
		by     string
		reason string
	}{
		"busy at once": {func(_ func() string, invite string) {
			h.respond(invite, "486 Busy Here", "a", `Reason: Q.850;cause=17;text="User busy"`)
		}, "busy", 486, "", `Busy Here (Q.850;cause=17;text="User busy")`},
		"busy after it rang": {func(id func() string, invite string) {
			h.respond(invite, "180 Ringing", "a")
			id()
			h.respond(invite, "600 Busy Everywhere", "a")
		}, "ringing busy", 600, "", "Busy Everywhere"},
		"nobody there": {func(id func() string, invite string) {
			h.respond(invite, "180 Ringing", "a")
			h.respond(h.awaitRequest("CANCEL"), "200 OK", "a")
			h.respond(invite, "487 Request Terminated", "a")
		}, "ringing no-answer", 0, "", "nobody has answered in time"},
		"no such number": {func(_ func() string, invite string) { h.respond(invite, "404 Not Found", "a") }, "failed", 404, "", "Not Found"},
		"given up": {func(id func() string, invite string) {
			h.respond(invite, "180 Ringing", "a")
			b.sendRequest(b.key, "DELETE", "/v1/calls/"+id(), "")
			h.respond(h.awaitRequest("CANCEL"), "200 OK", "a")
			h.respond(invite, "487 Request Terminated", "a")
		}, "ringing canceled", 0, "", "the backend has ended the call"},
		"ended by them": {func(id func() string, invite string) {
			h.respond(invite, "200 OK", "a")
			h.awaitRequest("ACK")
			h.sendInDialog(invite, "a", "BYE", 1, "", "", "Reason: SIP;cause=200;text=\"Call completed\"", "Reason: Q.850;cause=16")
			h.awaitResponse("200")
		}, "answered ended", 0, "them", `the other side has hung up (SIP;cause=200;text="Call completed", Q.850;cause=16)`},
		"ended by the backend": {func(id func() string, invite string) {
			h.respond(invite, "200 OK", "a")
			h.awaitRequest("ACK")
			b.sendRequest(b.key, "DELETE", "/v1/calls/"+id(), "")
			h.respond(h.awaitRequest("BYE"), "200 OK", "a")
		}, "answered ended", 0, "us", "the backend has ended the call"},
	} {
		answer := make(chan string, 1)
		body := fmt.Sprintf(`{"to":"+49302","trunk":"lab","from":"+49305","ringSeconds":1,
			"headers":{"X-Order":"7","User-to-User":"3456;encoding=hex"},"idempotencyKey":%q}`, name)
		go func() {
			_, text := b.sendRequest(b.key, "POST", "/v1/calls", body)
			answer <- text
		}()
		id := sync.OnceValue(func() string {
			var made struct{ ID string }
			_ = json.Unmarshal([]byte(<-answer), &made)
			return made.ID
		})
		test.goes(id, h.awaitRequest(asked))
		var states []string
		var last sip.CallStatus
		for last.EndedAt == nil {
			last = <-told
			states = append(states, last.State)
		}
		if got := strings.Join(states, " "); got != test.states ||
			last.SIP != test.sip || last.HungUpBy != test.by || last.Reason != test.reason {
			t.Errorf("%s: %s, %+v", name, got, last)
		}
		if _, text := b.sendRequest(b.key, "POST", "/v1/calls", body); !strings.Contains(text, last.ID) {
			t.Errorf("%s: asked again, it is %s", name, text)
		}
		status, text := b.sendRequest(b.key, "GET", "/v1/calls/"+last.ID, "")
		if status != 200 || !strings.Contains(text, `"state":"`+last.State+`"`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
		if status, _ := b.sendRequest(b.mate, "GET", "/v1/calls/"+last.ID, ""); status != 404 {
			t.Errorf("%s: another key sees it: %d", name, status)
		}
	}
}

// The agent of a call is chosen by name, and its prompt has the variables of the call.
func TestOutboundCallAgent(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, nil)
	b := startBackend(t, o)
	answer := make(chan string, 1)
	go func() {
		_, text := b.sendRequest(b.key, "POST", "/v1/calls", `{"to":"+49302","trunk":"lab","agent":"agent-1","variables":{"guest":"Ada"}}`)
		answer <- text
	}()
	h.respond(h.awaitRequest("INVITE"), "200 OK", "a")
	h.awaitRequest("ACK")
	if prompt := <-o.prompts; !strings.HasPrefix(prompt, "Remind \"Ada\" of tomorrow.") || !strings.Contains(prompt, "+49302") {
		t.Errorf("the prompt is %q", prompt)
	}
	if text := <-answer; !strings.Contains(text, `"id"`) {
		t.Error(text)
	}
}

// A cancelled call ends even if its trunk has died, or the gateway stops.
func TestCancelWithDeadTrunk(t *testing.T) {
	t.Parallel()
	for name, stops := range map[string]bool{"nobody there": false, "the gateway stops": true} {
		for _, says := range []string{"100 Trying", "180 Ringing"} {
			t.Run(name+" after "+says, func(t *testing.T) {
				t.Parallel()
				told := make(chan sip.CallStatus, 8)
				h, o := startCarrier(t, nil, nil, func(s sip.CallStatus) { told <- s })
				dial := sip.Dial{To: "+49302", Trunk: "lab", Agent: talker, RingSeconds: 1, IdempotencyKey: "order 7"}
				if stops {
					dial.RingSeconds = 180
				}
				go func() { _, _ = o.server.CallUntilRinging(context.Background(), "app", dial) }()
				h.respond(h.awaitRequest("INVITE"), says, "a")
				if stops {
					o.awaitLog("msg=call ")
					o.server.Close()
				} else {
					h.awaitRequest("CANCEL")
				}
				want, last := "no-answer", sip.CallStatus{}
				if stops {
					want = "failed"
				}
				for last.EndedAt == nil {
					select {
					case last = <-told:
					case <-time.After(patience):
						t.Fatalf("the call has not ended: %+v", last)
					}
				}
				if last.State != want {
					t.Errorf("%+v", last)
				}
			})
		}
	}
}

// We register at trunks that require it, with the password, and unregister at the end.
func TestRegistration(t *testing.T) {
	t.Parallel()
	at := mediatest.FreePort(t)
	registers := func(s *scenario) *scenario {
		return s.await("REGISTER", "").
			reply("401 Unauthorized", `WWW-Authenticate: Digest realm="lab", nonce="n1", algorithm=SHA-256, qop="auth"`).
			await("REGISTER", `Authorization: Digest username=.voxgate.*algorithm=SHA-256.*qop=auth`).
			reply("200 OK", "Expires: 10")
	}
	answer := registers(&scenario{}).await("OPTIONS", "").reply("405 Method Not Allowed").await("OPTIONS", "").reply("200 OK")
	wait := registers(answer).serve(t, at, 1)
	o := startGateway(t, trunkConfig(t, map[string]any{"outbound": map[string]any{
		"server": fmt.Sprintf(
			"sip:127.0.0.1:%d",
			at,
		), "from": "sip:voxgate@127.0.0.1", "username": "voxgate", "password": "open sesame", "register": true, "expires": 60,
		"to": []string{"*"},
	}}))
	o.awaitLog("msg=registered")
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) { // sipp reports nothing else
		said, _ := os.ReadFile(answer.book)
		if bytes.Count(said, []byte("CSeq: 4 OPTIONS")) == 2 { // and its answer
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no second OPTIONS: %s", said)
		}
	}
	o.server.Close()
	if said := wait(); strings.Count(said, "REGISTER sip:") != 4 || strings.Count(said, "\nExpires: 0") != 2 {
		t.Errorf("%s", said)
	}
}

// The operator's webhook decides about each call.
func TestCallWebhook(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	answers := make(chan string, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(string(body) + r.Header.Get("Webhook-Signature"))
		io.WriteString(w, <-answers)
	}))
	defer endpoint.Close()
	o := startGateway(t, configWith(t, func(c map[string]any) {
		c["webhook"] = map[string]any{"url": endpoint.URL, "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}
	}))
	usual := sdp("[media_ip]", "sendrecv", plain)
	with := []string{"X-Order: 17", "User-to-User: 3456;encoding=hex", "Diversion: <sip:desk@192.0.2.1>;reason=no-answer", "X-Order: 18"}
	invite := func() *scenario { return (&scenario{}).request("INVITE", 1, usual, with...).ringing() }
	for answer, want := range map[string]*scenario{
		`{"action":"accept","agent":{"prompt":"You are another."}}`: call(usual, with...).pause(200).bye(2),
		`{"action":"accept","agent":"agent-0"}`:                     call(usual, with...).pause(200).bye(2),
		`{"action":"accept","agent":"nobody"}`:                      invite().expect(503, "").request("ACK", 1, ""),
		`{"action":"accept","agent":{"promt":"x"}}`:                 invite().expect(503, "").request("ACK", 1, ""),
		`{"action":"reject","status":486}`:                          invite().expect(486, "").request("ACK", 1, ""),
		`{"action":"refer","to":"sip:desk@192.0.2.1"}`:              invite().expect(302, "Contact: .sip:desk@192.0.2.1").request("ACK", 1, ""),
		`{"action":"dance"}`:                                        invite().expect(503, "").request("ACK", 1, ""),
	} {
		answers <- answer
		want.run(t, o)
	}
	said, _ := asked.Load().(string)
	for _, want := range []string{
		`"number":"ada"`, "v1,", `"trunk":"lab"`, `"x-order":"17, 18"`, `"user-to-user":"3456;encoding=hex"`, `desk@192.0.2.1`, `"call-id":"`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("asked without %s: %s", want, said)
		}
	}
}

// A backend's lost HTTP request cancels its call, unless the backend can repeat the request.
func TestLostHTTPRequestCancelsCall(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, nil)
	b := startBackend(t, o)
	for _, key := range []string{"", "order 7"} {
		ctx, lose := context.WithCancel(t.Context())
		lost := make(chan error, 1)
		go func() {
			_, err := o.server.CallUntilRinging(ctx, "app", sip.Dial{To: "+49302", Trunk: "lab", Agent: talker, IdempotencyKey: key})
			lost <- err
		}()
		invite := h.awaitRequest("INVITE")
		lose()
		if err := <-lost; !errors.Is(err, context.Canceled) {
			t.Errorf("%q: %v", key, err)
		}
		h.respond(invite, "180 Ringing", "a")
		if key == "" {
			h.respond(h.awaitRequest("CANCEL"), "200 OK", "a")
			h.respond(invite, "487 Request Terminated", "a")
			continue
		}
		status, text := b.sendRequest(b.key, "POST", "/v1/calls", `{"to":"+49302","trunk":"lab","idempotencyKey":"order 7"}`)
		if status != 200 || !strings.Contains(text, `"id"`) {
			t.Errorf("asked again: %d %s", status, text)
		}
		h.respond(invite, "486 Busy Here", "a")
	}
}

// In an outgoing call the agent hears a menu to its end before it presses keys.
func TestKeysAfterMenu(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, nil)
	h.openAudio("0 101")
	o.dialNumber()
	invite := h.awaitRequest("INVITE")
	h.respond(invite, "200 OK", "a")
	h.awaitRequest("ACK")
	h.setAudioAddr(invite)
	events := o.watchEvents()
	o.sendText(`/tool send_dtmf {"digits":"1"}`)
	end := awaitEvent(t, events, func(e bridge.ToolStatus) bool { return e.Status != bridge.StatusRunning })
	if end.Status != bridge.StatusFailed || !strings.Contains(string(end.Result), "listen first") {
		t.Errorf("%s: %s", end.Status, end.Result)
	}
	menu := mediatest.SynthesizeSpeech(time.Second, 8000)
	stop := h.sendPackets(0, 8000, func(i int) []byte {
		frame := make([]int16, 160)
		copy(frame, menu[min(160*i, len(menu)):])
		return g711.MuLaw.AppendEncoded(nil, frame)
	})
	defer stop()
	awaitEvent(t, events, func(e bridge.UserText) bool { return e.Final })
	o.sendText(`/tool send_dtmf {"digits":"1"}`)
	h.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 1 })
}

// If a side stops accepting digits while some are being sent, the rest is dropped, and the call continues.
func TestDigitsNoLongerAccepted(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	h := startCall(t, o, "0 101")
	events := o.watchEvents()
	o.sendText(`/tool send_dtmf {"digits":"1,,,,1"}`)
	h.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 1 })
	h.sendRequest("INVITE", 2, h.audioSDP("0"))
	h.awaitResponse("200")
	h.sendRequest("ACK", 2, "")
	end := awaitEvent(t, events, func(e bridge.ToolStatus) bool { return e.Status != bridge.StatusRunning })
	if end.Status != bridge.StatusFailed || !strings.Contains(string(end.Result), "does not accept digits") {
		t.Errorf("%s: %s", end.Status, end.Result)
	}
	for h.awaitVoice(time.Now().Add(time.Millisecond)) { // discard what arrived before
	}
	o.sendText("Hello.")
	if !h.awaitVoice(time.Now().Add(patience)) {
		t.Error("the model is not heard any more")
	}
}
