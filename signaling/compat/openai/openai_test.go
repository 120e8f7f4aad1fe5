package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminilive/geminilivetest"
	"voxgate/signaling/compat/openai/openaitest"
	"voxgate/store"
	"voxgate/tools"
)

// TestRealtimeConversation holds a conversation by voice over a WebSocket, with connections to the model that end, and
// interruptions.
func TestRealtimeConversation(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, openaitest.Serve)
	c := openaitest.Dial(t, g, "?model=gpt-realtime", nil)
	c.ConfigureSession(`{"instructions":"Be brief."}`)
	c.AppendAudio(testkit.MakeSentence(440, time.Second, bridge.VoiceRate))
	r := c.AwaitResponse()
	if level := mediatest.ToneLevel(receivedVoice(c), bridge.VoiceRate, 440); r.Status != "completed" ||
		!strings.HasPrefix(r.OutputText(), "You said") ||
		level < 0.5 ||
		r.Usage == nil {
		t.Errorf("answered %+v, share of 440 Hz %.2f", r, level)
	}
	c.AskText(strings.Repeat("many words ", 60))
	c.AwaitEvent("response.output_audio.delta")
	c.AppendAudio(testkit.MakeSentence(440, time.Second, bridge.VoiceRate))
	if r := c.AwaitResponse(); r.Status != "cancelled" || r.StatusDetails.Reason != "turn_detected" {
		t.Errorf("interrupted: %+v", r)
	}
	if r := c.AwaitResponse(); r.Status != "completed" {
		t.Errorf("then: %+v", r)
	}
	if n := c.CountMessages("input_audio_buffer.speech_started"); n != 2 {
		t.Errorf("%d times speech has begun", n)
	}
	if c.CountMessages("error") > 0 {
		t.Errorf("%v", c.Messages())
	}
}

// TestRealtimeSurvivesUpstreamReconnect ends connections to the model after a second: the client must not notice.
func TestRealtimeSurvivesUpstreamReconnect(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	g := testkit.StartGateway(
		t,
		geminilivetest.Serve(t, emulator.Scenario{ConnectionAge: 11 * time.Second, GoAwayLead: 10 * time.Second}, seen),
		openaitest.Serve,
	)
	c := openaitest.Dial(t, g, "", nil)
	c.ConfigureSession(`{}`)
	c.AskText("My name is Ada.")
	c.AwaitResponse()
	testkit.Eventually(t, "third connection", func() bool { return len(seen.EventsOf(emulator.EventOpened)) >= 3 })
	c.AskText("/history")
	if r := c.AwaitResponse(); !strings.Contains(r.OutputText(), "My name is Ada.") || c.CountMessages("error") > 0 {
		t.Errorf("it remembers %q", r.OutputText())
	}
}

// TestRealtimeCounts compares the tokens reported to a client with the gateway's count, and the reported start of
// speech with the actual one, in audio that arrives all at once.
func TestRealtimeCounts(t *testing.T) {
	t.Parallel()
	var spent atomic.Int64
	g := testkit.StartGateway(t, openaitest.Serve, func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Observe = func(_ string, o bridge.Observation) {
			if s, ok := o.(bridge.SpendingReport); ok {
				for _, n := range s.Tokens {
					spent.Add(int64(n))
				}
			}
		}
	})
	c := openaitest.Dial(t, g, "", nil)
	c.ConfigureSession(`{"tools":[{"type":"function","name":"weather"}]}`)
	told := int64(0)
	answered := func() string {
		r := c.AwaitResponse()
		if r.Usage != nil {
			told += int64(r.Usage.Total)
		}
		if len(r.Output) > 0 && r.Output[0].Type == "function_call" {
			return r.Output[0].CallID
		}
		return r.OutputText()
	}
	c.AskText("/tool weather {}")
	c.Send(`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"` + answered() + `","output":"sun"}}`)
	c.Send(`{"type":"response.create"}`)
	answered()
	c.AskText(strings.Repeat("many words ", 60))
	c.AwaitEvent("response.output_audio.delta")
	c.Send(`{"type":"response.cancel"}`)
	answered()
	c.Send(`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"In writing"}]}}`)
	c.Send(`{"type":"response.create","response":{"output_modalities":["text"]}}`)
	before := c.CountMessages("response.output_audio.delta")
	if text := answered(); text != "You said: In writing" || c.CountMessages("response.output_text.done") != 1 ||
		c.CountMessages("response.output_audio.delta") != before {
		t.Errorf("in writing: %q", text)
	}
	c.AppendAudio(append(make([]int16, 1.7*bridge.VoiceRate), testkit.MakeSentence(440, time.Second, bridge.VoiceRate)...))
	var began, ended struct {
		Start int `json:"audio_start_ms"`
		End   int `json:"audio_end_ms"`
	}
	c.AwaitEvent("input_audio_buffer.speech_started").DecodePayload(t, &began)
	c.AwaitEvent("input_audio_buffer.speech_stopped").DecodePayload(t, &ended)
	if began.Start < 1600 || began.Start > 2000 || ended.End < 3000 || ended.End > 3500 {
		t.Errorf("speech from 2000 to 3000 is said to be from %d to %d", began.Start, ended.End)
	}
	answered()
	testkit.Eventually(t, "the last turn's tokens", func() bool { return spent.Load() >= told })
	if told == 0 || told != spent.Load() {
		t.Errorf("the client was told of %d tokens, and the gateway has counted %d", told, spent.Load())
	}
}

// TestRealtimePushToTalk checks that the model receives the audio between a clear and a commit, and nothing else, in
// the way of OpenAI's openai-realtime-agents: clear when the button is pressed, commit and response.create when it is
// released.
func TestRealtimePushToTalk(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, openaitest.Serve)
	c := openaitest.Dial(t, g, "", nil)
	c.ConfigureSession(`{"audio":{"input":{"turn_detection":null}}}`)
	said := func(lasts time.Duration) []int16 { return mediatest.Tone(lasts, bridge.VoiceRate, 440, 12000) }
	release := func() {
		c.Send(`{"type":"input_audio_buffer.commit"}`)
		c.AwaitEvent("input_audio_buffer.committed")
	}
	for range 2 {
		c.AppendAudio(said(2 * time.Second)) // without a pressed button
		c.Send(`{"type":"input_audio_buffer.clear"}`)
		c.AwaitEvent("input_audio_buffer.cleared")
		c.AppendAudio(said(time.Second))
		release()
		c.AppendAudio(said(3 * time.Second)) // belongs to the next press, unless that clears it
		c.Send(`{"type":"response.create"}`)
		if r := c.AwaitResponse(); r.OutputText() != "You said: 1.0 seconds of speech." {
			t.Errorf("heard: %s", r.OutputText())
		}
	}
	c.Send(`{"type":"input_audio_buffer.clear"}`)
	c.Send(`{"type":"input_audio_buffer.commit"}`)
	var e struct{ Error struct{ Code string } }
	if c.AwaitEvent("error").DecodePayload(t, &e); e.Error.Code != "input_audio_buffer_commit_empty" {
		t.Errorf("a commit of nothing: %+v", e)
	}
	for range 2 { // two commits for one answer, together longer than the audio that may wait for a connection
		c.AppendAudio(said(5500 * time.Millisecond))
		release()
	}
	c.Send(`{"type":"response.create"}`)
	if r := c.AwaitResponse(); r.OutputText() != "You said: 11.0 seconds of speech." {
		t.Errorf("of two commits: %s", r.OutputText())
	}
	c.AskText("Hello")
	if r := c.AwaitResponse(); r.OutputText() != "You said: Hello" {
		t.Errorf("typed: %s", r.OutputText())
	}
}

// TestRealtimePushToTalkByCall repeats TestRealtimePushToTalk over WebRTC, where the microphone sends all the time.
func TestRealtimePushToTalkByCall(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	g := testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, seen), openaitest.Serve)
	machine := mediatest.MeasureLateness(t)
	c, p, _ := openaitest.DialCall(t, g, "", nil)
	c.ConfigureSession(`{"audio":{"input":{"turn_detection":null}}}`)
	talks := func(hz float64) {
		p.Talk <- mediatest.Tone(time.Second, 48000, hz, 12000)
		for range cap(p.Talk) + 1 { // when the channel has accepted these, the audio was sent
			p.Talk <- nil
		}
	}
	for n := range 2 {
		talks(440) // without a pressed button
		c.Send(`{"type":"input_audio_buffer.clear"}`)
		c.AwaitEvent("input_audio_buffer.cleared")
		talks(880)
		c.Send(`{"type":"input_audio_buffer.commit"}`)
		c.Send(`{"type":"response.create"}`)
		c.AwaitResponse()
		heard := seen.EventsOf(emulator.EventUserTurn)
		if len(heard) != n+1 {
			t.Fatalf("the model heard %d times", len(heard))
		}
		pcm, rate := heard[n].PCM, heard[n].Rate
		share := func(hz float64) float64 { return testkit.ToneShare(pcm, hz*bridge.VoiceRate/float64(rate)) }
		if wrong, right := share(440), share(880); (right < 0.5 || wrong > 0.2) && machine.CanJudge(t, 200*time.Millisecond) {
			t.Errorf("of what was said before the button %.2f, after it %.2f, in %.1f s", wrong, right, float64(len(pcm))/float64(rate))
		}
	}
}

// TestRealtimeIdleTimeout checks that the model speaks to a person who is silent for idle_timeout_ms, and again after the next
// silence.
func TestRealtimeIdleTimeout(t *testing.T) {
	t.Parallel()
	c := openaitest.Dial(t, testkit.StartGateway(t, openaitest.Serve), "", nil)
	c.ConfigureSession(`{"type":"realtime","audio":{"input":{"turn_detection":{"type":"server_vad","idle_timeout_ms":5000}}}}`)
	c.AskText("Hello.")
	c.AwaitResponse()
	for range 2 {
		c.AwaitEvent("input_audio_buffer.timeout_triggered")
		c.AwaitEvent("input_audio_buffer.committed")
		if said := c.AwaitResponse().OutputText(); !strings.Contains(said, "said nothing for a while") {
			t.Errorf("the model says %q", said)
		}
	}
	c.Send(`{"type":"session.update","session":{"type":"realtime",` +
		`"audio":{"input":{"turn_detection":{"type":"server_vad","idle_timeout_ms":50}}}}}`)
	if m := c.AwaitEvent("error"); !strings.Contains(string(m.Payload), "idle_timeout_ms must be between 5000 and 30000") {
		t.Errorf("%s", m.Payload)
	}
}

// TestRealtimeAnswerBreaksOff loses the connection to the model during an answer: the response fails, and the next question
// is answered.
func TestRealtimeAnswerBreaksOff(t *testing.T) {
	t.Parallel()
	fault := emulator.Fault{On: emulator.OnAnswer, After: 500 * time.Millisecond, Times: 1, Drop: true}
	c := openaitest.Dial(
		t,
		testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{Faults: []emulator.Fault{fault}}, nil), openaitest.Serve),
		"",
		nil,
	)
	c.ConfigureSession(`{}`)
	c.AskText(strings.Repeat("many words ", 10))
	if r := c.AwaitResponse(); r.Status != "failed" || r.StatusDetails.Error.Code != "connection_lost" {
		t.Errorf("first %+v", r)
	}
	c.AskText("Hello")
	if r := c.AwaitResponse(); r.OutputText() != "You said: Hello" {
		t.Errorf("then %+v", r)
	}
}

// TestRealtimeCall holds a conversation over WebRTC; a second connection watches, takes part, and hangs up.
func TestRealtimeCall(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, openaitest.Serve)
	c, p, id := openaitest.DialCall(t, g, "", nil)
	c.ConfigureSession(`{"audio":{"input":{"transcription":{"model":"whisper-1"}}}}`)
	side := openaitest.Dial(t, g, "?call_id="+url.QueryEscape(id), nil)
	side.AwaitEvent("session.created")
	p.Talk <- testkit.MakeSentence(440, time.Second, 48000)
	c.AwaitEvent("output_audio_buffer.started")
	if r := c.AwaitResponse(); !strings.HasPrefix(r.OutputText(), "You said") {
		t.Errorf("%+v", r)
	}
	c.AwaitEvent("output_audio_buffer.stopped")
	if c.CountMessages("response.output_audio.delta") > 0 || p.AwaitToneShare(440) < 0.5 ||
		c.CountMessages("conversation.item.input_audio_transcription.completed") != 1 {
		t.Errorf("share of 440 Hz %.2f, %v", p.AwaitToneShare(440), c.Messages())
	}
	if r := side.AwaitResponse(); !strings.HasPrefix(r.OutputText(), "You said") {
		t.Errorf("beside: %+v", r)
	}
	side.AskText(strings.Repeat("many words ", 60))
	c.AwaitEvent("output_audio_buffer.started")
	c.Send(`{"type":"response.cancel","event_id":"mine"}`)
	c.AwaitEvent("output_audio_buffer.cleared")
	if r := side.AwaitResponse(); r.Status != "cancelled" {
		t.Errorf("cancelled: %+v", r)
	}
	c.Send(`{"type":"nonsense"}`)
	c.AwaitEvent("error")
	if side.CountMessages("error") > 0 {
		t.Error("an error has come to a connection that did not cause it")
	}
	if resp := testkit.PostAs(t, g.HTTP+"/v1/realtime/calls/"+id+"/hangup", "", "", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("hang up: %s", resp.Status)
	}
	if code := side.AwaitCloseCode(); code != websocket.CloseNormalClosure {
		t.Errorf("closed with %d", code)
	}
	testkit.Eventually(t, "the end", func() bool {
		return testkit.PostAs(t, g.HTTP+"/v1/realtime/calls/"+id+"/hangup", "", "", nil).StatusCode == http.StatusNotFound
	})
}

// TestRealtimeSecrets lets a backend mint secrets for pages, bound to a session, and uses a key in each place.
func TestRealtimeSecrets(t *testing.T) {
	t.Parallel()
	shared := store.NewMemory()
	l := testkit.StartLockedGateway(t, nil, openaitest.ServeWithStore(shared), func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Tools = func() []tools.Tool {
			return []tools.Tool{{
				Declaration: tools.Declaration{Name: "find_shoe", Description: "d"},
				Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(`{"shoe":"a red one"}`), nil
				},
			}}
		}
	})
	l.EditKeys(testkit.SetGrants(map[string]any{"tools": []string{"find_*"}}))
	minted := func(body string) (status int, answer struct {
		Value     string
		ExpiresAt int64 `json:"expires_at"`
		Session   struct{ ID, Instructions, Model string }
		Error     struct{ Code, Message, Param string }
	},
	) {
		resp := testkit.PostAs(t, l.HTTP+"/v1/realtime/client_secrets", l.Key, "application/json", strings.NewReader(body))
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Error(err)
		}
		return resp.StatusCode, answer
	}
	status, secret := minted(
		`{"expires_after":{"anchor":"created_at","seconds":60},"session":{"type":"realtime","model":"gpt-realtime",` +
			`"instructions":"Be kind.","tools":[{"type":"function","name":"f"}]}}`,
	)
	if left := secret.ExpiresAt - time.Now().Unix(); status != http.StatusOK || !strings.HasPrefix(secret.Value, "ek_") ||
		secret.Session.Instructions != "Be kind." ||
		left < 50 ||
		left > 61 {
		t.Fatalf("%d %+v", status, secret)
	}
	created := func(c *openaitest.Client) (session struct{ ID, Instructions string }) {
		var e struct {
			Session struct{ ID, Instructions string }
		}
		c.AwaitEvent("session.created").DecodePayload(t, &e)
		return e.Session
	}
	ids := map[string]bool{secret.Session.ID: true}
	for _, header := range []http.Header{
		{"Authorization": {"Bearer " + secret.Value}},
		{"Api-Key": {secret.Value}},
		{"Sec-Websocket-Protocol": {"realtime, openai-insecure-api-key." + secret.Value + ", openai-agents-sdk.1"}},
	} {
		c := openaitest.Dial(t, l.Gateway, "", header)
		session := created(c)
		if session.Instructions != "Be kind." || ids[session.ID] {
			t.Errorf("%v: %+v", header, session)
		}
		ids[session.ID] = true
		c.AskText("Hello")
		if r := c.AwaitResponse(); r.OutputText() != "You said: Hello" {
			t.Errorf("%+v", r)
		}
	}
	c, _, id := openaitest.DialCall(t, l.Gateway, secret.Value, openaitest.FormRequest(`{"type":"realtime","instructions":"Be kinder."}`))
	if s := created(c); s.Instructions != "Be kinder." {
		t.Errorf("the call is %+v", s)
	}
	c.AskText("/tool find_shoe {}") // granted by the key, and so to its pages
	for said := ""; !strings.Contains(said, "a red one"); said = c.AwaitResponse().OutputText() {
	}
	for body, param := range map[string]string{
		`{"expires_after":{"seconds":1}}`: "expires_after.seconds",
		`{"session":{"instructions":7}}`:  "session.instructions",
		`{"session":{"model":"other"}}`:   "session.model",
	} {
		if status, answer := minted(body); status < 400 || answer.Error.Param != param {
			t.Errorf("%s: %d %+v", body, status, answer.Error)
		}
	}
	resp := testkit.PostAs(t, l.HTTP+"/v1/realtime/client_secrets", secret.Value, "application/json", strings.NewReader("{}"))
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a secret mints a secret: %s", resp.Status)
	}
	l.AdvanceClock(2 * time.Minute)
	if _, err := shared.CompareAndSwap(t.Context(), "secret/"+secret.Value, 1, 1, nil, 0); err != nil { // emulates the expiry of the secret
		t.Fatal(err)
	}
	for _, hang := range []struct {
		token string
		want  int
	}{{"", http.StatusUnauthorized}, {"ek_another", http.StatusUnauthorized}, {secret.Value, http.StatusOK}} {
		if resp := testkit.PostAs(t, l.HTTP+"/v1/realtime/calls/"+id+"/hangup", hang.token, "", nil); resp.StatusCode != hang.want {
			t.Errorf("hang up with %q: %s", hang.token, resp.Status)
		}
	}
	if _, code := dialRefused(t, l.Gateway, "", http.Header{"Authorization": {"Bearer " + secret.Value}}); code != 3000 {
		t.Errorf("an old secret: close %d", code)
	}
}

// A key that grants agents by a pattern, or one with variables, accepts clients that name the agent after their
// token.
func TestRealtimeAgentsGrantedToKey(t *testing.T) {
	t.Parallel()
	folder := agents.New(&agents.Agent{Name: "desk-1", Prompt: "Call {{guest}}."}, &agents.Agent{Name: "night", Prompt: "Night."})
	l := testkit.StartLockedGateway(t, func(o *access.Options) { o.Agents = folder },
		func(d *testkit.Endpoints, _ *bridge.Options) { d.Agents = folder }, openaitest.Serve)
	for _, granted := range []string{"desk-*", "desk-1"} {
		l.EditKeys(testkit.SetGrants(map[string]any{"agents": []string{granted}}))
		for prompt, want := range map[string]string{`{"id":"desk-1","variables":{"guest":"Ada"}}`: "session.created", `{"id":"night"}`: "error"} {
			resp := testkit.PostAs(t, l.HTTP+"/v1/realtime/client_secrets", l.Key, "application/json",
				strings.NewReader(`{"session":{"type":"realtime","prompt":`+prompt+`}}`))
			var secret struct{ Value string }
			if err := json.NewDecoder(resp.Body).Decode(&secret); err != nil {
				t.Fatal(err)
			}
			c := openaitest.Dial(t, l.Gateway, "", http.Header{"Authorization": {"Bearer " + secret.Value}})
			c.AwaitEvent(want)
		}
	}
}

// TestBetaIsRejected uses the headers, paths, fields and events of the beta. Each error names what to change.
func TestBetaIsRejected(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, openaitest.Serve)
	post := func(path, token, body string, answer any) int {
		resp := testkit.PostAs(t, l.HTTP+path, token, "application/json", strings.NewReader(body))
		if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return resp.StatusCode
	}
	type refusal struct {
		Error struct{ Code, Param, Message string }
	}
	key := func(header, value string) http.Header {
		return http.Header{"Authorization": {"Bearer " + l.MintToken(`{"once":false}`)}, header: {value}}
	}
	for _, header := range []http.Header{
		key("OpenAI-Beta", "realtime=v1"), key("Sec-WebSocket-Protocol", "realtime, openai-beta.realtime-v1"),
	} {
		var e refusal
		c := openaitest.Dial(t, l.Gateway, "", header)
		if c.AwaitEvent("error").DecodePayload(t, &e); e.Error.Code != "beta_api_shape_disabled" ||
			!strings.Contains(e.Error.Message, "Send no ") {
			t.Errorf("%v: %+v", header, e)
		}
		if code := c.AwaitCloseCode(); code != 4000 {
			t.Errorf("%v: closed with %d", header, code)
		}
	}
	bearer := http.Header{"Authorization": {"Bearer " + l.MintToken(`{"once":false}`)}}
	c := openaitest.Dial(t, l.Gateway, "", bearer)
	c.AwaitEvent("session.created")
	for event, param := range map[string]string{
		`{"type":"session.update","session":{"voice":"alloy","tools":[]}}`:       "session.voice",
		`{"type":"session.update","session":{"input_audio_format":"g711_ulaw"}}`: "session.input_audio_format",
		`{"type":"response.create","response":{"modalities":["text"]}}`:          "response.modalities",
	} {
		var e refusal
		c.Send(event)
		if c.AwaitEvent("error").DecodePayload(t, &e); e.Error.Code != "unknown_parameter" || e.Error.Param != param {
			t.Errorf("%s: %+v", event, e)
		}
	}
	for _, test := range []struct {
		path, body, code, param string
		status                  int
	}{
		{"/v1/realtime/client_secrets", `{"model":"gpt-realtime","voice":"alloy"}`, "unknown_parameter", "model", 400},
		{"/v1/realtime/client_secrets", `{"session":{"voice":"alloy"}}`, "unknown_parameter", "session.voice", 400},
		{"/v1/realtime", "v=0", "beta_api_shape_disabled", "", 400},
		{"/v1/realtime/sessions", `{"model":"gpt-realtime","voice":"verse"}`, "beta_api_shape_disabled", "", 400},
		{"/openai/realtimeapi/sessions", `{}`, "beta_api_shape_disabled", "", 400},
		{"/v1/realtime/transcription_sessions", `{}`, "not_found", "", 404},
		{"/v1/realtime/translations", `{}`, "not_found", "", 404},
		{"/v1/realtime/calls/some/transfer/again", `{}`, "not_found", "", 404},
		{"/openai/v1/responses", `{}`, "not_found", "", 404},
	} {
		var e refusal
		if status := post(test.path, l.Key, test.body, &e); status != test.status || e.Error.Code != test.code || e.Error.Param != test.param ||
			e.Error.Message == "" {
			t.Errorf("%s: %d %+v", test.path, status, e)
		}
	}
	var plain struct{ Session struct{ Model string } }
	if post("/openai/v1/realtime/client_secrets", l.Key, `{}`, &plain); plain.Session.Model != "gpt-realtime" {
		t.Errorf("without a model: %+v", plain)
	}
	for _, path := range []string{ // the paths of Azure
		"/openai/realtime?api-version=2025-04-01-preview&deployment=gemini-3.8-live", "/openai/v1/realtime?model=gemini-3.8-live",
	} {
		c := openaitest.Dial(t, l.Gateway, path, http.Header{"Api-Key": {l.MintToken(`{"once":false}`)}})
		if c.AwaitEvent("session.created").DecodePayload(t, &plain); plain.Session.Model != "gemini-3.8-live" {
			t.Errorf("%s: %+v", path, plain)
		}
		c.AskText("Hello")
		if r := c.AwaitResponse(); r.OutputText() != "You said: Hello" {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

// unavailableStore is a store that fails while its field unavailable is set.
type unavailableStore struct {
	store.Store
	unavailable atomic.Bool
}

func (u *unavailableStore) Get(ctx context.Context, name string) ([]byte, uint64, error) {
	if u.unavailable.Load() {
		return nil, 0, store.ErrDown
	}
	return u.Store.Get(ctx, name)
}

func (u *unavailableStore) CompareAndSwap(
	ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration,
) (uint64, error) {
	if u.unavailable.Load() {
		return 0, store.ErrDown
	}
	return u.Store.CompareAndSwap(ctx, name, was, generation, value, ttl)
}

// TestRealtimeSecretOfAnotherGateway starts a conversation with a secret that another gateway has minted. While the
// store is unavailable, the page gets a time to retry.
func TestRealtimeSecretOfAnotherGateway(t *testing.T) {
	t.Parallel()
	shared := &unavailableStore{Store: store.NewMemory()}
	var gate *access.Gate
	takeGate := func(d *testkit.Endpoints, _ *bridge.Options) { gate = d.Access }
	l := testkit.StartLockedGateway(t, nil, openaitest.ServeWithStore(shared), takeGate)
	other := testkit.StartGateway(t, func(d *testkit.Endpoints, _ *bridge.Options) { d.Access = gate }, openaitest.ServeWithStore(shared))
	mint := func() *http.Response {
		body := `{"session":{"type":"realtime","instructions":"Be kind.","audio":{"input":{"turn_detection":null},"output":{"voice":"echo"}}}}`
		return testkit.PostAs(t, l.HTTP+"/v1/realtime/client_secrets", l.Key, "application/json", strings.NewReader(body))
	}
	var secret struct {
		Value   string
		Session json.RawMessage
	}
	if err := json.NewDecoder(mint().Body).Decode(&secret); err != nil {
		t.Fatal(err)
	}
	c := openaitest.Dial(t, other, "", http.Header{"Authorization": {"Bearer " + secret.Value}})
	var created struct{ Session map[string]any }
	c.AwaitEvent("session.created").DecodePayload(t, &created)
	var want map[string]any
	if err := json.Unmarshal(secret.Session, &want); err != nil {
		t.Fatal(err)
	}
	want["id"], want["model"] = created.Session["id"], created.Session["model"] // these two fields are set for each socket
	if !reflect.DeepEqual(created.Session, want) || !strings.Contains(string(secret.Session), "Be kind.") {
		t.Errorf("the session is %v, not %v", created.Session, want)
	}
	c.AskText("Hello")
	if r := c.AwaitResponse(); r.OutputText() != "You said: Hello" {
		t.Errorf("%+v", r)
	}
	shared.unavailable.Store(true)
	if code, _ := dialRefused(t, other, "", http.Header{"Authorization": {"Bearer " + secret.Value}}); code != "rate_limit_exceeded" {
		t.Errorf("while the store is away: %s", code)
	}
	if resp := mint(); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("minted while the store is away: %s", resp.Status)
	}
}

// dialRefused dials a socket that the gateway rejects, and returns the code of the error and the close code.
func dialRefused(t *testing.T, g *testkit.Gateway, query string, header http.Header) (code string, closed int) {
	t.Helper()
	c := openaitest.Dial(t, g, query, header)
	var e struct{ Error struct{ Code string } }
	c.AwaitEvent("error").DecodePayload(t, &e)
	return e.Error.Code, c.AwaitCloseCode()
}

// TestRealtimeRefusals checks that errors are like OpenAI's.
func TestRealtimeRefusals(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, openaitest.Serve)
	for _, test := range []struct {
		query, token, code string
		closed             int
	}{
		{"", "", "invalid_api_key", 3000},
		{"", "vgk_none", "invalid_api_key", 3000},
		{"", "ek_none", "invalid_api_key", 3000},
		{"?call_id=rtc_none", l.MintToken(`{"once":false}`), "call_not_found", 4000},
		{"?model=other", l.MintToken(`{"once":false}`), "invalid_model", 4000},
		{"?intent=transcription", l.MintToken(`{"once":false}`), "invalid_value", 4000},
	} {
		header := http.Header{}
		if test.token != "" {
			header.Set("Authorization", "Bearer "+test.token)
		}
		if code, closed := dialRefused(t, l.Gateway, test.query, header); code != test.code || closed != test.closed {
			t.Errorf("%+v: %s, close %d", test, code, closed)
		}
	}
	for _, test := range []struct {
		token, contentType, body, code string
		status                         int
	}{
		{"", "application/sdp", testkit.BuildOffer(t), "invalid_api_key", 401},
		{l.MintToken(`{"once":false}`), "application/sdp", "v=0", "invalid_offer", 400},
		{l.MintToken(`{"once":false}`), "text/plain", testkit.BuildOffer(t), "unsupported_content_type", 415},
		{l.MintToken(`{"once":false}`), "application/sdp", strings.Repeat("x", 100_000), "request_too_large", 413},
		{l.MintToken(`{"once":false}`), "multipart/form-data; boundary=x", "nothing", "invalid_body", 400},
	} {
		resp := testkit.PostAs(t, l.HTTP+"/v1/realtime/calls", test.token, test.contentType, strings.NewReader(test.body))
		var e struct {
			Error struct{ Code, Type, Message string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode != test.status || e.Error.Code != test.code ||
			e.Error.Message == "" {
			t.Errorf("%.60q: %s %+v, %v", test.body, resp.Status, e, err)
		}
	}
	c := openaitest.Dial(t, l.Gateway, "", http.Header{"Authorization": {"Bearer " + l.MintToken(`{"once":false}`)}})
	c.AwaitEvent("session.created")
	c.SendFrame(websocket.BinaryMessage, []byte("{}"))
	c.AwaitEvent("error")
	c.AskText("Hello") // the conversation continues
	if r := c.AwaitResponse(); r.OutputText() != "You said: Hello" {
		t.Errorf("%+v", r)
	}
}

// FuzzRealtimeCall posts arbitrary requests for a call: each gets an answer, and the gateway keeps running.
func FuzzRealtimeCall(f *testing.F) {
	g := testkit.StartGateway(f, openaitest.Serve)
	for _, kind := range []string{"application/sdp", "multipart/form-data; boundary=x", "text/plain", ""} {
		f.Add(kind, "v=0")
		f.Add(
			kind,
			"--x\r\nContent-Disposition: form-data; name=\"sdp\"\r\n\r\nv=0\r\n"+
				"--x\r\nContent-Disposition: form-data; name=\"session\"\r\n\r\n{}\r\n--x--\r\n",
		)
	}
	f.Fuzz(func(t *testing.T, kind, body string) {
		if strings.ContainsAny(kind, "\r\n\x00") {
			return
		}
		r, err := http.NewRequest(http.MethodPost, g.HTTP+"/v1/realtime/calls", strings.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return // a header that net/http cannot send
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		if resp.StatusCode >= 500 || resp.StatusCode >= 400 && !json.Valid(raw) {
			t.Errorf("%s: %s", resp.Status, raw)
		}
	})
}

// receivedVoice returns the received voice.
func receivedVoice(c *openaitest.Client) (pcm []int16) {
	for _, m := range c.Messages() {
		var e struct{ Delta []byte }
		if m.Type == "response.output_audio.delta" {
			m.DecodePayload(c.T, &e)
			pcm = media.AppendSamples(pcm, e.Delta)
		}
	}
	return pcm
}

// TestRealtimeReportsLostTools checks that the client gets an error for a function that the model does not have. The session must
// no longer have the function. A function that can be declared in another form works without an error.
func TestRealtimeReportsLostTools(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, openaitest.Serve)
	c := openaitest.Dial(t, g, "?model=gpt-realtime", nil)
	c.ConfigureSession(`{"tools":[
		{"type":"function","name":"free.object","parameters":{"type":"object","properties":{"data":{"type":"object"}},"required":["data"]}},
		{"type":"function","name":"lost","parameters":{"type":"array"}},
		{"type":"function","name":"loose","parameters":{"type":"object","properties":{"n":{"type":"float","required":true}}}},
		{"type":"function","name":"part","parameters":{"type":"object","properties":{"n":{"$ref":"#/$defs/nowhere"}}}}]}`)
	for _, want := range []struct{ code, text string }{{"tool_not_declared", `"lost"`}, {"tool_changed", `"part"`}} {
		var failed struct {
			Error struct{ Type, Code, Message, Param string }
		}
		c.AwaitEvent("error").DecodePayload(t, &failed)
		if e := failed.Error; e.Type != "invalid_request_error" || e.Code != want.code || !strings.Contains(e.Message, want.text) ||
			e.Param != "session.tools" {
			t.Errorf("error %+v, want %v", e, want)
		}
	}
	var updated struct {
		Session struct{ Tools []struct{ Name string } }
	}
	c.AwaitEvent("session.updated").DecodePayload(t, &updated)
	if names := fmt.Sprint(updated.Session.Tools); names != "[{free.object} {loose} {part}]" {
		t.Errorf("the session has %s", names)
	}
	c.AskText(`/tool free_object {"data":"{\"x\":1}"}`)
	var called struct{ Name, Arguments string }
	c.AwaitEvent("response.function_call_arguments.done").DecodePayload(t, &called)
	if called.Name != "free.object" || called.Arguments != `{"data":{"x":1}}` {
		t.Errorf("called %+v", called)
	}
	if n := c.CountMessages("error"); n != 2 {
		t.Errorf("%d errors", n)
	}
}
