package testkit

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminilive"
	"voxgate/signaling/compat/geminirest"
	"voxgate/signaling/compat/openai"
	"voxgate/signaling/compat/rtvi"
	"voxgate/signaling/compat/whip"
	"voxgate/signaling/rtc"
	"voxgate/store"
	"voxgate/vox"
	desk "voxgate/vox/assistant"
)

// LivePath is the path at which Google's SDKs expect the Live API.
const LivePath = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"

// WithLive adds the endpoint for Google's own clients, with a model that follows a scenario.
func WithLive(t testing.TB, scenario emulator.Scenario, seen *SeenByModel) Option {
	t.Helper()
	o := emulator.Options{Espeak: emulator.NoVoice, Scenario: scenario}
	if seen != nil {
		o.Observe = seen.record
	}
	model := emulator.New(o)
	up := httptest.NewServer(model)
	t.Cleanup(func() {
		model.Close()
		up.Close()
	})
	return func(d *Endpoints, ho *bridge.Options) {
		ho.Client = &api.Client{BaseURL: up.URL}
		d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
			door := geminilive.Server{Host: host, Secrets: &access.Secrets{Store: store.NewMemory(), Logger: d.Logger}, Logger: d.Logger}
			return door.Endpoints()
		})
	}
}

// DialLive opens a plain WebSocket of the Live API. Every message is JSON in a binary frame, as Google sends it.
func DialLive(t testing.TB, g *Gateway, query string, header http.Header) *Client {
	t.Helper()
	return DialProtocol(t, g.URL+"/"+LivePath+query, header, func(kind int, raw []byte) Message {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil || kind != websocket.BinaryMessage {
			t.Errorf("kind %d: %s", kind, raw)
		}
		for _, name := range []string{"setupComplete", "sessionResumptionUpdate", "serverContent", "toolCall"} {
			if fields[name] != nil {
				return Message{Type: name, Payload: fields[name]}
			}
		}
		return Message{}
	})
}

// WithOpenAI adds the endpoints for clients of OpenAI's Realtime API.
func WithOpenAI(d *Endpoints, o *bridge.Options) { WithOpenAIAt(store.NewMemory())(d, o) }

// WithOpenAIAt is WithOpenAI with client secrets in a shared store.
func WithOpenAIAt(shared store.Store) Option {
	return func(d *Endpoints, _ *bridge.Options) {
		d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
			secrets := &access.Secrets{Store: shared, Logger: d.Logger}
			server := openai.Server{Host: host, Agents: d.Agents, RTC: api, Secrets: secrets, Logger: d.Logger}
			return server.Endpoints()
		})
	}
}

// Realtime is a client of the Realtime API, over a WebSocket or a data channel. The payload of its messages is the
// whole event.
type Realtime struct {
	*Client
	g    *Gateway
	Send func(event string)
}

func readRealtime(t testing.TB, raw []byte) Message {
	m := Message{Payload: raw}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Errorf("not JSON: %s", raw)
	}
	m.Payload = raw
	return m
}

// DialRealtime opens a WebSocket of the Realtime API, with a query or with another path.
func DialRealtime(t testing.TB, g *Gateway, query string, header http.Header) *Realtime {
	t.Helper()
	c := &Realtime{g: g}
	if !strings.HasPrefix(query, "/") {
		query = "/v1/realtime" + query
	}
	c.Client = DialProtocol(t, g.URL+query, header, func(_ int, raw []byte) Message { return readRealtime(t, raw) })
	c.Send = func(event string) { c.SendFrame(websocket.TextMessage, []byte(event)) }
	return c
}

// ConfigureSession waits for the session, and updates it.
func (c *Realtime) ConfigureSession(session string) {
	c.T.Helper()
	c.AwaitEvent("session.created")
	c.Send(`{"type":"session.update","session":` + session + `}`)
	c.AwaitEvent("session.updated")
}

// AskText requests an answer to a text.
func (c *Realtime) AskText(text string) {
	c.T.Helper()
	raw, _ := json.Marshal(text)
	c.Send(
		`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":` + string(
			raw,
		) + `}]}}`,
	)
	c.Send(`{"type":"response.create"}`)
}

// AppendAudio appends audio to the input buffer.
func (c *Realtime) AppendAudio(pcm []int16) {
	c.T.Helper()
	for piece := range slices.Chunk(pcm, 1000) {
		c.Send(`{"type":"input_audio_buffer.append","audio":"` + base64.StdEncoding.EncodeToString(media.AppendBytes(nil, piece)) + `"}`)
	}
}

// AwaitResponse waits for the end of a response, and returns it.
func (c *Realtime) AwaitResponse() (r realtimeResponse) {
	c.T.Helper()
	var done struct{ Response realtimeResponse }
	c.AwaitEvent("response.done").DecodePayload(c.T, &done)
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

// SpokenText returns the text of a response.
func (r realtimeResponse) SpokenText() (text string) {
	for _, o := range r.Output {
		for _, c := range o.Content {
			text += c.Text + c.Transcript
		}
	}
	return text
}

// DialCall starts a WebRTC call, as OpenAI's clients do, and returns its id.
func DialCall(
	t *testing.T,
	g *Gateway,
	token string,
	request func(sdp string) (contentType string, body io.Reader),
) (c *Realtime, p *Phone, id string) {
	t.Helper()
	c = &Realtime{Client: &Client{Inbox: NewInbox(t)}, g: g}
	p = NewPhone(t, c.Client, PhoneOptions{})
	channel, err := p.PC.CreateDataChannel("oai-events", nil)
	if err != nil {
		t.Fatal(err)
	}
	channel.OnMessage(func(m webrtc.DataChannelMessage) {
		c.WaitWhileStalled()
		c.addMessage(readRealtime(t, m.Data))
	})
	c.Send = func(event string) {
		if err := channel.SendText(event); err != nil {
			t.Error(err)
		}
	}
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.PC.SetLocalDescription(offer); err != nil { // without waiting for candidates, as browser code does
		t.Fatal(err)
	}
	contentType, body := "application/sdp", io.Reader(strings.NewReader(offer.SDP))
	if request != nil {
		contentType, body = request(offer.SDP)
	}
	resp := PostAs(t, g.HTTP+"/v1/realtime/calls", token, contentType, body)
	sdp, _ := io.ReadAll(resp.Body)
	id = strings.TrimPrefix(resp.Header.Get("Location"), "/v1/realtime/calls/")
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Content-Type") != "application/sdp" || !strings.HasPrefix(id, "rtc_") ||
		resp.Header.Get("Cache-Control") != "no-store" ||
		!strings.Contains(string(sdp), "a=msid:") || !strings.Contains(string(sdp), "a=candidate:") {
		t.Fatalf("%s %v: %s", resp.Status, resp.Header, sdp)
	}
	if err := p.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(sdp)}); err != nil {
		t.Fatal(err)
	}
	p.AwaitConnected()
	return c, p, id
}

// PostAs sends a POST request with a token.
func PostAs(t *testing.T, url, token, contentType string, body io.Reader) *http.Response {
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

// FormRequest returns a function that builds the form with which a call is started: it has this session and the function's SDP offer.
func FormRequest(session string) func(string) (string, io.Reader) {
	return func(sdp string) (string, io.Reader) {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		_ = w.WriteField("session", session)
		_ = w.WriteField("sdp", sdp)
		w.Close()
		return w.FormDataContentType(), &body
	}
}

// WithRTVI adds the endpoints for Pipecat's clients.
func WithRTVI(d *Endpoints, _ *bridge.Options) {
	d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
		door := rtvi.Server{Host: host, RTC: api, ICEServers: func() []signaling.ICEServer { return nil }, Logger: d.Logger}
		return door.Endpoints()
	})
}

// RTVI is an RTVI client. The payload of its messages is their data; messages of the transport have the type
// "signalling".
type RTVI struct {
	*Client
	Phone *Phone
	ID    string
	Send  func(text string)
}

// PostOffer posts an offer of a new phone to a path of the gateway, with more fields in the body, and returns the status.
func (c *RTVI) PostOffer(g *Gateway, path, token, more string) (status int, text string) {
	c.T.Helper()
	p := c.Phone
	channel, err := p.PC.CreateDataChannel("chat", nil)
	if err != nil {
		c.T.Fatal(err)
	}
	channel.OnMessage(func(m webrtc.DataChannelMessage) {
		c.WaitWhileStalled()
		var got struct {
			Type string
			Data json.RawMessage
		}
		if err := json.Unmarshal(m.Data, &got); err != nil {
			c.T.Errorf("not JSON: %s", m.Data)
		}
		c.addMessage(Message{Type: got.Type, Payload: got.Data, Connection: string(m.Data)})
	})
	opened := make(chan struct{})
	channel.OnOpen(func() { close(opened) })
	c.Send = func(text string) { _ = channel.SendText(text) } // fails if the channel has closed meanwhile
	p.Done.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-tick.C:
				_ = channel.SendText("ping: 1")
			case <-p.Stop:
				tick.Stop()
				return
			}
		}
	})
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		c.T.Fatal(err)
	}
	if err := p.PC.SetLocalDescription(offer); err != nil {
		c.T.Fatal(err)
	}
	body := `{"sdp":` + string(Must(json.Marshal(offer.SDP))) + `,"type":"offer"` + more + `}`
	resp := PostAs(p.T, g.HTTP+path, token, "application/json", strings.NewReader(body))
	raw, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, string(raw)
	}
	var answer struct {
		SDP, Type string
		ID        string `json:"pc_id"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Type != "answer" {
		c.T.Fatalf("%s", raw)
	}
	c.ID = answer.ID
	if err := p.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer.SDP}); err != nil {
		c.T.Fatal(err)
	}
	p.AwaitConnected()
	select {
	case <-opened:
	case <-time.After(Patience):
		c.T.Fatal("no data channel")
	}
	return resp.StatusCode, ""
}

// NewRTVI returns an unconnected client.
func NewRTVI(t *testing.T) *RTVI { return newRTVI(t, PhoneOptions{}) }

func newRTVI(t *testing.T, o PhoneOptions) *RTVI {
	c := &RTVI{Client: &Client{Inbox: NewInbox(t)}}
	c.Phone = NewPhone(t, c.Client, o)
	return c
}

// DialRTVI begins a conversation, as Pipecat's clients do. data holds the client's settings for it, or "".
func DialRTVI(t *testing.T, g *Gateway, token, data string) *RTVI {
	t.Helper()
	return DialRTVIWith(t, g, token, data, PhoneOptions{})
}

// DialRTVIWith is DialRTVI with other options for the peer.
func DialRTVIWith(t *testing.T, g *Gateway, token, data string, o PhoneOptions) *RTVI {
	t.Helper()
	c := newRTVI(t, o)
	status, text := c.PostOffer(g, "/api/offer", token, `,"pc_id":null,"restart_pc":false,"requestData":`+cmp.Or(data, "null"))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	c.Send(`{"label":"rtvi-ai","type":"client-ready","id":"1","data":{"version":"2.1.0"}}`)
	c.AwaitEvent("bot-ready")
	return c
}

// SendText sends a text.
func (c *RTVI) SendText(text string) {
	c.Send(`{"label":"rtvi-ai","type":"send-text","id":"2","data":{"content":` + string(Must(json.Marshal(text))) + `}}`)
}

// BuildOffer returns an offer with an audio section.
func BuildOffer(t *testing.T) string {
	t.Helper()
	p := NewPhone(t, &Client{Inbox: NewInbox(t)}, PhoneOptions{})
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	return offer.SDP
}

// VoxRate is the sample rate of the VOX protocol, in Hz.
const VoxRate = 16000

// SeenByModel records what the emulator received.
type SeenByModel struct {
	mu     sync.Mutex
	events []emulator.Event
}

func (s *SeenByModel) record(e emulator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// EventsOf returns the recorded events of one kind.
func (s *SeenByModel) EventsOf(what emulator.What) (list []emulator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.What == what {
			list = append(list, e)
		}
	}
	return list
}

// WithSeenModel replaces the model by one that records what it receives.
func WithSeenModel(t testing.TB, seen *SeenByModel) Option {
	t.Helper()
	model := emulator.New(emulator.Options{Espeak: emulator.NoVoice, Observe: seen.record})
	up := httptest.NewServer(model)
	t.Cleanup(func() {
		model.Close()
		up.Close()
	})
	return func(_ *Endpoints, ho *bridge.Options) { ho.Client = &api.Client{BaseURL: up.URL} }
}

// WithVOX adds the endpoint of the VOX assistant, with a workspace.
func WithVOX(t *testing.T, seen *SeenByModel, change func(*vox.Server), routes ...geminirest.Route) Option {
	t.Helper()
	o := emulator.Options{Espeak: emulator.NoVoice}
	if seen != nil {
		o.Observe = seen.record
	}
	model := emulator.New(o)
	up := httptest.NewServer(model)
	workspace, err := desk.OpenWorkspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	client := &api.Client{BaseURL: up.URL}
	models := geminirest.New(nil, client, routes, log) // serves no calls itself; uses the gateway's host
	t.Cleanup(func() {
		models.Close()
		workspace.Close()
		model.Close()
		up.Close()
	})
	return func(d *Endpoints, ho *bridge.Options) {
		ho.Client = client
		d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
			models.Host = host
			door := &vox.Server{
				Host: host, Generate: models.GenerateContent, CheckModel: models.CheckModel, AppModel: "gemini-3.8-flash",
				Workspace: workspace, Logger: log,
			}
			if change != nil {
				change(door)
			}
			return door.Endpoints()
		})
	}
}

// VoxClient is a client as the design of the VOX assistant describes it: binary frames are audio, text frames have a
// type.
type VoxClient struct {
	*Client
	Ear    sync.Mutex
	pcm    []int16
	Frames []int // size of each frame, in bytes
}

// DialVOX opens a WebSocket of the VOX protocol.
func DialVOX(t *testing.T, g *Gateway, header http.Header) *VoxClient {
	t.Helper()
	c := &VoxClient{}
	c.Client = DialProtocol(t, strings.TrimSuffix(g.URL, "/")+"/api/vox/live", header, func(kind int, raw []byte) Message {
		if kind == websocket.BinaryMessage {
			c.Ear.Lock()
			defer c.Ear.Unlock()
			c.pcm = media.AppendSamples(c.pcm, raw)
			c.Frames = append(c.Frames, len(raw))
			return Message{Type: "sound"} // so that it can be waited for
		}
		m := Message{Payload: raw}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("not JSON: %s", raw)
		}
		m.Payload = raw
		return m
	})
	return c
}

// VoxFields are the fields of all types of messages.
type VoxFields struct {
	Type, SessionID, Theme, Model, Mode, Resume string
	Role, Text                                  string
	ID, Name, Title                             string
	Args, Data                                  json.RawMessage
	Action, Target, URL, App                    string
	ToolID                                      string `json:"tool_id"`
	Message, Code, Reason, State, Level         string
	Resumed, NewTurn, Withdrawn, Recording      bool
	RetryAfterMs                                int
	Files                                       []string
	Version                                     int
}

// Send sends a text frame.
func (c *VoxClient) Send(text string) { c.T.Helper(); c.SendFrame(websocket.TextMessage, []byte(text)) }

// SendAudio sends audio as fast as it is accepted.
func (c *VoxClient) SendAudio(pcm []int16) {
	c.T.Helper()
	for part := range slices.Chunk(pcm, VoxRate/50) {
		c.SendFrame(websocket.BinaryMessage, media.AppendBytes(nil, part))
	}
}

// AwaitEvent waits for the next message of a type that fits.
func (c *VoxClient) AwaitEvent(kind string, fits func(VoxFields) bool) VoxFields {
	c.T.Helper()
	var f VoxFields
	_, c.Client.At = c.AwaitMatch(c.Client.At, kind, func(m Message) bool {
		if f = (VoxFields{}); m.Type != "sound" {
			m.DecodePayload(c.T, &f)
		}
		return f.Type == kind && (fits == nil || fits(f))
	})
	return f
}

// StartConversation begins a conversation; fields are additional fields of its first message.
func (c *VoxClient) StartConversation(fields string) VoxFields {
	c.T.Helper()
	c.Send(`{"type":"start"` + fields + `}`)
	return c.AwaitEvent("ready", nil)
}

// SendText sends a text.
func (c *VoxClient) SendText(text string) {
	c.T.Helper()
	c.Send(fmt.Sprintf(`{"type":"text","text":%q}`, text))
}

// CallFunction makes the model call a function, by a typed command of the emulator, and returns the result.
func (c *VoxClient) CallFunction(name, args string) VoxFields {
	c.T.Helper()
	c.SendText("/tool " + name + " " + args)
	call := c.AwaitEvent("tool_call", func(f VoxFields) bool { return f.Name == name })
	var want, got any
	if json.Unmarshal([]byte(args), &want) != nil || json.Unmarshal(call.Args, &got) != nil || fmt.Sprint(want) != fmt.Sprint(got) {
		c.T.Errorf("%s was called with %s", name, call.Args)
	}
	return c.AwaitEvent("tool_result", func(f VoxFields) bool { return f.ID == call.ID })
}

// ReceivedVoice returns the voice so far.
func (c *VoxClient) ReceivedVoice() []int16 {
	c.Ear.Lock()
	defer c.Ear.Unlock()
	return slices.Clone(c.pcm)
}

// Agents holds the agents for the protocols that need some, and for the gate of a [LockedGateway].
var Agents = agents.New(
	&agents.Agent{Name: "desk", Prompt: "Be brief."}, &agents.Agent{Name: "eager", Greeting: new("Greet.")},
	&agents.Agent{Name: "telephone", Numbers: []string{"*"}, Protocols: []string{"sip"}},
	&agents.Agent{Name: "waits", Numbers: []string{"*"}, Protocols: []string{"telephony"}, Greeting: new("")},
)

// WithWHIP adds the endpoints for WHIP clients.
func WithWHIP(d *Endpoints, _ *bridge.Options) {
	d.Agents = Agents
	d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
		door := whip.Server{
			Agents: d.Agents, Host: host, RTC: api, Logger: d.Logger,
			ICEServers: func() []signaling.ICEServer { return []signaling.ICEServer{{URLs: []string{"stun:stun.example.com"}}} },
		}
		return door.Endpoints()
	})
}

// WhipRequest sends a request, and returns the response and its body.
func WhipRequest(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}

// whipCall is a WHIP client, implemented with Pion.
type whipCall struct {
	*Phone
	Session string // URL of the session, for later requests
	Etag    string
}

// ICEFragment returns the client's ICE parameters, with the candidates known so far.
func (c *whipCall) ICEFragment() string {
	var b strings.Builder
	sdp := c.PC.LocalDescription().SDP
	for line := range strings.Lines(sdp) {
		for _, prefix := range []string{"a=ice-ufrag:", "a=ice-pwd:", "a=mid:", "a=candidate:", "m="} {
			if strings.HasPrefix(line, prefix) {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// DialWHIP begins a call with an agent.
func DialWHIP(t *testing.T, g *Gateway, agent string) *whipCall {
	t.Helper()
	return DialWHIPAs(t, g, agent, "nobody's")
}

// DialWHIPAs begins a call with a token.
func DialWHIPAs(t *testing.T, g *Gateway, agent, token string) *whipCall {
	t.Helper()
	return DialHTTP(t, g, "/whip/"+agent, token, PhoneOptions{}, "sendrecv")
}

// DialHTTP posts an offer to a path of WHIP or WHEP, and checks the direction of the answer's audio.
func DialHTTP(t *testing.T, g *Gateway, path, token string, o PhoneOptions, direction string) *whipCall {
	t.Helper()
	c := &whipCall{Phone: NewPhone(t, &Client{Inbox: NewInbox(t)}, o)}
	offer, err := c.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(c.PC)
	if err := c.PC.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	resp, sdp := WhipRequest(t, http.MethodPost, g.HTTP+path, offer.SDP, "Content-Type", "application/sdp", "Authorization", "Bearer "+token)
	h := resp.Header
	if resp.StatusCode != http.StatusCreated || h.Get("Content-Type") != "application/sdp" ||
		h.Get("Link") != `<stun:stun.example.com>; rel="ice-server"` ||
		h.Get("ETag") == "" || h.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v: %s", resp.Status, h, sdp)
	}
	if !strings.Contains(sdp, "a="+direction+"\r\n") || !strings.Contains(sdp, "a=candidate:") {
		t.Errorf("answered %s", sdp)
	}
	c.Session, c.Etag = g.HTTP+h.Get("Location"), h.Get("ETag")
	if err := c.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}); err != nil {
		t.Fatal(err)
	}
	<-gathered
	return c
}

// PatchCandidates sends the client's candidates.
func (c *whipCall) PatchCandidates(etag string) (*http.Response, string) {
	c.T.Helper()
	return WhipRequest(c.T, http.MethodPatch, c.Session, c.ICEFragment(), "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", etag)
}
