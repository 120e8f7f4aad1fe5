package testkit_test

import (
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

	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/signaling/compat/openai/openaitest"
	"voxgate/signaling/compat/rtvi/rtvitest"
	"voxgate/signaling/compat/whip/whiptest"
	"voxgate/signaling/rtc"
)

// TestABusyLoopIsNotBlocked fills each bounded queue of each endpoint while the call's loop answers an offer or opens a
// conversation. The call must continue, and leave nothing behind when the client has gone.
func TestABusyLoopIsNotBlocked(t *testing.T) {
	t.Parallel()
	for _, p := range protocols {
		for name, fill := range p.FillQueues {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var options []testkit.Option
				if p.Serve != nil {
					options = append(options, p.Serve(t))
				}
				checkBusyLoop(t, fill, options...)
			})
		}
	}
	t.Run("sideband", func(t *testing.T) {
		t.Parallel()
		checkBusyLoop(t, func(t *testing.T, g *testkit.Gateway) (leave func()) {
			caller := testkit.OpenConversation(t, g, `{}`)
			w := testkit.DialWebSocket(t, strings.TrimSuffix(g.URL, "/")+"/v1/sessions/"+g.Host.Sessions()[0].ID+"/events")
			testkit.SendBurst(w, `{"type":"SEND_MESSAGE","payload":`+testkit.TextPayload("Are you there?")+`}`, `{"type":"PING"}`)
			w.AwaitEvent("TURN_COMPLETE")
			return func() { testkit.DropConnection(w); testkit.DropConnection(caller) }
		}, withSideband)
	})
}

// checkBusyLoop fills the queues of a call, ends the call, and waits until its conversation has ended.
func checkBusyLoop(t *testing.T, fill func(*testing.T, *testkit.Gateway) func(), options ...testkit.Option) {
	t.Helper()
	g := testkit.StartGateway(t, options...)
	fill(t, g)()
	testkit.Eventually(t, "end of the conversation", func() bool { return len(g.Host.Sessions()) == 0 })
}

// A call has one data channel, with the label that the protocol serves. Further channels are closed, because each would keep
// 65 KB and a goroutine.
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
			c, p, _ := openaitest.DialCall(t, g, "", openaitest.FormRequest(`{"type":"realtime","model":"gpt-realtime"}`))
			c.AwaitEvent("session.created")
			return p, func() {
				c.Send(`{"type":"input_audio_buffer.clear"}`)
				c.AwaitEvent("input_audio_buffer.cleared")
			}
		}},
		{"RTVI", "chat", func(t *testing.T, g *testkit.Gateway) (*testkit.Phone, func()) {
			c := rtvitest.Dial(t, g, "", "")
			return c.Phone, func() {
				c.Send(`{"label":"rtvi-ai","type":"client-message","id":"1","data":{"t":"interrupt"}}`)
				c.AwaitEvent("server-response")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, answered := test.dial(t, testkit.StartGateway(t, openaitest.Serve, rtvitest.Serve))
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

// Each endpoint that accepts offers during a call has the same limit for offers and ICE restarts: 10 at once, then one per
// second.
func TestRestartsAreLimited(t *testing.T) {
	t.Parallel()
	const many = 40
	for _, test := range []struct {
		name    string
		refused func(t *testing.T, g *testkit.Gateway) int // sends many offers, and returns the number of rejected ones
	}{
		{"web", func(t *testing.T, g *testkit.Gateway) int {
			c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{})
			for range many {
				p.SendOfferOnly(true)
			}
			c.Send("PING", "")
			c.AwaitEvent("PONG")
			return c.CountMessages("GEMINI_ERROR")
		}},
		{"WHIP", func(t *testing.T, g *testkit.Gateway) (refused int) {
			c := whiptest.Dial(t, g, "desk")
			c.AwaitConnected()
			for n := range many {
				f := strings.Replace(c.ICEFragment(), "a=ice-ufrag:", fmt.Sprintf("a=ice-ufrag:%d", n), 1)
				resp, text := testkit.SendHTTP(
					t, http.MethodPatch, c.Session, f, "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", "*",
				)
				switch {
				case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "1" && strings.Contains(text, "restarts"):
					refused++
				case resp.StatusCode != http.StatusOK:
					t.Fatalf("%s: %s", resp.Status, text)
				}
			}
			testkit.SendHTTP(t, http.MethodDelete, c.Session, "")
			return refused
		}},
		{"WHEP", func(t *testing.T, g *testkit.Gateway) (refused int) {
			sends := testkit.PhoneOptions{Direction: webrtc.RTPTransceiverDirectionSendonly}
			c := whiptest.DialPath(t, g, "/whip/desk", "", sends, "recvonly")
			c.AwaitConnected()
			offer := strings.ReplaceAll(testkit.BuildOffer(t), "a=sendrecv", "a=recvonly")
			listener := ""
			for range many {
				at := strings.Replace(c.Session, "/whip/desk/", "/whep/desk?session=", 1)
				resp, text := testkit.SendHTTP(t, http.MethodPost, at, offer, "Content-Type", "application/sdp")
				switch {
				case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "1":
					refused++
				case resp.StatusCode == http.StatusCreated:
					listener = g.HTTP + resp.Header.Get("Location")
					continue
				default:
					t.Fatalf("%s: %s", resp.Status, text)
				}
				if resp, _ := testkit.SendHTTP(t, http.MethodPatch, listener, ""); resp.StatusCode == http.StatusNotFound {
					t.Fatal("a listener is gone for an offer that was refused")
				}
			}
			testkit.SendHTTP(t, http.MethodDelete, c.Session, "")
			return refused
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			refused, more := test.refused(t, testkit.StartGateway(t, whiptest.Serve)), int(time.Since(began)/time.Second)+1
			if least := many - rtc.OfferBurst - more; refused < least || refused > many-rtc.OfferBurst+1 {
				t.Errorf("%d of %d were refused, want %d", refused, many, least)
			}
		})
	}
}

// withSideband serves the API of the operator's backend.
func withSideband(d *testkit.Endpoints, _ *bridge.Options) {
	d.AddEndpoints(func(host *bridge.Host, _ *rtc.API) []signaling.Endpoint {
		return (&backend.Server{Host: host, Logger: slog.New(slog.DiscardHandler)}).Endpoints()
	})
}
