package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini"
	"voxgate/media"
)

// echo says back what was heard.
func (s *session) echo(speech []int16, rate int, text string) error {
	pcm, err := media.Resample(speech, rate, gemini.OutputRate)
	if err != nil {
		return &closing{closeInternal, "Internal error encountered."}
	}
	sc := s.speech(pcm, text)
	sc.polite = true
	return s.say(sc)
}

// command answers what was typed.
func (s *session) command(text string) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	switch word {
	case "/tool":
		return s.askTool(rest)
	case "/ground":
		sc := s.speech(melody("ground"), "I have searched the web for you.")
		sc.steps = append(sc.steps, step{at: sc.audio / ahead, content: object{"groundingMetadata": grounding(rest)}})
		return s.say(sc)
	case "/image":
		return s.say(s.speech(melody("image"), "Here is an image.", object{"inlineData": object{"mimeType": "image/png", "data": pixel}}))
	case "/history":
		var lines []string
		for _, m := range s.history {
			lines = append(lines, m.Role+": "+m.Text)
		}
		said := fmt.Sprintf("I remember %d turns. ", len(lines))
		return s.speak(said, said+strings.Join(lines, " | "), false)
	case "/goaway", "/stall", "/close", "/drop":
		return s.byHand(word, rest)
	case "":
		return s.speak("I am listening.", "I am listening.", false)
	default:
		said := "You said: " + text
		return s.speak(said, said, false)
	}
}

// obeyed is how long the answer to a command may take to the client before what it asks for.
const obeyed = 300 * time.Millisecond

// byHand does what a fault does, for people who try. The command is answered first: a client that says again what had no
// answer would ask for the same on its next connection.
func (s *session) byHand(command, rest string) error {
	word, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
	end := newClosing(websocket.CloseAbnormalClosure, "")
	if command == "/close" {
		code, err := strconv.Atoi(word)
		if err != nil || !validCode(code) {
			return s.speak("There is no such code.", "There is no such code.", false)
		}
		end = newClosing(code, strings.TrimSpace(reason))
	}
	if err := s.content(object{"outputTranscription": object{"text": "As you wish."}, "generationComplete": true}); err != nil {
		return err
	}
	if err := s.turnComplete(0); err != nil {
		return err
	}
	if command == "/drop" || command == "/close" {
		s.agenda.add(obeyed, func() error { return end })
		return nil
	}
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		d = 5 * time.Second // long enough to look at
	}
	if command == "/stall" {
		s.stall(d, false)
		return nil
	}
	s.agenda.add(d, s.expire)
	return s.goAway(d)
}

// askTool calls a declared function, as "NAME {json}" says.
func (s *session) askTool(text string) error {
	name, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	blocking, declared := s.setup.functions[name]
	if !declared {
		said := fmt.Sprintf("I have no tool named %s. I have: %s.", name,
			strings.Join(slices.Sorted(maps.Keys(s.setup.functions)), ", "))
		return s.speak(said, said, false)
	}
	args := json.RawMessage(strings.TrimSpace(rest))
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if !json.Valid(args) || args[0] != '{' {
		said := "The arguments must be a JSON object."
		return s.speak(said, said, false)
	}
	return s.say(&script{calls: []*call{{id: newCallID(), name: name, args: args, blocking: blocking}}})
}

// grounding is what a search adds to a turn. Its terms ask clients to show renderedContent.
func grounding(query string) object {
	if query = strings.TrimSpace(query); query == "" {
		query = "parrots"
	}
	return object{
		"searchEntryPoint":  object{"renderedContent": `<div class="container"><a class="chip" href="https://www.google.com/search?q=parrots">parrots</a></div>`},
		"webSearchQueries":  []string{query},
		"groundingChunks":   []object{{"web": object{"uri": "https://en.wikipedia.org/wiki/Parrot", "title": "wikipedia.org"}}},
		"groundingSupports": []object{},
	}
}

// pixel is a PNG of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="

// voiced is a text that gets its voice, and then has it.
type voiced struct {
	serial           int
	text, transcript string
	polite           bool
	pcm              []int16
}

// speak says a text and transcribes it as another one. The voice takes a while, which the loop does not wait for: an
// answer that is no longer wanted then is not given. A polite one waits for the user to be quiet.
func (s *session) speak(text, transcript string, polite bool) error {
	v := voiced{text: text, transcript: transcript, polite: polite}
	if s.e.espeak == "" || s.setup.text {
		v.pcm = melody(text)
		return s.sayVoiced(v)
	}
	s.serial++
	v.serial = s.serial
	s.wanted[v.serial] = true
	s.toVoice = append(s.toVoice, v)
	return nil
}

func (s *session) sayVoiced(v voiced) error {
	sc := s.speech(v.pcm, v.transcript)
	sc.polite = v.polite
	return s.say(sc)
}

// voice starts to give texts their voice, in order. The goroutine hands them to the loop, or ends with ctx.
func (s *session) voice(ctx context.Context) {
	if len(s.toVoice) == 0 {
		return
	}
	texts := s.toVoice
	s.toVoice = nil
	s.work.Go(func() {
		for _, v := range texts {
			v.pcm = synthesize(ctx, s.e.espeak, v.text)
			select {
			case s.voiced <- v:
			case <-ctx.Done():
				return
			}
		}
	})
}

// answerVoiced says what was voiced, if it was not interrupted before it began.
func (s *session) answerVoiced(v voiced) error {
	if !s.wanted[v.serial] {
		return nil
	}
	delete(s.wanted, v.serial)
	return s.sayVoiced(v)
}
