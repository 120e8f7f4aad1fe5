// Package geminilivetest has clients of Google's Live API for the tests that all protocols must pass. It is imported by
// tests only.
package geminilivetest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
)

const setup = `{"setup":{"model":"models/gemini-3.8-live","generationConfig":{"responseModalities":["AUDIO"]}}}`

// Conformance holds clients of the Live API for the conformance tests.
var Conformance = testkit.Conformance{
	Name:         "live",
	Serve:        func(t *testing.T) testkit.Option { return Serve(t, emulator.Scenario{}, nil) },
	Talkers:      map[string]testkit.Talker{"live": {Begin: dialSpeaker}},
	SoundClients: map[string]testkit.SoundClient{"live": {Begin: dialSoundCall}},
	FillQueues:   map[string]func(*testing.T, *testkit.Gateway) func(){"live": fillQueues},
	Malformed:    []testkit.Malformed{{Name: "messages of Live", Logs: 6, Send: sendMalformed}},
	Floods: []testkit.Flood{
		{Name: "Live: sound of 10 MB", Every: time.Second / 30, Long: true, Dial: flooderDialer(
			`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"` + strings.Repeat("A", 10<<20) + `"}}}`)},
		{Name: "Live: text and turns", Dial: flooderDialer(
			`{"realtimeInput":{"text":"Tell me."}}`, `{"clientContent":{"turns":[{"role":"user","parts":[{"text":"Hi"}]}]}}`)},
		{Name: "Live: tool answers with 30,000 ids", Dial: flooderDialer(
			`{"toolResponse":{"functionResponses":[` + testkit.RepeatJSON(30000, `{"id":"1","response":{}}`) + `]}}`)},
	},
	StartPaths: map[string]string{"/v1alpha/auth_tokens": "application/json"},
}

// dial begins a conversation with a token.
func dial(t *testing.T, l *testkit.LockedGateway, token string) *testkit.Client {
	c := Dial(t, l.Gateway, "?key="+token, nil)
	c.SendTextFrame(`{"setup":{}}`)
	c.AwaitEvent("setupComplete")
	return c
}

func dialSpeaker(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	return testkit.NewSocketSpeaker(dial(t, l, token), "",
		`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"More."}]}],"turnComplete":true}}`)
}

func dialSoundCall(t *testing.T, l *testkit.LockedGateway, token string) testkit.SoundCall {
	c := dial(t, l, token)
	return testkit.SoundCall{
		Client: c, Rate: 16000,
		Send: func(piece []byte, encode testkit.Base64Encoding) {
			c.SendFrame(websocket.TextMessage,
				[]byte(`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+encode(piece)+`"}}}`))
		},
		Release: func() { c.SendTextFrame(`{"realtimeInput":{"audioStreamEnd":true}}`) },
		HasVoice: func(m testkit.Message) bool {
			return m.Type == "serverContent" && strings.Contains(string(m.Payload), "inlineData")
		},
	}
}

func fillQueues(t *testing.T, g *testkit.Gateway) (leave func()) {
	c := Dial(t, g, "", nil)
	testkit.SendBurst(c, setup, `{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}}`)
	c.SendTextFrame(`{"realtimeInput":{"text":"Are you there?"}}`)
	c.AwaitMatch(0, "the end of an answer", func(m testkit.Message) bool { return strings.Contains(string(m.Payload), "turnComplete") })
	return func() { testkit.DropConnection(c) }
}

// sendMalformed sends messages that end the connection. Google's server also ends the connection after them.
func sendMalformed(t *testing.T, l *testkit.LockedGateway, token string) (cases int) {
	for _, bad := range testkit.SampleMalformed(5,
		`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"a"}]}],"turnComplete":false}}`,
		`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAAA"}}}`,
		`{"toolResponse":{"functionResponses":[{"id":"1","name":"f","response":{"a":1}}]}}`, setup,
	) {
		cases++
		c := Dial(t, l.Gateway, "", http.Header{"Authorization": {"Bearer " + token}})
		c.SendTextFrame(setup)
		c.AwaitEvent("setupComplete")
		for _, text := range []string{bad, `{"nonsense":1}`} { // the second text ends a connection that has survived the first
			_ = c.Conn.WriteMessage(websocket.TextMessage, []byte(text))
		}
		c.AwaitCloseCode()
	}
	return cases
}

func flooderDialer(messages ...string) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
		c := Dial(t, g, "", nil)
		c.SendTextFrame(setup)
		c.AwaitEvent("setupComplete")
		return testkit.NewSocketFlooder(c, messages...)
	}
}
