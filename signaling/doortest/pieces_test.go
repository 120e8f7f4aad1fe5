package doortest_test

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
	"voxgate/media"
	"voxgate/signaling/doortest"
)

// soundEntries are the protocols that take sound by a WebSocket: each begins a conversation and returns how a piece of sound is sent, at
// what rate. encode makes base64 of a piece where the protocol has that.
var soundEntries = map[string]func(t *testing.T, l *doortest.Locked, token string) (rate int, send func(piece []byte, encode encoding)){
	"web": func(t *testing.T, l *doortest.Locked, token string) (int, func([]byte, encoding)) {
		c := doortest.Dial(t, l.URL)
		doortest.Enters(t, c, doortest.Hello(token, ""))
		return 16000, func(piece []byte, encode encoding) {
			c.Send("SEND_REALTIME_INPUT", `{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+encode(piece)+`"}}`)
		}
	},
	"live": func(t *testing.T, l *doortest.Locked, token string) (int, func([]byte, encoding)) {
		c := doortest.DialLive(t, l.Gateway, "?key="+token, nil)
		c.Raw(websocket.TextMessage, []byte(`{"setup":{}}`))
		c.Expect("setupComplete")
		return 16000, func(piece []byte, encode encoding) {
			c.Raw(websocket.TextMessage,
				[]byte(`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+encode(piece)+`"}}}`))
		}
	},
	"openai": func(t *testing.T, l *doortest.Locked, token string) (int, func([]byte, encoding)) {
		c := doortest.DialRealtime(t, l.Gateway, "?model=gpt-realtime", http.Header{"Authorization": {"Bearer " + token}})
		c.Configure(`{"type":"realtime"}`)
		return 24000, func(piece []byte, encode encoding) {
			c.Send(`{"type":"input_audio_buffer.append","audio":"` + encode(piece) + `"}`)
		}
	},
	"vox": func(t *testing.T, l *doortest.Locked, token string) (int, func([]byte, encoding)) {
		c := doortest.DialVOX(t, l.Gateway, nil)
		c.Start(`,"model":"gemini-3.8-live","token":"` + token + `"`)
		return doortest.VoxRate, func(piece []byte, _ encoding) { c.Raw(websocket.BinaryMessage, piece) }
	},
	"telephony": func(t *testing.T, l *doortest.Locked, token string) (int, func([]byte, encoding)) {
		c := dialTelephone(t, l.Gateway, http.Header{"Authorization": {"Bearer " + token}})
		return 8000, func(piece []byte, encode encoding) {
			c.Raw(websocket.TextMessage, []byte(`{"event":"media","stream_sid":"MZ1","media":{"payload":"`+encode(piece)+`"}}`))
		}
	},
}

// encoding makes the text of a JSON string of bytes.
type encoding func([]byte) string

// wrapped is base64 with line ends, as some libraries write it.
func wrapped(raw []byte) string {
	var lines []string
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 76) {
		lines = append(lines, string(line))
	}
	return strings.Join(lines, `\r\n`)
}

// However a client cuts its sound into pieces, in the middle of a sample too, and writes it as text, the model hears the same samples.
func TestSoundInPieces(t *testing.T) {
	const few = 401 // bytes that are sent in small pieces; then the rest in one of odd length and one more
	standard := encoding(base64.StdEncoding.EncodeToString)
	for name, begin := range soundEntries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var whole []int16
			for _, test := range []struct {
				way    string
				size   int // of the small pieces
				encode encoding
			}{
				{"one piece", 0, standard},
				{"bytes", 1, standard},
				{"three bytes", 3, standard},
				{"odd pieces", 161, standard},
				{"empty pieces", -1, standard},
				{"URL-safe", 0, base64.URLEncoding.EncodeToString},
				{"no padding", 3, base64.RawStdEncoding.EncodeToString},
				{"URL-safe, no padding", 1, base64.RawURLEncoding.EncodeToString},
				{"line ends", 0, wrapped},
			} {
				seen := &doortest.SeenByModel{}
				l := newTalkativeSeen(t, seen)
				rate, send := begin(t, l, l.Mint(`{}`))
				raw := media.AppendBytes(nil, doortest.Sentence(440, time.Second, rate))
				switch {
				case test.size < 0:
					send(nil, test.encode)
					send(raw[:few], test.encode)
					send(nil, test.encode)
					raw = raw[few:]
				case test.size > 0:
					for piece := range slices.Chunk(raw[:few], test.size) {
						send(piece, test.encode)
					}
					raw = raw[few:]
				}
				for piece := range slices.Chunk(raw, 8191) {
					send(piece, test.encode)
				}
				doortest.Eventually(t, test.way+": speech at the model", func() bool { return len(seen.All(emulator.Heard)) > 0 })
				got := doortest.Loud(seen.All(emulator.Heard)[0].PCM)
				switch {
				case whole == nil:
					whole = got
				case !slices.Equal(got, whole):
					t.Errorf("%s: the model heard %d samples, in one piece %d, or others", test.way, len(got), len(whole))
				}
			}
		})
	}
}
