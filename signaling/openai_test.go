package signaling_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/media"
	"voxgate/media/mediatest"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/openai"
	"voxgate/signaling/rtc"
	"voxgate/store"
	"voxgate/tools"
)

// withOpenAI opens the door for clients of OpenAI's Realtime API.
func withOpenAI(d *doors, o *bridge.Options) { withOpenAIAt(store.NewMemory())(d, o) }

// withOpenAIAt has it know the secrets of all gateways of a store.
func withOpenAIAt(shared store.Store) option {
	return func(d *doors, _ *bridge.Options) {
		before := d.more
		d.more = func(host *bridge.Host, api *rtc.API) []signaling.Door {
			door := openai.Door{Host: host, RTC: api, Store: shared, Logger: d.Logger}
			list := door.Doors()
			if before != nil {
				list = append(list, before(host, api)...)
			}
			return list
		}
	}
}

// realtime is a client of that door, over a WebSocket or a data channel. The payload of its messages is the whole event.
type realtime struct {
	*client
	g    *gateway
	send func(event string)
}

func readRealtime(t testing.TB, raw []byte) message {
	m := message{Payload: raw}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Errorf("not JSON: %s", raw)
	}
	m.Payload = raw
	return m
}

func dialRealtime(t testing.TB, g *gateway, query string, header http.Header) *realtime {
	t.Helper()
	c := &realtime{g: g}
	c.client = dialDoor(t, g.url+"/v1/realtime"+query, header, func(_ int, raw []byte) message { return readRealtime(t, raw) })
	c.send = func(event string) { c.raw(websocket.TextMessage, []byte(event)) }
	return c
}

// configure waits for the session, and changes it.
func (c *realtime) configure(session string) {
	c.t.Helper()
	c.expect("session.created")
	c.send(`{"type":"session.update","session":` + session + `}`)
	c.expect("session.updated")
}

// typed asks for an answer to a text.
func (c *realtime) typed(text string) {
	c.t.Helper()
	raw, _ := json.Marshal(text)
	c.send(`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":` + string(raw) + `}]}}`)
	c.send(`{"type":"response.create"}`)
}

func (c *realtime) say(pcm []int16) {
	c.t.Helper()
	for piece := range slices.Chunk(pcm, 1000) {
		c.send(`{"type":"input_audio_buffer.append","audio":"` + base64.StdEncoding.EncodeToString(media.AppendBytes(nil, piece)) + `"}`)
	}
}

// answered waits for the end of a response.
func (c *realtime) answered() (r realtimeResponse) {
	c.t.Helper()
	var done struct{ Response realtimeResponse }
	c.expect("response.done").read(c.t, &done)
	return done.Response
}

type realtimeResponse struct {
	ID, Status string
	Output     []struct {
		ID, Type, Name, Arguments string
		CallID                    string `json:"call_id"`
		Content                   []struct{ Text, Transcript string }
	}
	StatusDetails struct {
		Reason string
		Error  struct{ Code string }
	} `json:"status_details"`
	Usage *struct {
		Total int `json:"total_tokens"`
	}
}

func (r realtimeResponse) said() (text string) {
	for _, o := range r.Output {
		for _, c := range o.Content {
			text += c.Text + c.Transcript
		}
	}
	return text
}

// pcm is the voice that has come.
func (c *realtime) pcm() (pcm []int16) {
	for _, m := range c.all() {
		var e struct{ Delta []byte }
		if m.Type == "response.output_audio.delta" {
			m.read(c.t, &e)
			pcm = media.AppendSamples(pcm, e.Delta)
		}
	}
	return pcm
}

// TestRealtime talks over a WebSocket: by voice, over connections to the model that end, and is interrupted.
func TestRealtime(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withOpenAI)
	c := dialRealtime(t, g, "?model=gpt-realtime", nil)
	c.configure(`{"instructions":"Be brief."}`)
	c.say(sentence(440, time.Second, bridge.VoiceRate))
	r := c.answered()
	if level := mediatest.ToneLevel(c.pcm(), bridge.VoiceRate, 440); r.Status != "completed" || !strings.HasPrefix(r.said(), "You said") || level < 0.5 || r.Usage == nil {
		t.Errorf("answered %+v, share of 440 Hz %.2f", r, level)
	}
	c.typed(strings.Repeat("many words ", 60))
	c.expect("response.output_audio.delta")
	c.say(sentence(440, time.Second, bridge.VoiceRate))
	if r := c.answered(); r.Status != "cancelled" || r.StatusDetails.Reason != "turn_detected" {
		t.Errorf("interrupted: %+v", r)
	}
	if r := c.answered(); r.Status != "completed" {
		t.Errorf("then: %+v", r)
	}
	if n := c.count("input_audio_buffer.speech_started"); n != 2 {
		t.Errorf("%d times speech has begun", n)
	}
	if c.count("error") > 0 {
		t.Errorf("%v", c.all())
	}
}

// TestRealtimeOutlivesConnections has connections to the model end after a second: the client is told of nothing.
func TestRealtimeOutlivesConnections(t *testing.T) {
	t.Parallel()
	seen := &seenByModel{}
	g := newGateway(t, withLive(t, emulator.Scenario{ConnectionAge: 11 * time.Second, GoAwayLead: 10 * time.Second}, seen), withOpenAI)
	c := dialRealtime(t, g, "", nil)
	c.configure(`{}`)
	c.typed("My name is Ada.")
	c.answered()
	eventually(t, "third connection", func() bool { return len(seen.all(emulator.Opened)) >= 3 })
	c.typed("/history")
	if r := c.answered(); !strings.Contains(r.said(), "My name is Ada.") || c.count("error") > 0 {
		t.Errorf("it remembers %q", r.said())
	}
}

// TestRealtimeAnswerBreaksOff loses the connection to the model in an answer: the response has failed, and the next question is
// answered.
func TestRealtimeAnswerBreaksOff(t *testing.T) {
	t.Parallel()
	fault := emulator.Fault{On: emulator.OnAnswer, After: 500 * time.Millisecond, Times: 1, Drop: true}
	c := dialRealtime(t, newGateway(t, withLive(t, emulator.Scenario{Faults: []emulator.Fault{fault}}, nil), withOpenAI), "", nil)
	c.configure(`{}`)
	c.typed(strings.Repeat("many words ", 10))
	if r := c.answered(); r.Status != "failed" || r.StatusDetails.Error.Code != "connection_lost" {
		t.Errorf("first %+v", r)
	}
	c.typed("Hello")
	if r := c.answered(); r.said() != "You said: Hello" {
		t.Errorf("then %+v", r)
	}
}

// dialCall makes a call by WebRTC, as OpenAI's clients do, and returns its id.
func dialCall(t *testing.T, g *gateway, token string, request func(sdp string) (contentType string, body io.Reader)) (c *realtime, p *phone, id string) {
	t.Helper()
	c = &realtime{client: &client{inbox: newInbox(t)}, g: g}
	p = newPhone(t, c.client, phoneOptions{})
	channel, err := p.pc.CreateDataChannel("oai-events", nil)
	if err != nil {
		t.Fatal(err)
	}
	channel.OnMessage(func(m webrtc.DataChannelMessage) { c.put(readRealtime(t, m.Data)) })
	c.send = func(event string) {
		if err := channel.SendText(event); err != nil {
			t.Error(err)
		}
	}
	offer, err := p.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.pc.SetLocalDescription(offer); err != nil { // without waiting for candidates, as browsers' code does
		t.Fatal(err)
	}
	contentType, body := "application/sdp", io.Reader(strings.NewReader(offer.SDP))
	if request != nil {
		contentType, body = request(offer.SDP)
	}
	resp := postAs(t, g.http+"/v1/realtime/calls", token, contentType, body)
	sdp, _ := io.ReadAll(resp.Body)
	id = strings.TrimPrefix(resp.Header.Get("Location"), "/v1/realtime/calls/")
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Content-Type") != "application/sdp" || !strings.HasPrefix(id, "rtc_") ||
		!strings.Contains(string(sdp), "a=msid:") || !strings.Contains(string(sdp), "a=candidate:") {
		t.Fatalf("%s %v: %s", resp.Status, resp.Header, sdp)
	}
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(sdp)}); err != nil {
		t.Fatal(err)
	}
	p.connected()
	return c, p, id
}

func postAs(t *testing.T, url, token, contentType string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestRealtimeCall talks by WebRTC; a second connection watches and takes part, and hangs up.
func TestRealtimeCall(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withOpenAI)
	c, p, id := dialCall(t, g, "", nil)
	c.configure(`{"audio":{"input":{"transcription":{"model":"whisper-1"}}}}`)
	side := dialRealtime(t, g, "?call_id="+url.QueryEscape(id), nil)
	side.expect("session.created")
	p.talk <- sentence(440, time.Second, 48000)
	c.expect("output_audio_buffer.started")
	if r := c.answered(); !strings.HasPrefix(r.said(), "You said") {
		t.Errorf("%+v", r)
	}
	c.expect("output_audio_buffer.stopped")
	if c.count("response.output_audio.delta") > 0 || p.voiceLevel(440) < 0.5 || c.count("conversation.item.input_audio_transcription.completed") != 1 {
		t.Errorf("share of 440 Hz %.2f, %v", p.voiceLevel(440), c.all())
	}
	if r := side.answered(); !strings.HasPrefix(r.said(), "You said") {
		t.Errorf("beside: %+v", r)
	}
	side.typed(strings.Repeat("many words ", 60))
	c.expect("output_audio_buffer.started")
	c.send(`{"type":"response.cancel","event_id":"mine"}`)
	c.expect("output_audio_buffer.cleared")
	if r := side.answered(); r.Status != "cancelled" {
		t.Errorf("cancelled: %+v", r)
	}
	c.send(`{"type":"nonsense"}`)
	c.expect("error")
	if side.count("error") > 0 {
		t.Error("an error has come to who did not make it")
	}
	if resp := postAs(t, g.http+"/v1/realtime/calls/"+id+"/hangup", "", "", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("hang up: %s", resp.Status)
	}
	if code := side.closeCode(); code != websocket.CloseNormalClosure {
		t.Errorf("closed with %d", code)
	}
	eventually(t, "the end", func() bool {
		return postAs(t, g.http+"/v1/realtime/calls/"+id+"/hangup", "", "", nil).StatusCode == http.StatusNotFound
	})
}

// form is the other form of a request for a call.
func form(session string) func(string) (string, io.Reader) {
	return func(sdp string) (string, io.Reader) {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		_ = w.WriteField("session", session)
		_ = w.WriteField("sdp", sdp)
		w.Close()
		return w.FormDataContentType(), &body
	}
}

// TestRealtimeSecrets has a backend mint secrets for pages, bound to a session, and use each form of a key.
func TestRealtimeSecrets(t *testing.T) {
	t.Parallel()
	shared := store.NewMemory()
	l := newLocked(t, nil, withOpenAIAt(shared), func(_ *doors, o *bridge.Options) {
		o.Tools = func() []tools.Tool {
			return []tools.Tool{{
				Declaration: tools.Declaration{Name: "find_shoe", Description: "d"},
				Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(`{"shoe":"a red one"}`), nil
				},
			}}
		}
	})
	l.edit(grants(map[string]any{"tools": []string{"find_*"}}))
	minted := func(body string) (status int, answer struct {
		Value     string
		ExpiresAt int64 `json:"expires_at"`
		Session   struct{ ID, Instructions, Model string }
		Error     struct{ Code, Message, Param string }
	},
	) {
		resp := postAs(t, l.http+"/v1/realtime/client_secrets", l.key, "application/json", strings.NewReader(body))
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Error(err)
		}
		return resp.StatusCode, answer
	}
	status, secret := minted(`{"expires_after":{"anchor":"created_at","seconds":60},"session":{"type":"realtime","model":"gpt-realtime","instructions":"Be kind.","tools":[{"type":"function","name":"f"}]}}`)
	if left := secret.ExpiresAt - time.Now().Unix(); status != http.StatusOK || !strings.HasPrefix(secret.Value, "ek_") || secret.Session.Instructions != "Be kind." || left < 50 || left > 61 {
		t.Fatalf("%d %+v", status, secret)
	}
	created := func(c *realtime) (session struct{ ID, Instructions string }) {
		var e struct {
			Session struct{ ID, Instructions string }
		}
		c.expect("session.created").read(t, &e)
		return e.Session
	}
	ids := map[string]bool{secret.Session.ID: true}
	for _, header := range []http.Header{{"Authorization": {"Bearer " + secret.Value}}, {"Api-Key": {secret.Value}}, {"Sec-Websocket-Protocol": {"realtime, openai-insecure-api-key." + secret.Value + ", openai-agents-sdk.1"}}} {
		c := dialRealtime(t, l.gateway, "", header)
		session := created(c)
		if session.Instructions != "Be kind." || ids[session.ID] {
			t.Errorf("%v: %+v", header, session)
		}
		ids[session.ID] = true
		c.typed("Hello")
		if r := c.answered(); r.said() != "You said: Hello" {
			t.Errorf("%+v", r)
		}
	}
	c, _, id := dialCall(t, l.gateway, secret.Value, form(`{"type":"realtime","instructions":"Be kinder."}`))
	if s := created(c); s.Instructions != "Be kinder." {
		t.Errorf("the call is %+v", s)
	}
	c.typed("/tool find_shoe {}") // which the key grants, and so its pages have
	for said := ""; !strings.Contains(said, "a red one"); said = c.answered().said() {
	}
	for body, param := range map[string]string{`{"expires_after":{"seconds":1}}`: "expires_after.seconds", `{"session":{"instructions":7}}`: "session.instructions", `{"session":{"model":"other"}}`: "session.model"} {
		if status, answer := minted(body); status < 400 || answer.Error.Param != param {
			t.Errorf("%s: %d %+v", body, status, answer.Error)
		}
	}
	resp := postAs(t, l.http+"/v1/realtime/client_secrets", secret.Value, "application/json", strings.NewReader("{}"))
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a secret mints a secret: %s", resp.Status)
	}
	l.wait(2 * time.Minute)
	if _, err := shared.Swap(t.Context(), "secret/"+secret.Value, 1, 1, nil, 0); err != nil { // as it has by then
		t.Fatal(err)
	}
	for _, hang := range []struct {
		token string
		want  int
	}{{"", http.StatusUnauthorized}, {"ek_another", http.StatusUnauthorized}, {secret.Value, http.StatusOK}} {
		if resp := postAs(t, l.http+"/v1/realtime/calls/"+id+"/hangup", hang.token, "", nil); resp.StatusCode != hang.want {
			t.Errorf("hang up with %q: %s", hang.token, resp.Status)
		}
	}
	if _, code := refusedRealtime(t, l.gateway, "", http.Header{"Authorization": {"Bearer " + secret.Value}}); code != 3000 {
		t.Errorf("an old secret: close %d", code)
	}
}

// lostStore is a store that is away while lost is set.
type lostStore struct {
	store.Store
	lost atomic.Bool
}

func (l *lostStore) Get(ctx context.Context, name string) ([]byte, uint64, error) {
	if l.lost.Load() {
		return nil, 0, store.ErrDown
	}
	return l.Store.Get(ctx, name)
}

func (l *lostStore) Swap(ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration) (uint64, error) {
	if l.lost.Load() {
		return 0, store.ErrDown
	}
	return l.Store.Swap(ctx, name, was, generation, value, ttl)
}

// TestRealtimeSecretOfAnotherGateway has a page begin by a secret that another gateway has minted, and be told to come again while
// their store is away.
func TestRealtimeSecretOfAnotherGateway(t *testing.T) {
	t.Parallel()
	shared := &lostStore{Store: store.NewMemory()}
	var gate *access.Gate
	l := newLocked(t, nil, withOpenAIAt(shared), func(d *doors, _ *bridge.Options) { gate = d.access })
	other := newGateway(t, func(d *doors, _ *bridge.Options) { d.access = gate }, withOpenAIAt(shared))
	mint := func() *http.Response {
		body := `{"session":{"type":"realtime","instructions":"Be kind.","audio":{"input":{"turn_detection":null},"output":{"voice":"echo"}}}}`
		return postAs(t, l.http+"/v1/realtime/client_secrets", l.key, "application/json", strings.NewReader(body))
	}
	var secret struct {
		Value   string
		Session json.RawMessage
	}
	if err := json.NewDecoder(mint().Body).Decode(&secret); err != nil {
		t.Fatal(err)
	}
	c := dialRealtime(t, other, "", http.Header{"Authorization": {"Bearer " + secret.Value}})
	var created struct{ Session map[string]any }
	c.expect("session.created").read(t, &created)
	var want map[string]any
	if err := json.Unmarshal(secret.Session, &want); err != nil {
		t.Fatal(err)
	}
	want["id"], want["model"] = created.Session["id"], created.Session["model"] // the socket's own
	if !reflect.DeepEqual(created.Session, want) || !strings.Contains(string(secret.Session), "Be kind.") {
		t.Errorf("the session is %v, not %v", created.Session, want)
	}
	c.typed("Hello")
	if r := c.answered(); r.said() != "You said: Hello" {
		t.Errorf("%+v", r)
	}
	shared.lost.Store(true)
	if code, _ := refusedRealtime(t, other, "", http.Header{"Authorization": {"Bearer " + secret.Value}}); code != "rate_limit_exceeded" {
		t.Errorf("while the store is away: %s", code)
	}
	if resp := mint(); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("minted while the store is away: %s", resp.Status)
	}
}

// refusedRealtime is how a socket is refused.
func refusedRealtime(t *testing.T, g *gateway, query string, header http.Header) (code string, closed int) {
	t.Helper()
	c := dialRealtime(t, g, query, header)
	var e struct{ Error struct{ Code string } }
	c.expect("error").read(t, &e)
	return e.Error.Code, c.closeCode()
}

// TestRealtimeRefuses says what is wrong as OpenAI does.
func TestRealtimeRefuses(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil, withOpenAI)
	for _, test := range []struct {
		query, token, code string
		closed             int
	}{
		{"", "", "invalid_api_key", 3000},
		{"", "vgk_none", "invalid_api_key", 3000},
		{"", "ek_none", "invalid_api_key", 3000},
		{"?call_id=rtc_none", l.mint(`{"once":false}`), "call_not_found", 4000},
		{"?model=other", l.mint(`{"once":false}`), "invalid_model", 4000},
		{"?intent=transcription", l.mint(`{"once":false}`), "invalid_value", 4000},
	} {
		header := http.Header{}
		if test.token != "" {
			header.Set("Authorization", "Bearer "+test.token)
		}
		if code, closed := refusedRealtime(t, l.gateway, test.query, header); code != test.code || closed != test.closed {
			t.Errorf("%+v: %s, close %d", test, code, closed)
		}
	}
	for _, test := range []struct {
		token, contentType, body, code string
		status                         int
	}{
		{"", "application/sdp", someOffer(t), "invalid_api_key", 401},
		{l.mint(`{"once":false}`), "application/sdp", "v=0", "invalid_offer", 400},
		{l.mint(`{"once":false}`), "text/plain", someOffer(t), "unsupported_content_type", 415},
		{l.mint(`{"once":false}`), "application/sdp", strings.Repeat("x", 100_000), "request_too_large", 413},
		{l.mint(`{"once":false}`), "multipart/form-data; boundary=x", "nothing", "invalid_body", 400},
	} {
		resp := postAs(t, l.http+"/v1/realtime/calls", test.token, test.contentType, strings.NewReader(test.body))
		var e struct {
			Error struct{ Code, Type, Message string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode != test.status || e.Error.Code != test.code || e.Error.Message == "" {
			t.Errorf("%.60q: %s %+v, %v", test.body, resp.Status, e, err)
		}
	}
	c := dialRealtime(t, l.gateway, "", http.Header{"Authorization": {"Bearer " + l.mint(`{"once":false}`)}})
	c.expect("session.created")
	c.raw(websocket.BinaryMessage, []byte("{}"))
	c.expect("error")
	c.typed("Hello") // it goes on
	if r := c.answered(); r.said() != "You said: Hello" {
		t.Errorf("%+v", r)
	}
}

// someOffer is one with an audio section.
func someOffer(t *testing.T) string {
	t.Helper()
	p := newPhone(t, &client{inbox: newInbox(t)}, phoneOptions{})
	offer, err := p.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	return offer.SDP
}

// FuzzRealtimeCall posts anything as a request for a call: it is answered, and the gateway goes on.
func FuzzRealtimeCall(f *testing.F) {
	g := newGateway(f, withOpenAI)
	for _, kind := range []string{"application/sdp", "multipart/form-data; boundary=x", "text/plain", ""} {
		f.Add(kind, "v=0")
		f.Add(kind, "--x\r\nContent-Disposition: form-data; name=\"sdp\"\r\n\r\nv=0\r\n--x\r\nContent-Disposition: form-data; name=\"session\"\r\n\r\n{}\r\n--x--\r\n")
	}
	f.Fuzz(func(t *testing.T, kind, body string) {
		if strings.ContainsAny(kind, "\r\n\x00") {
			return
		}
		r, err := http.NewRequest(http.MethodPost, g.http+"/v1/realtime/calls", strings.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return // a header that net/http does not send
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		if resp.StatusCode >= 500 || resp.StatusCode >= 400 && !json.Valid(raw) {
			t.Errorf("%s: %s", resp.Status, raw)
		}
	})
}
