package gemini_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/genai"

	"voxgate/bridge/gemini/wire"
)

const (
	frameLength = 20     // ms
	inputRate   = 16_000 // Hz
)

// speakOn is a script that sends the model's voice in frames until the client has gone.
func speakOn(_ testing.TB, ws *websocket.Conn) {
	frame, err := websocket.NewPreparedMessage(websocket.BinaryMessage, fmt.Appendf(nil,
		`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":%q}}]}}}`,
		base64.StdEncoding.EncodeToString(make([]byte, 2*wire.OutputRate*frameLength/1000))))
	for err == nil {
		err = ws.WritePreparedMessage(frame)
	}
}

// dialSDK connects with Google's SDK.
func dialSDK(t testing.TB, then script) *genai.Session {
	t.Helper()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: testKey,
		HTTPOptions: genai.HTTPOptions{BaseURL: strings.Replace(tcpClient(t, live(then).handler(t)).BaseURL, "http", "ws", 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.Live.Connect(t.Context(), "gemini-3.8-live", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// BenchmarkFrame compares Conn with the session of Google's SDK, for 20 ms of audio in each direction. It includes the server, which
// allocates hardly anything when it sends, and four times for each message that it reads. ARCHITECTURE.md has the figures.
func BenchmarkFrame(b *testing.B) {
	sound := make([]int16, inputRate*frameLength/1000)
	bytes := make([]byte, 2*len(sound))
	for name, open := range map[string]func() func() error{
		"receive/ours": func() func() error {
			conn := dial(b, tcpClient(b, live(speakOn).handler(b)))
			return func() error { _, err := conn.Recv(b.Context()); return err }
		},
		"receive/genai": func() func() error {
			session := dialSDK(b, speakOn)
			return func() error { _, err := session.Receive(); return err }
		},
		"send/ours": func() func() error {
			conn := dial(b, tcpClient(b, live(untilGone).handler(b)))
			return func() error { return conn.SendAudio(b.Context(), sound, inputRate) }
		},
		"send/genai": func() func() error {
			session := dialSDK(b, untilGone)
			return func() error {
				return session.SendRealtimeInput(genai.LiveRealtimeInput{Audio: &genai.Blob{MIMEType: "audio/pcm;rate=16000", Data: bytes}})
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			handle := open()
			b.ReportAllocs()
			for b.Loop() {
				if err := handle(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
