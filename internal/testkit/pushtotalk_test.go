package testkit_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"voxgate/internal/testkit"
)

// answerTime is how soon somebody who has let go of the button hears the answer.
const answerTime = 2500 * time.Millisecond

// webRTCEntries are the protocols that take sound by WebRTC: a microphone that stops sends no packets any more.
var webRTCEntries = map[string]func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry{
	"web by WebRTC": func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry {
		c := testkit.DialWebSocket(t, l.URL)
		testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
		p := testkit.NewPhone(t, c, testkit.PhoneOptions{Dtx: true})
		p.Negotiate(false)
		p.AwaitConnected()
		return soundEntry{
			Client: c, rate: 48000, phone: p,
			release: func() { c.Send("SEND_REALTIME_INPUT", `{"audioStreamEnd":true}`) },
			hears:   func(m testkit.Message) bool { return m.Type == "ASSISTANT_SPEAKING" },
		}
	},
	"rtvi": func(t *testing.T, l *testkit.LockedGateway, token string) soundEntry {
		c := testkit.DialRTVIWith(t, l.Gateway, token, "", testkit.PhoneOptions{Dtx: true})
		return soundEntry{
			Client: c.Client, rate: 48000, phone: c.Phone,
			hears: func(m testkit.Message) bool { return m.Type == "bot-started-speaking" },
		}
	},
}

// A person who releases a talk button, or mutes within the last word, is answered, whether or not the protocol has a message for
// it: gemini-3.8-live finds the end of speech in the sound alone.
func TestPushToTalk(t *testing.T) {
	entries := maps.Clone(soundEntries)
	maps.Copy(entries, webRTCEntries)
	for name, begin := range entries {
		for _, marked := range []bool{true, false} {
			way := "stops"
			if marked {
				way = "says so"
			}
			onlyMarks, noMarks := strings.Contains(name, "by hand"), name == "telephony" || name == "rtvi"
			if onlyMarks && !marked || noMarks && marked {
				continue
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				l := startTalkativeGateway(t)
				e := begin(t, l, l.MintToken(`{}`))
				for turn := range 2 {
					from := len(e.Messages())
					e.say(testkit.MakeTone(440, time.Second, e.rate))
					released, late := time.Now(), measureLateness()
					if marked {
						e.release()
					}
					e.AwaitMatch(from, "voice", e.hears)
					took, slack := time.Since(released), late()
					t.Logf("turn %d: answered after %v, the machine was %v late", turn, took, slack)
					if took > answerTime+slack {
						t.Errorf("turn %d: answered after %v", turn, took)
					}
					testkit.Eventually(t, "end of the turn", func() bool {
						n := len(e.Messages())
						return !testkit.PollUntil(1500*time.Millisecond, func() bool { return len(e.Messages()) > n })
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
