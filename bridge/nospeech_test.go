package bridge_test

import (
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// A turn with the transcript "<no speech>" has no speech. Neither the client nor the transcript gets it, in whatever pieces
// the marker comes. A text that only begins like the marker is passed on.
func TestTurnsWithoutSpeech(t *testing.T) {
	for name, test := range map[string]struct {
		pieces []string
		want   string
	}{
		"as recorded":             {[]string{"<no ", "speech>"}, ""},
		"in one piece":            {[]string{"<no speech>"}, ""},
		"with spaces":             {[]string{" <no", " speech", "> "}, ""},
		"another mark":            {[]string{"<no ", "noise>"}, "<no noise>"},
		"only the beginning":      {[]string{"<no "}, "<no "},
		"something":               {[]string{"No ", "speech."}, "No speech."},
		"the mark in a sentence":  {[]string{"<no speech>", " is what I write."}, "<no speech> is what I write."},
		"a sentence with a mark":  {[]string{"I say ", "<no speech>"}, "I say <no speech>"},
		"a comparison of numbers": {[]string{"<", "5"}, "<5"},
	} {
		t.Run(name, func(t *testing.T) {
			config := bridge.SessionRequest{Config: []byte(`{"model":"gemini-3.8-live-extended-thinking"}`)}
			converse(t, config, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				c.typeText("Say nothing, or something.")
				for i, piece := range test.pieces {
					voice := ""
					if i == 0 {
						voice = `"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AAA="}}]},`
					}
					l.SendContent(`%s"outputTranscription":{"text":%q}`, voice, piece)
				}
				l.SendContent(`"generationComplete":true`)
				l.SendContent(`"turnComplete":true,"interactionStatus":"IDLE"`)
				time.Sleep(time.Second)
				text := ""
				pieces, _ := findEvents[bridge.AssistantText](c)
				for _, piece := range pieces {
					if !piece.Final {
						text += piece.Text
					}
				}
				if text != test.want {
					t.Errorf("the client read %q, want %q", text, test.want)
				}
				raw, _ := findEvents[bridge.RawServerContent](c)
				for _, e := range raw {
					if test.want == "" && strings.Contains(string(e.ServerContent), "outputTranscription") {
						t.Errorf("the client got %s", e.ServerContent)
					}
				}
				if speaking, _ := findEvents[bridge.Speaking](c); (len(speaking) > 0) != (test.want != "") && test.want == "" {
					t.Error("the client is told that the model speaks")
				}
				c.doCommand(bridge.GetContext{})
				said := ""
				for _, e := range lastEvent[bridge.History](c).Entries {
					if e.Role == "assistant" {
						said += e.Content
					}
				}
				if strings.TrimSpace(said) != strings.TrimSpace(test.want) {
					t.Errorf("the transcript has %q, want %q", said, test.want)
				}
			})
		})
	}
}
