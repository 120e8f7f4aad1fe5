package bridge_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/auth"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/bridgetest"
)

func onVertex(o *bridge.Options) {
	o.Client.Vertex = &api.Vertex{Project: "p", Fetch: func(context.Context) (*auth.Token, error) {
		return &auth.Token{Value: "t"}, nil
	}}
}

// On Vertex AI a handle reports the last message that it covers. If the connection is lost within a sentence, the resumed
// session gets only the rest: nothing is lost or repeated, and the transcript of the beginning stays.
func TestASentenceGoesOnOverTheNextLink(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		if !strings.Contains(l.Raw, `"transparent":true`) {
			t.Fatalf("setup %s", l.Raw)
		}
		said := loud(2 * time.Second)
		for i := range said {
			said[i] += int16(i / 320) // each 20 ms have other samples
		}
		c.sendInRealTime(said[:16000])
		l.SendContent(`"inputTranscription":{"text":"The beginning "}`)
		first := l.ReceivedPCM()
		covered := len(l.Inputs()) - 20
		l.Send(`{"sessionResumptionUpdate":{"newHandle":"h","resumable":true,"lastConsumedClientMessageIndex":"%d"}}`, covered)
		c.sendInRealTime(said[16000:20000])
		heard := 0
		for _, in := range l.Inputs()[:covered] {
			heard += len(in.PCM)
		}
		if len(first) <= heard {
			t.Fatalf("%d samples came, %d of them are covered: this proves nothing", len(first), heard)
		}
		m := r.dropConnection(l)
		if !strings.Contains(m.Raw, `"handle":"h"`) {
			t.Errorf("setup %s", m.Raw)
		}
		c.sendInRealTime(said[20000:])
		c.staySilentFor(time.Second)
		got := slices.Concat(l.ReceivedPCM()[:heard], m.ReceivedPCM())
		if len(got) < len(said) || !slices.Equal(got[:len(said)], said) {
			t.Errorf("the session heard %d samples that differ from the %d that were said", len(got), len(said))
		}
		m.SendContent(`"inputTranscription":{"text":"and the end."}`)
		m.SendAnswer(7, time.Second)
		time.Sleep(2 * time.Second)
		c.checkContext("u: The beginning and the end.")
	}, onVertex)
}

// The emulator behaves like Vertex AI: it receives one sentence of the right length, wherever the connection was cut.
func TestTheEmulatorHearsASentenceOnceOnVertex(t *testing.T) {
	for _, cut := range []time.Duration{300 * time.Millisecond, time.Second, 2500 * time.Millisecond} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				fault := emulator.Fault{On: emulator.OnSpeechStart, After: cut, Connections: []int{1}, Drop: true}
				r, m := emulated(t, emulator.Scenario{Faults: []emulator.Fault{fault}}, onVertex)
				c := r.meets(bridge.SessionRequest{})
				c.staySilentFor(time.Second)
				c.sendInRealTime(loud(3 * time.Second))
				c.staySilentFor(4 * time.Second)
				m.heard(3 * time.Second)
				if n := len(m.saw(emulator.EventOpened)); n != 2 {
					t.Errorf("%d links", n)
				}
			})
		})
	}
}
