package signaling_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/genai"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/media"
	"voxgate/media/mediatest"
	"voxgate/signaling"
	"voxgate/signaling/live"
	"voxgate/signaling/rtc"
	"voxgate/tools"
)

const livePath = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"

// withLive opens the door for Google's own clients, with a model that has a scenario.
func withLive(t testing.TB, scenario emulator.Scenario, seen *seenByModel) option {
	t.Helper()
	o := emulator.Options{Espeak: emulator.NoVoice, Scenario: scenario}
	if seen != nil {
		o.Observe = seen.add
	}
	model := emulator.New(o)
	up := httptest.NewServer(model)
	t.Cleanup(func() {
		model.Close()
		up.Close()
	})
	return func(d *doors, ho *bridge.Options) {
		ho.Client = &api.Client{BaseURL: up.URL}
		before := d.more
		d.more = func(host *bridge.Host, api *rtc.API) []signaling.Door {
			door := live.Door{Host: host, Logger: d.Logger}
			list := door.Doors()
			if before != nil {
				list = append(list, before(host, api)...)
			}
			return list
		}
	}
}

// sdk is Google's SDK for Go at a gateway.
type sdk struct {
	*genai.Session
	t       *testing.T
	handles []string
}

func connectSDK(t *testing.T, g *gateway, token string, config genai.LiveConnectConfig) (*sdk, error) {
	t.Helper()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: token, HTTPOptions: genai.HTTPOptions{BaseURL: g.url, APIVersion: "v1beta"},
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

func mustConnectSDK(t *testing.T, g *gateway, config genai.LiveConnectConfig) *sdk {
	t.Helper()
	s, err := connectSDK(t, g, "anything", config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spoken is a turn of the model as its client has got it.
type spoken struct {
	pcm         []int16
	said, heard string
	interrupted int
	usage       *genai.UsageMetadata
	call        *genai.FunctionCall
}

// receive collects until a message is the last one wanted.
func (s *sdk) receive(last func(*genai.LiveServerMessage) bool) (turn spoken) {
	s.t.Helper()
	defer time.AfterFunc(patience, func() { s.Close() }).Stop() // or it would wait for ever
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

// typed asks for an answer to turns, which are the person's, or begin with "model:".
func (s *sdk) typed(complete bool, texts ...string) {
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

func (s *sdk) ask(text string) spoken {
	s.t.Helper()
	s.typed(true, text)
	return s.receive(turnComplete)
}

func (s *sdk) say(pcm []int16) {
	s.t.Helper()
	for piece := range slices.Chunk(pcm, 320) {
		if err := s.SendRealtimeInput(genai.LiveRealtimeInput{Audio: &genai.Blob{Data: media.AppendBytes(nil, piece), MIMEType: "audio/pcm;rate=16000"}}); err != nil {
			s.t.Fatal(err)
		}
	}
}

var weather = []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
	Name: "weather", Parameters: &genai.Schema{Type: genai.TypeObject, Properties: map[string]*genai.Schema{"my_city": {Type: genai.TypeString}}},
}}}}

// TestLiveSDK talks with the model by Google's own client: by voice, by text, and with a tool of the client's.
func TestLiveSDK(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withLive(t, emulator.Scenario{}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{Tools: weather})
	s.say(sentence(440, time.Second, 16000))
	turn := s.receive(turnComplete)
	if mediatest.ToneLevel(turn.pcm, bridge.VoiceRate, 440) < 0.5 || !strings.Contains(turn.heard, "of speech") || !strings.HasPrefix(turn.said, "You said") || turn.usage == nil {
		t.Errorf("heard %q, said %q in %d samples, usage %v", turn.heard, turn.said, len(turn.pcm), turn.usage)
	}
	began, machine := time.Now(), mediatest.MeasureLateness(t)
	s.typed(true, "One two three four five six seven eight nine ten")
	turn = s.receive(func(m *genai.LiveServerMessage) bool {
		return m.ServerContent != nil && m.ServerContent.GenerationComplete
	})
	voice, took := media.Duration(len(turn.pcm), bridge.VoiceRate), time.Since(began)
	if voice < time.Second || took > voice && machine.Judges(t, voice) {
		t.Errorf("%v of voice took %v to come: Google's clients have it sooner than they can play it", voice, took)
	}
	s.receive(turnComplete)
	if s.typed(true, `/tool weather {"my_city":"Rome"}`); s.receive(func(m *genai.LiveServerMessage) bool { return m.ToolCall != nil }).call.Args["my_city"] != "Rome" {
		t.Error("the tool was asked for something else")
	}
}

// TestLiveTool has the model call a tool of the client's and one of the operator's, of which the client is not told.
func TestLiveTool(t *testing.T) {
	t.Parallel()
	seen := &seenByModel{}
	g := newGateway(t, withLive(t, emulator.Scenario{}, seen), func(_ *doors, ho *bridge.Options) {
		ho.Tools = func() []tools.Tool {
			return []tools.Tool{{Declaration: tools.Declaration{Name: "clock"}, Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{"time":"noon"}`), nil
			}}}
		}
	})
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{Tools: weather})
	s.typed(true, "/tool clock {}")
	for answered := false; !answered; {
		turn := s.receive(turnComplete)
		if turn.call != nil {
			t.Errorf("the client is asked for %s", turn.call.Name)
		}
		answered = strings.Contains(turn.said, "noon")
	}
	s.typed(true, `/tool weather {"my_city":"Rome"}`)
	call := s.receive(func(m *genai.LiveServerMessage) bool { return m.ToolCall != nil }).call
	s.receive(turnComplete) // that of the call, which does not block
	if err := s.SendToolResponse(genai.LiveToolResponseInput{FunctionResponses: []*genai.FunctionResponse{
		{ID: call.ID, Name: call.Name, Response: map[string]any{"my_answer": "sunny"}, Scheduling: genai.FunctionResponseSchedulingInterrupt},
	}}); err != nil {
		t.Fatal(err)
	}
	if turn := s.receive(turnComplete); !strings.Contains(turn.said, `{"my_answer":"sunny"}`) {
		t.Errorf("said %q", turn.said)
	}
	if answers := seen.all(emulator.Answered); len(answers) != 2 {
		t.Errorf("the model was answered %+v", answers)
	}
}

// TestLiveInterrupted types over an answer: the client is told once, and then that the turn is over, and gets no more of it.
func TestLiveInterrupted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withLive(t, emulator.Scenario{}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{})
	s.typed(true, strings.Repeat("many words ", 30))
	s.receive(hasVoice)
	s.typed(true, "Stop")
	if cut := s.receive(turnComplete); cut.interrupted != 1 {
		t.Errorf("told %d times that the answer is interrupted", cut.interrupted)
	}
	if turn := s.receive(turnComplete); turn.said != "You said: Stop" || turn.interrupted != 0 {
		t.Errorf("then %q, interrupted %d times", turn.said, turn.interrupted)
	}
}

// TestLiveOutlivesConnections has connections to the model end after a second. The client's own goes on, and is told of nothing.
func TestLiveOutlivesConnections(t *testing.T) {
	t.Parallel()
	seen := &seenByModel{}
	g := newGateway(t, withLive(t, emulator.Scenario{ConnectionAge: 11 * time.Second, GoAwayLead: 10 * time.Second}, seen))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{SessionResumption: &genai.SessionResumptionConfig{}})
	s.ask("My name is Ada.")
	eventually(t, "third connection", func() bool { return len(seen.all(emulator.Opened)) >= 3 })
	if turn := s.ask("/history"); !strings.Contains(turn.said, "My name is Ada.") {
		t.Errorf("it remembers %q", turn.said)
	}
}

// TestLiveAnswerBreaksOff loses the connection to the model in an answer: what has come of it is its end, and the next
// question is answered.
func TestLiveAnswerBreaksOff(t *testing.T) {
	t.Parallel()
	fault := emulator.Fault{On: emulator.OnAnswer, After: 500 * time.Millisecond, Times: 1, Drop: true}
	g := newGateway(t, withLive(t, emulator.Scenario{Faults: []emulator.Fault{fault}}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{})
	text := strings.TrimSpace(strings.Repeat("many words ", 10))
	if turn := s.ask(text); turn.said == "" || len(turn.said) >= len(text) || turn.interrupted > 0 {
		t.Errorf("first %q, interrupted %d times", turn.said, turn.interrupted)
	}
	if turn := s.ask("Hello"); turn.said != "You said: Hello" {
		t.Errorf("then %q", turn.said)
	}
}

// TestLiveResumes loses the socket, and goes on by the gateway's handle, with another voice.
func TestLiveResumes(t *testing.T) {
	t.Parallel()
	seen := &seenByModel{}
	g := newGateway(t, withLive(t, emulator.Scenario{}, seen))
	first := mustConnectSDK(t, g, genai.LiveConnectConfig{SessionResumption: &genai.SessionResumptionConfig{}})
	first.ask("My name is Ada.")
	if len(first.handles) != 1 {
		t.Fatalf("%d handles", len(first.handles))
	}
	first.Close()
	again := genai.LiveConnectConfig{
		SessionResumption: &genai.SessionResumptionConfig{Handle: first.handles[0]}, SystemInstruction: genai.NewContentFromText("Be brief.", genai.RoleUser),
	}
	second := mustConnectSDK(t, g, again)
	if updates := seen.all(emulator.Updated); len(updates) != 1 || updates[0].Text != "Be brief." {
		t.Errorf("the model was told %+v before the client that all is as it wants", updates)
	}
	if turn := second.ask("/history"); !strings.Contains(turn.said, "My name is Ada.") {
		t.Errorf("it remembers %q", turn.said)
	}
	if len(g.host.Sessions()) != 1 {
		t.Errorf("%d conversations", len(g.host.Sessions()))
	}
	again.SessionResumption.Handle = "unknown"
	_, err := connectSDK(t, g, "anything", again)
	if ce := (*websocket.CloseError)(nil); !errors.As(err, &ce) || ce.Code != websocket.ClosePolicyViolation || !strings.Contains(ce.Text, "session not found") {
		t.Errorf("an unknown handle: %v", err)
	}
}

// TestLiveSeeds tells the model what was said before, as frameworks do, in one message or before the first.
func TestLiveSeeds(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withLive(t, emulator.Scenario{}, nil))
	s := mustConnectSDK(t, g, genai.LiveConnectConfig{})
	s.typed(false, "I am Ada.", "model:Hello Ada.")
	if turn := s.ask("/history"); !strings.Contains(turn.said, "I am Ada.") || !strings.Contains(turn.said, "Hello Ada.") {
		t.Errorf("it remembers %q", turn.said)
	}
	h := dialLive(t, g, "", nil) // the SDK has no such field
	h.raw(websocket.TextMessage, []byte(`{"setup":{"historyConfig":{"initialHistoryInClientContent":true},"outputAudioTranscription":{}}}`))
	h.expect("setupComplete")
	for _, text := range []string{"I am Bob.", "/history"} { // the first is not answered
		h.raw(websocket.TextMessage, []byte(`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"`+text+`"}]}],"turnComplete":true}}`))
	}
	h.wait(0, "Bob in the history", func(m message) bool { return strings.Contains(string(m.Payload), "Bob") })
	if answers := h.count("serverContent"); strings.Contains(string(h.all()[1].Payload), "You said") {
		t.Errorf("the history was answered: %d messages", answers)
	}
}

// dialLive opens a plain WebSocket at the door. Every message is one of binary JSON, as Google sends it.
func dialLive(t testing.TB, g *gateway, query string, header http.Header) *client {
	t.Helper()
	return dialDoor(t, g.url+"/"+livePath+query, header, func(kind int, raw []byte) message {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil || kind != websocket.BinaryMessage {
			t.Errorf("kind %d: %s", kind, raw)
		}
		for _, name := range []string{"setupComplete", "sessionResumptionUpdate", "serverContent", "toolCall"} {
			if fields[name] != nil {
				return message{Type: name, Payload: fields[name]}
			}
		}
		return message{}
	})
}

// closed waits for the end, and returns how the gateway has said it.
func (c *client) closed() websocket.CloseError {
	c.t.Helper()
	c.closeCode()
	ce, ok := c.over.(*websocket.CloseError)
	if !ok {
		c.t.Fatalf("the socket ended with %v", c.over)
	}
	return *ce
}

// TestLiveTokens shows a token in each form that Google's clients have for a key.
func TestLiveTokens(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil, withLive(t, emulator.Scenario{}, nil))
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
		token := l.mint(`{}`)
		tokens = append(tokens, token)
		query, header := show(token)
		c := dialLive(t, l.gateway, query, header)
		c.raw(websocket.TextMessage, []byte(`{"setup":{}}`))
		c.expect("setupComplete")
		query, header = show(token[:len(token)-4])
		bad := dialLive(t, l.gateway, query, header)
		bad.raw(websocket.TextMessage, []byte(`{"setup":{}}`))
		if end := bad.closed(); end.Code != websocket.ClosePolicyViolation || !strings.Contains(end.Text, "token") {
			t.Errorf("%s %v: closed with %v", query, header, end)
		}
	}
	none := dialLive(t, l.gateway, "", nil)
	none.raw(websocket.TextMessage, []byte(`{"setup":{}}`))
	if end := none.closed(); end.Code != websocket.ClosePolicyViolation || !strings.Contains(end.Text, "token") {
		t.Errorf("without a token: closed with %v", end)
	}
	for _, token := range tokens {
		if strings.Contains(l.logs.String(), token[:20]) {
			t.Error("the log has a token")
		}
	}
}

// TestLiveLimit has a token grant a second: the model ends what it says, and then the socket is closed with the reason.
func TestLiveLimit(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil, withLive(t, emulator.Scenario{}, nil))
	s, err := connectSDK(t, l.gateway, l.mint(`{"grant":{"maxSeconds":1}}`), genai.LiveConnectConfig{})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(strings.Repeat("many words ", 10))
	if turn := s.ask(text); turn.said != "You said: "+text {
		t.Errorf("said %q", turn.said)
	}
	_, err = s.Receive()
	if ce := (*websocket.CloseError)(nil); !errors.As(err, &ce) || ce.Code != websocket.CloseNormalClosure || ce.Text != bridge.ErrTimeLimit.Error() {
		t.Errorf("closed with %v", err)
	}
}

// TestLiveRefuses says what is wrong as Google does: by the code and the reason of the close frame, which name the field.
func TestLiveRefuses(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withLive(t, emulator.Scenario{}, nil))
	for _, c := range []struct {
		messages []string
		reason   string
	}{
		{[]string{`{"setup":{"generationConfig":{"topK":"x"}}}`}, "setup.generationConfig.topK must be"},
		{[]string{`{"setup":{"sessionResumption":{"transparent":true}}}`}, "setup.sessionResumption.transparent is not served."},
		{[]string{`{"setup":{"tools":[{"functionDeclarations":[{"name":"1"}]}]}}`}, "setup.tools[0].functionDeclarations[0].name must be"},
		{[]string{`{"clientContent":{}}`}, "The first message must be a setup message, and nothing else."},
		{[]string{`{"setup":{"model":"` + strings.Repeat("x", 1<<20) + `"}}`}, "too long: it may have 1048576 bytes"},
		{[]string{`nonsense`}, "Invalid JSON payload received"},
		{[]string{`{"setup":{}}`, `{"setup":{}}`}, "Setup message must be the first and only the first message."},
		{[]string{`{"setup":{}}`, `{"nonsense":{}}`}, `Unknown name "nonsense"`},
		{[]string{`{"setup":{}}`, `{"clientContent":{"turns":[{"role":"system","parts":[{"text":"x"}]}]}}`}, "clientContent.turns[0].role must be user or model."},
		{[]string{`{"setup":{}}`, `{"clientContent":{"turns":[{"parts":[{"fileData":{}}]}]}}`}, "clientContent.turns[0].parts[0] has neither text nor inlineData"},
		{[]string{`{"setup":{}}`, `{"realtimeInput":{"audio":{"mimeType":"audio/mp3","data":"AAAA"}}}`}, `realtimeInput.audio.mimeType "audio/mp3" is not audio/pcm`},
		{[]string{`{"setup":{}}`, `{"realtimeInput":{"activityStart":{}}}`}, "realtimeInput activityStart"},
		{[]string{`{"setup":{}}`, `{"contextUpdate":{"systemInstruction":7}}`}, "setup.systemInstruction must be"},
	} {
		client := dialLive(t, g, "", nil)
		for _, m := range c.messages {
			client.raw(websocket.TextMessage, []byte(m))
		}
		if end := client.closed(); end.Code != websocket.CloseInvalidFramePayloadData || !strings.Contains(end.Text, c.reason) {
			t.Errorf("%v: closed with %d %q", c.messages, end.Code, end.Text)
		}
	}
}

// TestLiveSpellings writes as the SDK for Python does: in snake_case, and bytes in the alphabet for URLs.
func TestLiveSpellings(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withLive(t, emulator.Scenario{}, nil))
	c := dialLive(t, g, "", nil)
	c.raw(websocket.TextMessage, []byte(`{"setup":{"model":"models/gemini-3.8-live","input_audio_transcription":{},"session_resumption":{}}}`))
	c.expect("setupComplete")
	c.expect("sessionResumptionUpdate")
	for piece := range slices.Chunk(sentence(440, time.Second, 16000), 320) {
		data := base64.URLEncoding.EncodeToString(media.AppendBytes(nil, piece))
		c.raw(websocket.TextMessage, []byte(`{"realtime_input":{"audio":{"mime_type":"audio/pcm;rate=16000","data":"`+data+`"}}}`))
	}
	c.wait(0, "transcript", func(m message) bool { return strings.Contains(string(m.Payload), "seconds of speech") })
	c.raw(websocket.TextMessage, []byte(`{"client_content":{"turns":[{"role":"user","parts":[{"text":"a_b-c"}]}],"turn_complete":true}}`))
	c.wait(0, "answer", func(m message) bool { return strings.Contains(string(m.Payload), `a_b-c`) })
}

// FuzzLive sends anything after the setup: it is taken, or the end says why.
func FuzzLive(f *testing.F) {
	for _, seed := range []string{
		`{"clientContent":{"turns":[{"role":"model","parts":[{"text":"x"}]}],"turnComplete":true}}`, `{"realtimeInput":{"text":"x"}}`,
		`{"realtime_input":{"media_chunks":[{"mime_type":"audio/pcm","data":"_-8="}]}}`, `{"toolResponse":{"functionResponses":[{"id":"1","response":{}}]}}`,
		`{"contextUpdate":{"tools":{"tools":[{"functionDeclarations":[{"name":"f"}]}]}}}`, `{"setup":{}}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	g := newGateway(f, withLive(f, emulator.Scenario{}, nil), func(d *doors, _ *bridge.Options) { d.Logger = slog.New(slog.DiscardHandler) })
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer g.logs.forget()
		c := dialLive(t, g, "", nil)
		c.raw(websocket.TextMessage, []byte(`{"setup":{}}`))
		c.expect("setupComplete")
		c.raw(websocket.TextMessage, raw)
		c.conn.WriteMessage(websocket.TextMessage, []byte(`{"setup":{}}`)) // which is one too many; fails if it is over
		if end := c.closed(); end.Code == websocket.CloseInternalServerErr && !strings.HasPrefix(end.Text, "RESOURCE_EXHAUSTED") || end.Text == "" {
			t.Errorf("closed with %v", end)
		}
		eventually(t, "end of the conversation", func() bool { return len(g.host.Sessions()) == 0 })
	})
}
