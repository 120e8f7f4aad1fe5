package rtvitest

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/compat/rtvi"
	"voxgate/signaling/rtc"

	"github.com/pion/webrtc/v4"
)

// Serve adds the endpoints for Pipecat's clients.
func Serve(d *testkit.Endpoints, _ *bridge.Options) {
	d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
		server := rtvi.Server{Host: host, RTC: api, ICEServers: func() []signaling.ICEServer { return nil }, Logger: d.Logger}
		return server.Endpoints()
	})
}

// Client is an RTVI client. The payload of its [testkit.Message] is the data of the RTVI message. Messages of the
// transport have the type "signalling".
type Client struct {
	*testkit.Client
	Phone *testkit.Phone
	ID    string
	Send  func(text string)
}

// PostOffer posts an offer of a new phone to a path of the gateway, with moreFields in the body, and returns the status.
func (c *Client) PostOffer(g *testkit.Gateway, path, token, moreFields string) (status int, text string) {
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
		c.AddMessage(testkit.Message{Type: got.Type, Payload: got.Data, Connection: string(m.Data)})
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
	body := `{"sdp":` + string(testkit.Must(json.Marshal(offer.SDP))) + `,"type":"offer"` + moreFields + `}`
	resp := testkit.PostAs(p.T, g.HTTP+path, token, "application/json", strings.NewReader(body))
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
	case <-time.After(testkit.Patience):
		c.T.Fatal("no data channel")
	}
	return resp.StatusCode, ""
}

// New returns an unconnected client.
func New(t *testing.T) *Client { return newClient(t, testkit.PhoneOptions{}) }

func newClient(t *testing.T, o testkit.PhoneOptions) *Client {
	rtviClient := &Client{Client: &testkit.Client{Inbox: testkit.NewInbox(t)}}
	rtviClient.Phone = testkit.NewPhone(t, rtviClient.Client, o)
	return rtviClient
}

// Dial begins a conversation, as Pipecat's clients do. data holds the client's settings for it, or "".
func Dial(t *testing.T, g *testkit.Gateway, token, data string) *Client {
	t.Helper()
	return DialWith(t, g, token, data, testkit.PhoneOptions{})
}

// DialWith does the same as Dial, with other options for the peer.
func DialWith(t *testing.T, g *testkit.Gateway, token, data string, o testkit.PhoneOptions) *Client {
	t.Helper()
	rtviClient := newClient(t, o)
	status, text := rtviClient.PostOffer(g, "/api/offer", token, `,"pc_id":null,"restart_pc":false,"requestData":`+cmp.Or(data, "null"))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	rtviClient.Send(`{"label":"rtvi-ai","type":"client-ready","id":"1","data":{"version":"2.1.0"}}`)
	rtviClient.AwaitEvent("bot-ready")
	return rtviClient
}

// SendText sends a text.
func (c *Client) SendText(text string) {
	c.Send(`{"label":"rtvi-ai","type":"send-text","id":"2","data":{"content":` + string(testkit.Must(json.Marshal(text))) + `}}`)
}
