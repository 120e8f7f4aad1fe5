// Package mediastreamtest provides clients that emulate a telephony provider. The tests of package testkit use them to check
// the rules that apply to all protocols. It is imported by tests only.
package mediastreamtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/phone/mediastream"
	"voxgate/signaling/rtc"
)

// Conformance holds the clients that emulate a provider.
var Conformance = testkit.Conformance{
	Name:         "telephony",
	Serve:        Serve,
	Talkers:      map[string]testkit.Talker{"telephony": {Begin: dialSpeaker}},
	SoundClients: map[string]testkit.SoundClient{"telephony": {Begin: dialSoundCall, NoRelease: true}},
	FillQueues:   map[string]func(*testing.T, *testkit.Gateway) func(){"telephony": fillQueues},
	Malformed:    []testkit.Malformed{{Name: "messages of a telephony provider", Logs: 9, Send: sendMalformed}},
	Floods: []testkit.Flood{{Name: "telephony: sound of 120 KB, digits and nonsense", Dial: flooderDialer(
		`{"event":"media","media":{"payload":"`+strings.Repeat("A", 120<<10)+`"}}`, `{"event":"dtmf","dtmf":{"digit":"1"}}`,
		`{"event":"nonsense","more":[`+testkit.RepeatJSON(40000, `[]`)+`]}`, `{`)}},
}

const (
	streamPath   = "/telephony/exotel/stream?call=C1&to=100"
	startMessage = `{"event":"start","stream_sid":"MZ1","start":{"stream_sid":"MZ1","call_sid":"C1",` +
		`"media_format":{"encoding":"audio/x-raw","sample_rate":"8000"}}}`
)

// password is the provider's password in gateways without server keys.
var password = http.Header{"Authorization": {"Basic dm94Z2F0ZTpzaG93bg=="}} // voxgate:shown

// Serve configures a provider that authenticates with a password or, if the gateway has server keys, with a server key
// or session token.
func Serve(t *testing.T) testkit.Option {
	t.Helper()
	file := filepath.Join(t.TempDir(), "telephony.json")
	return func(d *testkit.Endpoints, _ *bridge.Options) {
		config := fmt.Sprintf(`{"publicURL":"http://127.0.0.1",
			"providers":[{"profile":"exotel","password":"shown","access":%v}],"callsPerSecond":1000}`, d.Access.HasKeys())
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		d.AddEndpoints(func(host *bridge.Host, _ *rtc.API) []signaling.Endpoint {
			s := testkit.Must(mediastream.New(file, mediastream.Options{Host: host, Agents: testkit.Agents, Gate: d.Access, Logger: d.Logger}))
			t.Cleanup(s.Close)
			return s.Endpoints()
		})
	}
}

// Dial begins a call with a token.
func Dial(t *testing.T, g *testkit.Gateway, token string) *testkit.Client {
	t.Helper()
	return dial(t, g, http.Header{"Authorization": {"Bearer " + token}})
}

func dial(t *testing.T, g *testkit.Gateway, header http.Header) *testkit.Client {
	t.Helper()
	c := testkit.DialProtocol(t, g.URL+streamPath, header, func(_ int, raw []byte) testkit.Message {
		var m struct{ Event string }
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		return testkit.Message{Type: m.Event}
	})
	c.SendTextFrame(startMessage)
	return c
}

func dialSpeaker(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	c := Dial(t, l.Gateway, token)
	testkit.Eventually(t, "call", func() bool { // waits for any call of this protocol; other sessions may end in the meantime
		return slices.ContainsFunc(l.Host.Sessions(), func(i bridge.Info) bool { return i.Protocol == "telephony" })
	})
	s := testkit.NewSocketSpeaker(c, "")
	s.More = func() {
		for pcm := range slices.Chunk(testkit.MakeSentence(440, time.Second, 8000), 160) {
			_ = c.Conn.WriteMessage(websocket.TextMessage,
				[]byte(`{"event":"media","stream_sid":"MZ1","media":{"payload":"`+testkit.Base64PCM(pcm)+`"}}`))
		}
	}
	s.Ask = s.More
	return s
}

func dialSoundCall(t *testing.T, l *testkit.LockedGateway, token string) testkit.SoundCall {
	c := Dial(t, l.Gateway, token)
	return testkit.SoundCall{
		Client: c, Rate: 8000,
		Send: func(piece []byte, encode testkit.Base64Encoding) {
			c.SendTextFrame(`{"event":"media","stream_sid":"MZ1","media":{"payload":"` + encode(piece) + `"}}`)
		},
		HasVoice: func(m testkit.Message) bool { return m.Type == "media" },
	}
}

func fillQueues(t *testing.T, g *testkit.Gateway) (leave func()) {
	c := dial(t, g, password)
	testkit.SendBurst(c, `{"event":"dtmf","stream_sid":"MZ1","dtmf":{"digit":"1"}}`,
		`{"event":"media","stream_sid":"MZ1","media":{"payload":"AAAA"}}`)
	c.SendTextFrame(`{"event":"dtmf","stream_sid":"MZ1","dtmf":{"digit":"#"}}`)
	testkit.Eventually(t, "answer", func() bool { list := g.Host.Sessions(); return len(list) > 0 && list[0].Turns > 0 })
	return func() { testkit.DropConnection(c) }
}

// sendMalformed sends malformed messages at the start of a call and later in a call.
func sendMalformed(t *testing.T, l *testkit.LockedGateway, token string) (cases int) {
	bearer := http.Header{"Authorization": {"Bearer " + token}}
	for _, bad := range testkit.SampleMalformed(4, startMessage) {
		cases++
		c := testkit.DialProtocol(t, l.URL+streamPath, bearer, func(int, []byte) testkit.Message { return testkit.Message{} })
		_ = c.Conn.WriteMessage(websocket.TextMessage, []byte(bad)) // an error is ignored: the gateway may have rejected the call already
		testkit.DropConnection(c)
	}
	testkit.Eventually(t, "the end of those calls", func() bool { return len(l.Host.Sessions()) == 0 })
	for _, bad := range testkit.SampleMalformed(2, `{"event":"media","stream_sid":"MZ1","media":{"payload":"AAAA","timestamp":"7"}}`,
		`{"event":"dtmf","stream_sid":"MZ1","dtmf":{"digit":"1","duration":"100"}}`, `{"event":"mark","stream_sid":"MZ1","mark":{"name":"x"}}`) {
		cases++
		c := dial(t, l.Gateway, bearer)
		for _, text := range []string{bad, `{"event":"stop","stream_sid":"MZ1"}`} {
			_ = c.Conn.WriteMessage(websocket.TextMessage, []byte(text)) // an error is ignored: the call may have ended
		}
		c.AwaitCloseCode()
	}
	return cases
}

// flooderDialer returns a function that begins a call, and returns a client that sends the messages repeatedly.
func flooderDialer(messages ...string) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
		running := len(g.Host.Sessions())
		c := dial(t, g, password)
		testkit.Eventually(t, "call", func() bool { return len(g.Host.Sessions()) > running })
		return testkit.NewSocketFlooder(c, messages...)
	}
}
