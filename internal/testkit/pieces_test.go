package testkit_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/media"
)

// soundEntries are the protocols that take sound by a WebSocket: each begins a conversation.
var soundEntries = map[string]func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry{
	"web": func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry {
		c := testkit.DialWebSocket(t, l.URL)
		testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
		return soundEntry{
			Client: c, rate: 16000,
			send: func(piece []byte, encode encoding) {
				c.Send("SEND_REALTIME_INPUT", `{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+encode(piece)+`"}}`)
			},
			release: func() { c.Send("SEND_REALTIME_INPUT", `{"audioStreamEnd":true}`) },
			hears:   func(m testkit.Message) bool { return m.Type == "AUDIO_CHUNK" },
		}
	},
	"live": func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry {
		c := testkit.DialLive(t, l.Gateway, "?key="+token, nil)
		c.SendFrame(websocket.TextMessage, []byte(`{"setup":{}}`))
		c.AwaitEvent("setupComplete")
		return soundEntry{
			Client: c, rate: 16000,
			send: func(piece []byte, encode encoding) {
				c.SendFrame(websocket.TextMessage,
					[]byte(`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+encode(piece)+`"}}}`))
			},
			release: func() { c.SendFrame(websocket.TextMessage, []byte(`{"realtimeInput":{"audioStreamEnd":true}}`)) },
			hears: func(m testkit.Message) bool {
				return m.Type == "serverContent" && strings.Contains(string(m.Payload), "inlineData")
			},
		}
	},
	"openai":          openAIEntry(`{"type":"realtime"}`, `{"type":"input_audio_buffer.commit"}`),
	"openai, by hand": openAIEntry(manualRealtime, `{"type":"input_audio_buffer.commit"}`, `{"type":"response.create"}`),
	"vox": func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry {
		c := testkit.DialVOX(t, l.Gateway, nil)
		c.StartConversation(`,"model":"gemini-3.8-live","token":"` + token + `"`)
		return soundEntry{
			Client: c.Client, rate: testkit.VoxRate,
			press:   func() { c.Send(`{"type":"mute","muted":false}`) },
			send:    func(piece []byte, _ encoding) { c.SendFrame(websocket.BinaryMessage, piece) },
			release: func() { c.Send(`{"type":"mute","muted":true}`) },
			hears:   func(m testkit.Message) bool { return m.Type == "sound" },
		}
	},
	"telephony": func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry {
		at, header := l.URL+"/telephony/exotel/stream?call=C1&to=100", http.Header{"Authorization": {"Bearer " + token}}
		c := testkit.DialProtocol(t, at, header, func(_ int, raw []byte) testkit.Message {
			var m struct{ Event string }
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
			return testkit.Message{Type: m.Event}
		})
		c.SendFrame(websocket.TextMessage, []byte(telephoneStart))
		return soundEntry{
			Client: c, rate: 8000,
			send: func(piece []byte, encode encoding) {
				c.SendFrame(websocket.TextMessage, []byte(`{"event":"media","stream_sid":"MZ1","media":{"payload":"`+encode(piece)+`"}}`))
			},
			hears: func(m testkit.Message) bool { return m.Type == "media" },
		}
	},
}

// manualRealtime is a session of OpenAI's whose client says itself where a question ends.
const manualRealtime = `{"type":"realtime","audio":{"input":{"turn_detection":null}}}`

// openAIEntry is a client of OpenAI's with a session, and the events by which it ends its question.
func openAIEntry(session string, ends ...string) func(*testing.T, *testkit.LockedGateway, string) soundEntry {
	return func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry {
		c := testkit.DialRealtime(t, l.Gateway, "?model=gpt-realtime", http.Header{"Authorization": {"Bearer " + token}})
		c.ConfigureSession(session)
		return soundEntry{
			Client: c.Client, rate: 24000,
			send: func(piece []byte, encode encoding) {
				c.Send(`{"type":"input_audio_buffer.append","audio":"` + encode(piece) + `"}`)
			},
			release: func() {
				for _, event := range ends {
					c.Send(event)
				}
			},
			hears: func(m testkit.Message) bool { return m.Type == "response.output_audio.delta" },
		}
	}
}

// soundEntry is a client that sends sound: 16 bits little-endian at a rate in Hz.
type soundEntry struct {
	*testkit.Client
	rate    int
	press   func()                              // before it speaks; nil: nothing is to be done
	send    func(piece []byte, encode encoding) // encode makes base64 of a piece where the protocol has that
	phone   *testkit.Phone                      // sends the sound by WebRTC in place of send
	release func()                              // says that this was all; nil: the protocol has no message for it
	hears   func(testkit.Message) bool          // whether a message has voice
}

// say sends samples in pieces of 100 ms, or by WebRTC in real time.
func (e soundEntry) say(pcm []int16) {
	if e.press != nil {
		e.press()
	}
	if e.phone != nil {
		e.phone.SpeakAudio(pcm)
		return
	}
	for piece := range slices.Chunk(pcm, e.rate/10) {
		e.send(media.AppendBytes(nil, piece), base64.StdEncoding.EncodeToString)
	}
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
		if name == "openai, by hand" { // nothing of it reaches the model before the end of the question
			continue
		}
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
				seen := &testkit.SeenByModel{}
				l := startTalkativeGatewayWith(t, seen)
				e := begin(t, l, l.MintToken(`{}`))
				send := e.send
				raw := media.AppendBytes(nil, testkit.MakeSentence(440, time.Second, e.rate))
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
				testkit.Eventually(t, test.way+": speech at the model", func() bool { return len(seen.EventsOf(emulator.Heard)) > 0 })
				got := testkit.TrimSilence(seen.EventsOf(emulator.Heard)[0].PCM)
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
