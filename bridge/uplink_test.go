package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
)

func TestFirstWords(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(bridge.Open{})
		l := r.up.Next() // dialled, and not accepted for a while
		<-c.seated
		said := count(0, 16000*3)
		for part := range slices.Chunk(said[:32000], 320) {
			c.speak(part)
			time.Sleep(20 * time.Millisecond)
		}
		if got := l.Inputs(); len(got) > 0 {
			t.Fatalf("%s came before setupComplete", got[0].What)
		}
		l.Accept()
		c.speak(said[32000:])
		if !slices.Equal(l.PCM(), said) {
			t.Errorf("%d samples came of %d, or in another order", len(l.PCM()), len(said))
		}
	})
}

func TestChunks(t *testing.T) {
	for _, rate := range []int{8000, 11025, 16000, 22050, 24000, 44100, 48000} {
		for _, block := range []int{1, 7, 160, 441, 960, 5000} {
			t.Run(fmt.Sprintf("%d Hz in blocks of %d", rate, block), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t)
					c, l := r.plain()
					mic, err := c.session.Mic(rate)
					if err != nil || mic.Rate() != rate {
						t.Fatal(mic, err)
					}
					said := count(0, rate/5+17)
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
					got := l.PCM()
					if !slices.Equal(got, said[:len(got)]) || len(got) <= len(said)-size {
						t.Fatalf("%d of %d samples", len(got), len(said))
					}
					if block >= size && len(got) < len(said)-len(said)%block { // it would delay all that follows
						t.Fatalf("of blocks of %d samples %d are kept back", block, len(said)-len(got))
					}
					mic.Flush()
					mic.Flush()
					if !slices.Equal(l.PCM(), said) {
						t.Error("the rest did not come")
					}
				})
			})
		}
	}
}

func TestMicRates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, _ := r.plain()
		for _, rate := range []int{-1, 0, 7999, 48001} {
			if _, err := c.session.Mic(rate); err == nil {
				t.Errorf("%d Hz was accepted", rate)
			}
		}
	})
}

// manual is the wish to mark speech by hand.
var manual = bridge.Open{Config: []byte(`{"voxgate":{"vad":{"enabled":false,"prefixPaddingMs":40}}}`)}

// What does not fit the way in which speech is found is refused: Gemini would close the session for it.
func TestMarksThatDoNotFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		auto, _ := r.plain()
		byHand, _ := r.connect(manual)
		for mark, c := range map[bridge.Activity]*caller{
			bridge.ActivityStart: auto, bridge.ActivityEnd: auto, bridge.AudioStreamEnd: byHand,
		} {
			if err := c.session.Do(mark); err == nil || bridge.AsError(err).Code != bridge.CodeInvalidState {
				t.Errorf("%d: %v", mark, err)
			}
		}
	})
}

// Silence goes in messages of 40 ms, and the first sound after it at once, with what waited.
func TestSilenceGoesInPairs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		for range 5 {
			c.speak(make([]int16, 320))
		}
		if got := l.Inputs(); len(got) != 2 || len(got[0].PCM) != 640 {
			t.Fatalf("%d messages of silence", len(got))
		}
		c.speak(count(0, 320))
		c.speak(count(320, 320))
		if got := l.Inputs(); len(got) != 4 || len(got[2].PCM) != 640 || len(got[3].PCM) != 320 {
			t.Errorf("%d messages", len(got))
		}
	})
}

func TestMarksKeepTheirPlace(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live %v", live), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				c := r.join(manual)
				l := r.up.Next()
				<-c.seated
				if live {
					l.Accept()
					synctest.Wait()
				}
				for i, mark := range []bridge.Activity{bridge.ActivityStart, bridge.ActivityEnd, bridge.ActivityStart} {
					if err := c.session.Do(mark); err != nil { // no waiting: the loop may be slower than the microphone
						t.Fatal(err)
					}
					c.speak(count(320*i, 320*3))
				}
				if !live {
					l.Accept()
				}
				var order []string
				for _, in := range l.Inputs() {
					order = append(order, in.What)
				}
				// What is said outside of an activity is not for the model, but for the newest 40 ms before the next.
				want := "mark activityStart audio audio audio mark activityEnd mark activityStart audio audio audio audio audio"
				if got := strings.Join(order, " "); got != want {
					t.Errorf("came\n  %s\nwant\n  %s", got, want)
				}
			})
		})
	}
}

func TestUrgentGoesAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(bridge.Open{})
		l := r.up.Next()
		<-c.seated
		c.speak(count(0, 3200))
		c.typed("one")
		c.do(bridge.Text{Text: "two"})
		c.session.SetFrame("image/jpeg", []byte("old"), true)
		c.session.SetFrame("image/png", []byte("new"), true)
		l.Accept()
		if got := l.Said(); got != "typed one, text two, picture image/png" {
			t.Errorf("%q came", got)
		}
		if in := l.Inputs(); len(in) != 13 || in[3].What != "audio" {
			t.Errorf("%d messages came, the fourth is %s", len(in), in[3].What)
		}
	})
}

// A message that no link can carry must not be taken in: each link would fail on it.
func TestBrokenPartsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		for _, parts := range []string{``, `[{"text":`, `{"text":"no array"}`, `null`} {
			err := c.session.Do(bridge.Message{Parts: []byte(parts), TurnComplete: true})
			if err == nil || bridge.AsError(err).Code != bridge.CodeBadMessage {
				t.Errorf("%q: %v", parts, err)
			}
		}
		c.typed("fine")
		if got := l.Said(); got != "typed fine" {
			t.Errorf("%q came", got)
		}
		r.up.Idle()
	})
}

// What is said while the link is replaced waits for the next one, down to the chunk in hand.
func TestNothingIsLostWhenTheLinkIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		said := count(0, 16000*4)
		c.speak(said[:16000])
		l.PCM()
		l.Cut()
		for part := range slices.Chunk(said[16000:], 320) {
			c.speak(part)
			time.Sleep(20 * time.Millisecond)
		}
		second := r.up.Next().Accept()
		begin := time.Now()
		for len(second.PCM()) < len(said) && time.Since(begin) < 5*time.Second {
			time.Sleep(20 * time.Millisecond)
		}
		if took := time.Since(begin); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("4 s of speech were said again within %v", took)
		}
		// What the first link took is forgotten with it, so the second gets it all.
		if got := second.PCM(); !slices.Equal(got, said) {
			t.Errorf("%d samples of %d came", len(got), len(said))
		}
	})
}

// A server that stops to read makes the writer fail; what it was about to send goes with the next link.
func TestStalledWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(bridge.Open{})
		l := r.up.Next()
		l.Halt()
		l.Accept()
		<-c.seated
		said := count(0, 16000)
		for part := range slices.Chunk(said, 320) {
			c.speak(part)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(4 * time.Second)
		second := r.up.Next().Accept()
		time.Sleep(time.Second)
		got := second.PCM()
		l.Resume()
		if !slices.Equal(got, said) {
			t.Errorf("%d of %d samples, or in another order", len(got), len(said))
		}
	})
}
