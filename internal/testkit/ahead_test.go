package testkit_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/wire"
	"voxgate/internal/testkit"
	"voxgate/signaling/compat/geminilive/geminilivetest"
	"voxgate/signaling/compat/openai/openaitest"
)

// talker starts a fake model. When asked, it sends an answer of so many seconds as fast as the gateway reads. The channel
// said receives a value when the gateway has processed the whole answer.
func talker(t *testing.T, seconds int) (url string, said <-chan struct{}) {
	t.Helper()
	all := make(chan struct{}, 1)
	second := base64.StdEncoding.EncodeToString(make([]byte, 2*wire.OutputRate))
	var upgrader websocket.Upgrader
	var serving sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		conn.SetPongHandler(func(string) error { // the gateway has processed everything before the ping
			all <- struct{}{}
			return nil
		})
		send := func(text string) { _ = conn.WriteMessage(websocket.BinaryMessage, []byte(text)) }
		for answered := false; ; {
			_, raw, err := conn.ReadMessage()
			switch {
			case err != nil:
				return
			case strings.Contains(string(raw), `"setup"`):
				send(`{"setupComplete":{}}`)
			case strings.Contains(string(raw), "Tell me") && !answered:
				answered = true
				for range seconds {
					send(`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"` + second + `"}}]}}}`)
				}
				send(`{"serverContent":{"generationComplete":true}}`)
				send(`{"serverContent":{"turnComplete":true}}`)
				_ = conn.WriteMessage(websocket.PingMessage, nil)
			}
		}
	}))
	t.Cleanup(func() { server.Close(); serving.Wait() })
	return server.URL, all
}

// TestLongAnswersWaitForSlowClients: the model sends a long answer at once to a client that does not read. The voice waits
// for the client, which later gets all of it, and then its end. Protocols that send the voice in real time get a short answer.
func TestLongAnswersWaitForSlowClients(t *testing.T) {
	t.Parallel()
	const long = 40 // seconds of voice: 2.6 MB in base64, more than the 1 MiB that wait for a client and the small buffers of sockets
	for _, test := range []struct {
		name, path, first, ready, ask, voice, end string
		seconds                                   int
	}{
		{
			"client protocol", "/ws", `{"type":"CONNECT_GEMINI","payload":{"initialConfig":{}}}`, "SETUP_COMPLETE",
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"Tell me."}],"turnComplete":true}}`, "AUDIO_CHUNK", `"type":"TURN_COMPLETE"`,
			3, // this protocol sends the voice in real time
		},
		{
			"Live", "/" + geminilivetest.Path, `{"setup":{"model":"models/gemini-3.8-live","generationConfig":{"responseModalities":["AUDIO"]}}}`,
			"setupComplete",
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"Tell me."}]}],"turnComplete":true}}`, `"inlineData"`,
			`"generationComplete"`, long,
		},
		{
			"OpenAI", "/v1/realtime?model=gpt-realtime", `{"type":"session.update","session":{"type":"realtime"}}`, "session.updated",
			`{"type":"conversation.item.create","item":{"type":"message","role":"user",` +
				`"content":[{"type":"input_text","text":"Tell me."}]}}` + "\n" +
				`{"type":"response.create"}`, "response.output_audio.delta", `"response.output_audio.done"`, long,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url, said := talker(t, test.seconds)
			g := testkit.StartGateway(
				t,
				geminilivetest.Serve(t, emulator.Scenario{}, nil),
				openaitest.Serve,
				func(d *testkit.Endpoints, o *bridge.Options) {
					d.SmallBuffers, o.Client = true, &api.Client{BaseURL: url}
				},
			)
			read := make(chan struct{}) // closed when the client continues to read
			voice, ended := 0, false
			c := testkit.DialProtocol(t, g.URL+test.path, nil, func(_ int, raw []byte) testkit.Message {
				text := string(raw)
				switch {
				case strings.Contains(text, test.ready):
					return testkit.Message{Type: "ready", Payload: json.RawMessage("{}")}
				case strings.Contains(text, test.voice):
					<-read
					if ended {
						t.Error("voice came behind its end")
					}
					voice += len(raw)
				case strings.Contains(text, test.end):
					ended = true
					return testkit.Message{Type: "end", Payload: json.RawMessage(fmt.Sprint(voice))}
				}
				return testkit.Message{}
			})
			// With the default buffers, the kernel would take the whole voice, and none would wait in the gateway.
			if err := c.Conn.NetConn().(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
				t.Fatal(err)
			}
			c.SendTextFrame(test.first)
			c.AwaitEvent("ready")
			for ask := range strings.Lines(test.ask) {
				c.SendTextFrame(ask)
			}
			<-said
			close(read)
			var bytes int
			c.AwaitEvent("end").DecodePayload(t, &bytes)
			if least := test.seconds * wire.OutputRate * 2 * 4 / 3; bytes < least {
				t.Errorf("%d of %d bytes came", bytes, least)
			}
		})
	}
}
