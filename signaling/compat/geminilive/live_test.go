package geminilive_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	"image/jpeg"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/genai"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/signaling/compat/geminilive/geminilivetest"
	"voxgate/tools"
)

// sdk is Google's Go SDK, connected to a gateway.
type sdk struct {
	*genai.Session
	t       *testing.T
	handles []string
}

func connectSDK(t *testing.T, g *testkit.Gateway, token string, config genai.LiveConnectConfig) (*sdk, error) {
	t.Helper()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: token, HTTPOptions: genai.HTTPOptions{BaseURL: g.URL, APIVersion: "v1beta"},
	})
	if err != nil {
		t.Fatal(err)
	}
	config.InputAudioTranscription, config.OutputAudioTranscription = &genai.AudioTranscriptionConfig{}, &genai.AudioTranscriptionConfig{}
	config.ResponseModalities = []genai.Modality{genai.ModalityAudio}
	session, err := client.Live.Connect(t.Context(), "gemini-3.8-live", &config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { session.Close() })
	return &sdk{Session: session, t: t}, nil
}

func mustConnectSDK(t *testing.T, g *testkit.Gateway, config genai.LiveConnectConfig) *sdk {
	t.Helper()
	s, err := connectSDK(t, g, "anything", config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spoken is a turn of the model as the client has received it.
type spoken struct {
	pcm         []int16
	said, heard string
	interrupted int
	usage       *genai.UsageMetadata
	call        *genai.FunctionCall
}

// receive collects messages until one is the last expected one.
func (s *sdk) receive(last func(*genai.LiveServerMessage) bool) (turn spoken) {
	s.t.Helper()
	defer time.AfterFunc(testkit.Patience, func() { s.Close() }).Stop() // otherwise it would wait forever
	for {
		m, err := s.Receive()
		if err != nil {
			s.t.Fatalf("%v; so far %+v", err, turn)
		}
		if m.GoAway != nil {
			s.t.Error("goAway has come through")
		}
		if u := m.SessionResumptionUpdate; u != nil && u.Resumable {
			s.handles = append(s.handles, u.NewHandle)
		}
		if c := m.ServerContent; c != nil {
			if c.ModelTurn != nil {
				for _, p := range c.ModelTurn.Parts {
					if p.InlineData != nil {
						turn.pcm = media.AppendSamples(turn.pcm, p.InlineData.Data)
					}
				}
			}
			if c.InputTranscription != nil {
				turn.heard += c.InputTranscription.Text
			}
			if c.OutputTranscription != nil {
				turn.said += c.OutputTranscription.Text
			}
			if c.Interrupted {
				turn.interrupted++
			}
		}
		if m.UsageMetadata != nil {
			turn.usage = m.UsageMetadata
		}
		if m.ToolCall != nil {
			turn.call = m.ToolCall.FunctionCalls[0]
		}
		if last(m) {
			return turn
		}
	}
}

func turnComplete(m *genai.LiveServerMessage) bool {
	return m.ServerContent != nil && m.ServerContent.TurnComplete
}

func hasVoice(m *genai.LiveServerMessage) bool {
	return m.ServerContent != nil && m.ServerContent.ModelTurn != nil
}

// sendTurns requests an answer to turns. They are the person's unless they begin with "model:".
func (s *sdk) sendTurns(complete bool, texts ...string) {
	s.t.Helper()
	var turns []*genai.Content
	for _, text := range texts {
		role := genai.Role(genai.RoleUser)
		text, isModel := strings.CutPrefix(text, "model:")
		if isModel {
			role = genai.RoleModel
		}
		turns = append(turns, genai.NewContentFromText(text, role))
	}
	if err := s.SendClientContent(genai.LiveClientContentInput{Turns: turns, TurnComplete: &complete}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sdk) askText(text string) spoken {
	s.t.Helper()
	s.sendTurns(true, text)
	return s.receive(turnComplete)
}

func (s *sdk) sendAudio(pcm []int16) {
	s.t.Helper()
	for piece := range slices.Chunk(pcm, 320) {
		audio := &genai.Blob{Data: media.AppendBytes(nil, piece), MIMEType: "audio/pcm;rate=16000"}
		if err := s.SendRealtimeInput(genai.LiveRealtimeInput{Audio: audio}); err != nil {
			s.t.Fatal(err)
		}
	}
}

var weather = []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
	Name:       "weather",
	Parameters: &genai.Schema{Type: genai.TypeObject, Properties: map[string]*genai.Schema{"my_city": {Type: genai.TypeString}}},
}}}}

// TestLiveSDK holds a conversation with Google's own client: by voice, by text, and with a tool of the client.
func TestLiveSDK(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{Tools: weather})
	s.sendAudio(testkit.MakeSentence(440, time.Second, 16000))
	turn := s.receive(turnComplete)
	if mediatest.ToneLevel(turn.pcm, bridge.VoiceRate, 440) < 0.5 || !strings.Contains(turn.heard, "of speech") ||
		!strings.HasPrefix(turn.said, "You said") ||
		turn.usage == nil {
		t.Errorf("heard %q, said %q in %d samples, usage %v", turn.heard, turn.said, len(turn.pcm), turn.usage)
	}
	began, machine := time.Now(), mediatest.MeasureLateness(t)
	s.sendTurns(true, "One two three four five six seven eight nine ten")
	turn = s.receive(func(m *genai.LiveServerMessage) bool {
		return m.ServerContent != nil && m.ServerContent.GenerationComplete
	})
	voice, took := media.Duration(len(turn.pcm), bridge.VoiceRate), time.Since(began)
	if voice < time.Second || took > voice && machine.CanJudge(t, voice) {
		t.Errorf("%v of voice took %v to come: Google's clients have it sooner than they can play it", voice, took)
	}
	s.receive(turnComplete)
	s.sendTurns(true, `/tool weather {"my_city":"Rome"}`)
	if got := s.receive(func(m *genai.LiveServerMessage) bool { return m.ToolCall != nil }); got.call.Args["my_city"] != "Rome" {
		t.Error("the tool was asked for something else")
	}
}

// TestLiveToolCall makes the model call a tool of the client, and one of the operator, which is hidden from the client.
func TestLiveToolCall(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, seen), func(_ *testkit.Endpoints, ho *bridge.Options) {
		ho.Tools = func() []tools.Tool {
			return []tools.Tool{
				{Declaration: tools.Declaration{Name: "clock"}, Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(`{"time":"noon"}`), nil
				}},
			}
		}
	})
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{Tools: weather})
	s.sendTurns(true, "/tool clock {}")
	for answered := false; !answered; {
		turn := s.receive(turnComplete)
		if turn.call != nil {
			t.Errorf("the client is asked for %s", turn.call.Name)
		}
		answered = strings.Contains(turn.said, "noon")
	}
	s.sendTurns(true, `/tool weather {"my_city":"Rome"}`)
	call := s.receive(func(m *genai.LiveServerMessage) bool { return m.ToolCall != nil }).call
	s.receive(turnComplete) // the end of the turn with the call, because the call does not block
	if err := s.SendToolResponse(genai.LiveToolResponseInput{FunctionResponses: []*genai.FunctionResponse{
		{ID: call.ID, Name: call.Name, Response: map[string]any{"my_answer": "sunny"}, Scheduling: genai.FunctionResponseSchedulingInterrupt},
	}}); err != nil {
		t.Fatal(err)
	}
	if turn := s.receive(turnComplete); !strings.Contains(turn.said, `{"my_answer":"sunny"}`) {
		t.Errorf("said %q", turn.said)
	}
	if answers := seen.EventsOf(emulator.EventToolResponse); len(answers) != 2 {
		t.Errorf("the model was answered %+v", answers)
	}
}

// TestLiveInterrupted sends text during an answer: the client gets one "interrupted", then the end of the turn, and
// no more of the answer.
func TestLiveInterrupted(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{})
	s.sendTurns(true, strings.Repeat("many words ", 30))
	s.receive(hasVoice)
	s.sendTurns(true, "Stop")
	if cut := s.receive(turnComplete); cut.interrupted != 1 {
		t.Errorf("got %d times that the answer is interrupted", cut.interrupted)
	}
	if turn := s.receive(turnComplete); turn.said != "You said: Stop" || turn.interrupted != 0 {
		t.Errorf("then %q, interrupted %d times", turn.said, turn.interrupted)
	}
}

// A client that requests it learns which of its messages it need not send again, at first and after each turn.
func TestLiveTransparentResumption(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	setup := func(handle string) *testkit.Client {
		c := geminilivetest.Dial(t, g, "", nil)
		c.SendTextFrame(`{"setup":{"sessionResumption":{"transparent":true,"handle":"` + handle + `"}}}`)
		return c
	}
	type update struct{ NewHandle, LastConsumedClientMessageIndex string }
	read := func(c *testkit.Client, index string) (got update) {
		if c.AwaitEvent("sessionResumptionUpdate").DecodePayload(t, &got); got.LastConsumedClientMessageIndex != index || got.NewHandle == "" {
			t.Errorf("got %+v, want the index %s", got, index)
		}
		return got
	}
	c := setup("")
	handle := read(c, "0").NewHandle
	for i, text := range []string{"one", "two"} {
		c.SendTextFrame(`{"realtimeInput":{"text":"` + text + `"}}`)
		if got := read(c, strconv.Itoa(i+1)); got.NewHandle != handle {
			t.Errorf("another handle: %+v", got)
		}
	}
	c.Conn.Close()
	read(setup(handle), "0")
}

// A field that the gateway does not know is forwarded. If the server does not know it either, it gets the setup
// without the field.
func TestLiveNewerFields(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, seen))
	c := geminilivetest.Dial(t, g, "", nil)
	c.SendTextFrame(`{"setup":{"generationConfig":{"loudness":11,"temperature":1}}}`)
	c.AwaitEvent("setupComplete")
	testkit.Eventually(t, "the refusal, and the warning", func() bool {
		refused := seen.EventsOf(emulator.EventRefused)
		return len(refused) == 1 && strings.Contains(refused[0].Text, `Unknown name "loudness"`) &&
			strings.Contains(g.Logs.String(), "setup.generationConfig.loudness was dropped")
	})
}

// A picture from the client is not part of its typed turns; otherwise it would be charged again each time.
func TestLiveTypedTurnsAreAsTheyWereTyped(t *testing.T) {
	t.Parallel()
	s := mustConnectSDK(t, testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil)), genai.LiveConnectConfig{})
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8)), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.SendRealtimeInput(genai.LiveRealtimeInput{Video: &genai.Blob{MIMEType: "image/jpeg", Data: picture.Bytes()}}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if turn := s.askText(text); turn.said != "You said: "+text {
			t.Errorf("said %q", turn.said)
		}
	}
}

// TestLiveOutlivesConnections ends connections to the model after a second. The client's connection continues without
// a visible effect.
func TestLiveOutlivesConnections(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	scenario := emulator.Scenario{ConnectionAge: 11 * time.Second, GoAwayLead: 10 * time.Second}
	g := testkit.StartGateway(t, geminilivetest.Serve(t, scenario, seen))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{SessionResumption: &genai.SessionResumptionConfig{}})
	s.askText("My name is Ada.")
	testkit.Eventually(t, "third connection", func() bool { return len(seen.EventsOf(emulator.EventOpened)) >= 3 })
	if turn := s.askText("/history"); !strings.Contains(turn.said, "My name is Ada.") {
		t.Errorf("it remembers %q", turn.said)
	}
}

// TestLiveAnswerBreaksOff loses the connection to the model during an answer: the answer ends with the received part,
// and the next question is answered.
func TestLiveAnswerBreaksOff(t *testing.T) {
	t.Parallel()
	fault := emulator.Fault{On: emulator.OnAnswer, After: 500 * time.Millisecond, Times: 1, Drop: true}
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{Faults: []emulator.Fault{fault}}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{})
	text := strings.TrimSpace(strings.Repeat("many words ", 10))
	if turn := s.askText(text); turn.said == "" || len(turn.said) >= len(text) || turn.interrupted > 0 {
		t.Errorf("first %q, interrupted %d times", turn.said, turn.interrupted)
	}
	if turn := s.askText("Hello"); turn.said != "You said: Hello" {
		t.Errorf("then %q", turn.said)
	}
}

// TestLiveResumes loses the socket, and resumes with the gateway's handle and another voice.
func TestLiveResumes(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, seen))
	first := mustConnectSDK(t, g, genai.LiveConnectConfig{SessionResumption: &genai.SessionResumptionConfig{}})
	first.askText("My name is Ada.")
	if len(first.handles) != 1 {
		t.Fatalf("%d handles", len(first.handles))
	}
	first.Close()
	again := genai.LiveConnectConfig{
		SessionResumption: &genai.SessionResumptionConfig{
			Handle: first.handles[0],
		}, SystemInstruction: genai.NewContentFromText("Be brief.", genai.RoleUser),
	}
	second := mustConnectSDK(t, g, again)
	if updates := seen.EventsOf(emulator.EventContextUpdate); len(updates) != 1 || updates[0].Text != "Be brief." {
		t.Errorf("the model got %+v before the client had its confirmation", updates)
	}
	if turn := second.askText("/history"); !strings.Contains(turn.said, "My name is Ada.") {
		t.Errorf("it remembers %q", turn.said)
	}
	if len(g.Host.Sessions()) != 1 {
		t.Errorf("%d conversations", len(g.Host.Sessions()))
	}
	again.SessionResumption.Handle = "unknown"
	_, err := connectSDK(t, g, "anything", again)
	if ce := (*websocket.CloseError)(nil); !errors.As(err, &ce) || ce.Code != websocket.ClosePolicyViolation ||
		!strings.Contains(ce.Text, "session not found") {
		t.Errorf("an unknown handle: %v", err)
	}
}

// TestLivePrefillTurns sends earlier turns to the model, as frameworks do, in one message or before the first.
func TestLivePrefillTurns(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{})
	s.sendTurns(false, "I am Ada.", "model:Hello Ada.")
	if turn := s.askText("/history"); !strings.Contains(turn.said, "I am Ada.") || !strings.Contains(turn.said, "Hello Ada.") {
		t.Errorf("it remembers %q", turn.said)
	}
	h := geminilivetest.Dial(t, g, "", nil) // the SDK does not have the field historyConfig
	h.SendFrame(
		websocket.TextMessage, []byte(`{"setup":{"historyConfig":{"initialHistoryInClientContent":true},"outputAudioTranscription":{}}}`),
	)
	h.AwaitEvent("setupComplete")
	for _, text := range []string{"I am Bob.", "/history"} { // the first is not answered
		h.SendFrame(
			websocket.TextMessage, []byte(`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"`+text+`"}]}],"turnComplete":true}}`),
		)
	}
	h.AwaitMatch(0, "Bob in the history", func(m testkit.Message) bool { return strings.Contains(string(m.Payload), "Bob") })
	if answers := h.CountMessages("serverContent"); strings.Contains(string(h.Messages()[1].Payload), "You said") {
		t.Errorf("the history was answered: %d messages", answers)
	}
}

// awaitClose waits for the end, and returns the close code and reason.
func awaitClose(c *testkit.Client) websocket.CloseError {
	c.T.Helper()
	c.AwaitCloseCode()
	ce, ok := c.EndError.(*websocket.CloseError)
	if !ok {
		c.T.Fatalf("the socket ended with %v", c.EndError)
	}
	return *ce
}

// TestLiveTokens sends a token in each place that Google's clients use for a key.
func TestLiveTokens(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	var tokens []string
	for _, show := range []func(token string) (query string, header http.Header){
		func(token string) (string, http.Header) { return "?key=" + token, nil },
		func(token string) (string, http.Header) { return "?access_token=" + token, nil },
		func(token string) (string, http.Header) { return "?access_token=auth_tokens/" + token, nil },
		func(token string) (string, http.Header) { return "", http.Header{"X-Goog-Api-Key": {token}} },
		func(token string) (string, http.Header) {
			return "", http.Header{"Authorization": {"Token auth_tokens/" + token}}
		},
		func(token string) (string, http.Header) { return "", http.Header{"Authorization": {"Bearer " + token}} },
	} {
		token := l.MintToken(`{}`)
		tokens = append(tokens, token)
		query, header := show(token)
		c := geminilivetest.Dial(t, l.Gateway, query, header)
		c.SendTextFrame(`{"setup":{}}`)
		c.AwaitEvent("setupComplete")
		query, header = show(token[:len(token)-4])
		bad := geminilivetest.Dial(t, l.Gateway, query, header)
		bad.SendTextFrame(`{"setup":{}}`)
		if end := awaitClose(bad); end.Code != websocket.ClosePolicyViolation || !strings.Contains(end.Text, "token") {
			t.Errorf("%s %v: closed with %v", query, header, end)
		}
	}
	none := geminilivetest.Dial(t, l.Gateway, "", nil)
	none.SendTextFrame(`{"setup":{}}`)
	if end := awaitClose(none); end.Code != websocket.ClosePolicyViolation || !strings.Contains(end.Text, "token") {
		t.Errorf("without a token: closed with %v", end)
	}
	for _, token := range tokens {
		if strings.Contains(l.Logs.String(), token[:20]) {
			t.Error("the log has a token")
		}
	}
}

// TestLiveSessionLimit uses a token that grants two seconds: the model finishes its sentence, and then the socket is closed
// with the reason.
func TestLiveSessionLimit(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	s, err := connectSDK(t, l.Gateway, l.MintToken(`{"grant":{"maxSeconds":2}}`), genai.LiveConnectConfig{})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(strings.Repeat("many words ", 10))
	if turn := s.askText(text); turn.said != "You said: "+text {
		t.Errorf("said %q", turn.said)
	}
	_, err = s.Receive()
	if ce := (*websocket.CloseError)(nil); !errors.As(err, &ce) || ce.Code != websocket.CloseNormalClosure ||
		ce.Text != bridge.ErrTimeLimit.Error() {
		t.Errorf("closed with %v", err)
	}
}

// TestLiveRejectsBadMessages checks that errors are like Google's: the code and the reason of the close frame, which names the
// field.
func TestLiveRejectsBadMessages(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	for _, c := range []struct {
		messages []string
		reason   string
	}{
		{[]string{`{"setup":{"generationConfig":{"topK":"x"}}}`}, "setup.generationConfig.topK must be"},
		{
			[]string{`{"setup":{"sessionResumption":{"transparent":1}}}`},
			"setup.sessionResumption.transparent must be true or false, not a number.",
		},
		{[]string{`{"setup":{"tools":[{"functionDeclarations":[{"name":""}]}]}}`}, "setup.tools[0].functionDeclarations[0].name must be"},
		{[]string{`{"clientContent":{}}`}, "The first message must be a setup message, and nothing else."},
		{[]string{`{"setup":{"model":"` + strings.Repeat("x", 1<<20) + `"}}`}, "too long: at most 1048576 bytes are allowed"},
		{[]string{`nonsense`}, "Invalid JSON payload received"},
		{[]string{`{"setup":{}}`, `{"setup":{}}`}, "Setup message must be the first and only the first message."},
		{[]string{`{"setup":{}}`, `{"nonsense":{}}`}, `Unknown name "nonsense"`},
		{
			[]string{`{"setup":{}}`, `{"clientContent":{"turns":[{"role":"system","parts":[{"text":"x"}]}]}}`},
			"clientContent.turns[0].role must be user or model.",
		},
		{
			[]string{`{"setup":{}}`, `{"clientContent":{"turns":[{"parts":[{}]}]}}`},
			"clientContent.turns[0].parts[0] has neither text nor inlineData",
		},
		{
			[]string{`{"setup":{}}`, `{"realtimeInput":{"audio":{"mimeType":"audio/mp3","data":"AAAA"}}}`},
			`realtimeInput.audio.mimeType "audio/mp3" is not audio/pcm`,
		},
		{[]string{`{"setup":{}}`, `{"realtimeInput":{"activityStart":{}}}`}, "realtimeInput activityStart"},
		{[]string{`{"setup":{}}`, `{"contextUpdate":{"systemInstruction":7}}`}, "setup.systemInstruction must be"},
	} {
		client := geminilivetest.Dial(t, g, "", nil)
		for _, m := range c.messages {
			client.SendTextFrame(m)
		}
		if end := awaitClose(client); end.Code != websocket.CloseInvalidFramePayloadData || !strings.Contains(end.Text, c.reason) {
			t.Errorf("%v: closed with %d %q", c.messages, end.Code, end.Text)
		}
	}
}

// TestLiveFieldSpellings writes messages like the Python SDK: in snake_case, and with the URL alphabet of base64.
func TestLiveFieldSpellings(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	c := geminilivetest.Dial(t, g, "", nil)
	c.SendFrame(
		websocket.TextMessage, []byte(`{"setup":{"model":"models/gemini-3.8-live","input_audio_transcription":{},"session_resumption":{}}}`),
	)
	c.AwaitEvent("setupComplete")
	c.AwaitEvent("sessionResumptionUpdate")
	for piece := range slices.Chunk(testkit.MakeSentence(440, time.Second, 16000), 320) {
		data := base64.URLEncoding.EncodeToString(media.AppendBytes(nil, piece))
		c.SendTextFrame(`{"realtime_input":{"audio":{"mime_type":"audio/pcm;rate=16000","data":"` + data + `"}}}`)
	}
	c.AwaitMatch(0, "transcript", func(m testkit.Message) bool { return strings.Contains(string(m.Payload), "seconds of speech") })
	c.SendFrame(
		websocket.TextMessage, []byte(`{"client_content":{"turns":[{"role":"user","parts":[{"text":"a_b-c"}]}],"turn_complete":true}}`),
	)
	c.AwaitMatch(0, "answer", func(m testkit.Message) bool { return strings.Contains(string(m.Payload), `a_b-c`) })
}

// FuzzLive sends arbitrary messages after the setup: they are accepted, or the close frame has the reason.
func FuzzLive(f *testing.F) {
	for _, seed := range []string{
		`{"clientContent":{"turns":[{"role":"model","parts":[{"text":"x"}]}],"turnComplete":true}}`, `{"realtimeInput":{"text":"x"}}`,
		`{"realtime_input":{"media_chunks":[{"mime_type":"audio/pcm","data":"_-8="}]}}`,
		`{"toolResponse":{"functionResponses":[{"id":"1","response":{}}]}}`,
		`{"contextUpdate":{"tools":{"tools":[{"functionDeclarations":[{"name":"f"}]}]}}}`, `{"setup":{}}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	g := testkit.StartGateway(
		f,
		geminilivetest.Serve(f, emulator.Scenario{}, nil),
		func(d *testkit.Endpoints, _ *bridge.Options) { d.Logger = slog.New(slog.DiscardHandler) },
	)
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer g.Logs.ClearLog()
		c := geminilivetest.Dial(t, g, "", nil)
		c.SendTextFrame(`{"setup":{}}`)
		c.AwaitEvent("setupComplete")
		c.SendFrame(websocket.TextMessage, raw)
		c.Conn.WriteMessage(websocket.TextMessage, []byte(`{"setup":{}}`)) // one too many; fails if the conversation has ended
		if end := awaitClose(c); end.Code == websocket.CloseInternalServerErr && !strings.HasPrefix(end.Text, "RESOURCE_EXHAUSTED") ||
			end.Text == "" {
			t.Errorf("closed with %v", end)
		}
		testkit.Eventually(t, "end of the conversation", func() bool { return len(g.Host.Sessions()) == 0 })
	})
}
