package testkit_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/signaling/compat/whip/whiptest"
	"voxgate/tools"

	"github.com/gorilla/websocket"
)

// TestAPanicEndsOneCall causes a panic in each kind of goroutine of a call. That call ends, the panic is logged with its stack
// and counted, and another call continues.
func TestAPanicEndsOneCall(t *testing.T) { // not parallel: Inject affects the whole process
	if testing.Short() {
		t.Skip("takes seconds")
	}
	call := func(t *testing.T, g *testkit.Gateway) (*testkit.Client, *testkit.Phone) {
		return testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true})
	}
	speaks := func(c *testkit.Client) { c.Send("SEND_MESSAGE", testkit.TextPayload("Tell me a story.")) }
	for _, kind := range []struct {
		place string
		fault func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client // returns the client whose call ends
	}{
		{"session", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			arm()
			c := testkit.DialWebSocket(t, g.URL)
			c.Send("CONNECT_GEMINI", `{"initialConfig":{}}`)
			return c
		}},
		{"caller", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			arm()
			c := testkit.DialWebSocket(t, g.URL)
			// The write fails if the socket is closed already.
			_ = c.Conn.WriteMessage(websocket.TextMessage, testkit.EncodeMessage("CONNECT_GEMINI", `{"initialConfig":{}}`))
			return c
		}},
		{"model connection", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			arm()
			c := testkit.DialWebSocket(t, g.URL)
			c.Send("CONNECT_GEMINI", `{"initialConfig":{}}`)
			return c
		}},
		{"playout", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			c, _ := call(t, g)
			arm()
			speaks(c)
			return c
		}},
		{"socket writer", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			arm()
			return testkit.DialWebSocket(t, g.URL)
		}},
		{"socket reader", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			c, _ := call(t, g)
			arm()
			c.Send("PING", "")
			return c
		}},
		{"data channel", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			c, p := call(t, g)
			c.Send("SEND_MESSAGE", testkit.TextPayload("Hello."))
			c.AwaitMatch(0, "an event by the channel", func(m testkit.Message) bool { return m.Connection == "channel" })
			arm()
			p.Send("PING", "")
			return c
		}},
		{"peer", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			c := testkit.OpenConversation(t, g, `{}`)
			p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
			arm()
			p.Negotiate(false)
			return c
		}},
		{"microphone", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			arm()
			c := testkit.OpenConversation(t, g, `{}`)
			testkit.NewPhone(t, c, testkit.PhoneOptions{}).Negotiate(false) // the call may end before the phone knows that it is connected
			return c
		}},
		{"rtcp", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			arm()
			c := testkit.OpenConversation(t, g, `{}`)
			testkit.NewPhone(t, c, testkit.PhoneOptions{}).Negotiate(false)
			return c
		}},
		{"tool", func(t *testing.T, g *testkit.Gateway, arm func()) *testkit.Client {
			c := testkit.OpenConversation(t, g, `{}`)
			arm()
			c.Send("SEND_MESSAGE", testkit.TextPayload("/tool get_time"))
			return c
		}},
	} {
		t.Run(kind.place, func(t *testing.T) {
			g := testkit.StartGateway(t, func(_ *testkit.Endpoints, o *bridge.Options) {
				o.Tools = func() []tools.Tool {
					return []tools.Tool{{
						Declaration: tools.Declaration{Name: "get_time"},
						Run:         func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil },
					}}
				}
			})
			other := testkit.OpenConversation(t, g, `{}`)
			before := crash.PanicCount(kind.place)
			var armed atomic.Bool
			defer crash.SetTestHook(func(place string) {
				if place == kind.place && armed.CompareAndSwap(true, false) {
					panic("injected")
				}
			})()
			c := kind.fault(t, g, func() { armed.Store(true) })
			c.AwaitCloseCode()
			if n := crash.PanicCount(kind.place) - before; n != 1 {
				t.Errorf("%d panics are counted", n)
			}
			if log := g.Logs.String(); !strings.Contains(log, "injected") || !strings.Contains(log, "crash.go") {
				t.Error("the panic is not logged with its stack")
			}
			other.AskText("Are you there?")
			other.SendAudio(mediatest.Tone(media.FrameDuration, 16000, 400, 1000), 16000)
			other.Send("PING", "")
			other.AwaitEvent("PONG")
		})
	}
}

// TestAPanicOfARequest: if the handler of a request panics, the response is 500.
func TestAPanicOfARequest(t *testing.T) {
	g := testkit.StartGateway(t, whiptest.Serve)
	defer crash.SetTestHook(func(place string) {
		if place == "request" {
			panic("injected")
		}
	})()
	resp, _ := testkit.SendHTTP(t, http.MethodPost, g.HTTP+"/whip/desk", testkit.BuildOffer(t), "Content-Type", "application/sdp")
	if resp.StatusCode != http.StatusInternalServerError {
		t.Error(resp.Status)
	}
}
