package emulator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"voxgate/bridge/gemini/emulator/live"
	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

// echoSpeech answers with the user's own speech.
func (s *session) echoSpeech(speech []int16, rate int, text string) error {
	pcm, err := media.Resample(speech, rate, wire.OutputRate)
	if err != nil {
		return live.NewClosing(live.CloseInternal, "Internal error encountered.")
	}
	sc := s.buildSpeechScript(pcm, text)
	sc.polite = true
	return s.queueScript(sc)
}

// answerTextOrCommand answers typed text or a command.
func (s *session) answerTextOrCommand(text string) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	switch word {
	case "/tool", "/tools":
		return s.queueTypedCalls(word, rest)
	case "/cancel":
		if err := s.cancelCalls(func(*call) bool { return true }); err != nil {
			return err
		}
		return s.speak("I have taken all my calls back.", "I have taken all my calls back.", false)
	case "/ground":
		sc := s.buildSpeechScript(melody("ground"), "I have searched the web for you.")
		sc.steps = append(sc.steps, step{at: sc.audio / ahead, content: live.Object{"groundingMetadata": buildGrounding(rest)}})
		return s.queueScript(sc)
	case "/history":
		var lines []string
		for _, m := range s.history {
			lines = append(lines, m.Role+": "+m.Text)
		}
		said := fmt.Sprintf("I remember %d turns. ", len(lines))
		return s.speak(said, said+strings.Join(lines, " | "), false)
	case "/goaway", "/close", "/drop":
		return s.applyTypedFault(word, rest)
	case "":
		return s.speak("I am listening.", "I am listening.", false)
	default:
		if ok, err := s.answerAsGuide(text); ok {
			return err
		}
		if s.isGuide() && !strings.HasPrefix(word, "/") {
			return s.speakComment("unknown")
		}
		said := "You said: " + text
		return s.speak(said, said, false)
	}
}

// commandDelay is the time from the answer to a command to its effect, so that the client receives the answer first.
const commandDelay = 300 * time.Millisecond

// parseTypedFault returns the fault for /close, /goaway or /drop, typed by a user. `rest` holds the arguments of the
// command. ok is false if the code of /close is invalid.
func parseTypedFault(command, rest string) (f Fault, ok bool) {
	word, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
	switch command {
	case "/close":
		f.Close, _ = strconv.Atoi(word)
		f.Reason = strings.TrimSpace(reason)
		return f, live.IsValidCloseCode(f.Close)
	case "/goaway":
		if f.GoAway, _ = time.ParseDuration(word); f.GoAway <= 0 {
			f.GoAway = 5 * time.Second // default time, long enough to watch the effect
		}
	default:
		f.Drop = true
	}
	return f, true
}

// applyTypedFault applies a fault that a user has typed.
func (s *session) applyTypedFault(command, rest string) error {
	f, ok := parseTypedFault(command, rest)
	if !ok {
		return s.speak("There is no such code.", "There is no such code.", false)
	}
	// The command is answered first, because a client sends an unanswered command again on its next connection.
	if err := s.sendContent(live.Object{"outputTranscription": live.Object{"text": "As you wish."}, "generationComplete": true}); err != nil {
		return err
	}
	if err := s.sendTurnComplete(0); err != nil {
		return err
	}
	if f.GoAway > 0 {
		return s.applyFault(&f)
	}
	s.callAfter(commandDelay, func() error { return s.applyFault(&f) })
	return nil
}

// searchSuggestion is HTML with the classes and colours of Google's search suggestions.
const searchSuggestion = `<style>
.container { display: flex; align-items: center; padding: 8px 12px; border-radius: 8px; font: 14px/20px Roboto, sans-serif; }
.chip { margin: 0 8px; padding: 5px 16px; border: solid 1px; border-radius: 16px; text-decoration: none; }
@media (prefers-color-scheme: light) {
  .container { background-color: #fafafa; box-shadow: 0 0 0 1px #0000000f; }
  .chip { background-color: #ffffff; border-color: #d2d2d2; color: #5e5e5e; }
}
@media (prefers-color-scheme: dark) {
  .container { background-color: #1f1f1f; box-shadow: 0 0 0 1px #ffffff26; }
  .chip { background-color: #2c2c2c; border-color: #3c4043; color: #ffffff; }
}
</style>
<div class="container"><a class="chip" href="https://www.google.com/search?q=parrots">parrots</a></div>`

// buildGrounding returns the metadata of a web search. Google's terms require clients to show renderedContent.
func buildGrounding(query string) live.Object {
	if query = strings.TrimSpace(query); query == "" {
		query = "parrots"
	}
	return live.Object{
		"searchEntryPoint": live.Object{
			"renderedContent": searchSuggestion,
		},
		"webSearchQueries":  []string{query},
		"groundingChunks":   []live.Object{{"web": live.Object{"uri": "https://en.wikipedia.org/wiki/Parrot", "title": "wikipedia.org"}}},
		"groundingSupports": []live.Object{},
	}
}

// speak says a text, with the given transcript. If waitsForQuiet is set, it first waits until the user is quiet. It
// blocks for about 50 ms, while espeak-ng runs.
func (s *session) speak(text, transcript string, waitsForQuiet bool) error {
	var pcm []int16
	if s.e.espeak == "" || s.setup.Text {
		pcm = melody(text)
	} else {
		pcm = speakWithEspeak(s.ctx, s.e.espeak, text)
	}
	sc := s.buildSpeechScript(pcm, transcript)
	sc.polite = waitsForQuiet
	return s.queueScript(sc)
}
