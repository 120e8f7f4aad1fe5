package doortest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/signaling/doortest"
)

// answerTime is how soon somebody who has let go of the button hears the answer.
const answerTime = 2500 * time.Millisecond

// buttons are the protocols whose clients can stop sending sound when the person has spoken: each begins a conversation and returns how
// such a client speaks for a second, the message by which it says that this was all, and how it knows that a voice comes.
var buttons = map[string]func(t *testing.T, l *doortest.Locked, token string) button{
	"web": func(t *testing.T, l *doortest.Locked, token string) button {
		c := doortest.Dial(t, l.URL)
		doortest.Enters(t, c, doortest.Hello(token, ""))
		return button{
			c, func() { c.Say(doortest.Tone(440, time.Second, 16000), 16000) },
			func() { c.Send("SEND_REALTIME_INPUT", `{"audioStreamEnd":true}`) },
			func(m doortest.Message) bool { return m.Type == "AUDIO_CHUNK" },
		}
	},
	"live": func(t *testing.T, l *doortest.Locked, token string) button {
		c := doortest.DialLive(t, l.Gateway, "?key="+token, nil)
		c.Raw(websocket.TextMessage, []byte(`{"setup":{}}`))
		c.Expect("setupComplete")
		return button{
			c, func() {
				for pcm := range slices.Chunk(doortest.Tone(440, time.Second, 16000), 1600) {
					c.Raw(websocket.TextMessage, []byte(
						`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+doortest.Base64PCM(pcm)+`"}}}`))
				}
			},
			func() { c.Raw(websocket.TextMessage, []byte(`{"realtimeInput":{"audioStreamEnd":true}}`)) },
			func(m doortest.Message) bool {
				return m.Type == "serverContent" && strings.Contains(string(m.Payload), "inlineData")
			},
		}
	},
	"openai": func(t *testing.T, l *doortest.Locked, token string) button {
		c := doortest.DialRealtime(t, l.Gateway, "?model=gpt-realtime", http.Header{"Authorization": {"Bearer " + token}})
		c.Configure(`{"type":"realtime"}`)
		return button{
			c.Client, func() { c.Say(doortest.Tone(440, time.Second, 24000)) },
			func() { c.Send(`{"type":"input_audio_buffer.commit"}`) },
			func(m doortest.Message) bool { return m.Type == "response.output_audio.delta" },
		}
	},
	"openai, by hand": func(t *testing.T, l *doortest.Locked, token string) button {
		c := doortest.DialRealtime(t, l.Gateway, "?model=gpt-realtime", http.Header{"Authorization": {"Bearer " + token}})
		c.Configure(`{"type":"realtime","audio":{"input":{"turn_detection":null}}}`)
		return button{
			c.Client, func() { c.Say(doortest.Tone(440, time.Second, 24000)) },
			func() { c.Send(`{"type":"input_audio_buffer.commit"}`); c.Send(`{"type":"response.create"}`) },
			func(m doortest.Message) bool { return m.Type == "response.output_audio.delta" },
		}
	},
	"vox": func(t *testing.T, l *doortest.Locked, token string) button {
		c := doortest.DialVOX(t, l.Gateway, nil)
		c.Start(`,"model":"gemini-3.8-live","token":"` + token + `"`)
		return button{
			c.Client, func() {
				c.Send(`{"type":"mute","muted":false}`)
				c.Say(doortest.Tone(440, time.Second, doortest.VoxRate))
			},
			func() { c.Send(`{"type":"mute","muted":true}`) },
			func(m doortest.Message) bool { return m.Type == "sound" },
		}
	},
	"telephony": func(t *testing.T, l *doortest.Locked, token string) button {
		at, header := l.URL+"/telephony/exotel/stream?call=C1&to=100", http.Header{"Authorization": {"Bearer " + token}}
		c := doortest.DialDoor(t, at, header, func(_ int, raw []byte) doortest.Message {
			var m struct{ Event string }
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
			return doortest.Message{Type: m.Event}
		})
		c.Raw(websocket.TextMessage, []byte(telephoneStart))
		return button{
			c, func() {
				for pcm := range slices.Chunk(doortest.Tone(440, time.Second, 8000), 160) {
					_ = c.Conn.WriteMessage(
						websocket.TextMessage, []byte(`{"event":"media","stream_sid":"MZ1","media":{"payload":"`+doortest.Base64PCM(pcm)+`"}}`))
				}
			},
			nil, // it has none
			func(m doortest.Message) bool { return m.Type == "media" },
		}
	},
}

// button is a client that sends sound only while a button is held.
type button struct {
	*doortest.Client
	speak, release func()
	hears          func(doortest.Message) bool
}

// Whoever lets go of a button, or mutes in the last word, is answered, whether or not the protocol has a message for it: gemini-3.8-live
// finds the end of speech in the sound alone.
func TestPushToTalk(t *testing.T) {
	for name, begin := range buttons {
		for _, marked := range []bool{true, false} {
			way := "stops"
			if marked {
				way = "says so"
			}
			onlyMarks, noMarks := strings.Contains(name, "by hand"), name == "telephony"
			if onlyMarks && !marked || noMarks && marked {
				continue
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				l := newTalkative(t)
				b := begin(t, l, l.Mint(`{}`))
				for turn := range 2 {
					from := len(b.All())
					b.speak()
					released, late := time.Now(), measureLateness()
					if marked {
						b.release()
					}
					b.Wait(from, "voice", b.hears)
					took, slack := time.Since(released), late()
					t.Logf("turn %d: answered after %v, the machine was %v late", turn, took, slack)
					if took > answerTime+slack {
						t.Errorf("turn %d: answered after %v", turn, took)
					}
					doortest.Eventually(t, "end of the turn", func() bool {
						n := len(b.All())
						return !doortest.Within(1500*time.Millisecond, func() bool { return len(b.All()) > n })
					})
				}
			})
		}
	}
}

// measureLateness measures how late the machine is from now on: by how much timers of 10 ms take longer.
func measureLateness() (late func() time.Duration) {
	stop, total := make(chan struct{}), make(chan time.Duration)
	go func() {
		sum := time.Duration(0)
		for {
			begun := time.Now()
			select {
			case <-time.After(10 * time.Millisecond):
				sum += max(0, time.Since(begun)-20*time.Millisecond)
			case <-stop:
				total <- sum
				return
			}
		}
	}()
	return func() time.Duration { close(stop); return <-total }
}
