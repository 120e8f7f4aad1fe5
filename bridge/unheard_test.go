package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// TestTheModelLearnsWhatWasHeard interrupts an answer of four words after the second word. The model has sent all four, and is
// informed that two were heard: by a note if it accepts notes, otherwise with the next text.
func TestTheModelLearnsWhatWasHeard(t *testing.T) {
	const note = `(The person interrupted your last answer, and heard of it only: "one two ")`
	interrupt := func(c *caller, _ *bridgetest.Conn) { c.doCommand(bridge.Interrupt{}) }
	typeText := func(c *caller, _ *bridgetest.Conn) { c.typeText("stop") }
	hasEnded, still, byGateway := true, false, `"voxgate":{"turns":{"by":"gateway"}}`
	for name, row := range map[string]struct {
		config   string
		complete bool // the model has ended its turn
		do       func(c *caller, l *bridgetest.Conn)
		want     string // typed text that the model gets
	}{
		"INTERRUPT":                  {`"model":"gemini-3.8-live"`, hasEnded, interrupt, note},
		"INTERRUPT while it answers": {`"model":"gemini-3.8-live"`, still, interrupt, note},
		"typed text":                 {`"model":"gemini-3.8-live"`, hasEnded, typeText, note + ", stop"},
		"a model without notes": {`"model":"gemini-3.1-flash-live-preview"`, hasEnded, func(c *caller, l *bridgetest.Conn) {
			interrupt(c, l)
			time.Sleep(time.Second)
			typeText(c, l)
		}, note + "\nstop"},
		"the model detects the interruption": {`"model":"gemini-3.8-live"`, still, func(_ *caller, l *bridgetest.Conn) { l.InterruptTurn() }, ""},
		"the gateway detects it": {byGateway, hasEnded, func(c *caller, l *bridgetest.Conn) {
			takeTurns(t, c, l, "s1000")
		}, note},
		"nothing was lost": {`"model":"gemini-3.8-live"`, hasEnded, func(c *caller, l *bridgetest.Conn) {
			time.Sleep(1500 * time.Millisecond)
			interrupt(c, l)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Sprintf(`{%s}`, row.config)
			converse(t, bridge.SessionRequest{Config: []byte(config)}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				c.typeText("Count!")
				for i, word := range strings.Fields("one two three four") {
					l.SendContent(`%s,"outputTranscription":{"text":"%s "}`, bridgetest.VoiceField(int16(1000+i), time.Second), word)
				}
				if row.complete {
					l.CompleteTurn()
				}
				takeTurns(t, c, l, "q2300")
				row.do(c, l)
				time.Sleep(time.Second)
				if !row.complete {
					l.InterruptTurn()
				}
				time.Sleep(time.Second)
				var typed []string
				for _, in := range l.Inputs() {
					if in.Text != "" && in.Text != "Count!" {
						typed = append(typed, in.Text)
					}
				}
				if got := strings.Join(typed, ", "); got != row.want {
					t.Errorf("the model got %q, want %q", got, row.want)
				}
			})
		})
	}
}
