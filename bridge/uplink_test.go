package bridge_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

func TestSpeechBeforeTheSetupIsKept(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c := r.startCaller(bridge.SessionRequest{})
		l := r.up.NextConn() // dialled, but its setup is not accepted for a while
		<-c.seated
		said := countingPCM(0, 16000*3)
		c.sendInRealTime(said[:32000])
		if got := l.Inputs(); len(got) > 0 {
			t.Fatalf("%s came before setupComplete", got[0].Kind)
		}
		l.SendSetupComplete()
		c.sendAudio(said[32000:])
		if !slices.Equal(l.ReceivedPCM(), said) {
			t.Errorf("%d samples came of %d, or in another order", len(l.ReceivedPCM()), len(said))
		}
	})
}

func TestMicrophoneRatesAndBlockSizes(t *testing.T) {
	for _, rate := range []int{8000, 11025, 16000, 22050, 24000, 44100, 48000} {
		for _, block := range []int{1, 7, 160, 441, 960, 5000} {
			t.Run(fmt.Sprintf("%d Hz in blocks of %d", rate, block), func(t *testing.T) {
				converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
					mic, err := c.session.NewMicrophone(rate)
					if err != nil || mic.Rate() != rate {
						t.Fatal(mic, err)
					}
					said := countingPCM(0, rate/5+17)
					for part := range slices.Chunk(said, block) {
						if err := mic.WritePCM(part); err != nil {
							t.Fatal(err)
						}
					}
					size := rate / 50
					for i, in := range l.Inputs() {
						if len(in.PCM) < size || len(in.PCM) > 2*size || in.Rate != rate {
							t.Fatalf("chunk %d has %d samples at %d Hz, want %d to %d at %d", i, len(in.PCM), in.Rate, size, 2*size-1, rate)
						}
					}
					got := l.ReceivedPCM()
					if !slices.Equal(got, said[:len(got)]) || len(got) <= len(said)-size {
						t.Fatalf("%d of %d samples", len(got), len(said))
					}
					if block >= size && len(got) < len(said)-len(said)%block { // the missing audio would delay all later audio
						t.Fatalf("of blocks of %d samples %d are kept back", block, len(said)-len(got))
					}
					mic.Flush()
					mic.Flush()
					if !slices.Equal(l.ReceivedPCM(), said) {
						t.Error("the rest did not come")
					}
				})
			})
		}
	}
}

func TestMicRates(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, _ *bridgetest.Conn) {
		for _, rate := range []int{-1, 0, 7999, 48001} {
			if _, err := c.session.NewMicrophone(rate); err == nil {
				t.Errorf("%d Hz was accepted", rate)
			}
		}
	})
}

// Silence is sent in messages of 40 ms. The first sound after it is sent at once, with the waiting silence.
func TestSilenceGoesInPairs(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		for range 5 {
			c.sendAudio(make([]int16, 320))
		}
		if got := l.Inputs(); len(got) != 2 || len(got[0].PCM) != 640 {
			t.Fatalf("%d messages of silence", len(got))
		}
		c.sendAudio(countingPCM(0, 320))
		c.sendAudio(countingPCM(320, 320))
		if got := l.Inputs(); len(got) != 4 || len(got[2].PCM) != 640 || len(got[3].PCM) != 320 {
			t.Errorf("%d messages", len(got))
		}
	})
}

// A message that cannot be sent on any connection must be rejected: each connection would fail on it.
func TestBrokenPartsAreRefused(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		for _, parts := range []string{``, `[{"text":`, `{"text":"no array"}`, `null`} {
			err := c.session.Do(bridge.Message{Parts: []byte(parts), TurnComplete: true})
			if err == nil || bridge.AsError(err).Code != bridge.CodeBadMessage {
				t.Errorf("%q: %v", parts, err)
			}
		}
		c.typeText("fine")
		if got := l.InputLog(); got != "typed fine" {
			t.Errorf("%q came", got)
		}
		r.up.AssertNoDial()
	})
}

// If the server stops reading, the writer fails. The unsent input goes to the next connection.
func TestStalledWriter(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c := r.startCaller(bridge.SessionRequest{})
		l := r.up.NextConn()
		l.StopReading()
		l.SendSetupComplete()
		<-c.seated
		said := countingPCM(0, 16000)
		c.sendInRealTime(said)
		time.Sleep(4 * time.Second)
		second := r.up.NextConn().SendSetupComplete()
		time.Sleep(time.Second)
		got := second.ReceivedPCM()
		l.ContinueReading()
		silence := make([]int16, 24000) // the silence after the speech, because no more audio comes
		if !slices.Equal(got, append(said, silence...)) {
			t.Errorf("%d of %d samples, or in another order", len(got), len(said))
		}
	})
}

// Marks that do not fit the detection of speech are rejected, because Gemini would close the session.
func TestMarksThatDoNotFit(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, auto *caller, _ *bridgetest.Conn) {
		byHand, _ := r.connectCaller(manual)
		for mark, c := range map[bridge.Activity]*caller{
			bridge.ActivityStart: auto, bridge.ActivityEnd: auto, bridge.AudioStreamEnd: byHand,
		} {
			if err := c.session.Do(mark); err == nil || bridge.AsError(err).Code != bridge.CodeInvalidState {
				t.Errorf("%d: %v", mark, err)
			}
		}
	})
}
