package bridge_test

import (
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// The end of a transcript comes after its text, in whatever order the model sends these two and the voice, and also if the
// voice is interrupted.
func TestEndOfTranscript(t *testing.T) {
	const finished = `"outputTranscription":{"finished":true}`
	text := func(words string) string { return `"outputTranscription":{"text":"` + words + `"}` }
	voice := bridgetest.VoiceField(7, time.Second)
	for name, messages := range map[string][]string{
		"before the voice, as on Vertex AI": {`"outputTranscription":{}`, text("Hello"), text(" there."), finished, voice},
		"behind the voice":                  {voice, text("Hello"), text(" there."), finished},
		"between":                           {voice, text("Hello"), voice, text(" there."), finished, voice},
		"with the voice":                    {voice + "," + text("Hello there."), finished},
		"cut off":                           {voice, text("Hello"), voice, text(" there."), finished, `"interrupted":true`},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				c.typeText("Hi.")
				for _, m := range messages {
					l.SendContent("%s", m)
				}
				l.CompleteTurn()
				time.Sleep(5 * time.Second)
				lastText, end := -1, -1
				for i, e := range c.listEvents() {
					if strings.Contains(e, `"outputTranscription":{"text"`) {
						lastText = i
					}
					if strings.Contains(e, `"finished":true`) {
						end = i
					}
				}
				if end < lastText || end < 0 || lastText < 0 && name != "cut off" {
					t.Errorf("the text ends at %d, and its end is at %d: %q", lastText, end, c.listEvents())
				}
			})
		})
	}
}
