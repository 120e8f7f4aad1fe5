package gemini_test

import (
	"encoding/base64"
	"testing"

	"github.com/gorilla/websocket"
)

// The benchmarks run over a TCP socket on loopback.

func BenchmarkSend20ms(b *testing.B) {
	swallow := live(func(_ testing.TB, ws *websocket.Conn) { drain(ws.NetConn()) })
	pcm := make([]int16, 320)
	conn := dial(b, tcpClient(b, swallow.handler(b)))
	b.ReportAllocs()
	for b.Loop() {
		if err := conn.SendAudio(b.Context(), pcm, 16000); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecv(b *testing.B) {
	for name, size := range map[string]int{"40ms": 1920, "240ms": 11520} {
		data := base64.StdEncoding.EncodeToString(make([]byte, size))
		message := []byte("{\n  \"serverContent\": {\n    \"modelTurn\": {\n      \"parts\": [\n        {\n          \"inlineData\": {\n" +
			"            \"mimeType\": \"audio/pcm;rate=24000\",\n            \"data\": \"" + data + "\"\n          }\n        }\n      ]\n    }\n  }\n}\n")
		speak := live(func(_ testing.TB, ws *websocket.Conn) {
			prepared, err := websocket.NewPreparedMessage(websocket.BinaryMessage, message)
			for err == nil {
				err = ws.WritePreparedMessage(prepared)
			}
		})
		b.Run(name, func(b *testing.B) {
			conn := dial(b, tcpClient(b, speak.handler(b)))
			b.ReportAllocs()
			for b.Loop() {
				if m, err := conn.Recv(b.Context()); err != nil || len(m.Content.Audio) != size/2 {
					b.Fatal(err)
				}
			}
		})
	}
}
