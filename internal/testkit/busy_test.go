package testkit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/backend"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/signaling/rtc"
)

// behind is how many messages come right behind what keeps a loop busy: more than any queue of a door holds.
const behind = 400

// anotherOffer is a message with another offer of the same peer.
func anotherOffer(t *testing.T, p *testkit.Phone, restart bool) string {
	t.Helper()
	offer, err := p.PC.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
	if err != nil {
		t.Fatal(err)
	}
	return string(testkit.EncodeMessage("WEBRTC_OFFER", string(testkit.Must(json.Marshal(map[string]string{"sdp": offer.SDP})))))
}

// TestABusyLoopIsNotBlocked fills each bounded queue of each door while its loop answers an offer or opens a conversation. The call
// then goes on, and when the client has gone nothing of it is left.
func TestABusyLoopIsNotBlocked(t *testing.T) {
	t.Parallel()
	// burst sends frames with one write.
	burst := func(c *testkit.Client, first string, then ...string) {
		t.Helper()
		frames := frame(websocket.TextMessage, first)
		for n := range behind {
			frames = append(frames, frame(websocket.TextMessage, then[n%len(then)])...)
		}
		if _, err := c.Conn.UnderlyingConn().Write(frames); err != nil {
			t.Fatal(err)
		}
	}
	const audio = `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}}`
	for _, test := range []struct {
		name string
		door testkit.Option
		fill func(t *testing.T, g *testkit.Gateway) (leave func())
	}{
		{"web", nil, func(t *testing.T, g *testkit.Gateway) func() {
			c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{})
			burst(c, anotherOffer(t, p, false), audio)
			burst(c, anotherOffer(t, p, true), audio)
			c.AskText("Are you there?")
			return func() { testkit.DropConnection(c) }
		}},
		{"web, by data channel", nil, func(t *testing.T, g *testkit.Gateway) func() {
			c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true})
			for n := range behind {
				if n%100 == 0 {
					c.SendFrame(websocket.TextMessage, []byte(anotherOffer(t, p, false)))
				}
				p.Send("SEND_REALTIME_INPUT", `{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}`)
			}
			p.Send("SEND_MESSAGE", testkit.TextPayload("Are you there?"))
			c.AwaitEvent("TURN_COMPLETE")
			return func() { p.HangUp(); testkit.DropConnection(c) }
		}},
		{"OpenAI, by socket", testkit.WithOpenAI, func(t *testing.T, g *testkit.Gateway) func() {
			c := testkit.DialRealtime(t, g, "?model=gpt-realtime", nil)
			burst(
				c.Client,
				`{"type":"session.update","session":{"type":"realtime","instructions":"Be brief."}}`,
				`{"type":"input_audio_buffer.append","audio":"AAA="}`,
			)
			c.AskText("Are you there?")
			c.AwaitResponse()
			return func() { testkit.DropConnection(c.Client) }
		}},
		{"OpenAI, by WebRTC", testkit.WithOpenAI, func(t *testing.T, g *testkit.Gateway) func() {
			c, p, _ := testkit.DialCall(t, g, "", testkit.FormRequest(`{"type":"realtime","model":"gpt-realtime"}`))
			c.AwaitEvent("session.created")
			for range behind / 4 { // 50 a second are read
				c.Send(`{"type":"input_audio_buffer.clear"}`)
			}
			c.AskText("Are you there?")
			c.AwaitResponse()
			return p.HangUp
		}},
		{"RTVI", testkit.WithRTVI, func(t *testing.T, g *testkit.Gateway) func() {
			c := testkit.DialRTVI(t, g, "", "")
			for range behind / 4 { // 50 a second are read
				c.Send(`{"type":"signalling","message":{"type":"trackStatus","receiver_index":0,"enabled":false}}`)
			}
			c.SendText("Are you there?")
			c.AwaitEvent("bot-stopped-speaking")
			return c.Phone.HangUp
		}},
		{"Live", testkit.WithLive(t, emulator.Scenario{}, nil), func(t *testing.T, g *testkit.Gateway) func() {
			c := testkit.DialLive(t, g, "", nil)
			burst(c, `{"setup":{"model":"models/gemini-3.8-live","generationConfig":{"responseModalities":["AUDIO"]}}}`,
				`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}}`)
			c.SendFrame(websocket.TextMessage, []byte(`{"realtimeInput":{"text":"Are you there?"}}`))
			c.AwaitMatch(0, "the end of an answer", func(m testkit.Message) bool { return strings.Contains(string(m.Payload), "turnComplete") })
			return func() { testkit.DropConnection(c) }
		}},
		{"VOX", testkit.WithVOX(t, nil, nil), func(t *testing.T, g *testkit.Gateway) func() {
			c := testkit.DialVOX(t, g, nil)
			burst(c.Client, `{"type":"start"}`, `{"type":"text","text":""}`)
			c.Client.AwaitEvent("ready")
			return func() { testkit.DropConnection(c.Client) }
		}},
		{"WHIP", testkit.WithWHIP, func(t *testing.T, g *testkit.Gateway) func() {
			c := testkit.DialWHIP(t, g, "desk")
			c.AwaitConnected()
			var asking sync.WaitGroup
			for range 40 {
				asking.Go(func() {
					r, _ := http.NewRequest(http.MethodPatch, c.Session, bytes.NewReader([]byte(c.ICEFragment())))
					r.Header.Set("Content-Type", "application/trickle-ice-sdpfrag")
					r.Header.Set("If-Match", "*")
					if resp, err := http.DefaultClient.Do(r); err == nil {
						resp.Body.Close()
					}
				})
			}
			asking.Wait()
			return func() {
				testkit.WhipRequest(t, http.MethodDelete, c.Session, "")
				c.HangUp()
			}
		}},
		{"sideband", withSideband, func(t *testing.T, g *testkit.Gateway) func() {
			caller := testkit.OpenConversation(t, g, `{}`)
			w := testkit.DialWebSocket(t, strings.TrimSuffix(g.URL, "/")+"/v1/sessions/"+g.Host.Sessions()[0].ID+"/events")
			burst(w, `{"type":"SEND_MESSAGE","payload":`+testkit.TextPayload("Are you there?")+`}`, `{"type":"PING"}`)
			w.AwaitEvent("TURN_COMPLETE")
			return func() { testkit.DropConnection(w); testkit.DropConnection(caller) }
		}},
		{"telephony", withTelephony(t), func(t *testing.T, g *testkit.Gateway) func() {
			c := dialTelephone(t, g, telephonePassword)
			burst(c, `{"event":"dtmf","stream_sid":"MZ1","dtmf":{"digit":"1"}}`, `{"event":"media","stream_sid":"MZ1","media":{"payload":"AAAA"}}`)
			c.SendFrame(websocket.TextMessage, []byte(`{"event":"dtmf","stream_sid":"MZ1","dtmf":{"digit":"#"}}`))
			testkit.Eventually(t, "answer", func() bool { list := g.Host.Sessions(); return len(list) > 0 && list[0].Turns > 0 })
			return func() { testkit.DropConnection(c) }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			options := []testkit.Option{}
			if test.door != nil {
				options = append(options, test.door)
			}
			g := testkit.StartGateway(t, options...)
			test.fill(t, g)()
			testkit.Eventually(t, "end of the conversation", func() bool { return len(g.Host.Sessions()) == 0 })
		})
	}
}

// One data channel of the name that is served is served in a call: each further one, which would keep 65 KB and a goroutine, is closed.
func TestOneDataChannel(t *testing.T) {
	t.Parallel()
	const further = 64
	for _, test := range []struct {
		name, label string
		dial        func(*testing.T, *testkit.Gateway) (p *testkit.Phone, answered func())
	}{
		{"web", "events", func(t *testing.T, g *testkit.Gateway) (*testkit.Phone, func()) {
			c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true})
			return p, func() {
				p.Send("PING", "")
				if m := c.AwaitEvent("PONG"); m.Connection != "channel" {
					t.Errorf("answered by %s", m.Connection)
				}
			}
		}},
		{"OpenAI", "oai-events", func(t *testing.T, g *testkit.Gateway) (*testkit.Phone, func()) {
			c, p, _ := testkit.DialCall(t, g, "", testkit.FormRequest(`{"type":"realtime","model":"gpt-realtime"}`))
			c.AwaitEvent("session.created")
			return p, func() {
				c.Send(`{"type":"input_audio_buffer.clear"}`)
				c.AwaitEvent("input_audio_buffer.cleared")
			}
		}},
		{"RTVI", "chat", func(t *testing.T, g *testkit.Gateway) (*testkit.Phone, func()) {
			c := testkit.DialRTVI(t, g, "", "")
			return c.Phone, func() {
				c.Send(`{"label":"rtvi-ai","type":"client-message","id":"1","data":{"t":"interrupt"}}`)
				c.AwaitEvent("server-response")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, answered := test.dial(t, testkit.StartGateway(t, testkit.WithOpenAI, testkit.WithRTVI))
			var closed sync.WaitGroup
			for range further {
				dc, err := p.PC.CreateDataChannel(test.label, nil)
				if err != nil {
					t.Fatal(err)
				}
				closed.Add(1)
				dc.OnClose(closed.Done)
			}
			all := make(chan struct{})
			go func() { closed.Wait(); close(all) }()
			select {
			case <-all:
			case <-time.After(testkit.Patience):
				t.Error("they stay open")
			}
			answered()
			p.HangUp()
			<-all
		})
	}
}

// Offers and restarts of ICE are limited alike at each door that takes them in a call: 10 at once, then one a second.
func TestRestartsAreLimited(t *testing.T) {
	t.Parallel()
	const many = 40
	for _, test := range []struct {
		name    string
		refused func(t *testing.T, g *testkit.Gateway) int // of so many
	}{
		{"web", func(t *testing.T, g *testkit.Gateway) int {
			c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{})
			for range many {
				p.OfferOnly(true)
			}
			c.Send("PING", "")
			c.AwaitEvent("PONG")
			return c.CountMessages("GEMINI_ERROR")
		}},
		{"WHIP", func(t *testing.T, g *testkit.Gateway) (refused int) {
			c := testkit.DialWHIP(t, g, "desk")
			c.AwaitConnected()
			for n := range many {
				f := strings.Replace(c.ICEFragment(), "a=ice-ufrag:", fmt.Sprintf("a=ice-ufrag:%d", n), 1)
				resp, text := testkit.WhipRequest(
					t, http.MethodPatch, c.Session, f, "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", "*",
				)
				switch {
				case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "1" && strings.Contains(text, "restarts"):
					refused++
				case resp.StatusCode != http.StatusOK:
					t.Fatalf("%s: %s", resp.Status, text)
				}
			}
			testkit.WhipRequest(t, http.MethodDelete, c.Session, "")
			return refused
		}},
		{"WHEP", func(t *testing.T, g *testkit.Gateway) (refused int) {
			sends := testkit.PhoneOptions{Direction: webrtc.RTPTransceiverDirectionSendonly}
			c := testkit.DialHTTP(t, g, "/whip/desk", "", sends, "recvonly")
			c.AwaitConnected()
			offer := strings.ReplaceAll(testkit.BuildOffer(t), "a=sendrecv", "a=recvonly")
			listener := ""
			for range many {
				at := strings.Replace(c.Session, "/whip/desk/", "/whep/desk?session=", 1)
				resp, text := testkit.WhipRequest(t, http.MethodPost, at, offer, "Content-Type", "application/sdp")
				switch {
				case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "1":
					refused++
				case resp.StatusCode == http.StatusCreated:
					listener = g.HTTP + resp.Header.Get("Location")
					continue
				default:
					t.Fatalf("%s: %s", resp.Status, text)
				}
				if resp, _ := testkit.WhipRequest(t, http.MethodPatch, listener, ""); resp.StatusCode == http.StatusNotFound {
					t.Fatal("a listener is gone for an offer that was refused")
				}
			}
			testkit.WhipRequest(t, http.MethodDelete, c.Session, "")
			return refused
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			refused, more := test.refused(t, testkit.StartGateway(t, testkit.WithWHIP)), int(time.Since(began)/time.Second)+1
			if least := many - rtc.OfferBurst - more; refused < least || refused > many-rtc.OfferBurst+1 {
				t.Errorf("%d of %d were refused, want %d", refused, many, least)
			}
		})
	}
}

// withSideband opens the door of the operator's backend.
func withSideband(d *testkit.Endpoints, _ *bridge.Options) {
	d.AddEndpoints(func(host *bridge.Host, _ *rtc.API) []signaling.Endpoint {
		return (&backend.Server{Host: host, Logger: slog.New(slog.DiscardHandler)}).Endpoints()
	})
}
