package signaling_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/wire"
	"voxgate/media"
	"voxgate/media/playout"
	"voxgate/signaling"
)

// talker is a model that says a long answer as fast as it is taken, whenever something is said to it.
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
				all <- struct{}{}
			}
		}
	}))
	t.Cleanup(func() { server.Close(); serving.Wait() })
	return server.URL, all
}

// TestLongAnswersWaitForSlowClients has the model say nearly two minutes at once, to a client that does not read meanwhile. Where the
// voice comes as it is said, it waits for the client, which gets all of it and its end behind it.
func TestLongAnswersWaitForSlowClients(t *testing.T) {
	t.Parallel()
	const seconds = 115 // of voice: 7.4 MB in base64
	for _, test := range []struct {
		name, path, first, ready, ask, voice, end string
	}{
		{
			"Live", "/" + livePath, `{"setup":{"model":"models/gemini-3.8-live","generationConfig":{"responseModalities":["AUDIO"]}}}`, "setupComplete",
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"Tell me."}]}],"turnComplete":true}}`, `"inlineData"`, `"generationComplete"`,
		},
		{
			"OpenAI", "/v1/realtime?model=gpt-realtime", `{"type":"session.update","session":{"type":"realtime"}}`, "session.updated",
			`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Tell me."}]}}` + "\n" +
				`{"type":"response.create"}`, "response.output_audio.delta", `"response.output_audio.done"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url, said := talker(t, seconds)
			g := newGateway(t, withLive(t, emulator.Scenario{}, nil), withOpenAI, func(_ *doors, o *bridge.Options) { o.Client = &api.Client{BaseURL: url} })
			read := make(chan struct{}) // closed when the client reads on
			voice, ended := 0, false
			c := dialDoor(t, g.url+test.path, nil, func(_ int, raw []byte) message {
				text := string(raw)
				switch {
				case strings.Contains(text, test.ready):
					return message{Type: "ready", Payload: json.RawMessage("{}")}
				case strings.Contains(text, test.voice):
					<-read
					if ended {
						t.Error("voice came behind its end")
					}
					voice += len(raw)
				case strings.Contains(text, test.end):
					ended = true
					return message{Type: "end", Payload: json.RawMessage(fmt.Sprint(voice))}
				}
				return message{}
			})
			c.raw(websocket.TextMessage, []byte(test.first))
			c.expect("ready")
			for ask := range strings.Lines(test.ask) {
				c.raw(websocket.TextMessage, []byte(ask))
			}
			<-said
			close(read)
			var bytes int
			c.expect("end").read(t, &bytes)
			if least := seconds * wire.OutputRate * 2 * 4 / 3; bytes < least {
				t.Errorf("%d of %d bytes came", bytes, least)
			}
		})
	}
}

// slowClient is an output whose client reads 100 kB a second.
type slowClient struct{ box *signaling.Outbox[int] }

func (slowClient) Lead() time.Duration { return media.AtOnce }

func (c slowClient) WriteFrame(f media.Frame) error {
	size := base64.StdEncoding.EncodedLen(2 * len(f.PCM))
	c.box.Put(size, size)
	return nil
}

// holdingClient is one for which voice is held back, as the doors have it.
type holdingClient struct{ slowClient }

func (c holdingClient) Full() bool { return c.box.Full() }

// A model that says two minutes in 20 s is faster than a client that reads 100 kB a second, which is fast enough to hear it: it was
// dropped when 4 MiB waited. Voice that is held back reaches it whole.
func TestVoiceFarAheadIsHeldBack(t *testing.T) {
	const seconds, perSecond = 120, 100_000
	for _, holds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			box := signaling.NewOutbox[int]()
			ticker := playout.NewTicker()
			defer ticker.Close()
			p := playout.NewPacer(ticker, wire.OutputRate)
			defer p.Close()
			if p.Attach(slowClient{box}); holds {
				p.Attach(holdingClient{slowClient{box}})
			}
			read := 0
			ended := make(chan error, 1)
			go func() {
				ended <- box.Run(t.Context(), func(_ context.Context, size int) error {
					time.Sleep(time.Duration(size) * time.Second / perSecond)
					read += size
					return nil
				})
			}()
			for range seconds {
				if err := p.WritePCM(make([]int16, wire.OutputRate)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second / 6)
			}
			time.Sleep(seconds * time.Second)
			box.Close()
			err := <-ended
			if !holds && !errors.Is(err, signaling.ErrSlow) {
				t.Errorf("without room for it the client was kept: %v", err)
			}
			if want := seconds * wire.OutputRate * 2 * 4 / 3; holds && (err != nil || read != want) {
				t.Errorf("%d of %d bytes were read, %v", read, want, err)
			}
		})
	}
}
