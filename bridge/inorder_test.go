package bridge_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/media"
)

// behindVoice holds messages of the model that may follow voice, and the event that a client gets for each.
var behindVoice = map[string]struct{ message, event string }{
	"generationComplete": {`{"serverContent":{"generationComplete":true}}`, "RawServerContent generationComplete"},
	"turnComplete":       {`{"serverContent":{"turnComplete":true}}`, "RawServerContent turnComplete"},
	"the turn's end":     {`{"serverContent":{"turnComplete":true}}`, "TurnComplete"},
	"both ends":          {`{"serverContent":{"generationComplete":true,"turnComplete":true}}`, "RawServerContent turnComplete"},
	"text":               {`{"serverContent":{"outputTranscription":{"text":"Hi"}}}`, "AssistantText"},
	"Google's text":      {`{"serverContent":{"outputTranscription":{"text":"Hi"}}}`, "RawServerContent outputTranscription"},
	"text finished":      {`{"serverContent":{"outputTranscription":{"finished":true}}}`, "RawServerContent finished"},
	"thought":            {`{"serverContent":{"modelTurn":{"parts":[{"text":"Hm","thought":true}]}}}`, "Thought"},
	"grounding":          {`{"serverContent":{"groundingMetadata":{"webSearchQueries":["x"]}}}`, "Grounding"},
	"usage":              {`{"serverContent":{"turnComplete":true},"usageMetadata":{"totalTokenCount":9}}`, "Usage"},
	"waiting for input":  {`{"serverContent":{"waitingForInput":true}}`, "RawServerContent waitingForInput"},
	"an unknown field":   {`{"somethingNew":{"a":1}}`, "RawServerContent somethingNew"},
	"call":               {`{"toolCall":{"functionCalls":[{"id":"1","name":"show","args":{}}]}}`, "ToolCall"},
	"cancellation": {
		`{"toolCall":{"functionCalls":[{"id":"1","name":"show","args":{}}]}}|{"toolCallCancellation":{"ids":["1"]}}`,
		"ToolCallCancellation",
	},
}

// listEvents returns the diary as a list. Google's messages are listed with their fields, and voices with their tag.
func (c *caller) listEvents() (list []string) {
	for _, e := range c.entries() {
		switch b := e.event.(type) {
		case nil:
			list = append(list, fmt.Sprint(e.tag))
		case bridge.RawServerContent:
			list = append(list, "RawServerContent "+string(b.ServerContent))
		default:
			list = append(list, strings.TrimPrefix(fmt.Sprintf("%T", b), "bridge."))
		}
	}
	return list
}

// place returns the index of an event in the list, or a negative number if it is missing.
func place(list []string, event string) int {
	kind, field, _ := strings.Cut(event, " ")
	return slices.IndexFunc(list, func(s string) bool { return strings.HasPrefix(s, kind) && strings.Contains(s, field) })
}

// TestNothingOvertakesTheVoice sends voice, each message that may follow it, and more voice. The client accepts voice ahead of
// time but reads slowly. It gets everything in the model's order, whether it reads on or the voice is interrupted.
func TestNothingOvertakesTheVoice(t *testing.T) {
	for name, test := range behindVoice {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cut off %v", name, cut), func(t *testing.T) {
				runWithFakeClock(t, func(t *testing.T) {
					r := newHarness(t)
					r.lead = media.UnlimitedLead
					c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(declare("show"))})
					c.typeText("Hi.")
					l.SendVoice(7, time.Second)
					c.blockOutput(true)
					l.SendVoice(8, time.Second)
					for message := range strings.SplitSeq(test.message, "|") {
						l.Send("%s", message)
					}
					l.SendVoice(9, time.Second)
					time.Sleep(time.Second)
					if list := c.listEvents(); place(list, test.event) >= 0 {
						t.Fatalf("%s overtakes the voice: %q", test.event, list)
					}
					if cut {
						c.doCommand(bridge.Interrupt{})
						list := c.listEvents()
						at, interrupted := place(list, test.event), place(list, "Interrupted")
						// Events about the voice are dropped with it, and the current turn still ends.
						dropped := strings.HasSuffix(test.event, "Complete") || strings.HasPrefix(test.event, "RawServerContent turn") ||
							strings.HasSuffix(name, "text")
						if dropped == (at >= 0) || !dropped && at < interrupted || interrupted < 0 {
							t.Errorf("%s at %d of %q", test.event, at, list)
						}
						return
					}
					c.blockOutput(false)
					time.Sleep(time.Second)
					list := c.listEvents()
					before, at, after := place(list, "8"), place(list, test.event), place(list, "9")
					if before < 0 || at < before || after < at {
						t.Errorf("%s does not keep its place: %q", test.event, list)
					}
				})
			})
		}
	}
}

// TestRealTimeClientsGetCallsAtOnce checks that a tool call is passed on at once although the voice before it is still played.
func TestRealTimeClientsGetCallsAtOnce(t *testing.T) {
	for _, lead := range []time.Duration{0, 200 * time.Millisecond} {
		runWithFakeClock(t, func(t *testing.T) {
			r := newHarness(t)
			r.lead = lead
			c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(declare("show"))})
			c.typeText("Hi.")
			l.Send(`{"serverContent":{%s}}`, bridgetest.VoiceField(7, 3*time.Second))
			l.CallTools("1 show")
			if list := c.listEvents(); place(list, "ToolCall") < 0 {
				t.Errorf("with a lead of %v the call waits: %q", lead, list)
			}
		})
	}
}

// TestInterruptedComesFirst interrupts turns whose end waits, with their voice, for a client that reads slowly. As with
// Google's servers, the client gets the interruption first, then one turnComplete, and no generationComplete.
func TestInterruptedComesFirst(t *testing.T) {
	byClient := func(c *caller, _ *bridgetest.Conn) { c.doCommand(bridge.Interrupt{}) }
	typed := func(c *caller, _ *bridgetest.Conn) { c.typeText("Stop.") }
	byModel := func(_ *caller, l *bridgetest.Conn) { l.InterruptTurn() }
	ends := func(l *bridgetest.Conn) {
		l.SendContent(`"generationComplete":true`)
		l.Send(`{"serverContent":{"turnComplete":true},"usageMetadata":{"totalTokenCount":9}}`)
	}
	for name, test := range map[string]struct {
		waits func(l *bridgetest.Conn)
		cut   func(c *caller, l *bridgetest.Conn)
		want  string
	}{
		"by the client": {ends, byClient, "interrupted turnComplete+usageMetadata"},
		"by typed text": {ends, typed, "interrupted turnComplete+usageMetadata"},
		"by the model":  {ends, byModel, "interrupted usageMetadata interrupted turnComplete"},
		"both ends in one": {
			func(l *bridgetest.Conn) { l.SendContent(`"generationComplete":true,"turnComplete":true`) }, byClient, "interrupted turnComplete",
		},
		"generationComplete alone":   {func(l *bridgetest.Conn) { l.SendContent(`"generationComplete":true`) }, byClient, "interrupted"},
		"in mid-voice, by the model": {func(*bridgetest.Conn) {}, byModel, "interrupted interrupted turnComplete"},
		"two turns": {
			func(l *bridgetest.Conn) { ends(l); l.SendVoice(9, time.Second); ends(l) }, byClient,
			"interrupted usageMetadata turnComplete+usageMetadata",
		},
		"a turn, and another under way": {
			func(l *bridgetest.Conn) { ends(l); l.SendVoice(9, time.Second) }, byClient,
			"interrupted usageMetadata",
		},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t)
				r.lead = media.UnlimitedLead
				c, l := r.connectCaller(bridge.SessionRequest{})
				c.typeText("Hi.")
				l.SendVoice(7, time.Second)
				c.blockOutput(true)
				l.SendVoice(8, time.Second)
				test.waits(l)
				time.Sleep(100 * time.Millisecond)
				c.clearLog()
				test.cut(c, l)
				time.Sleep(100 * time.Millisecond)
				var got []string
				for _, e := range c.entries() {
					switch b := e.event.(type) {
					case bridge.Interrupted:
						got = append(got, "interrupted")
					case bridge.TurnComplete:
						got = append(got, "TurnComplete")
					case bridge.RawServerContent:
						var fields map[string]json.RawMessage
						if err := json.Unmarshal(b.ServerContent, &fields); err != nil {
							t.Fatal(err)
						}
						got = append(got, strings.Join(slices.Sorted(maps.Keys(fields)), "+"))
					}
				}
				if strings.Join(got, " ") != test.want {
					t.Errorf("the client saw %q, want %q", got, test.want)
				}
			})
		})
	}
}
