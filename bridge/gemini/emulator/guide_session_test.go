package emulator_test

import (
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/emulator"
)

// TestGuideExplains: in a session of the VOX assistant the guide says what it understands, where the emulator repeats
// what it was told in other sessions.
func TestGuideExplains(t *testing.T) {
	const tools = `"tools":[{"functionDeclarations":[{"name":"change_app"}]}]`
	for _, test := range []struct{ config, speech, text string }{
		{`{` + tools + `}`, "I am an example", "I am an example"},
		{`{` + tools + `,"generationConfig":{"speechConfig":{"languageCode":"de-DE"}}}`, "Ich bin ein Beispiel", "I am an example"},
		{`{}`, "You said: ", "You said: one two three"},
	} {
		p := join(t, newPeer(t, emulator.Options{Espeak: emulator.NoVoice, Guide: true}), test.config)
		p.speak(tone(16000, 440, time.Second))
		s := p.turn()
		if !strings.HasPrefix(s.text, test.speech) || (s.heard == "") != strings.Contains(test.config, "tools") {
			t.Errorf("%s: speech, heard as %q, is answered with %q", test.config, s.heard, s.text)
		}
		p.text("one two three")
		if s := p.turn(); !strings.HasPrefix(s.text, test.text) {
			t.Errorf("%s: text is answered with %q", test.config, s.text)
		}
	}
}
