package emulator

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"regexp"
	"strings"

	"voxgate/bridge/gemini/emulator/live"
)

// The emulator plays the VOX assistant for developers without a key: it understands the sentences that the page proposes, and calls
// the tools that Gemini would call. The guide is active in sessions that declare its tools.

// guideTool is the function that identifies a session of the VOX assistant.
const guideTool = "change_app"

var (
	agrees   = regexp.MustCompile(`(?i)^(yes|yeah|sure|ok|ja)\b`)
	declines = regexp.MustCompile(`(?i)^(no|not now|nein)\b`)
	undoes   = regexp.MustCompile(`(?i)\b(undo|take (it|that) back|rückgängig|zurück)\b`)
	adds     = regexp.MustCompile(`(?i)^(?:add|nimm) (.+?)[.!]?$`)
	changes  = regexp.MustCompile(`(?i)^(make|change|mach|ändere)\b`)
	builds   = regexp.MustCompile(`(?i)^(build|bau)`)
	wishes   = regexp.MustCompile(`(?i)^(an? |i want |i need |i'd like |eine? |ich )`)
	aList    = regexp.MustCompile(`(?i)list|famil`)
)

// guide returns the call for a sentence of the user. said lists the user's earlier sentences, newest last.
func guide(text string, said []string) (call typedCall, ok bool) {
	text = strings.TrimSpace(text)
	with := func(name string, args live.Object) (typedCall, bool) {
		raw, _ := json.Marshal(args) // strings and booleans always marshal
		return typedCall{name, raw}, true
	}
	switch {
	case agrees.MatchString(text):
		return with("answer_question", live.Object{"yes": true})
	case declines.MatchString(text):
		return with("answer_question", live.Object{"yes": false})
	case undoes.MatchString(text):
		return with("undo_change", live.Object{})
	case adds.MatchString(text):
		return with("add_tool", live.Object{"tool_id": adds.FindStringSubmatch(text)[1]})
	case changes.MatchString(text):
		return with("change_app", live.Object{"change": text})
	case builds.MatchString(text):
		wish, name := text, "First app"
		for _, before := range said {
			if wishes.MatchString(before) {
				wish = before
			}
		}
		if aList.MatchString(wish) {
			name = "Family list"
		}
		return with("generate_app", live.Object{"prompt": wish, "name": name})
	case wishes.MatchString(text):
		return with("recommend_tools", live.Object{"project_summary": text})
	}
	return call, false
}

// sentence returns the guide's comment on a result.
func sentence(name string, response map[string]any) string {
	status, _ := response["status"].(string)
	wrong, failed := response["error"].(string)
	switch {
	case failed:
		return "That did not work: " + wrong + "."
	case strings.HasPrefix(status, "not begun"):
		return "Shall I build it? Say yes, or no."
	case status != "":
		return "I am writing it."
	}
	return map[string]string{
		"recommend_tools": "These fit together. Say add, and a name. Or say: build it.",
		"add_tool":        "Added. Say build it, and I write the app.",
		"generate_app":    "Here it is. Now say what shall be different, as: make the button green.",
		"change_app":      "Done. Say undo, and it is as before.",
		"undo_change":     "It is as it was before.",
	}[name]
}

// playVOX answers a sentence with a call, if the session belongs to the VOX assistant and the guide understands the sentence.
func (s *session) playVOX(text string) (ok bool, err error) {
	if _, assistant := s.setup.Functions[guideTool]; !assistant {
		return false, nil
	}
	var said []string
	for _, t := range s.history {
		if t.Role == "user" {
			said = append(said, t.Text)
		}
	}
	c, ok := guide(text, said)
	if _, known := s.setup.Functions[c.Name]; !ok || !known || len(s.calls) >= maxCalls {
		return false, nil
	}
	one := &call{id: newCallID(), name: c.Name, args: c.Args, blocking: s.setup.Functions[c.Name], isGuided: true}
	return true, s.say(&script{calls: []*call{one}})
}

//go:embed app.html
var demoApp string

// colours are the colours of the guide's app.
var colours = map[string]string{
	"green": "#2f855a", "grün": "#2f855a", "red": "#c53030", "rot": "#c53030",
	"blue": "#2b6cb0", "blau": "#2b6cb0", "orange": "#b7560f", "pink": "#b83280",
}

// writeApp answers VOX's request for an app or a change: the demo, in the colour that the last line asks for.
func writeApp(text string) string {
	app := demoApp
	last := strings.ToLower(text[strings.LastIndexByte(strings.TrimSpace(text), '\n')+1:])
	for name, colour := range colours {
		if strings.Contains(last, name) {
			app = strings.Replace(app, "--accent: #6a4fd8", "--accent: "+colour, 1)
		}
	}
	return "<<<file index.html>>>\n" + app + "<<<end>>>\n"
}

// guidedCall returns the call for a request to a text model, or the comment on a result. It returns nil if the request is to be
// echoed.
func (q *request) guidedCall(text string) live.Object {
	declared := false
	for _, t := range q.Tools {
		for _, f := range t.FunctionDeclarations {
			declared = declared || f.Name == guideTool
		}
	}
	if !declared {
		return nil
	}
	var words []string
	for _, c := range q.Contents {
		for _, p := range c.Parts {
			if c.Role != "model" && p.Text != "" {
				words = append(words, p.Text)
			}
		}
	}
	if len(words) == 0 {
		return nil
	}
	c, ok := guide(words[len(words)-1], words)
	switch {
	case !ok:
		return nil
	case text != "":
		return q.buildCall(c.Name, string(c.Args))
	}
	for _, p := range q.Contents[len(q.Contents)-1].Parts {
		var response map[string]any
		if f := p.FunctionResponse; f != nil && json.Unmarshal(f.Response, &response) == nil {
			return textPart(cmp.Or(sentence(f.Name, response), "Done."))
		}
	}
	return nil
}
