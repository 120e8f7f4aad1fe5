package testkit_test

import (
	"testing"
	"time"

	"voxgate/internal/testkit"
)

// answerTime limits the time from the release of the talk button until the answer is heard.
const answerTime = 2500 * time.Millisecond

// A person who releases a talk button, or mutes during the last word, gets an answer, even if the protocol has no message for
// it. gemini-3.8-live detects the end of speech only from the audio.
func TestPushToTalk(t *testing.T) {
	t.Parallel()
	for name, client := range soundClients() {
		for _, marked := range []bool{true, false} {
			way := "stops"
			if marked {
				way = "says so"
			}
			if client.ManualTurns && !marked || client.NoRelease && marked {
				continue
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				l := startTalkativeGateway(t)
				e := client.Begin(t, l, l.MintToken(`{}`))
				for turn := range 2 {
					from := len(e.Messages())
					e.Say(testkit.MakeTone(440, time.Second, e.Rate))
					released, late := time.Now(), measureLateness()
					if marked {
						e.Release()
					}
					e.AwaitMatch(from, "voice", e.HasVoice)
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

// measureLateness starts to measure the delays of timers of 10 ms. The function late ends the measurement, and returns their
// total.
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
