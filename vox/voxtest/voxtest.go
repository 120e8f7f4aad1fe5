// Package voxtest provides clients of the VOX assistant, so that the tests of package testkit can check the rules for
// all protocols. It is imported by tests only.
package voxtest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/internal/testkit"
)

// Conformance holds the clients of the VOX assistant. Budgets are larger than for other protocols, because the
// assistant's prompt is long.
var Conformance = testkit.Conformance{
	Name:  "vox",
	Serve: func(t *testing.T) testkit.Option { return Serve(t, nil, nil) },
	Talkers: map[string]testkit.Talker{
		"vox": {Dollars: 0.04, Begin: func(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
			return dialSpeaker(t, l, token, "gemini-3.8-live")
		}},
		"vox, typed": {Dollars: 0.0065, Tokens: 1500, Begin: dialTypedSpeaker},
	},
	SoundClients: map[string]testkit.SoundClient{"vox": {Begin: dialSoundCall}},
	FillQueues:   map[string]func(*testing.T, *testkit.Gateway) func(){"vox": fillQueues},
	Malformed:    []testkit.Malformed{{Name: "messages of VOX", Logs: 4, Send: sendMalformed}},
	Floods:       []testkit.Flood{{Name: "VOX: text and nonsense", Dial: dialFlooder}},
}

// dialSpeaker begins a conversation with a Live model or a text model.
func dialSpeaker(t *testing.T, l *testkit.LockedGateway, token, model string) testkit.Speaker {
	c := Dial(t, l.Gateway, nil)
	c.StartConversation(`,"model":"` + model + `","token":"` + token + `"`)
	s := testkit.NewSocketSpeaker(c.Client, "session_end", `{"type":"text","text":"More."}`)
	closed := s.AwaitEnd
	s.AwaitEnd = func(code int) {
		if c.AwaitEvent("session_end", nil); code == websocket.CloseNormalClosure { // another conversation may follow
			testkit.DropConnection(c.Client)
		} else {
			closed(code)
		}
	}
	return s
}

func dialTypedSpeaker(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	s := dialSpeaker(t, l, token, "gemini-2.5-flash")
	long := `{"type":"text","text":"` + strings.Repeat("word ", 4000) + `"}` // the emulator sends it back
	s.Ask = func() { _ = s.Conn.Conn.WriteMessage(websocket.TextMessage, []byte(long)) }
	return s
}

func dialSoundCall(t *testing.T, l *testkit.LockedGateway, token string) testkit.SoundCall {
	c := Dial(t, l.Gateway, nil)
	c.StartConversation(`,"model":"gemini-3.8-live","token":"` + token + `"`)
	return testkit.SoundCall{
		Client: c.Client, Rate: Rate,
		Press:    func() { c.Send(`{"type":"mute","muted":false}`) },
		Send:     func(piece []byte, _ testkit.Base64Encoding) { c.SendFrame(websocket.BinaryMessage, piece) },
		Release:  func() { c.Send(`{"type":"mute","muted":true}`) },
		HasVoice: func(m testkit.Message) bool { return m.Type == "sound" },
	}
}

func fillQueues(t *testing.T, g *testkit.Gateway) (leave func()) {
	c := Dial(t, g, nil)
	testkit.SendBurst(c.Client, `{"type":"start"}`, `{"type":"text","text":""}`)
	c.Client.AwaitEvent("ready")
	return func() { testkit.DropConnection(c.Client) }
}

// sendMalformed sends malformed frames in a conversation. The conversation must continue.
func sendMalformed(t *testing.T, l *testkit.LockedGateway, token string) (cases int) {
	c := Dial(t, l.Gateway, http.Header{"Authorization": {"Bearer " + token}})
	c.Send(`{"type":"start"}`)
	c.Client.AwaitEvent("ready")
	for _, bad := range testkit.SampleMalformed(2,
		`{"type":"text","text":""}`, `{"type":"mute","muted":false}`, `{"type":"answer","id":"7","yes":true}`,
		`{"type":"start","theme":"expert","model":"gemini-3.8-live","token":"x","projectContext":{"a":1},"resume":"x"}`,
	) {
		cases++
		c.SendTextFrame(bad)
	}
	c.SendFrame(websocket.BinaryMessage, []byte{0})
	c.Send(`{"type":"end"}`)
	c.Client.AwaitEvent("session_end")
	testkit.DropConnection(c.Client)
	return cases
}

func dialFlooder(t *testing.T, g *testkit.Gateway) testkit.Flooder {
	c := Dial(t, g, nil)
	c.Send(`{"type":"start"}`)
	c.Client.AwaitEvent("ready")
	return testkit.NewSocketFlooder(c.Client,
		`{"type":"text","text":"Tell me."}`, `{"type":"text","text":[`+testkit.RepeatJSON(20000, `[]`)+`]}`, `{`)
}
