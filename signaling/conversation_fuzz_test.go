package signaling_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
)

// FuzzConversation sends anything to a conversation: it is answered or ignored, and the next request works, unless the message
// was one that ends the conversation, which is told.
func FuzzConversation(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `"x"`, `{"type":"NONSENSE"}`, `{"type":"CONNECT_GEMINI","payload":{}}`,
		`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"Hi"}]}}`, `{"type":"SEND_MESSAGE","payload":{"parts":{"text":1},"turnComplete":"no"}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"text":"Hi"}}`, `{"type":"SEND_REALTIME_INPUT","payload":{"audioStreamEnd":true}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAAAAA=="}}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"video":{"mimeType":"image/jpeg","data":"/9j/"}}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"mediaChunks":[{"mimeType":"audio/pcm","data":"AAAA"}]}}`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","name":"x","response":{}}]}}}`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"parts":[{"functionResponse":{"id":"1"}}]}}}`,
		`{"type":"UPDATE_CONFIG","payload":{"systemInstruction":"Be brief.","voxgate":{"maxDuration":"1h"}}}`,
		`{"type":"GET_CONTEXT","id":"a"}`, `{"type":"CLEAR_CONTEXT"}`, `{"type":"DISCONNECT_GEMINI"}`,
		`{"type":"WEBRTC_OFFER","payload":{"sdp":"v=0\r\n"}}`, `{"type":"WEBRTC_ICE_CANDIDATE","payload":{"candidate":"candidate:1 1 udp 1 127.0.0.1 9 typ host"}}`,
		`{"type":"PIECE","payload":{"id":"1","index":0,"count":2,"data":"{\"type\":"}}`,
	} {
		f.Add([]byte(seed))
	}
	g := newGateway(f, func(_ *doors, o *bridge.Options) { o.Park = 0 })
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := connect(t, g, `{}`)
		c.raw(websocket.TextMessage, raw)
		c.mu.Lock()
		_ = c.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"GET_CONTEXT","id":"the next request"}`)) // the end may have come first
		c.mu.Unlock()
		deadline := time.After(patience)
		for {
			all, more := c.follow()
			for _, m := range all {
				var p struct{ Message string }
				if m.Type == "GEMINI_ERROR" && (json.Unmarshal(m.Payload, &p) != nil || p.Message == "") {
					t.Fatalf("an error without a word: %v", m)
				}
				if m.Type == "CONTEXT" || m.Type == "GEMINI_DISCONNECTED" {
					return
				}
			}
			select {
			case <-more:
			case <-deadline:
				t.Fatalf("after %q the next request has no answer: %v", raw, all)
			}
		}
	})
}
