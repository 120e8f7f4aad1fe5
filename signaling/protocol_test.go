package signaling_test

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
	"voxgate/signaling"
)

// stillWorks proves that a conversation goes on: a typed turn is answered by voice.
func stillWorks(t *testing.T, c *client) {
	t.Helper()
	c.send("SEND_MESSAGE", typed("hi"))
	c.expect("ASSISTANT_SPEAKING")
	c.expect("AUDIO_CHUNK")
	c.expect("TURN_COMPLETE")
}

func TestBadMessagesAreNamedAndTheConversationGoesOn(t *testing.T) {
	t.Parallel()
	odd := base64.StdEncoding.EncodeToString([]byte{1, 2, 3})
	cases := []struct{ name, raw, code, field string }{
		{"no JSON", `{"type":`, "bad_message", ""},
		{"type is a number", `{"type":7}`, "bad_message", "type"},
		{"unknown type", `{"type":"SING"}`, "bad_message", "type"},
		{"server type", `{"type":"TURN_COMPLETE"}`, "bad_message", "type"},
		{"second connect", `{"type":"CONNECT_GEMINI","payload":{"initialConfig":{}}}`, "invalid_state", "type"},
		{"parts no array", `{"type":"SEND_MESSAGE","payload":{"parts":"hi"}}`, "bad_message", "payload.parts"},
		{"no parts and no end of the turn", `{"type":"SEND_MESSAGE","payload":{"parts":[],"turnComplete":false}}`, "bad_message", "payload.parts"},
		{"part of another kind", `{"type":"SEND_MESSAGE","payload":{"parts":[{"functionCall":{"name":"f"}}]}}`, "bad_message", "payload.parts[0]"},
		{"mimeType a number", `{"type":"SEND_MESSAGE","payload":{"parts":[{"inline_data":{"mime_type":7}}]}}`, "bad_message", "payload.parts[0].inlineData.mime_type"},
		{"image without data", `{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"image/png"}}]}}`, "bad_message", "payload.parts[0].inlineData.data"},
		{"image that is none", `{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}`, "bad_message", "payload.parts[0].inlineData.data"},
		{"image of another kind", `{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"image/webp","data":"AAAA"}}]}}`, "bad_message", "payload.parts[0].inlineData.mimeType"},
		{"typed audio at 24 kHz", `{"type":"SEND_MESSAGE","payload":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AAA="}}]}}`, "bad_message", "payload.parts[0].inlineData.mimeType"},
		{"turnComplete no bool", `{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"a"}],"turnComplete":"yes"}}`, "bad_message", "payload.turnComplete"},
		{"empty input", `{"type":"SEND_REALTIME_INPUT","payload":{}}`, "bad_message", "payload"},
		{"audio without type", `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"data":"AAAA"}}}`, "invalid_audio_format", "payload.audio.mimeType"},
		{"audio without data", `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm"}}}`, "invalid_audio_format", "payload.audio.data"},
		{"half a sample", `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm","data":"` + odd + `"}}}`, "invalid_audio_format", "payload.audio.data"},
		{"audio in MP3", `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/mpeg","data":"AAAA"}}}`, "invalid_audio_format", "payload.audio.mimeType"},
		{"a rate too high", `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=96000","data":"AAAAAA=="}}}`, "invalid_audio_format", "payload.audio.mimeType"},
		{"video in GIF", `{"type":"SEND_REALTIME_INPUT","payload":{"video":{"mimeType":"image/gif","data":"AAAA"}}}`, "bad_message", "payload.video.mimeType"},
		{"mark of words", `{"type":"SEND_REALTIME_INPUT","payload":{"activityStart":"now"}}`, "bad_message", "payload.activityStart"},
		{"empty chunks", `{"type":"SEND_REALTIME_INPUT","payload":{"chunks":[]}}`, "bad_message", "payload.chunks"},
		{"chunk of text", `{"type":"SEND_REALTIME_INPUT","payload":{"mediaChunks":[{"mimeType":"text/plain","data":"AAAA"}]}}`, "bad_message", "payload.mediaChunks[0].mimeType"},
		{"no tool response", `{"type":"SEND_TOOL_RESPONSE","payload":{}}`, "bad_message", "payload.toolResponse"},
		{"response without id", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"response":{}}]}}}`, "bad_message", "payload.toolResponse.functionResponses[0].id"},
		{"response not JSON", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{"a":b}}]}}}`, "bad_message", "payload.toolResponse.functionResponses[0].response"},
		{"odd scheduling", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{},"scheduling":"LATER"}]}}}`, "bad_message", "payload.toolResponse.functionResponses[0].scheduling"},
		{"parts without pictures", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{},"parts":[{"text":"x"}]}]}}}`, "bad_message", "payload.toolResponse.functionResponses[0].parts[0].inlineData"},
		{"nothing in a Content", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"response":{"parts":[{"functionResponse":{"response":{}}}]}}]}}}`, "bad_message", "payload.toolResponse.functionResponses[0].response.parts[0].functionResponse.id"},
		{"picture that is none", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}]}}}`, "bad_message", "payload.toolResponse.functionResponses[0].parts[0].inlineData.data"},
		{"answer to nothing", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","name":"f","response":{"a":1}}]}}}`, "invalid_state", ""},
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
		{"text too long", `{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"` + strings.Repeat("x", 1<<20) + `"}]}}`, "bad_message", "payload"},
		{"tool response too long", `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":"` + strings.Repeat("x", 1<<20) + `"}]}}}`, "bad_message", "payload"},
		{"video too long", `{"type":"SEND_REALTIME_INPUT","payload":{"video":{"mimeType":"image/png","data":"` + strings.Repeat("A", 12<<20) + `"}}}`, "bad_message", "payload"},
	}
	c := connect(t, newGateway(t), `{}`)
	for i, test := range cases {
		c.raw(websocket.TextMessage, []byte(test.raw))
		m := c.expect("GEMINI_ERROR")
		t.Logf("%s: %s", test.name, m.Payload)
		checkError(t, m, test.code, test.field)
		if n := c.count("GEMINI_ERROR"); n != i+1 {
			t.Fatalf("%s: %d errors for %d messages", test.name, n, i+1)
		}
	}
	c.raw(websocket.BinaryMessage, []byte{1, 2, 3})
	c.expectError("bad_message", "")
	stillWorks(t, c)
	if n := c.count("GEMINI_ERROR"); n != len(cases)+1 {
		t.Errorf("%d errors for %d bad messages", n, len(cases)+1)
	}
}

func TestOddPartsAreReadAndTheConversationGoesOn(t *testing.T) {
	t.Parallel()
	picture := aPicture(t, 0)
	c := connect(t, newGateway(t), `{}`)
	for _, test := range []struct{ name, parts, dropped, answer string }{
		{"type", `{"type":"text","text":"one"}`, "payload.parts[0].type", "one"},
		{"role", `{"role":"user","text":"two"}`, "payload.parts[0].role", "two"},
		{"a thought", `{"thought":"x","text":"three"}`, "payload.parts[0].thought", "three"},
		{"null", `{"thought":null,"inlineData":null,"text":"four"}`, "payload.parts[0].thought", "four"},
		{"too much in inlineData", `{"text":"five"},{"inline_data":{"mime_type":"image/png","data":"` + picture + `","displayName":"me.png"}}`, "payload.parts[1].inlineData.displayName", "five (image/png)"},
		{"text and data in one part", `{"text":"six","inlineData":{"mimeType":"image/png","data":"` + picture + `"}}`, "", "six (image/png)"},
		{"audio", `{"text":"seven"},{"inlineData":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}`, "", "seven (audio/pcm;rate=16000)"},
	} {
		all, dropped := c.warned(""), c.warned(test.dropped)
		c.send("SEND_MESSAGE", `{"parts":[`+test.parts+`]}`)
		c.expectTranscript("You said: " + test.answer)
		c.expect("TURN_COMPLETE")
		want := 1
		if test.dropped == "" {
			want = 0
		}
		if c.warned("") != all+want || c.warned(test.dropped) != dropped+want {
			t.Errorf("%s: warned %d times, %d times of %s", test.name, c.warned("")-all, c.warned(test.dropped)-dropped, test.dropped)
		}
	}
	if n := c.count("GEMINI_ERROR"); n != 0 {
		t.Errorf("%d errors", n)
	}
}

func TestATurnInPartsEndsWithoutAny(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{"model":"gemini-3.1-flash-live-preview"}`)
	c.send("SEND_MESSAGE", `{"parts":[{"text":"I was in Paris."}],"turnComplete":false}`)
	c.send("SEND_MESSAGE", `{"parts":[],"turnComplete":true}`)
	c.expectTranscript("You said: I was in Paris.")
	c.expect("TURN_COMPLETE")
	if n := c.count("TURN_COMPLETE") + c.count("GEMINI_ERROR"); n != 1 {
		t.Errorf("answers and errors: %d, want an answer", n)
	}
}

// aPicture is a PNG in base64, with so many bytes behind it.
func aPicture(t *testing.T, behind int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	b.Write(make([]byte, behind))
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestOnlyAnOfferMayComeBeforeConnect(t *testing.T) {
	t.Parallel()
	c := dial(t, newGateway(t).url)
	for _, kind := range []string{"SEND_MESSAGE", "SEND_REALTIME_INPUT", "SEND_TOOL_RESPONSE", "UPDATE_CONFIG", "DISCONNECT_GEMINI", "NONSENSE"} {
		c.send(kind, `{}`)
		c.expectError("not_connected", "type")
	}
	c.raw(websocket.TextMessage, []byte(`{`))
	c.expectError("bad_message", "")
	c.send("CONNECT_GEMINI", `{"initialConfig":{}}`)
	var connected struct {
		Protocol   int
		ICEServers []any
	}
	if err := json.Unmarshal(c.expect("GEMINI_CONNECTED").Payload, &connected); err != nil || connected.Protocol != 1 || connected.ICEServers == nil {
		t.Errorf("GEMINI_CONNECTED has %+v, %v", connected, err)
	}
	c.expect("SETUP_COMPLETE")
	stillWorks(t, c)
}

// maxPuzzles of messages in pieces may be incomplete at once.
func TestTooManyMessagesInPieces(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	for i := range 5 {
		c.send("PIECE", fmt.Sprintf(`{"id":"%d","index":0,"count":2,"data":"x"}`, i))
	}
	c.expectError("stream_limit_exceeded", "payload.id")
	if n := c.count("GEMINI_ERROR"); n != 1 {
		t.Errorf("%d errors", n)
	}
	stillWorks(t, c)
}

func TestICEServersAreTold(t *testing.T) {
	t.Parallel()
	servers := []signaling.ICEServer{{URLs: []string{"turn:turn.example:3478"}, Username: "u", Credential: "c"}}
	c := dial(t, newGateway(t, func(o *doors, _ *bridge.Options) { o.ICEServers = servers }).url)
	c.send("CONNECT_GEMINI", `{}`)
	want := `"iceServers":[{"urls":["turn:turn.example:3478"],"username":"u","credential":"c"}]`
	if m := c.expect("GEMINI_CONNECTED"); !strings.Contains(string(m.Payload), want) {
		t.Errorf("%v lacks %s", m, want)
	}
}

func TestSetupComplete(t *testing.T) {
	t.Parallel()
	c := dial(t, newGateway(t).url+"/ws")
	c.send("CONNECT_GEMINI", `{"initialConfig":{"model":"models/gemini-3.8-live","generationConfig":{"temperature":0.5}}}`)
	var p struct {
		Success                                bool
		SessionID, Model, Backend, ResumeToken string
		Resumed                                *bool
		EffectiveConfig                        map[string]any
	}
	c.expect("SETUP_COMPLETE").read(t, &p)
	if !p.Success || p.SessionID == "" || p.Model != api.DefaultModel || p.Backend != "emulator" || p.Resumed == nil || *p.Resumed || p.ResumeToken != "" {
		t.Errorf("SETUP_COMPLETE has %+v", p)
	}
	if p.EffectiveConfig["generationConfig"] == nil || p.EffectiveConfig["inputAudioTranscription"] == nil {
		t.Errorf("effectiveConfig is %v", p.EffectiveConfig)
	}
}

func TestRefusedSetUp(t *testing.T) {
	t.Parallel()
	refusedKey := func(_ *doors, o *bridge.Options) { o.Client.APIKey = "invalid" }
	noNetwork := func(_ *doors, o *bridge.Options) {
		o.Client.NetDial = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
	}
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "RESOURCE_EXHAUSTED", http.StatusTooManyRequests)
	}))
	t.Cleanup(full.Close)
	noQuota := func(_ *doors, o *bridge.Options) { o.Client.BaseURL = full.URL }
	ok := func(*doors, *bridge.Options) {}
	for _, test := range []struct {
		name, config, code, field string
		option                    option
	}{
		{"wrong type", `{"generationConfig":{"topK":"many"}}`, "bad_config", "initialConfig.generationConfig.topK", ok},
		{"no object", `7`, "bad_config", "initialConfig", ok},
		{"refused key", `{}`, "authentication_failed", "", refusedKey},
		{"no network", `{}`, "connection_failed", "", noNetwork},
		{"no quota", `{}`, "busy", "", noQuota},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, newGateway(t, test.option).url)
			c.send("CONNECT_GEMINI", `{"initialConfig":`+test.config+`}`)
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
			c.expect("SETUP_COMPLETE").read(t, &p)
			if p.Success == nil || *p.Success || p.Error.Message == "" || p.Error.Details.Code != test.code || p.Error.Details.Field != test.field {
				t.Errorf("SETUP_COMPLETE has %+v", p)
			}
			if (p.Error.Details.RetryAfter > 0) != (test.code == "busy") {
				t.Errorf("%s: retryAfter is %d", test.code, p.Error.Details.RetryAfter)
			}
			c.expectError(test.code, test.field)
			c.expect("GEMINI_DISCONNECTED")
			want := websocket.CloseNormalClosure
			if test.code == "busy" {
				want = websocket.CloseTryAgainLater
			}
			if code := c.closeCode(); code != want {
				t.Errorf("closed with %d", code)
			}
		})
	}
}

// seedClient is the example of the client guide to the letter: a retired model, lower-case modalities, text.
func TestClientOfTheOldGuideStillWorks(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{
		"model": "models/gemini-2.0-flash-live-001",
		"systemInstruction": {"parts": [{"text": "You are a helpful assistant."}]},
		"generationConfig": {"responseModalities": ["text"], "stopSequences": ["END"]},
		"tools": [{"functionDeclarations": [{"name": "get_weather", "description": "w", "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}]}, {"googleSearch": {}}]
	}`)
	if n := c.warned(""); n < 2 {
		t.Errorf("%d warnings, want one for the model and one for stopSequences", n)
	}
	c.send("SEND_MESSAGE", `{"parts":[{"text":"Hello, what is the weather today?"}],"turnComplete":true}`)
	var text strings.Builder
	c.expect("TURN_COMPLETE")
	for _, m := range c.all() {
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
	for _, m := range c.all() {
		if strings.Contains(string(m.Payload), "outputTranscription") && m.Type == "CONTENT_MESSAGE" {
			t.Errorf("the answer came a second time: %v", m)
		}
	}
	if n := c.count("AUDIO_CHUNK"); n != 0 {
		t.Errorf("%d AUDIO_CHUNKs for a client that asked for text", n)
	}
}

func TestPlainSocketSaysBackWhatItHears(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	c.say(sentence(440, time.Second, 44100), 44100)
	for _, want := range []string{`{"speaking":true}`, `{"speaking":false}`} {
		if m := c.expect("USER_SPEAKING"); string(m.Payload) != want || m.Seq == 0 {
			t.Errorf("%v, want %s", m, want)
		}
	}
	for _, want := range []string{`{"thinking":true}`, `{"thinking":false}`} {
		if m := c.expect("ASSISTANT_THINKING"); string(m.Payload) != want || m.Seq == 0 {
			t.Errorf("%v, want %s", m, want)
		}
	}
	c.expect("ASSISTANT_SPEAKING")
	c.expect("TURN_COMPLETE")
	voice := loud(c.heard())
	if got := time.Duration(len(voice)) * time.Second / wire.OutputRate; got < 900*time.Millisecond || got > 1200*time.Millisecond {
		t.Errorf("heard %v of voice, want about 1s", got)
	}
	if level := toneShare(voice, 440); level < 0.5 {
		t.Errorf("share of 440 Hz is %.2f", level)
	}
	if n := c.count("ASSISTANT_SPEAKING"); n != 1 {
		t.Errorf("%d times ASSISTANT_SPEAKING", n)
	}
	var in, out, usage, complete bool
	for _, m := range c.all() {
		if m.Type != "CONTENT_MESSAGE" {
			continue
		}
		var p struct{ ServerContent map[string]json.RawMessage }
		m.read(t, &p)
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

const weatherTool = `{"tools":[{"functionDeclarations":[{"name":"get_weather","description":"the weather","parameters":{"type":"OBJECT","properties":{"location":{"type":"STRING"}}}}]}]}`

func typed(text string) string {
	return string(must(json.Marshal(map[string]any{"parts": []any{map[string]string{"text": text}}, "turnComplete": true})))
}

type toolCall struct {
	ToolCall struct {
		FunctionCalls []struct {
			ID, Name string
			Args     json.RawMessage
		}
	}
}

func (c *client) expectCall(name string) (id string, args string) {
	c.t.Helper()
	var call toolCall
	c.expect("TOOL_CALL").read(c.t, &call)
	calls := call.ToolCall.FunctionCalls
	if len(calls) != 1 || calls[0].Name != name || calls[0].ID == "" {
		c.t.Fatalf("TOOL_CALL has %+v", calls)
	}
	return calls[0].ID, string(calls[0].Args)
}

// expectTranscript waits until the model has said text.
func (c *client) expectTranscript(text string) {
	c.t.Helper()
	var said strings.Builder
	_, c.at = c.wait(c.at, fmt.Sprintf("%q in the answer", text), func(m message) bool {
		var p struct {
			ServerContent struct{ OutputTranscription struct{ Text string } }
		}
		if m.Type == "CONTENT_MESSAGE" && json.Unmarshal(m.Payload, &p) == nil {
			said.WriteString(p.ServerContent.OutputTranscription.Text)
		}
		return strings.Contains(said.String(), text)
	})
}

func TestToolCall(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for name, form := range map[string]string{
		"flat":         `{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"temperature":"15C"}}]}}`,
		"old nested":   `{"toolResponse":{"parts":[{"functionResponse":{"id":%q,"name":"get_weather","response":{"temperature":"15C"}}}]}}`,
		"half nested":  `{"toolResponse":{"functionResponses":[{"functionResponse":{"id":%q,"name":"get_weather","response":{"temperature":"15C"}}}]}}`,
		"no object":    `{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":"15C"}]}}`,
		"in a Content": `{"toolResponse":{"functionResponses":[{"id":%q,"response":{"role":"user","parts":[{"functionResponse":{"name":"get_weather","response":{"temperature":"15C"}}}]}}]}}`,
		"all nested":   `{"toolResponse":{"functionResponses":[{"response":{"parts":[{"functionResponse":{"id":%q,"response":{"temperature":"15C"}}}]}}]}}`,
		"without name": `{"toolResponse":{"functionResponses":[{"id":%q,"response":{"temperature":"15C"}}]}}`,
		"without id":   `{"toolResponse":{"parts":[{"functionResponse":{"name":"get_weather","response":{"temperature":"15C"}}}]}}`,
		"nothing":      `{"toolResponse":{"functionResponses":[{"id":%q}]}}`,
		"null":         `{"toolResponse":{"functionResponses":[{"id":%q,"response":null}]}}`,
		"empty":        `{"toolResponse":{"functionResponses":[{"id":%q,"response":{}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, g, weatherTool)
			c.send("SEND_MESSAGE", typed(`/tool get_weather {"location":"London","n":9007199254740993}`))
			id, args := c.expectCall("get_weather")
			if !strings.Contains(args, "London") || !strings.Contains(args, "9007199254740993") {
				t.Errorf("args are %s", args)
			}
			answer := strings.Replace(form, "%q", strconv.Quote(id), 1)
			c.send("SEND_TOOL_RESPONSE", answer)
			if strings.Contains(form, "15C") {
				c.expectTranscript("15C")
			} else {
				c.expectTranscript(`{"output":"done"}`)
			}
			c.expect("TURN_COMPLETE")
			for _, m := range c.all() {
				if strings.Contains(string(m.Payload), "functionResponse") {
					t.Errorf("the model got the form, too: %v", m)
				}
			}
			c.send("SEND_TOOL_RESPONSE", answer) // a second answer is one too many
			c.expectError("invalid_state", "")
		})
	}
}

func TestToolCallCancellation(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), strings.Replace(weatherTool, `"name"`, `"behavior":"BLOCKING","name"`, 1))
	c.send("SEND_MESSAGE", typed(`/tool get_weather {"location":"London"}`))
	id, _ := c.expectCall("get_weather")
	c.send("SEND_MESSAGE", typed("never mind"))
	m := c.expect("TOOL_CALL_CANCELLATION")
	if !strings.Contains(string(m.Payload), id) {
		t.Errorf("%v does not name %s", m, id)
	}
	c.send("SEND_TOOL_RESPONSE", fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"a":1}}]}}`, id))
	c.expectError("invalid_state", "")
}

func TestGroundingComesTwice(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{"tools":[{"googleSearch":{}}]}`)
	c.send("SEND_MESSAGE", typed("/ground"))
	m := c.expect("groundingMetadata")
	var p struct {
		GroundingMetadata struct {
			SearchEntryPoint struct{ RenderedContent string }
		}
	}
	if err := json.Unmarshal(m.Payload, &p); err != nil || p.GroundingMetadata.SearchEntryPoint.RenderedContent == "" {
		t.Errorf("groundingMetadata has %s, %v", m.Payload, err)
	}
	in := false
	for _, m := range c.all() {
		in = in || m.Type == "CONTENT_MESSAGE" && strings.Contains(string(m.Payload), "groundingMetadata")
	}
	if !in {
		t.Error("no groundingMetadata in CONTENT_MESSAGE")
	}
}

func TestDeprecatedChunks(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, form := range []string{`{"chunks":[%s,{"mimeType":"audio/pcm","data":"AAAA"}]}`, `{"mediaChunks":%s}`} {
		c := connect(t, g, `{}`)
		pcm := sentence(440, time.Second, 16000)
		for n := 1600; len(pcm) > 0; pcm = pcm[min(n, len(pcm)):] {
			blob := fmt.Sprintf(`{"mimeType":"audio/pcm;rate=16000","data":%q}`, base64PCM(pcm[:min(n, len(pcm))]))
			c.send("SEND_REALTIME_INPUT", fmt.Sprintf(form, blob))
		}
		c.expect("TURN_COMPLETE")
		if n := c.warned("deprecated"); n != 1 {
			t.Errorf("%s: warned %d times", form, n)
		}
		if len(loud(c.heard())) < 20000 {
			t.Errorf("%s: no answer", form)
		}
	}
}

func TestRealtimeTextVideoAndMarks(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}`)
	c.send("SEND_REALTIME_INPUT", `{"video":{"mimeType":"image/png","data":"`+aPicture(t, 0)+`"}}`)
	c.send("SEND_REALTIME_INPUT", `{"text":"{\"action\":\"button_click\",\"buttonId\":\"ok\"}"}`)
	c.expectTranscript("button_click")
	c.expect("TURN_COMPLETE")
	for _, mark := range []string{"true", "{}"} {
		c.send("SEND_REALTIME_INPUT", `{"activityStart":`+mark+`}`)
		c.say(tone(440, 500*time.Millisecond, 16000), 16000)
		c.send("SEND_REALTIME_INPUT", `{"activityEnd":`+mark+`}`)
		c.expect("ASSISTANT_SPEAKING")
		c.expect("TURN_COMPLETE")
	}
	if n := c.count("GEMINI_ERROR"); n != 0 {
		t.Errorf("%d errors", n)
	}
}

func TestAudioStreamEndEndsTheSentence(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	c.say(tone(440, time.Second, 16000), 16000)
	c.send("SEND_REALTIME_INPUT", `{"audioStreamEnd":true}`)
	c.expect("TURN_COMPLETE")
	if len(loud(c.heard())) < 20000 {
		t.Error("no answer")
	}
}

func TestTalkingOverTheAnswerInterruptsIt(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	c.say(sentence(440, 4*time.Second, 16000), 16000)
	c.expect("ASSISTANT_SPEAKING")
	c.say(sentence(880, time.Second, 16000), 16000)
	_, at := c.wait(c.at, "INTERRUPTED", func(m message) bool { return m.Type == "INTERRUPTED" })
	c.at = at
	if n := len(loud(c.heard())); n > 3*wire.OutputRate {
		t.Errorf("%d samples of the answer came before the interruption", n)
	}
	c.expect("ASSISTANT_SPEAKING")
	c.expect("TURN_COMPLETE")
	for _, m := range c.all()[at:] {
		if m.Type == "TURN_COMPLETE" {
			break
		}
		if m.Type == "AUDIO_CHUNK" {
			pcm := chunk(t, m)
			if len(loud(pcm)) > 400 && toneIs(pcm, 440) {
				t.Fatal("the old answer goes on after INTERRUPTED")
			}
		}
	}
}

// Typed text interrupts, and a client without WebRTC is told which chunks are void.
func TestTypedTextInterrupts(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	c.send("SEND_MESSAGE", typed("Once upon a time there was a parrot that never stopped talking to its friends."))
	c.expect("AUDIO_CHUNK")
	c.ask("stop")
	type payload struct {
		Generation uint32
		Heard      *string
		PlayedMs   *int64
	}
	var before, cut payload
	interrupted := false
	for _, m := range c.all() {
		var p payload
		if m.Type != "AUDIO_CHUNK" && m.Type != "INTERRUPTED" {
			continue
		}
		m.read(t, &p)
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
	c := connect(t, newGateway(t), `{}`)
	c.send("UPDATE_CONFIG", `{"generationConfig":{"temperature":0.1}}`)
	m := c.expect("SETUP_COMPLETE")
	if s := string(m.Payload); !strings.Contains(s, `"success":true`) || !strings.Contains(s, `"temperature":0.1`) {
		t.Errorf("after UPDATE_CONFIG: %v", m)
	}
	stillWorks(t, c)
	c.send("UPDATE_CONFIG", `{"generationConfig":{"temperature":"hot"}}`)
	if m := c.expect("SETUP_COMPLETE"); !strings.Contains(string(m.Payload), `"success":false`) {
		t.Errorf("after a bad UPDATE_CONFIG: %v", m)
	}
	c.expectError("session_config_update_failed", "payload.generationConfig.temperature")
	stillWorks(t, c)
}

func TestTheEndIsTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config, reason string
		end            func(*testing.T, *gateway, *client)
		code           int
	}{
		"goodbye": {`{}`, "goodbye", func(_ *testing.T, _ *gateway, c *client) { c.send("DISCONNECT_GEMINI", "") }, websocket.CloseNormalClosure},
		"a limit": {`{"voxgate":{"maxDuration":"1s"}}`, "time limit", func(*testing.T, *gateway, *client) {}, websocket.CloseNormalClosure},
		"shutdown": {`{}`, "shutting down", func(t *testing.T, g *gateway, _ *client) {
			if err := g.host.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}, websocket.CloseGoingAway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			c := connect(t, g, test.config)
			test.end(t, g, c)
			if m := c.expect("GEMINI_DISCONNECTED"); !strings.Contains(string(m.Payload), test.reason) {
				t.Errorf("told %v", m)
			}
			if code, n := c.closeCode(), c.count("GEMINI_ERROR"); code != test.code || n != 0 {
				t.Errorf("closed with %d after %d errors", code, n)
			}
		})
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	first := dial(t, g.url)
	first.send("CONNECT_GEMINI", `{"initialConfig":`+weatherTool+`,"resumable":true}`)
	session, token := setup(t, first.expect("SETUP_COMPLETE"), false)
	first.send("SEND_MESSAGE", typed(`/tool get_weather {"location":"London"}`))
	id, _ := first.expectCall("get_weather")
	first.conn.Close()
	<-first.done

	second := dial(t, g.url)
	second.send("CONNECT_GEMINI", `{"resumable":true,"resumeToken":"`+token+`"}`)
	again, token2 := setup(t, second.expect("SETUP_COMPLETE"), true)
	if again != session || token2 == token {
		t.Errorf("session %s became %s; a new token: %v", session, again, token2 != token)
	}
	if repeated, _ := second.expectCall("get_weather"); repeated != id {
		t.Errorf("call %s came again as %s", id, repeated)
	}
	// The old token is good until the new one was used, and a socket that still hangs is replaced.
	third := dial(t, g.url)
	third.send("CONNECT_GEMINI", `{"resumable":true,"resumeToken":"`+token+`"}`)
	_, token3 := setup(t, third.expect("SETUP_COMPLETE"), true)
	if m := second.expect("GEMINI_DISCONNECTED"); !strings.Contains(string(m.Payload), `"replaced"`) {
		t.Errorf("the replaced client was told %v", m)
	}
	third.send("SEND_TOOL_RESPONSE", fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"a":"15C"}}]}}`, id))
	third.expectTranscript("15C")
	third.conn.Close()
	<-third.done

	for _, stale := range []string{token2, "nonsense"} {
		c := dial(t, g.url)
		c.send("CONNECT_GEMINI", `{"initialConfig":{},"resumeToken":"`+stale+`"}`)
		if fresh, _ := setup(t, c.expect("SETUP_COMPLETE"), false); fresh == session {
			t.Errorf("the void token %q opened the old conversation", stale)
		}
	}
	last := dial(t, g.url)
	last.send("CONNECT_GEMINI", `{"resumeToken":"`+token3+`"}`)
	setup(t, last.expect("SETUP_COMPLETE"), true)
	stillWorks(t, last)
	last.send("DISCONNECT_GEMINI", "")
	last.expect("GEMINI_DISCONNECTED")
}

// setup reads SETUP_COMPLETE.
func setup(t *testing.T, m message, resumed bool) (session, token string) {
	t.Helper()
	var p struct {
		Success, Resumed       bool
		SessionID, ResumeToken string
	}
	m.read(t, &p)
	if !p.Success || p.Resumed != resumed {
		t.Fatalf("SETUP_COMPLETE is %v, want resumed %v", m, resumed)
	}
	return p.SessionID, p.ResumeToken
}

func TestWhoMayConnect(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(o *doors, _ *bridge.Options) {
		o.origins = []string{"https://app.example"}
		o.hosts = []string{"voice.example", "dotted.example."}
	})
	self := strings.TrimPrefix(g.http, "http://")
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
		conn, resp, err := websocket.DefaultDialer.Dial(g.url, header)
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
	g := newGateway(t)
	for path, want := range map[string]int{"/": 200, "/status": 200, "/ws": 426, "/nothing": 404} {
		resp, err := http.Get(g.http + path)
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
	for _, path := range []string{"/nothing", "/status", "/ws/more"} { // a WebSocket is served where one is expected only
		if _, resp, err := websocket.DefaultDialer.Dial(strings.TrimSuffix(g.url, "/")+path, nil); err == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("a WebSocket at %s: %v, %v", path, resp, err)
		}
	}
	resp, err := http.Post(g.http+"/", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %d", resp.StatusCode)
	}
}
