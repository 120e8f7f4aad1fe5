package mediastream_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

// awaitAudioHook waits for an AudioHook message of a type, and returns it.
func (p *providerCall) awaitAudioHook(kind string) (m struct {
	Version, ID, Type string
	Seq, ClientSeq    int
	Parameters        json.RawMessage
},
) {
	p.t.Helper()
	p.awaitState(kind, func() bool {
		for _, text := range p.texts {
			if json.Unmarshal([]byte(text), &m) == nil && m.Type == kind {
				return true
			}
		}
		return false
	})
	return m
}

// Genesys' protocol has an envelope with counters, and requires answers to open, ping and close. A caller on hold is not heard.
func TestAudioHook(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	p := g.dialProvider(wireFormats()["genesys"], "+100")
	opened := p.awaitAudioHook("opened")
	const media = `{"media":[{"channels":["external"],"format":"PCMU","rate":8000,"type":"audio"}]}`
	if opened.Version != "2" || opened.ID != "S1" || opened.Seq != 1 || opened.ClientSeq != 1 || string(opened.Parameters) != media {
		t.Errorf("opened by %+v with %s", opened, opened.Parameters)
	}
	p.sendText(`{"version":"2","id":"S1","type":"ping","seq":2,"serverseq":1,"position":"PT0S","parameters":{}}`)
	if pong := p.awaitAudioHook("pong"); pong.Seq != 2 || pong.ClientSeq != 2 {
		t.Errorf("%+v", pong)
	}
	session, ear := g.awaitSession()
	p.sendText(`{"version":"2","id":"S1","type":"paused","seq":3,"serverseq":2,"position":"PT0S","parameters":{}}`)
	p.sendSound(makeSentence(440, 3*time.Second, p.rate))
	p.sendText(`{"version":"2","id":"S1","type":"resumed","seq":4,"serverseq":2,"position":"PT0S",` +
		`"parameters":{"start":"PT0S","discarded":"PT1S"}}`)
	p.sendSound(makeSentence(300, time.Second, p.rate))
	p.awaitTone(300, 900*time.Millisecond)
	ear.awaitEvent(t, "end of the turn", func(b bridge.EventBody) bool { _, ok := b.(bridge.TurnComplete); return ok })
	if err := session.Do(bridge.EndAfterSpeaking{}); err != nil {
		t.Fatal(err)
	}
	if goodbye := p.awaitAudioHook("disconnect"); goodbye.Seq != 3 || string(goodbye.Parameters) != `{"reason":"completed"}` {
		t.Errorf("%+v", goodbye)
	}
	p.awaitClose()
	p = g.dialProvider(wireFormats()["genesys"], "+100")
	p.awaitAudioHook("opened")
	p.sendText(`{"version":"2","id":"S1","type":"close","seq":2,"serverseq":1,"position":"PT1S","parameters":{"reason":"end"}}`)
	if closed := p.awaitAudioHook("closed"); closed.Seq != 2 || closed.ClientSeq != 2 {
		t.Errorf("%+v", closed)
	}
	p.awaitClose()

	at := g.http + "/telephony/genesys/stream"
	for rule, header := range map[string]http.Header{
		"signature": g.audioHookHeader("/telephony/genesys/stream", time.Now().Add(-time.Minute)), "password": {"X-Api-Key": {"another"}},
	} {
		g.expectRefusal(rule, at, header)
	}
	g.expectRefusal("signature", at, http.Header{"X-Api-Key": {"shown"}})
	s := wireFormats()["genesys"]
	s.begin = func(string, string) []string {
		return []string{`{"version":"2","id":"S1","type":"open","seq":1,` +
			`"parameters":{"media":[{"type":"audio","format":"PCMU","channels":["internal"],"rate":8000}]}}`}
	}
	g.dialProvider(s, "+100").awaitClose()
	g.awaitLog("the caller's sound is not offered", 1)
}

// Telnyx Call Control reports all events of a call. An incoming call is answered by a command.
func TestCallControl(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	const event = `{"data":{"event_type":"%s","id":"e2","payload":{"call_control_id":"CA9","from":"+4917012345","to":"%s","direction":"%s"}}}`
	for _, other := range []string{
		fmt.Sprintf(event, "call.hangup", "+100", "incoming"), fmt.Sprintf(event, "call.initiated", "+100", "outgoing"),
		fmt.Sprintf(event, "streaming.started", "+100", "incoming"),
	} {
		if status, text := g.postJSON("telnyx-control", other); status != 200 || text != "" {
			t.Errorf("%d %s", status, text)
		}
	}
	if status, _ := g.postJSON("telnyx-control", fmt.Sprintf(event, "call.initiated", "+999", "incoming")); status != 200 {
		t.Errorf("%d", status)
	}
	g.expectREST(restCall{"POST /v2/calls/CA9/actions/reject", "", `{"cause":"USER_BUSY","command_id":"e2"}`})
	if status, _ := g.postForm("nobody", "/telephony/telnyx-control/answer", incomingForm("telnyx", "CA1", "+100"), nil); status != 403 {
		t.Errorf("without a signature: %d", status)
	}
	if status, _ := g.postJSON("telnyx-control", `{"data":`); status != 400 {
		t.Errorf("no JSON: %d", status)
	}
}

// Vonage's answer webhook gets an NCCO, if it is signed.
func TestVonagesWebhook(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	if status, text := g.postJSON("vonage-ncco", `{"from":"4917012345","to":"+999","uuid":"u1"}`); status != 200 || text != "[]" {
		t.Errorf("no agent: %d %s", status, text)
	}
	if status, text := g.postJSON("vonage-ncco", `{"from":"4917012345","to":"+100"}`); status != 200 || text != "[]" {
		t.Errorf("without an id: %d %s", status, text)
	}
	for name, header := range map[string]string{
		"no JWT": "Bearer x", "another secret": "Bearer eyJhbGciOiJIUzI1NiJ9.e30.AAAA", "nothing": "",
		"no algorithm": "Bearer eyJhbGciOiJub25lIn0.e30.",
	} {
		if status, _ := g.postForm("nobody", "/telephony/vonage-ncco/answer", nil, func(r *http.Request) {
			r.Header.Set("Authorization", header)
		}); status != 403 {
			t.Errorf("%s: %d", name, status)
		}
	}
	g.expectRefusal("token", g.http+"/telephony/vonage-ncco/stream/unknown", http.Header{"Authorization": {"Bearer shown"}})
}

// Sinch requires an answer before it sends sound, and regular heartbeats.
func TestSinchIsKeptAlive(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	p := g.dialProvider(wireFormats()["sinch"], "+100")
	said := func(text string) {
		p.awaitState(text, func() bool { return strings.Contains(fmt.Sprint(p.texts), text) })
	}
	said(`{"command":"answer"}`)
	p.sendSound(make([]int16, 1000*p.rate/50))
	said(`{"command":"heartbeat"}`)
}
