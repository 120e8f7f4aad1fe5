package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
	"voxgate/internal/testkit"
	"voxgate/signaling"
)

// checkStillWorks checks that a conversation continues: a typed turn is answered by voice.
func checkStillWorks(t *testing.T, c *testkit.Client) {
	t.Helper()
	c.Send("SEND_MESSAGE", testkit.TextPayload("hi"))
	c.AwaitEvent("ASSISTANT_SPEAKING")
	c.AwaitEvent("AUDIO_CHUNK")
	c.AwaitEvent("TURN_COMPLETE")
}

func TestBadMessagesAreNamedAndTheConversationGoesOn(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, raw, code, field string }{
		{"no JSON", `{"type":`, "bad_message", ""},
		{"type is a number", `{"type":7}`, "bad_message", "type"},
		{"unknown type", `{"type":"SING"}`, "bad_message", "type"},
		{"server type", `{"type":"TURN_COMPLETE"}`, "bad_message", "type"},
		{"second connect", `{"type":"CONNECT_GEMINI","payload":{"initialConfig":{}}}`, "invalid_state", "type"},
		{"parts no array", `{"type":"SEND_MESSAGE","payload":{"parts":"hi"}}`, "bad_message", "payload.parts"},
		{
			"no parts and no end of the turn",
			`{"type":"SEND_MESSAGE","payload":{"parts":[],"turnComplete":false}}`,
			"bad_message",
			"payload.parts",
		},
		{
			"part of another kind",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"functionCall":{"name":"f"}}]}}`,
			"bad_message",
			"payload.parts[0]",
		},
		{
			"mimeType a number",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"inline_data":{"mime_type":7}}]}}`,
			"bad_message",
			"payload.parts[0].inlineData.mime_type",
		},
		{
			"image without data",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"image/png"}}]}}`,
			"bad_message",
			"payload.parts[0].inlineData.data",
		},
		{
			"image that is none",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}`,
			"bad_message",
			"payload.parts[0].inlineData.data",
		},
		{
			"image of another kind",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"image/gif","data":"AAAA"}}]}}`,
			"bad_message",
			"payload.parts[0].inlineData.mimeType",
		},
		{
			"typed audio at 24 kHz",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AAA="}}]}}`,
			"bad_message",
			"payload.parts[0].inlineData.mimeType",
		},
		{
			"turnComplete no bool",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"a"}],"turnComplete":"yes"}}`,
			"bad_message",
			"payload.turnComplete",
		},
		{"empty input", `{"type":"SEND_REALTIME_INPUT","payload":{}}`, "bad_message", "payload"},
		{
			"audio without type",
			`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"data":"AAAA"}}}`,
			"invalid_audio_format",
			"payload.audio.mimeType",
		},
		{
			"audio without data",
			`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm"}}}`,
			"invalid_audio_format",
			"payload.audio.data",
		},
		{
			"audio in MP3",
			`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/mpeg","data":"AAAA"}}}`,
			"invalid_audio_format",
			"payload.audio.mimeType",
		},
		{
			"a rate too high",
			`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=96000","data":"AAAAAA=="}}}`,
			"invalid_audio_format",
			"payload.audio.mimeType",
		},
		{
			"video in GIF",
			`{"type":"SEND_REALTIME_INPUT","payload":{"video":{"mimeType":"image/gif","data":"AAAA"}}}`,
			"bad_message",
			"payload.video.mimeType",
		},
		{"mark of words", `{"type":"SEND_REALTIME_INPUT","payload":{"activityStart":"now"}}`, "bad_message", "payload.activityStart"},
		{"empty chunks", `{"type":"SEND_REALTIME_INPUT","payload":{"chunks":[]}}`, "bad_message", "payload.chunks"},
		{
			"chunk of text",
			`{"type":"SEND_REALTIME_INPUT","payload":{"mediaChunks":[{"mimeType":"text/plain","data":"AAAA"}]}}`,
			"bad_message",
			"payload.mediaChunks[0].mimeType",
		},
		{"no tool response", `{"type":"SEND_TOOL_RESPONSE","payload":{}}`, "bad_message", "payload.toolResponse"},
		{
			"response without id",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"response":{}}]}}}`,
			"bad_message",
			"payload.toolResponse.functionResponses[0].id",
		},
		{
			"response not JSON",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{"a":b}}]}}}`,
			"bad_message",
			"payload.toolResponse.functionResponses[0].response",
		},
		{
			"odd scheduling",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{},"scheduling":"LATER"}]}}}`,
			"bad_message",
			"payload.toolResponse.functionResponses[0].scheduling",
		},
		{
			"parts without pictures",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{},"parts":[{"text":"x"}]}]}}}`,
			"bad_message",
			"payload.toolResponse.functionResponses[0].parts[0].inlineData",
		},
		{
			"nothing in a Content",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[` +
				`{"response":{"parts":[{"functionResponse":{"response":{}}}]}}]}}}`,
			"bad_message",
			"payload.toolResponse.functionResponses[0].response.parts[0].functionResponse.id",
		},
		{
			"picture that is none",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[` +
				`{"id":"1","response":{},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}]}}}`,
			"bad_message",
			"payload.toolResponse.functionResponses[0].parts[0].inlineData.data",
		},
		{
			"answer to nothing",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","name":"f","response":{"a":1}}]}}}`,
			"invalid_state",
			"",
		},
		{"update without payload", `{"type":"UPDATE_CONFIG"}`, "bad_message", "payload"},
		{"offer without sdp", `{"type":"WEBRTC_OFFER","payload":{}}`, "bad_offer", "payload.sdp"},
		{"long offer", `{"type":"WEBRTC_OFFER","payload":{"sdp":"` + strings.Repeat("v", 40<<10) + `"}}`, "bad_offer", "payload.sdp"},
		{"candidate a number", `{"type":"WEBRTC_ICE_CANDIDATE","payload":{"candidate":1}}`, "bad_message", "payload.candidate"},
		{"piece without id", `{"type":"PIECE","payload":{"index":0,"count":2,"data":"x"}}`, "bad_message", "payload.id"},
		{"piece out of order", `{"type":"PIECE","payload":{"id":"a","index":1,"count":2,"data":"x"}}`, "bad_message", "payload.index"},
		{"piece of nothing", `{"type":"PIECE","payload":{"id":"a","index":0,"count":0,"data":"x"}}`, "bad_message", "payload.count"},
		{"id a number", `{"type":"GET_CONTEXT","id":7}`, "bad_message", "id"},
		{"empty id", `{"type":"SEND_MESSAGE","id":"","payload":{"parts":[{"text":"a"}]}}`, "bad_message", "id"},
		{"long id", `{"type":"GET_CONTEXT","id":"` + strings.Repeat("x", 129) + `"}`, "bad_message", "id"},
		{"control message too long", `{"type":"UPDATE_CONFIG","payload":"` + strings.Repeat("x", 1<<20) + `"}`, "bad_message", "payload"},
		{
			"text too long",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"` + strings.Repeat("x", 1<<20) + `"}]}}`,
			"bad_message",
			"payload",
		},
		{
			"tool response too long",
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":"` + strings.Repeat(
				"x",
				1<<20,
			) + `"}]}}}`,
			"bad_message",
			"payload",
		},
		{
			"video too long",
			`{"type":"SEND_REALTIME_INPUT","payload":{"video":{"mimeType":"image/png","data":"` + strings.Repeat("A", 12<<20) + `"}}}`,
			"bad_message",
			"payload",
		},
	}
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	for i, test := range cases {
		c.SendTextFrame(test.raw)
		m := c.AwaitEvent("GEMINI_ERROR")
		t.Logf("%s: %s", test.name, m.Payload)
		testkit.CheckError(t, m, test.code, test.field)
		if n := c.CountMessages("GEMINI_ERROR"); n != i+1 {
			t.Fatalf("%s: %d errors for %d messages", test.name, n, i+1)
		}
	}
	c.SendFrame(websocket.BinaryMessage, []byte{1, 2, 3})
	c.AwaitError("bad_message", "")
	checkStillWorks(t, c)
	if n := c.CountMessages("GEMINI_ERROR"); n != len(cases)+1 {
		t.Errorf("%d errors for %d bad messages", n, len(cases)+1)
	}
}

func TestOddPartsAreReadAndTheConversationGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	picture := encodePicture(t, 0)
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	for _, test := range []struct{ name, parts, dropped, answer string }{
		{"type", `{"type":"text","text":"one"}`, "payload.parts[0].type", "one"},
		{"role", `{"role":"user","text":"two"}`, "payload.parts[0].role", "two"},
		{"a thought", `{"thought":"x","text":"three"}`, "payload.parts[0].thought", "three"},
		{"null", `{"thought":null,"inlineData":null,"text":"four"}`, "payload.parts[0].thought", "four"},
		{
			"too much in inlineData",
			`{"text":"five"},{"inline_data":{"mime_type":"image/png","data":"` + picture + `","displayName":"me.png"}}`,
			"payload.parts[1].inlineData.displayName", "five (image/png)",
		},
		{"text and data in one part", `{"text":"six","inlineData":{"mimeType":"image/png","data":"` + picture + `"}}`, "", "six (image/png)"},
		{"audio", `{"text":"seven"},{"inlineData":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}`, "", "seven (audio/pcm;rate=16000)"},
	} {
		all, dropped := c.CountWarnings(""), c.CountWarnings(test.dropped)
		c.Send("SEND_MESSAGE", `{"parts":[`+test.parts+`]}`)
		expectTranscript(c, "You said: "+test.answer)
		c.AwaitEvent("TURN_COMPLETE")
		want := 1
		if test.dropped == "" {
			want = 0
		}
		if c.CountWarnings("") != all+want || c.CountWarnings(test.dropped) != dropped+want {
			t.Errorf("%s: warned %d times, %d times of %s", test.name, c.CountWarnings("")-all, c.CountWarnings(test.dropped)-dropped, test.dropped)
		}
	}
	if n := c.CountMessages("GEMINI_ERROR"); n != 0 {
		t.Errorf("%d errors", n)
	}
}

func TestATurnInPartsEndsWithoutAny(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{"model":"gemini-3.1-flash-live-preview"}`)
	c.Send("SEND_MESSAGE", `{"parts":[{"text":"I was in Paris."}],"turnComplete":false}`)
	c.Send("SEND_MESSAGE", `{"parts":[],"turnComplete":true}`)
	expectTranscript(c, "You said: I was in Paris.")
	c.AwaitEvent("TURN_COMPLETE")
	if n := c.CountMessages("TURN_COMPLETE") + c.CountMessages("GEMINI_ERROR"); n != 1 {
		t.Errorf("answers and errors: %d, want an answer", n)
	}
}

func TestOnlyAnOfferMayComeBeforeConnect(t *testing.T) {
	t.Parallel()
	c := testkit.DialWebSocket(t, testkit.StartGateway(t).URL)
	for _, kind := range []string{
		"SEND_MESSAGE", "SEND_REALTIME_INPUT", "SEND_TOOL_RESPONSE", "UPDATE_CONFIG", "DISCONNECT_GEMINI", "NONSENSE",
	} {
		c.Send(kind, `{}`)
		c.AwaitError("not_connected", "type")
	}
	c.SendTextFrame(`{`)
	c.AwaitError("bad_message", "")
	c.Send("CONNECT_GEMINI", `{"initialConfig":{}}`)
	var connected struct {
		Protocol   int
		ICEServers []any
	}
	if err := json.Unmarshal(c.AwaitEvent("GEMINI_CONNECTED").Payload, &connected); err != nil || connected.Protocol != 1 ||
		connected.ICEServers == nil {
		t.Errorf("GEMINI_CONNECTED has %+v, %v", connected, err)
	}
	c.AwaitEvent("SETUP_COMPLETE")
	checkStillWorks(t, c)
}

// At most maxIncomplete messages in pieces, which is 4, may be incomplete.
func TestTooManyMessagesInPieces(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	for i := range 5 {
		c.Send("PIECE", fmt.Sprintf(`{"id":"%d","index":0,"count":2,"data":"x"}`, i))
	}
	c.AwaitError("stream_limit_exceeded", "payload.id")
	if n := c.CountMessages("GEMINI_ERROR"); n != 1 {
		t.Errorf("%d errors", n)
	}
	checkStillWorks(t, c)
}

func TestICEServersAreSent(t *testing.T) {
	t.Parallel()
	servers := []signaling.ICEServer{{URLs: []string{"turn:turn.example:3478"}, Username: "u", Credential: "c"}}
	c := testkit.DialWebSocket(t, testkit.StartGateway(t, func(o *testkit.Endpoints, _ *bridge.Options) {
		o.ICEServers = func() []signaling.ICEServer { return servers }
	}).URL)
	c.Send("CONNECT_GEMINI", `{}`)
	want := `"iceServers":[{"urls":["turn:turn.example:3478"],"username":"u","credential":"c"}]`
	if m := c.AwaitEvent("GEMINI_CONNECTED"); !strings.Contains(string(m.Payload), want) {
		t.Errorf("%v lacks %s", m, want)
	}
}

func TestSetupComplete(t *testing.T) {
	t.Parallel()
	c := testkit.DialWebSocket(t, testkit.StartGateway(t).URL+"/ws")
	c.Send("CONNECT_GEMINI", `{"initialConfig":{"model":"models/gemini-3.8-live","generationConfig":{"temperature":0.5}}}`)
	var p struct {
		Success                                bool
		SessionID, Model, Backend, ResumeToken string
		Resumed                                *bool
		EffectiveConfig                        map[string]any
	}
	c.AwaitEvent("SETUP_COMPLETE").DecodePayload(t, &p)
	if !p.Success || p.SessionID == "" || p.Model != api.DefaultModel || p.Backend != "emulator" || p.Resumed == nil || *p.Resumed ||
		p.ResumeToken != "" {
		t.Errorf("SETUP_COMPLETE has %+v", p)
	}
	if p.EffectiveConfig["generationConfig"] == nil || p.EffectiveConfig["inputAudioTranscription"] == nil {
		t.Errorf("effectiveConfig is %v", p.EffectiveConfig)
	}
}

func TestRefusedSetUp(t *testing.T) {
	t.Parallel()
	refusedKey := func(_ *testkit.Endpoints, o *bridge.Options) { o.Client.APIKey = "invalid" }
	noNetwork := func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Client.NetDial = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
	}
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "RESOURCE_EXHAUSTED", http.StatusTooManyRequests)
	}))
	t.Cleanup(full.Close)
	noQuota := func(_ *testkit.Endpoints, o *bridge.Options) { o.Client.BaseURL = full.URL }
	ok := func(*testkit.Endpoints, *bridge.Options) {}
	for _, test := range []struct {
		name, config, code, field string
		option                    testkit.Option
	}{
		{"wrong type", `{"generationConfig":{"topK":"many"}}`, "bad_config", "initialConfig.generationConfig.topK", ok},
		{"no object", `7`, "bad_config", "initialConfig", ok},
		{"refused key", `{}`, "authentication_failed", "", refusedKey},
		{"no network", `{}`, "connection_failed", "", noNetwork},
		{"no quota", `{}`, "busy", "", noQuota},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := testkit.DialWebSocket(t, testkit.StartGateway(t, test.option).URL)
			c.Send("CONNECT_GEMINI", `{"initialConfig":`+test.config+`}`)
			var p struct {
				Success *bool
				Error   struct {
					Message string
					Details struct {
						Code, Field string
						RetryAfter  int
					}
				}
			}
			c.AwaitEvent("SETUP_COMPLETE").DecodePayload(t, &p)
			if p.Success == nil || *p.Success || p.Error.Message == "" || p.Error.Details.Code != test.code || p.Error.Details.Field != test.field {
				t.Errorf("SETUP_COMPLETE has %+v", p)
			}
			if (p.Error.Details.RetryAfter > 0) != (test.code == "busy") {
				t.Errorf("%s: retryAfter is %d", test.code, p.Error.Details.RetryAfter)
			}
			c.AwaitError(test.code, test.field)
			c.AwaitEvent("GEMINI_DISCONNECTED")
			want := websocket.CloseNormalClosure
			if test.code == "busy" {
				want = websocket.CloseTryAgainLater
			}
			if code := c.AwaitCloseCode(); code != want {
				t.Errorf("closed with %d", code)
			}
		})
	}
}

// TestClientOfTheOldGuideStillWorks uses the example of the client guide word for word: a retired model, lower-case
// modalities, text.
func TestClientOfTheOldGuideStillWorks(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{
		"model": "models/gemini-2.0-flash-live-001",
		"systemInstruction": {"parts": [{"text": "You are a helpful assistant."}]},
		"generationConfig": {"responseModalities": ["text"], "stopSequences": ["END"]},
		"tools": [
			{"functionDeclarations": [{"name": "get_weather", "description": "w",
				"parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}]},
			{"googleSearch": {}}
		]
	}`)
	if n := c.CountWarnings(""); n < 2 {
		t.Errorf("%d warnings, want one for the model and one for stopSequences", n)
	}
	c.Send("SEND_MESSAGE", `{"parts":[{"text":"Hello, what is the weather today?"}],"turnComplete":true}`)
	var text strings.Builder
	c.AwaitEvent("TURN_COMPLETE")
	for _, m := range c.Messages() {
		var p struct {
			ServerContent struct {
				ModelTurn struct{ Parts []struct{ Text string } }
			}
		}
		if m.Type == "CONTENT_MESSAGE" && json.Unmarshal(m.Payload, &p) == nil {
			for _, part := range p.ServerContent.ModelTurn.Parts {
				text.WriteString(part.Text)
			}
		}
	}
	if got := text.String(); got != "You said: Hello, what is the weather today?" {
		t.Errorf("the answer in text is %q", got)
	}
	for _, m := range c.Messages() {
		if strings.Contains(string(m.Payload), "outputTranscription") && m.Type == "CONTENT_MESSAGE" {
			t.Errorf("the answer came a second time: %v", m)
		}
	}
	if n := c.CountMessages("AUDIO_CHUNK"); n != 0 {
		t.Errorf("%d AUDIO_CHUNKs for a client that asked for text", n)
	}
}

func TestPlainSocketSaysBackWhatItHears(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	c.SendAudio(testkit.MakeSentence(440, time.Second, 44100), 44100)
	for _, want := range []string{`{"speaking":true}`, `{"speaking":false}`} {
		if m := c.AwaitEvent("USER_SPEAKING"); string(m.Payload) != want || m.Seq == 0 {
			t.Errorf("%v, want %s", m, want)
		}
	}
	for _, want := range []string{`{"thinking":true}`, `{"thinking":false}`} {
		if m := c.AwaitEvent("ASSISTANT_THINKING"); string(m.Payload) != want || m.Seq == 0 {
			t.Errorf("%v, want %s", m, want)
		}
	}
	c.AwaitEvent("ASSISTANT_SPEAKING")
	c.AwaitEvent("TURN_COMPLETE")
	voice := testkit.TrimSilence(c.ReceivedVoice())
	if got := time.Duration(len(voice)) * time.Second / wire.OutputRate; got < 900*time.Millisecond || got > 1200*time.Millisecond {
		t.Errorf("heard %v of voice, want about 1s", got)
	}
	if level := testkit.ToneShare(voice, 440); level < 0.5 {
		t.Errorf("share of 440 Hz is %.2f", level)
	}
	if n := c.CountMessages("ASSISTANT_SPEAKING"); n != 1 {
		t.Errorf("%d times ASSISTANT_SPEAKING", n)
	}
	var in, out, usage, complete bool
	for _, m := range c.Messages() {
		if m.Type != "CONTENT_MESSAGE" {
			continue
		}
		var p struct{ ServerContent map[string]json.RawMessage }
		m.DecodePayload(t, &p)
		in = in || p.ServerContent["inputTranscription"] != nil
		out = out || p.ServerContent["outputTranscription"] != nil
		usage = usage || p.ServerContent["usageMetadata"] != nil
		complete = complete || p.ServerContent["turnComplete"] != nil
		if strings.Contains(string(m.Payload), "audio/pcm") {
			t.Errorf("audio in CONTENT_MESSAGE: %v", m)
		}
	}
	if !in || !out || !usage || !complete {
		t.Errorf("inputTranscription %v, outputTranscription %v, usageMetadata %v, turnComplete %v", in, out, usage, complete)
	}
}

func TestToolCall(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t)
	for name, form := range map[string]string{
		"flat":       `{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"temperature":"15C"}}]}}`,
		"old nested": `{"toolResponse":{"parts":[{"functionResponse":{"id":%q,"name":"get_weather","response":{"temperature":"15C"}}}]}}`,
		"half nested": `{"toolResponse":{"functionResponses":[` +
			`{"functionResponse":{"id":%q,"name":"get_weather","response":{"temperature":"15C"}}}]}}`,
		"no object": `{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":"15C"}]}}`,
		"in a Content": `{"toolResponse":{"functionResponses":[{"id":%q,"response":{"role":"user",` +
			`"parts":[{"functionResponse":{"name":"get_weather","response":{"temperature":"15C"}}}]}}]}}`,
		"all nested": `{"toolResponse":{"functionResponses":[{"response":{` +
			`"parts":[{"functionResponse":{"id":%q,"response":{"temperature":"15C"}}}]}}]}}`,
		"without name": `{"toolResponse":{"functionResponses":[{"id":%q,"response":{"temperature":"15C"}}]}}`,
		"without id":   `{"toolResponse":{"parts":[{"functionResponse":{"name":"get_weather","response":{"temperature":"15C"}}}]}}`,
		"nothing":      `{"toolResponse":{"functionResponses":[{"id":%q}]}}`,
		"null":         `{"toolResponse":{"functionResponses":[{"id":%q,"response":null}]}}`,
		"empty":        `{"toolResponse":{"functionResponses":[{"id":%q,"response":{}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testkit.OpenConversation(t, g, testkit.WeatherTool)
			c.Send("SEND_MESSAGE", testkit.TextPayload(`/tool get_weather {"location":"London","n":9007199254740993}`))
			id, args := expectCall(c, "get_weather")
			if !strings.Contains(args, "London") || !strings.Contains(args, "9007199254740993") {
				t.Errorf("args are %s", args)
			}
			answer := strings.Replace(form, "%q", strconv.Quote(id), 1)
			c.Send("SEND_TOOL_RESPONSE", answer)
			if strings.Contains(form, "15C") {
				expectTranscript(c, "15C")
			} else {
				expectTranscript(c, `{"output":"done"}`)
			}
			c.AwaitEvent("TURN_COMPLETE")
			for _, m := range c.Messages() {
				if strings.Contains(string(m.Payload), "functionResponse") {
					t.Errorf("the model got the form, too: %v", m)
				}
			}
			c.Send("SEND_TOOL_RESPONSE", answer) // a second answer is one too many
			c.AwaitError("invalid_state", "")
		})
	}
}

func TestToolCallCancellation(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(
		t, testkit.StartGateway(t), strings.Replace(testkit.WeatherTool, `"name"`, `"behavior":"BLOCKING","name"`, 1),
	)
	c.Send("SEND_MESSAGE", testkit.TextPayload(`/tool get_weather {"location":"London"}`))
	id, _ := expectCall(c, "get_weather")
	c.Send("SEND_MESSAGE", testkit.TextPayload("never mind"))
	m := c.AwaitEvent("TOOL_CALL_CANCELLATION")
	if !strings.Contains(string(m.Payload), id) {
		t.Errorf("%v does not name %s", m, id)
	}
	c.Send("SEND_TOOL_RESPONSE", fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"a":1}}]}}`, id))
	c.AwaitError("invalid_state", "")
}

func TestGroundingComesTwice(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{"tools":[{"googleSearch":{}}]}`)
	c.Send("SEND_MESSAGE", testkit.TextPayload("/ground"))
	m := c.AwaitEvent("groundingMetadata")
	var p struct {
		GroundingMetadata struct {
			SearchEntryPoint struct{ RenderedContent string }
		}
	}
	if err := json.Unmarshal(m.Payload, &p); err != nil || p.GroundingMetadata.SearchEntryPoint.RenderedContent == "" {
		t.Errorf("groundingMetadata has %s, %v", m.Payload, err)
	}
	in := false
	for _, m := range c.Messages() {
		in = in || m.Type == "CONTENT_MESSAGE" && strings.Contains(string(m.Payload), "groundingMetadata")
	}
	if !in {
		t.Error("no groundingMetadata in CONTENT_MESSAGE")
	}
}

func TestDeprecatedChunks(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t)
	for _, form := range []string{`{"chunks":[%s,{"mimeType":"audio/pcm","data":"AAAA"}]}`, `{"mediaChunks":%s}`} {
		c := testkit.OpenConversation(t, g, `{}`)
		pcm := testkit.MakeSentence(440, time.Second, 16000)
		for n := 1600; len(pcm) > 0; pcm = pcm[min(n, len(pcm)):] {
			blob := fmt.Sprintf(`{"mimeType":"audio/pcm;rate=16000","data":%q}`, testkit.Base64PCM(pcm[:min(n, len(pcm))]))
			c.Send("SEND_REALTIME_INPUT", fmt.Sprintf(form, blob))
		}
		c.AwaitEvent("TURN_COMPLETE")
		if n := c.CountWarnings("deprecated"); n != 1 {
			t.Errorf("%s: warned %d times", form, n)
		}
		if len(testkit.TrimSilence(c.ReceivedVoice())) < 20000 {
			t.Errorf("%s: no answer", form)
		}
	}
}

func TestRealtimeTextVideoAndMarks(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}`)
	c.Send("SEND_REALTIME_INPUT", `{"video":{"mimeType":"image/png","data":"`+encodePicture(t, 0)+`"}}`)
	c.Send("SEND_REALTIME_INPUT", `{"text":"{\"action\":\"button_click\",\"buttonId\":\"ok\"}"}`)
	expectTranscript(c, "button_click")
	c.AwaitEvent("TURN_COMPLETE")
	for _, mark := range []string{"true", "{}"} {
		c.Send("SEND_REALTIME_INPUT", `{"activityStart":`+mark+`}`)
		c.SendAudio(testkit.MakeTone(440, 500*time.Millisecond, 16000), 16000)
		c.Send("SEND_REALTIME_INPUT", `{"activityEnd":`+mark+`}`)
		c.AwaitEvent("ASSISTANT_SPEAKING")
		c.AwaitEvent("TURN_COMPLETE")
	}
	if n := c.CountMessages("GEMINI_ERROR"); n != 0 {
		t.Errorf("%d errors", n)
	}
}

func TestAudioStreamEndEndsTheSentence(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	c.SendAudio(testkit.MakeTone(440, time.Second, 16000), 16000)
	c.Send("SEND_REALTIME_INPUT", `{"audioStreamEnd":true}`)
	c.AwaitEvent("TURN_COMPLETE")
	if len(testkit.TrimSilence(c.ReceivedVoice())) < 20000 {
		t.Error("no answer")
	}
}

func TestTalkingOverTheAnswerInterruptsIt(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	c.SendAudio(testkit.MakeSentence(440, 4*time.Second, 16000), 16000)
	c.AwaitEvent("ASSISTANT_SPEAKING")
	c.SendAudio(testkit.MakeSentence(880, time.Second, 16000), 16000)
	_, at := c.AwaitMatch(c.At, "INTERRUPTED", func(m testkit.Message) bool { return m.Type == "INTERRUPTED" })
	c.At = at
	if n := len(testkit.TrimSilence(c.ReceivedVoice())); n > 3*wire.OutputRate {
		t.Errorf("%d samples of the answer came before the interruption", n)
	}
	c.AwaitEvent("ASSISTANT_SPEAKING")
	c.AwaitEvent("TURN_COMPLETE")
	for _, m := range c.Messages()[at:] {
		if m.Type == "TURN_COMPLETE" {
			break
		}
		if m.Type == "AUDIO_CHUNK" {
			pcm := testkit.DecodeChunk(t, m)
			if len(testkit.TrimSilence(pcm)) > 400 && testkit.IsTone(pcm, 440) {
				t.Fatal("the old answer goes on after INTERRUPTED")
			}
		}
	}
}

// Typed text interrupts, and a client without WebRTC learns which chunks to discard.
func TestTypedTextInterrupts(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	c.Send("SEND_MESSAGE", testkit.TextPayload("Once upon a time there was a parrot that never stopped talking to its friends."))
	c.AwaitEvent("AUDIO_CHUNK")
	c.AskText("stop")
	type payload struct {
		Generation uint32
		Heard      *string
		PlayedMs   *int64
	}
	var before, cut payload
	interrupted := false
	for _, m := range c.Messages() {
		var p payload
		if m.Type != "AUDIO_CHUNK" && m.Type != "INTERRUPTED" {
			continue
		}
		m.DecodePayload(t, &p)
		switch {
		case m.Type == "INTERRUPTED":
			interrupted, cut = true, p
		case !interrupted:
			before = p
		case p.Generation < cut.Generation:
			t.Fatalf("a chunk of generation %d after INTERRUPTED said %d", p.Generation, cut.Generation)
		}
	}
	if !interrupted || cut.Generation <= before.Generation || cut.Heard == nil || cut.PlayedMs == nil {
		t.Errorf("chunks of generation %d, then INTERRUPTED %+v", before.Generation, cut)
	}
}

func TestUpdateConfig(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	c.Send("UPDATE_CONFIG", `{"generationConfig":{"temperature":0.1}}`)
	m := c.AwaitEvent("SETUP_COMPLETE")
	if s := string(m.Payload); !strings.Contains(s, `"success":true`) || !strings.Contains(s, `"temperature":0.1`) {
		t.Errorf("after UPDATE_CONFIG: %v", m)
	}
	checkStillWorks(t, c)
	c.Send("UPDATE_CONFIG", `{"generationConfig":{"temperature":"hot"}}`)
	if m := c.AwaitEvent("SETUP_COMPLETE"); !strings.Contains(string(m.Payload), `"success":false`) {
		t.Errorf("after a bad UPDATE_CONFIG: %v", m)
	}
	c.AwaitError("session_config_update_failed", "payload.generationConfig.temperature")
	checkStillWorks(t, c)
}

func TestEndIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config, reason string
		end            func(*testing.T, *testkit.Gateway, *testkit.Client)
		code           int
	}{
		"goodbye": {`{}`, "goodbye", func(_ *testing.T, _ *testkit.Gateway, c *testkit.Client) {
			c.Send("DISCONNECT_GEMINI", "")
		}, websocket.CloseNormalClosure},
		"a limit": {
			`{"voxgate":{"maxDuration":"1s"}}`, `{"code":"time_limit","reason":"This conversation has reached its time limit."}`,
			func(*testing.T, *testkit.Gateway, *testkit.Client) {}, websocket.CloseNormalClosure,
		},
		"shutdown": {
			`{}`, `{"code":"shutdown","reason":"The gateway is shutting down."}`,
			func(t *testing.T, g *testkit.Gateway, _ *testkit.Client) {
				if err := g.Host.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			},
			websocket.CloseGoingAway,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := testkit.StartGateway(t)
			c := testkit.OpenConversation(t, g, test.config)
			test.end(t, g, c)
			if m := c.AwaitEvent("GEMINI_DISCONNECTED"); !strings.Contains(string(m.Payload), test.reason) {
				t.Errorf("got %v", m)
			}
			if code, n := c.AwaitCloseCode(), c.CountMessages("GEMINI_ERROR"); code != test.code || n != 0 {
				t.Errorf("closed with %d after %d errors", code, n)
			}
		})
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t)
	first := testkit.DialWebSocket(t, g.URL)
	first.Send("CONNECT_GEMINI", `{"initialConfig":`+testkit.WeatherTool+`,"resumable":true}`)
	session, token := testkit.ParseSetup(t, first.AwaitEvent("SETUP_COMPLETE"), false)
	first.Send("SEND_MESSAGE", testkit.TextPayload(`/tool get_weather {"location":"London"}`))
	id, _ := expectCall(first, "get_weather")
	first.Conn.Close()
	<-first.Done

	second := testkit.DialWebSocket(t, g.URL)
	second.Send("CONNECT_GEMINI", `{"resumable":true,"resumeToken":"`+token+`"}`)
	again, token2 := testkit.ParseSetup(t, second.AwaitEvent("SETUP_COMPLETE"), true)
	if again != session || token2 == token {
		t.Errorf("session %s became %s; a new token: %v", session, again, token2 != token)
	}
	if repeated, _ := expectCall(second, "get_weather"); repeated != id {
		t.Errorf("call %s came again as %s", id, repeated)
	}
	// The old token is valid until the new one was used, and a socket that is still open is replaced.
	third := testkit.DialWebSocket(t, g.URL)
	third.Send("CONNECT_GEMINI", `{"resumable":true,"resumeToken":"`+token+`"}`)
	_, token3 := testkit.ParseSetup(t, third.AwaitEvent("SETUP_COMPLETE"), true)
	if m := second.AwaitEvent("GEMINI_DISCONNECTED"); !strings.Contains(string(m.Payload), `"replaced"`) {
		t.Errorf("the replaced client got %v", m)
	}
	third.Send(
		"SEND_TOOL_RESPONSE",
		fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"a":"15C"}}]}}`, id),
	)
	expectTranscript(third, "15C")
	third.Conn.Close()
	<-third.Done

	for _, stale := range []string{token2, "nonsense"} {
		c := testkit.DialWebSocket(t, g.URL)
		c.Send("CONNECT_GEMINI", `{"initialConfig":{},"resumeToken":"`+stale+`"}`)
		if fresh, _ := testkit.ParseSetup(t, c.AwaitEvent("SETUP_COMPLETE"), false); fresh == session {
			t.Errorf("the void token %q opened the old conversation", stale)
		}
	}
	last := testkit.DialWebSocket(t, g.URL)
	last.Send("CONNECT_GEMINI", `{"resumeToken":"`+token3+`"}`)
	testkit.ParseSetup(t, last.AwaitEvent("SETUP_COMPLETE"), true)
	checkStillWorks(t, last)
	last.Send("DISCONNECT_GEMINI", "")
	last.AwaitEvent("GEMINI_DISCONNECTED")
}

func TestWhoMayConnect(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, func(o *testkit.Endpoints, _ *bridge.Options) {
		o.Origins = []string{"https://app.example"}
		o.Hosts = []string{"voice.example", "dotted.example."}
	})
	self := strings.TrimPrefix(g.HTTP, "http://")
	for _, test := range []struct {
		name, origin, host string
		status             int
	}{
		{"no browser", "", "", 101},
		{"our own page", "http://" + self, "", 101},
		{"an app on the list", "https://app.example", "", 101},
		{"a stranger's page", "https://evil.example", "", 403},
		{"a stranger with our name in its own", "http://" + self + ".evil.example", "", 403},
		{"a sandboxed frame", "null", "", 403},
		{"a rebound name", "http://evil.example", "evil.example", 421},
		{"a rebound name without origin", "", "evil.example", 421},
		{"a name on the list", "http://voice.example", "voice.example", 101},
		{"a name on the list, with its dot", "https://VOICE.example.", "voice.example.", 101},
		{"a name with its dot, from a page without", "http://voice.example:443", "voice.example.:443", 101},
		{"an app on the list, with its dot", "https://app.example.", "", 101},
		{"another port of an app on the list", "https://app.example:8443", "", 403},
		{"localhost", "", "localhost:3001", 101},
		{"localhost with its dot", "http://localhost.:3001", "localhost.:3001", 101},
		{"a name that is on the list with its dot", "", "dotted.example", 101},
		{"a dot alone", "", ".", 421},
		{"two dots", "", "localhost..", 421},
	} {
		header := http.Header{}
		if test.origin != "" {
			header.Set("Origin", test.origin)
		}
		if test.host != "" {
			header.Set("Host", test.host)
		}
		conn, resp, err := websocket.DefaultDialer.Dial(g.URL, header)
		if err == nil {
			conn.Close()
		}
		if resp == nil || resp.StatusCode != test.status {
			t.Errorf("%s: %v, %v; want %d", test.name, resp, err, test.status)
		}
	}
}

func TestPageAndStatus(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t)
	for path, want := range map[string]int{"/": 200, "/status": 200, "/ws": 426, "/nothing": 404} {
		resp, err := http.Get(g.HTTP + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
		if resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("GET %s has no Content-Security-Policy", path)
		}
	}
	for _, path := range []string{"/nothing", "/status", "/ws/more"} { // WebSockets are accepted only at endpoints for WebSockets
		if _, resp, err := websocket.DefaultDialer.Dial(strings.TrimSuffix(g.URL, "/")+path, nil); err == nil || resp == nil ||
			resp.StatusCode != http.StatusNotFound {
			t.Errorf("a WebSocket at %s: %v, %v", path, resp, err)
		}
	}
	resp, err := http.Post(g.HTTP+"/", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %d", resp.StatusCode)
	}
}

// TestLongMessages: whether a message may be long depends on its type, which must then come first.
func TestLongMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	long := strings.Repeat("x", 5<<18)
	picture := encodePicture(t, 1<<20)
	for _, test := range []struct{ name, raw, field string }{
		{"no JSON", long, "type"},
		{
			"type behind",
			`{"payload":{"parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"` + picture + `"}}]},` +
				`"type":"SEND_MESSAGE"}`,
			"type",
		},
		{
			"type at the end of the head",
			`{"payload":"` + strings.Repeat("x", 64<<10-30) + `","type":"SEND_MESSAGE","more":"` + long + `"}`,
			"type",
		},
		{"no type", `{"payload":"` + long + `"}`, "type"},
		{"type a number", `{"type":7,"payload":"` + long + `"}`, "type"},
		{"a type that is not long", `{"type":"PING","payload":"` + long + `"}`, "payload"},
		{"another type than it began with", `{"type":"SEND_MESSAGE","payload":"` + long + `","type":"UPDATE_CONFIG"}`, "payload"},
		{"a type that nobody knows", `{"type":"` + long + `"}`, "type"},
		{"too long for any", `{"type":"SEND_MESSAGE","payload":"` + strings.Repeat("x", 11<<20) + `"}`, "payload"},
	} {
		c.SendTextFrame(test.raw)
		m := c.AwaitError("bad_message", test.field)
		t.Logf("%s: %s", test.name, m.Payload)
	}
	for _, raw := range []string{
		`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"one"},{"inlineData":{"mimeType":"image/png","data":"` + picture + `"}}]}}`,
		` { "id" : "7", "t\u0079pe" : "SEND_MESSAGE",` +
			` "payload":{"parts":[{"text":"two"},{"inlineData":{"mimeType":"image/png","data":"` + picture + `"}}]}}`,
		`{"payload":{"parts":[{"text":"three"},{"inlineData":{"mimeType":"image/png","data":"` + encodePicture(t, 500<<10) + `"}}]},` +
			`"type":"SEND_MESSAGE"}`,
	} {
		c.SendTextFrame(raw)
		expectTranscript(c, "(image/png)")
		c.AwaitEvent("TURN_COMPLETE")
	}
	c.AskText("Are you there?")
}

// toolCall is the payload of a TOOL_CALL.
type toolCall struct {
	ToolCall struct {
		FunctionCalls []struct {
			ID, Name string
			Args     json.RawMessage
		}
	}
}

// expectCall waits for the call of a tool.
func expectCall(c *testkit.Client, name string) (id string, args string) {
	c.T.Helper()
	var call toolCall
	c.AwaitEvent("TOOL_CALL").DecodePayload(c.T, &call)
	calls := call.ToolCall.FunctionCalls
	if len(calls) != 1 || calls[0].Name != name || calls[0].ID == "" {
		c.T.Fatalf("TOOL_CALL has %+v", calls)
	}
	return calls[0].ID, string(calls[0].Args)
}

// expectTranscript waits until the transcript of the model contains text.
func expectTranscript(c *testkit.Client, text string) {
	c.T.Helper()
	var said strings.Builder
	_, c.At = c.AwaitMatch(c.At, fmt.Sprintf("%q in the answer", text), func(m testkit.Message) bool {
		var p struct {
			ServerContent struct{ OutputTranscription struct{ Text string } }
		}
		if m.Type == "CONTENT_MESSAGE" && json.Unmarshal(m.Payload, &p) == nil {
			said.WriteString(p.ServerContent.OutputTranscription.Text)
		}
		return strings.Contains(said.String(), text)
	})
}

// encodePicture returns a small PNG in base64, with a number of zero bytes behind the image.
func encodePicture(t *testing.T, behind int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	b.Write(make([]byte, behind))
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
