package signaling_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge/gemini/emulator"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// behind is how many messages come right behind what keeps a loop busy: more than any queue of a door holds.
const behind = 400

// TestABusyLoopIsNotBlocked fills each bounded queue of each door while its loop answers an offer or opens a conversation. The call
// then goes on, and when the client has gone nothing of it is left.
func TestABusyLoopIsNotBlocked(t *testing.T) {
	t.Parallel()
	// burst sends frames with one write.
	burst := func(c *client, first string, then ...string) {
		t.Helper()
		frames := frame(websocket.TextMessage, first)
		for n := range behind {
			frames = append(frames, frame(websocket.TextMessage, then[n%len(then)])...)
		}
		if _, err := c.conn.UnderlyingConn().Write(frames); err != nil {
			t.Fatal(err)
		}
	}
	again := func(p *phone, restart bool) string { // another offer of the same peer
		offer, err := p.pc.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
		if err != nil {
			t.Fatal(err)
		}
		return string(envelope("WEBRTC_OFFER", string(must(json.Marshal(map[string]string{"sdp": offer.SDP})))))
	}
	const audio = `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}}`
	for _, test := range []struct {
		name string
		door option
		fill func(t *testing.T, g *gateway) (leave func())
	}{
		{"web", nil, func(t *testing.T, g *gateway) func() {
			c, p := call(t, g, `{}`, phoneOptions{})
			burst(c, again(p, false), audio)
			burst(c, again(p, true), audio)
			c.ask("Are you there?")
			return func() { cut(c) }
		}},
		{"web, by data channel", nil, func(t *testing.T, g *gateway) func() {
			c, p := call(t, g, `{}`, phoneOptions{channel: true})
			for n := range behind {
				if n%100 == 0 {
					c.raw(websocket.TextMessage, []byte(again(p, false)))
				}
				p.send("SEND_REALTIME_INPUT", `{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}`)
			}
			p.send("SEND_MESSAGE", typed("Are you there?"))
			c.expect("TURN_COMPLETE")
			return func() { p.hangUp(); cut(c) }
		}},
		{"OpenAI, by socket", withOpenAI, func(t *testing.T, g *gateway) func() {
			c := dialRealtime(t, g, "?model=gpt-realtime", nil)
			burst(c.client, `{"type":"session.update","session":{"type":"realtime","instructions":"Be brief."}}`, `{"type":"input_audio_buffer.append","audio":"AAA="}`)
			c.typed("Are you there?")
			c.answered()
			return func() { cut(c.client) }
		}},
		{"OpenAI, by WebRTC", withOpenAI, func(t *testing.T, g *gateway) func() {
			c, p, _ := dialCall(t, g, "", form(`{"type":"realtime","model":"gpt-realtime"}`))
			c.expect("session.created")
			for range behind / 4 { // 50 a second are read
				c.send(`{"type":"input_audio_buffer.clear"}`)
			}
			c.typed("Are you there?")
			c.answered()
			return p.hangUp
		}},
		{"Live", withLive(t, emulator.Scenario{}, nil), func(t *testing.T, g *gateway) func() {
			c := dialLive(t, g, "", nil)
			burst(c, `{"setup":{"model":"models/gemini-3.8-live","generationConfig":{"responseModalities":["AUDIO"]}}}`,
				`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}}`)
			c.raw(websocket.TextMessage, []byte(`{"realtimeInput":{"text":"Are you there?"}}`))
			c.wait(0, "the end of an answer", func(m message) bool { return strings.Contains(string(m.Payload), "turnComplete") })
			return func() { cut(c) }
		}},
		{"VOX", withVOX(t, nil, nil), func(t *testing.T, g *gateway) func() {
			c := dialVOX(t, g, nil)
			burst(c.client, `{"type":"start"}`, `{"type":"text","text":""}`)
			c.client.expect("ready")
			return func() { cut(c.client) }
		}},
		{"WHIP", withWHIP, func(t *testing.T, g *gateway) func() {
			c := dialWHIP(t, g, "desk")
			c.connected()
			var asking sync.WaitGroup
			for range 40 {
				asking.Go(func() {
					r, _ := http.NewRequest(http.MethodPatch, c.session, bytes.NewReader([]byte(c.fragment())))
					r.Header.Set("Content-Type", "application/trickle-ice-sdpfrag")
					r.Header.Set("If-Match", "*")
					if resp, err := http.DefaultClient.Do(r); err == nil {
						resp.Body.Close()
					}
				})
			}
			asking.Wait()
			return func() {
				whipRequest(t, http.MethodDelete, c.session, "")
				c.hangUp()
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			options := []option{}
			if test.door != nil {
				options = append(options, test.door)
			}
			g := newGateway(t, options...)
			test.fill(t, g)()
			eventually(t, "end of the conversation", func() bool { return len(g.host.Sessions()) == 0 })
		})
	}
}

// A visit that does not end is named at the shutdown, which does not wait for it for ever.
func TestWhatHangsAtADoorIsNamed(t *testing.T) {
	t.Parallel()
	there, hang := make(chan struct{}), make(chan struct{})
	server := signaling.NewServer(signaling.Options{Logger: slog.New(slog.DiscardHandler)}, signaling.Door{
		Pattern: "POST /hang", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, leave := signaling.Outlive(r.Context())
			close(there)
			<-hang
			leave()
		}),
	})
	front := httptest.NewServer(server)
	defer front.Close()
	var asking sync.WaitGroup
	asking.Go(func() {
		if resp, err := http.Post(front.URL+"/hang", "", nil); err == nil {
			resp.Body.Close()
		}
	})
	<-there
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no time at all
	if err := server.Close(ctx); err == nil || !strings.Contains(err.Error(), "POST /hang from 127.0.0.1") {
		t.Errorf("named: %v", err)
	}
	close(hang)
	asking.Wait()
	if err := server.Close(t.Context()); err != nil {
		t.Errorf("then: %v", err)
	}
}

// One data channel of the name that is served is served in a call: each further one, which would keep 65 KB and a goroutine, is closed.
func TestOneDataChannel(t *testing.T) {
	t.Parallel()
	const further = 64
	for _, test := range []struct {
		name, label string
		dial        func(*testing.T, *gateway) (p *phone, answered func())
	}{
		{"web", "events", func(t *testing.T, g *gateway) (*phone, func()) {
			c, p := call(t, g, `{}`, phoneOptions{channel: true})
			return p, func() {
				p.send("PING", "")
				if m := c.expect("PONG"); m.way != "channel" {
					t.Errorf("answered by %s", m.way)
				}
			}
		}},
		{"OpenAI", "oai-events", func(t *testing.T, g *gateway) (*phone, func()) {
			c, p, _ := dialCall(t, g, "", form(`{"type":"realtime","model":"gpt-realtime"}`))
			c.expect("session.created")
			return p, func() {
				c.send(`{"type":"input_audio_buffer.clear"}`)
				c.expect("input_audio_buffer.cleared")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, answered := test.dial(t, newGateway(t, withOpenAI))
			var closed sync.WaitGroup
			for range further {
				dc, err := p.pc.CreateDataChannel(test.label, nil)
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
			case <-time.After(patience):
				t.Error("they stay open")
			}
			answered()
			p.hangUp()
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
		refused func(t *testing.T, g *gateway) int // of so many
	}{
		{"web", func(t *testing.T, g *gateway) int {
			c, p := call(t, g, `{}`, phoneOptions{})
			for range many {
				p.offerOnly(true)
			}
			c.send("PING", "")
			c.expect("PONG")
			return c.count("GEMINI_ERROR")
		}},
		{"WHIP", func(t *testing.T, g *gateway) (refused int) {
			c := dialWHIP(t, g, "desk")
			c.connected()
			for n := range many {
				f := strings.Replace(c.fragment(), "a=ice-ufrag:", fmt.Sprintf("a=ice-ufrag:%d", n), 1)
				resp, text := whipRequest(t, http.MethodPatch, c.session, f, "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", "*")
				switch {
				case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "1" && strings.Contains(text, "restarts"):
					refused++
				case resp.StatusCode != http.StatusOK:
					t.Fatalf("%s: %s", resp.Status, text)
				}
			}
			whipRequest(t, http.MethodDelete, c.session, "")
			return refused
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			refused, more := test.refused(t, newGateway(t, withWHIP)), int(time.Since(began)/time.Second)+1
			if least := many - rtc.OfferBurst - more; refused < least || refused > many-rtc.OfferBurst+1 {
				t.Errorf("%d of %d were refused, want %d", refused, many, least)
			}
		})
	}
}
