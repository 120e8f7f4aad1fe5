// Package rtvitest has clients of Pipecat's protocol for the tests that all protocols must pass. It is imported by
// tests only.
package rtvitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"voxgate/internal/testkit"
)

// Conformance holds clients of RTVI for the conformance tests.
var Conformance = testkit.Conformance{
	Name:         "rtvi",
	Serve:        func(*testing.T) testkit.Option { return Serve },
	Talkers:      map[string]testkit.Talker{"rtvi": {Begin: dialSpeaker}},
	SoundClients: map[string]testkit.SoundClient{"rtvi": {Begin: dialSoundCall, ByWebRTC: true, NoRelease: true}},
	PostOffer:    postOffer, NeedsAudio: true,
	FillQueues:      map[string]func(*testing.T, *testkit.Gateway) func(){"rtvi": fillQueues},
	DialCallControl: dialCallControl,
	Malformed:       []testkit.Malformed{{Name: "messages of RTVI", Logs: 1, Send: sendMalformed}},
	Floods:          []testkit.Flood{{Name: "RTVI: text and nonsense", Dial: dialFlooder}},
	StartPaths:      map[string]string{"/api/offer": "application/json"},
}

func dialSpeaker(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	c := Dial(t, l.Gateway, token, "")
	s := testkit.NewPhoneSpeaker(c.Phone)
	ended := s.AwaitEnd
	s.Conn, s.More, s.AwaitEnd = c.Client, func() { c.SendText("More.") }, func(code int) {
		c.AwaitEvent("signalling") // peerLeft
		ended(code)
	}
	s.Ask = func() {
		for range 10 {
			c.Send(`{"label":"rtvi-ai","type":"dance","id":"` + strings.Repeat("x", 40_000) + `"}`)
		}
	}
	return s
}

func dialSoundCall(t *testing.T, l *testkit.LockedGateway, token string) testkit.SoundCall {
	c := DialWith(t, l.Gateway, token, "", testkit.PhoneOptions{Dtx: true})
	return testkit.SoundCall{
		Client: c.Client, Rate: 48000, Phone: c.Phone,
		HasVoice: func(m testkit.Message) bool { return m.Type == "bot-started-speaking" },
	}
}

func postOffer(t *testing.T, g *testkit.Gateway, offer string) (text string, isAnswer bool) {
	body := string(testkit.Must(json.Marshal(map[string]string{"sdp": offer, "type": "offer"})))
	resp, text := testkit.SendHTTP(
		t, http.MethodPost, g.HTTP+"/api/offer", body, "Content-Type", "application/json", "Authorization", "Bearer x",
	)
	if resp.StatusCode >= http.StatusInternalServerError {
		t.Errorf("%s: %s", resp.Status, text)
	}
	var answer struct{ SDP string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Error(err)
	}
	if resp.StatusCode >= 300 {
		return text, false
	}
	return answer.SDP, true
}

func fillQueues(t *testing.T, g *testkit.Gateway) (leave func()) {
	c := Dial(t, g, "", "")
	for range testkit.MoreThanAnyQueue / 4 { // the gateway reads only 50 of these a second
		c.Send(`{"type":"signalling","message":{"type":"trackStatus","receiver_index":0,"enabled":false}}`)
	}
	c.SendText("Are you there?")
	c.AwaitEvent("bot-stopped-speaking")
	return c.Phone.HangUp
}

// dialCallControl returns a function that sends candidates to a call. The token in its requests does not matter,
// because the ID of the call is the only secret that is required.
func dialCallControl(t *testing.T, l *testkit.LockedGateway, token string) (control func(token string) (isServed bool)) {
	c := Dial(t, l.Gateway, token, "")
	return func(token string) bool {
		body := fmt.Sprintf(`{"pc_id":%q}`, c.ID)
		resp, _ := testkit.SendHTTP(t, http.MethodPatch, l.HTTP+"/api/offer", body, "Authorization", "Bearer "+token)
		return resp.StatusCode == http.StatusOK
	}
}

// sendMalformed sends malformed messages in a conversation, which continues.
func sendMalformed(t *testing.T, l *testkit.LockedGateway, token string) (cases int) {
	c := Dial(t, l.Gateway, token, "")
	for _, bad := range testkit.SampleMalformed(2,
		`{"label":"rtvi-ai","type":"send-text","id":"1","data":{"content":"a","options":{"run_immediately":false,"audio_response":true}}}`,
		`{"label":"rtvi-ai","type":"append-to-context","id":"1","data":{"role":"user","content":"a","run_immediately":false}}`,
		`{"label":"rtvi-ai","type":"llm-function-call-result","id":"1",`+
			`"data":{"function_name":"f","tool_call_id":"1","arguments":{},"result":{"a":1}}}`,
		`{"label":"rtvi-ai","type":"client-message","id":"1","data":{"t":"config","d":{"tools":7}}}`,
		`{"type":"signalling","message":{"type":"trackStatus","receiver_index":1,"enabled":false}}`,
	) {
		cases++
		c.Send(bad)
	}
	c.Send(`{"label":"rtvi-ai","type":"client-message","id":"last","data":{"t":"interrupt"}}`)
	c.AwaitEvent("server-response")
	c.Phone.HangUp()
	return cases
}

func dialFlooder(t *testing.T, g *testkit.Gateway) testkit.Flooder {
	c := Dial(t, g, "", "")
	messages := []string{
		`{"label":"rtvi-ai","type":"send-text","id":"1","data":{"content":"Tell me.","options":{"run_immediately":true}}}`,
		`{"label":"rtvi-ai","type":"nonsense","id":"2","data":[` + testkit.RepeatJSON(10000, `[]`) + `]}`, `{`,
	}
	tick := time.NewTicker(time.Millisecond) // Pion's send buffer has no limit, so send slowly
	return testkit.Flooder{
		Send: func(n int) bool { <-tick.C; c.Send(messages[n%len(messages)]); return true },
		End:  func() { tick.Stop(); c.Phone.HangUp() },
	}
}
