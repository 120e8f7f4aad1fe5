package openaitest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/openai"
	"voxgate/signaling/rtc"
	"voxgate/store"

	"github.com/pion/webrtc/v4"
)

// Serve adds the endpoints for clients of OpenAI's Realtime API.
func Serve(d *testkit.Endpoints, o *bridge.Options) { ServeWithStore(store.NewMemory())(d, o) }

// ServeWithStore returns an option that adds the same endpoints as Serve, but keeps client secrets in a shared store.
func ServeWithStore(shared store.Store) testkit.Option {
	return func(d *testkit.Endpoints, _ *bridge.Options) {
		d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
			secrets := &access.Secrets{Store: shared, Logger: d.Logger}
			server := openai.Server{Host: host, Agents: d.Agents, RTC: api, Secrets: secrets, Logger: d.Logger}
			return server.Endpoints()
		})
	}
}

// Client is a client of the Realtime API, over a WebSocket or a data channel. The payload of its messages is the
// whole event.
type Client struct {
	*testkit.Client
	g    *testkit.Gateway
	Send func(event string)
}

func parseEvent(t testing.TB, raw []byte) testkit.Message {
	m := testkit.Message{Payload: raw}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Errorf("not JSON: %s", raw)
	}
	m.Payload = raw
	return m
}

// Dial opens a WebSocket of the Realtime API. query is its query, or another path of the API.
func Dial(t testing.TB, g *testkit.Gateway, query string, header http.Header) *Client {
	t.Helper()
	realtimeClient := &Client{g: g}
	if !strings.HasPrefix(query, "/") {
		query = "/v1/realtime" + query
	}
	read := func(_ int, raw []byte) testkit.Message { return parseEvent(t, raw) }
	realtimeClient.Client = testkit.DialProtocol(t, g.URL+query, header, read)
	realtimeClient.Send = realtimeClient.SendTextFrame
	return realtimeClient
}

// ConfigureSession waits for the session, and updates it.
func (c *Client) ConfigureSession(session string) {
	c.T.Helper()
	c.AwaitEvent("session.created")
	c.Send(`{"type":"session.update","session":` + session + `}`)
	c.AwaitEvent("session.updated")
}

// AskText requests an answer to a text.
func (c *Client) AskText(text string) {
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
func (c *Client) AppendAudio(pcm []int16) {
	c.T.Helper()
	for piece := range slices.Chunk(pcm, 1000) {
		c.Send(`{"type":"input_audio_buffer.append","audio":"` + base64.StdEncoding.EncodeToString(media.AppendBytes(nil, piece)) + `"}`)
	}
}

// AwaitResponse waits for the end of a response, and returns it.
func (c *Client) AwaitResponse() (r realtimeResponse) {
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

// OutputText returns the text of a response.
func (r realtimeResponse) OutputText() (text string) {
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
	g *testkit.Gateway,
	token string,
	request func(sdp string) (contentType string, body io.Reader),
) (realtimeClient *Client, p *testkit.Phone, id string) {
	t.Helper()
	realtimeClient = &Client{Client: &testkit.Client{Inbox: testkit.NewInbox(t)}, g: g}
	p = testkit.NewPhone(t, realtimeClient.Client, testkit.PhoneOptions{})
	channel, err := p.PC.CreateDataChannel("oai-events", nil)
	if err != nil {
		t.Fatal(err)
	}
	channel.OnMessage(func(m webrtc.DataChannelMessage) {
		realtimeClient.WaitWhileStalled()
		realtimeClient.AddMessage(parseEvent(t, m.Data))
	})
	realtimeClient.Send = func(event string) {
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
	resp := testkit.PostAs(t, g.HTTP+"/v1/realtime/calls", token, contentType, body)
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
	return realtimeClient, p, id
}

// FormRequest returns a function that builds the form with which a client starts a call. The form contains this
// session, and the SDP offer that is passed to the function.
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
