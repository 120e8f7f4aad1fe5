// Package openaitest has clients of OpenAI's Realtime API for the tests that all protocols must pass. It is imported by
// tests only.
package openaitest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/internal/testkit"
)

// textItem is the event of a typed message.
const textItem = `{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"%s"}]}}`

// ManualSession is a session in which the client marks the end of each question.
const ManualSession = `{"type":"realtime","audio":{"input":{"turn_detection":null}}}`

// Conformance holds clients of the Realtime API for the conformance tests.
var Conformance = testkit.Conformance{
	Name:    "openai",
	Serve:   func(*testing.T) testkit.Option { return Serve },
	Talkers: map[string]testkit.Talker{"openai": {Begin: dialSpeaker}, "openai calls": {Begin: dialSpeakerByWebRTC}},
	SoundClients: map[string]testkit.SoundClient{
		"openai": {Begin: soundCallDialer(`{"type":"realtime"}`, `{"type":"input_audio_buffer.commit"}`)},
		"openai, by hand": {
			Begin:       soundCallDialer(ManualSession, `{"type":"input_audio_buffer.commit"}`, `{"type":"response.create"}`),
			ManualTurns: true,
		},
	},
	PostOffer: postOffer, NeedsAudio: true,
	FillQueues: map[string]func(*testing.T, *testkit.Gateway) func(){
		"openai, by socket": fillQueues, "openai, by WebRTC": fillQueuesByWebRTC,
	},
	Malformed: []testkit.Malformed{{Name: "events of OpenAI's clients", Logs: 4, Send: sendMalformed}},
	Floods: []testkit.Flood{
		{Name: "OpenAI: sound of 9 MB", Every: time.Second / 30, Long: true, Dial: flooderDialer(
			`{"type":"input_audio_buffer.append","audio":"` + strings.Repeat("A", 9<<20) + `"}`)},
		{Name: "OpenAI: items, sessions and nonsense", Dial: flooderDialer(
			fmt.Sprintf(textItem, "Hi"),
			`{"type":"session.update","session":{"type":"realtime","tools":[`+
				testkit.RepeatJSON(2000, `{"type":"function","name":"f","parameters":{"type":"object"}}`)+`]}}`,
			`{"type":"nonsense"}`)},
		{Name: "OpenAI: events by a data channel", Dial: dialChannelFlooder},
	},
	StartPaths: map[string]string{"/v1/realtime/calls": "application/sdp", "/v1/realtime/client_secrets": "application/json"},
}

// dial opens a WebSocket with a token.
func dial(t *testing.T, l *testkit.LockedGateway, token string) *Client {
	return Dial(t, l.Gateway, "?model=gpt-realtime", http.Header{"Authorization": {"Bearer " + token}})
}

func dialSpeaker(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	c := dial(t, l, token)
	c.ConfigureSession(`{"type":"realtime"}`)
	return testkit.NewSocketSpeaker(c.Client, "", fmt.Sprintf(textItem, "More."), `{"type":"response.create"}`)
}

func dialSpeakerByWebRTC(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	c, p, _ := DialCall(t, l.Gateway, token, nil)
	c.ConfigureSession(`{"type":"realtime"}`)
	s := testkit.NewPhoneSpeaker(p)
	long := fmt.Sprintf(textItem, strings.Repeat("word ", 8000))
	s.Conn, s.Ask = c.Client, func() {
		for range 10 { // more than the megabyte that a peer buffers
			c.Send(long)
		}
	}
	return s
}

// soundCallDialer returns a function that begins a call with this session. ends are the events that end a question.
func soundCallDialer(session string, ends ...string) func(*testing.T, *testkit.LockedGateway, string) testkit.SoundCall {
	return func(t *testing.T, l *testkit.LockedGateway, token string) testkit.SoundCall {
		c := dial(t, l, token)
		c.ConfigureSession(session)
		return testkit.SoundCall{
			Client: c.Client, Rate: 24000,
			Send: func(piece []byte, encode testkit.Base64Encoding) {
				c.Send(`{"type":"input_audio_buffer.append","audio":"` + encode(piece) + `"}`)
			},
			Release: func() {
				for _, event := range ends {
					c.Send(event)
				}
			},
			HasVoice: func(m testkit.Message) bool { return m.Type == "response.output_audio.delta" },
		}
	}
}

func postOffer(t *testing.T, g *testkit.Gateway, offer string) (text string, isAnswer bool) {
	const path = "/v1/realtime/calls"
	resp, text := testkit.SendHTTP(
		t, http.MethodPost, g.HTTP+path, offer, "Content-Type", "application/sdp", "Authorization", "Bearer x",
	)
	if resp.StatusCode >= http.StatusInternalServerError {
		t.Errorf("%s: %s", resp.Status, text)
	}
	if at := resp.Header.Get("Location"); at != "" {
		testkit.SendHTTP(t, http.MethodPost, g.HTTP+at+"/hangup", "", "Authorization", "Bearer x")
	}
	return text, resp.StatusCode < 300
}

func fillQueues(t *testing.T, g *testkit.Gateway) (leave func()) {
	c := Dial(t, g, "?model=gpt-realtime", nil)
	testkit.SendBurst(c.Client, `{"type":"session.update","session":{"type":"realtime","instructions":"Be brief."}}`,
		`{"type":"input_audio_buffer.append","audio":"AAA="}`)
	c.AskText("Are you there?")
	c.AwaitResponse()
	return func() { testkit.DropConnection(c.Client) }
}

func fillQueuesByWebRTC(t *testing.T, g *testkit.Gateway) (leave func()) {
	c, p, _ := DialCall(t, g, "", FormRequest(`{"type":"realtime","model":"gpt-realtime"}`))
	c.AwaitEvent("session.created")
	for range testkit.MoreThanAnyQueue / 4 { // the gateway reads only 50 of these a second
		c.Send(`{"type":"input_audio_buffer.clear"}`)
	}
	c.AskText("Are you there?")
	c.AwaitResponse()
	return p.HangUp
}

// sendMalformed sends malformed events in a session, which continues.
func sendMalformed(t *testing.T, l *testkit.LockedGateway, token string) (cases int) {
	c := dial(t, l, token)
	c.AwaitEvent("session.created")
	for _, bad := range testkit.SampleMalformed(2,
		`{"type":"session.update","event_id":"e","session":{"type":"realtime","output_modalities":["audio"],`+
			`"audio":{"input":{"format":{"type":"audio/pcm","rate":24000},"turn_detection":{"type":"server_vad"}}},`+
			`"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]}}`,
		fmt.Sprintf(textItem, "a"),
		`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"c","output":"{}"}}`,
		`{"type":"conversation.item.truncate","item_id":"i","content_index":0,"audio_end_ms":7}`,
		`{"type":"input_audio_buffer.append","audio":"AAAA"}`,
	) {
		cases++
		c.SendTextFrame(bad)
	}
	c.SendFrame(websocket.BinaryMessage, []byte{0})
	c.Send(`{"type":"input_audio_buffer.clear"}`)
	c.AwaitEvent("input_audio_buffer.cleared")
	testkit.DropConnection(c.Client)
	return cases
}

func flooderDialer(events ...string) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
		c := Dial(t, g, "?model=gpt-realtime", nil)
		c.AwaitEvent("session.created")
		return testkit.NewSocketFlooder(c.Client, events...)
	}
}

func dialChannelFlooder(t *testing.T, g *testkit.Gateway) testkit.Flooder {
	c, p, _ := DialCall(t, g, "", FormRequest(`{"type":"realtime","model":"gpt-realtime"}`))
	c.AwaitEvent("session.created")
	event := `{"type":"nonsense","event_id":"` + strings.Repeat("A", 60<<10) + `"}`
	tick := time.NewTicker(time.Millisecond) // Pion's send buffer has no limit, so send slowly
	return testkit.Flooder{
		Send: func(int) bool { <-tick.C; c.Send(event); return true },
		End:  func() { tick.Stop(); p.HangUp() },
	}
}
