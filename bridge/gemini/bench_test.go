package gemini_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/genai"

	"voxgate/bridge/gemini/api"
)

// The benchmarks run over a TCP socket on loopback, ours and the SDK's one after the other.

func sdkSession(b *testing.B, base string) *genai.Session {
	b.Helper()
	client, err := genai.NewClient(b.Context(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: testKey,
		HTTPOptions: genai.HTTPOptions{BaseURL: strings.Replace(base, "http", "ws", 1), APIVersion: "v1beta"},
	})
	if err != nil {
		b.Fatal(err)
	}
	session, err := client.Live.Connect(b.Context(), api.DefaultModel, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = session.Close() })
	if _, err := session.Receive(); err != nil { // setupComplete once more
		b.Fatal(err)
	}
	return session
}

func BenchmarkSend20ms(b *testing.B) {
	swallow := live(func(_ testing.TB, ws *websocket.Conn) { drain(ws.NetConn()) })
	pcm := make([]int16, 320)
	b.Run("ours", func(b *testing.B) {
		conn := dial(b, tcpClient(b, swallow.handler(b)))
		b.ReportAllocs()
		for b.Loop() {
			if err := conn.SendAudio(b.Context(), pcm, 16000); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sdk", func(b *testing.B) {
		session := sdkSession(b, tcpClient(b, swallow.handler(b)).BaseURL)
		raw := make([]byte, 640)
		b.ReportAllocs()
		for b.Loop() {
			if err := session.SendRealtimeInput(genai.LiveRealtimeInput{Audio: &genai.Blob{Data: raw, MIMEType: "audio/pcm;rate=16000"}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRecv(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"40ms", 1920}, {"240ms", 11520}} {
		data := base64.StdEncoding.EncodeToString(make([]byte, size.bytes))
		message := []byte("{\n  \"serverContent\": {\n    \"modelTurn\": {\n      \"parts\": [\n        {\n          \"inlineData\": {\n" +
			"            \"mimeType\": \"audio/pcm;rate=24000\",\n            \"data\": \"" + data + "\"\n          }\n        }\n      ]\n    }\n  }\n}\n")
		speak := live(func(_ testing.TB, ws *websocket.Conn) {
			prepared, err := websocket.NewPreparedMessage(websocket.BinaryMessage, message)
			for err == nil {
				err = ws.WritePreparedMessage(prepared)
			}
		})
		b.Run(size.name+"/ours", func(b *testing.B) {
			conn := dial(b, tcpClient(b, speak.handler(b)))
			b.ReportAllocs()
			for b.Loop() {
				if m, err := conn.Recv(b.Context()); err != nil || len(m.Content.Audio) != size.bytes/2 {
					b.Fatal(err)
				}
			}
		})
		b.Run(size.name+"/sdk", func(b *testing.B) {
			session := sdkSession(b, tcpClient(b, speak.handler(b)).BaseURL)
			b.ReportAllocs()
			for b.Loop() {
				if m, err := session.Receive(); err != nil || len(m.ServerContent.ModelTurn.Parts[0].InlineData.Data) != size.bytes {
					b.Fatal(err)
				}
			}
		})
	}
}
