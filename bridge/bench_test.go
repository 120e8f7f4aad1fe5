package bridge_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

// BenchmarkDownlink takes messages of audio from a TCP socket on loopback through a whole session to the output of its
// playout, one at a time: Conn.Recv, the loop, Pacer, WriteFrame. The output takes frames at any time, so nothing waits for
// the ticker.
//
// It counts the allocations of the whole process. The server allocates nothing. gorilla's NextReader allocates once per
// message, a messageReader of 8 bytes; all other allocations are the gateway's. Words come a few times a second and cost
// their JSON. Calls, usage and other rare messages are not measured.
func BenchmarkDownlink(b *testing.B) {
	for _, c := range []struct {
		name   string
		length time.Duration
		more   string
	}{
		{"40ms", 40 * time.Millisecond, ""},
		{"240ms", 240 * time.Millisecond, ""},
		// Each message is a whole turn, because the transcript of an endless turn would grow.
		{"a turn with words", 240 * time.Millisecond, `,"outputTranscription":{"text":"some words "},"turnComplete":true`},
	} {
		b.Run(c.name, func(b *testing.B) {
			frames := int(c.length / media.FrameDuration)
			audio := make([]byte, 2*wire.OutputRate*int(c.length/time.Millisecond)/1000)
			message, err := websocket.NewPreparedMessage(websocket.BinaryMessage, fmt.Appendf(nil,
				`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":%q}}]}%s}}`,
				base64.StdEncoding.EncodeToString(audio), c.more))
			if err != nil {
				b.Fatal(err)
			}
			model, out := downlink(b)
			pass := func() {
				if err := model.WritePreparedMessage(message); err != nil {
					b.Fatal(err)
				}
				for range frames {
					<-out.frames
				}
			}
			for range 1000 { // warms up: the buffers grow
				pass()
			}
			var before, after runtime.MemStats
			b.ReportAllocs()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				pass()
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N*frames), "allocs/frame")
		})
	}
}

// downlink starts a session. It returns the model's end of the connection, and the caller.
func downlink(b *testing.B) (*websocket.Conn, *listener) {
	b.Helper()
	links, over := make(chan *websocket.Conn, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		if _, _, err := ws.ReadMessage(); err != nil {
			return
		}
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte(`{"setupComplete":{}}`)); err != nil {
			return
		}
		links <- ws
		_, _, _ = ws.ReadMessage() // until the session ends
	}))
	host := bridge.NewHost(bridge.Options{
		Client: &api.Client{BaseURL: server.URL}, Backend: "emulator", Logger: slog.New(slog.DiscardHandler),
	})
	c := &listener{frames: make(chan struct{}, 100)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = host.Serve(context.Background(), c, bridge.SessionRequest{Config: json.RawMessage(`{}`)})
	}()
	b.Cleanup(func() {
		if err := host.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
		<-served
		<-over
		server.Close()
	})
	return <-links, c
}

// listener is a bridge.Caller that accepts frames at any time and discards them.
type listener struct{ frames chan struct{} }

// Serve implements bridge.Caller.
func (l *listener) Serve(ctx context.Context, s *bridge.Session) error {
	s.AttachOutput(l)
	s.HoldVoice(false)
	<-ctx.Done()
	return context.Cause(ctx)
}

// Notify implements bridge.Caller.
func (l *listener) Notify(bridge.Event) {}

// Rate, Lead and WriteFrame implement media.Output.
func (l *listener) Rate() int              { return wire.OutputRate }
func (l *listener) MaxLead() time.Duration { return 1 << 60 }
func (l *listener) WriteFrame(media.Frame) error {
	l.frames <- struct{}{}
	return nil
}
