package emulator

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"voxgate/bridge/gemini/emulator/live"
)

// The guide plays the VOX assistant for developers without a key, in sessions that declare the assistant's tools. The
// guide understands the sentences that the web page proposes, in English and German.

// guideTool is the name of the function that identifies a session of the VOX assistant.
const guideTool = "change_app"

// phrases matches the sentences that the guide understands.
var phrases = struct {
	german, agrees, declines, undoes, adds, changes, builds, wishes, searches, status, navigates *regexp.Regexp
}{
	german:    regexp.MustCompile(`(?i)[äöüß]|\b(eine?|ich|ja|nein|nimm|baue?|mach|und|das|meine?|zeige?|wie|suche?|bitte|nicht)\b`),
	agrees:    regexp.MustCompile(`(?i)^(yes|yeah|sure|ok|ja)\b`),
	declines:  regexp.MustCompile(`(?i)^(no|not now|nein|nicht jetzt|jetzt nicht)\b`),
	undoes:    regexp.MustCompile(`(?i)\b(undo|take (it|that) back|rückgängig|zurück)`),
	adds:      regexp.MustCompile(`(?i)^(?:please |bitte )?(?:add|nimm|füge?) (?:please |bitte )?(.+?)(?: hinzu)?[.!]?$`),
	changes:   regexp.MustCompile(`(?i)^(make|change|call|mache?|nenne?|ändere)\b|^ändere`),
	builds:    regexp.MustCompile(`(?i)^(build|bau)`),
	wishes:    regexp.MustCompile(`(?i)^(an? |i want |i need |i'd like |eine? |ich )`),
	searches:  regexp.MustCompile(`(?i)^(?:find|search|search for|look for|suche?|finde) (.+?)[.?!]*$`),
	status:    regexp.MustCompile(`(?i)^(how is|how far|what do (we|i) have|what is in|status|wie (steht|geht|weit)|was haben wir)`),
	navigates: regexp.MustCompile(`(?i)^(open|show|go to|zeige?|öffne|geh)\b|^öffne`),
}

// places maps words to the targets of navigate_ui.
var places = []struct {
	words  *regexp.Regexp
	target string
}{
	{regexp.MustCompile(`(?i)tool|werkzeug|studio`), "studio"},
	{regexp.MustCompile(`(?i)file|datei`), "files"},
	{regexp.MustCompile(`(?i)setting|einstellung|voice|stimme`), "settings"},
	{regexp.MustCompile(`(?i)\bapp\b|preview|vorschau`), "preview"},
	{regexp.MustCompile(`(?i)chat|conversation|gespräch`), "chat"},
}

// searchWords translates German search words into English, the language of the registry, as Gemini would.
var searchWords = map[string]string{
	"karten": "maps", "bezahlen": "payments", "musik": "music", "anmeldung": "login", "dateien hochladen": "upload files", "sprache": "speech",
	"übersetzung": "translation", "spiele": "games", "kalender": "calendar", "diagramme": "charts",
}

// demo is an app that the guide can build.
type demo struct {
	wish         *regexp.Regexp // matches the wishes for which the guide builds this demo
	summary      string         // the wish in English, the language of the registry
	name, german string
	file         string
}

//go:embed demos
var demoFiles embed.FS

var demos = []*demo{
	{regexp.MustCompile(`(?i)\bmap|karte|restaurant|place`), "A map of restaurants", "Restaurants", "Restaurants", "map.html"},
	{regexp.MustCompile(`(?i)drum|beat|musi[ck]|sound|schlagzeug`), "A drum machine", "Drum machine", "Drumcomputer", "drums.html"},
	{regexp.MustCompile(`(?i)list|famil`), "A list for my family", "Family list", "Familienliste", "list.html"},
}

// otherDemo is the demo for all other wishes.
var otherDemo = &demo{name: "Example list", german: "Beispielliste", file: "list.html"}

// findDemo returns the demo for a wish.
func findDemo(wish string) *demo {
	for _, d := range demos {
		if d.wish.MatchString(wish) {
			return d
		}
	}
	return otherDemo
}

// isGerman reports whether any of the sentences is in German.
func isGerman(said ...string) bool { return slices.ContainsFunc(said, phrases.german.MatchString) }

// chooseGuidedCall returns the function call with which the guide answers a sentence of the user. earlier lists the
// user's earlier sentences, newest last.
func chooseGuidedCall(text string, earlier []string) (call typedCall, ok bool) {
	text = strings.TrimSpace(text)
	with := func(name string, args live.Object) (typedCall, bool) {
		raw, _ := json.Marshal(args) // strings and booleans always marshal
		return typedCall{name, raw}, true
	}
	p := &phrases
	switch {
	case p.builds.MatchString(text):
		wish := text
		if findDemo(text) == otherDemo {
			for _, before := range earlier {
				if p.wishes.MatchString(before) {
					wish = before
				}
			}
		}
		d := findDemo(wish)
		name := d.name
		if isGerman(text) || isGerman(earlier...) {
			name = d.german
		}
		return with("generate_app", live.Object{"prompt": wish, "name": name})
	case p.agrees.MatchString(text):
		return with("answer_question", live.Object{"yes": true})
	case p.declines.MatchString(text):
		return with("answer_question", live.Object{"yes": false})
	case p.undoes.MatchString(text):
		return with("undo_change", live.Object{})
	case p.adds.MatchString(text):
		return with("add_tool", live.Object{"tool_id": p.adds.FindStringSubmatch(text)[1]})
	case p.changes.MatchString(text):
		return with("change_app", live.Object{"change": text})
	case p.searches.MatchString(text):
		query := p.searches.FindStringSubmatch(text)[1]
		return with("search_tools", live.Object{"query": cmp.Or(searchWords[strings.ToLower(query)], query)})
	case p.status.MatchString(text):
		return with("get_project_status", live.Object{})
	case p.navigates.MatchString(text):
		for _, place := range places {
			if place.words.MatchString(text) {
				return with("navigate_ui", live.Object{"target": place.target})
			}
		}
	case p.wishes.MatchString(text):
		return with("recommend_tools", live.Object{"project_summary": cmp.Or(findDemo(text).summary, text)})
	}
	return call, false
}

// comments holds the guide's sentences about results of functions, in English and German. The keys are names of
// functions, and names of results such as "failed".
var comments = map[string][2]string{
	"failed": {"That did not work: %s.", "Das ging nicht: %s."},
	"unchanged": {
		"In this example I can change the colour, the size and the name. Try: make it green, or: make it bigger.",
		"In diesem Beispiel kann ich Farbe, Größe und Namen ändern. Zum Beispiel: mach es grün, oder: mach es größer.",
	},
	"declined": {"All right, I won't build it.", "Gut, dann baue ich es nicht."},
	"asking":   {"Shall I build it? Say yes or no.", "Soll ich es bauen? Sagen Sie ja oder nein."},
	"writing":  {"I'm writing it now.", "Ich schreibe sie jetzt."},
	"recommend_tools": {
		"These would fit. To add one, say add and its name. Or say: build it.",
		"Das würde passen. Sagen Sie nimm und einen Namen, oder gleich: baue es.",
	},
	"nothing fits": {
		"I found nothing that fits. Try another wish.",
		"Ich habe nichts Passendes gefunden. Versuchen Sie einen anderen Wunsch.",
	},
	"search_tools": {"To put one into your project, say add and its name.", "Sagen Sie nimm und einen Namen, dann kommt es in Ihr Projekt."},
	"add_tool":     {"Added. When you are ready, say: build it.", "Ist dabei. Wenn Sie so weit sind, sagen Sie: baue es."},
	"generate_app": {
		"Here it is. Tell me what to change, for example: make the button green.",
		"Da ist sie. Sagen Sie mir, was ich ändern soll, zum Beispiel: mach den Knopf grün.",
	},
	"without tools": {
		"Here it is. The example apps use none of your tools; with a Gemini key I write with them. " +
			"Tell me what to change, for example: make the button green.",
		"Da ist sie. Die Beispiel-Apps nutzen keins Ihrer Werkzeuge, mit einem Gemini-Schlüssel schreibe ich damit. " +
			"Sagen Sie mir, was ich ändern soll, zum Beispiel: mach den Knopf grün.",
	},
	"navigate_ui": {"Here you go.", "Bitte sehr."},
	"example": {
		"I only have three apps here, so you get a list. With a Gemini key I write what you ask for.",
		"Ich habe hier nur drei Apps, darum bekommen Sie eine Liste. Mit einem Gemini-Schlüssel schreibe ich, was Sie sich wünschen.",
	},
	"change_app": {"Done. To go back, say: undo.", "Fertig. Wenn es doch wie vorher sein soll, sagen Sie: zurück."},
	"speech": {
		"I am an example without a Gemini key and cannot make out speech. Tap a proposal, or type, for example: a list for my family.",
		"Ich bin ein Beispiel ohne Gemini-Schlüssel und kann Gesprochenes nicht verstehen. " +
			"Tippen Sie auf einen Vorschlag, oder schreiben Sie, zum Beispiel: eine Liste für die Familie.",
	},
	"unknown": {
		"I am an example without a Gemini key and do not know that. I know: a list for my family, a map of restaurants, " +
			"a drum machine, build it, make it green, undo, find maps.",
		"Ich bin ein Beispiel ohne Gemini-Schlüssel und kenne das nicht. Ich kenne: eine Liste für die Familie, " +
			"eine Karte mit Restaurants, ein Drumcomputer, baue es, mach es grün, zurück, suche Karten.",
	},
	"undo_change": {"It is back to how it was.", "Es ist wieder wie vorher."},
	"get_project_status": {
		"Tools in your project: %d, apps: %d. Say build it, or: make it green.",
		"Werkzeuge in Ihrem Projekt: %d, Apps: %d. Sagen Sie baue es, oder: mach es grün.",
	},
}

// isQuestionPending reports whether a status says that the user is being asked a question.
func isQuestionPending(status string) bool { return strings.HasPrefix(status, "not begun") }

// commentOnResult returns the guide's comment on a result.
func commentOnResult(name string, response map[string]any, isGerman bool) string {
	key, values := name, []any(nil)
	status, _ := response["status"].(string)
	wrong, failed := response["error"].(string)
	count := func(field string) int {
		list, _ := response[field].([]any)
		return len(list)
	}
	app, _ := response["app"].(string)
	uses, hasUses := response["uses"].([]any)
	switch {
	case strings.HasSuffix(wrong, "has changed nothing"):
		key = "unchanged"
	case strings.HasSuffix(wrong, "does not want it"):
		key = "declined"
	case failed:
		key, values = "failed", []any{wrong}
	case isQuestionPending(status):
		key = "asking"
	case status != "":
		key = "writing"
	case name == "generate_app" && (strings.HasPrefix(app, otherDemo.name) || strings.HasPrefix(app, otherDemo.german)):
		key = "example"
	case name == "generate_app" && hasUses && len(uses) == 0:
		key = "without tools"
	case strings.HasSuffix(name, "_tools") && count("tools") == 0:
		key = "nothing fits"
	case name == "get_project_status":
		values = []any{count("tools"), count("apps")}
	}
	words := commentIn(isGerman, key)
	if values != nil {
		words = fmt.Sprintf(words, values...)
	}
	return words
}

// commentIn returns one of the guide's comments in English or German.
func commentIn(isGerman bool, key string) string {
	if isGerman {
		return comments[key][1]
	}
	return comments[key][0]
}

// isGuide reports whether the guide explains, in this session, what it does not understand.
func (s *session) isGuide() bool {
	_, assistant := s.setup.Functions[guideTool]
	return s.e.guide && assistant
}

// speakComment says what the guide understands, in the language of the user's sentences or, before the first one,
// of the session. key is a key of comments.
func (s *session) speakComment(key string) error {
	sentences := s.userSentences()
	text := commentIn(isGerman(sentences...) || len(sentences) == 0 && strings.HasPrefix(s.setup.Language, "de"), key)
	return s.speak(text, text, false)
}

// userSentences returns the sentences that the user has said and typed in this session.
func (s *session) userSentences() (sentences []string) {
	for _, t := range s.history {
		if t.Role == "user" {
			sentences = append(sentences, t.Text)
		}
	}
	return sentences
}

// answerAsGuide answers a sentence with a function call. It does nothing, and returns false, if the session does not
// belong to the VOX assistant or the guide does not understand the sentence.
func (s *session) answerAsGuide(text string) (isHandled bool, err error) {
	if _, assistant := s.setup.Functions[guideTool]; !assistant {
		return false, nil
	}
	c, isHandled := chooseGuidedCall(text, s.userSentences())
	if _, known := s.setup.Functions[c.Name]; !isHandled || !known || len(s.calls) >= maxCalls {
		return false, nil
	}
	one := &call{id: newCallID(), name: c.Name, args: c.Args, blocking: s.setup.Functions[c.Name], isGuided: true}
	return true, s.queueScript(&script{calls: []*call{one}})
}

// colours maps the names of colours to the colours of the guide's apps.
var colours = map[string]string{
	"green": "#2f855a", "grün": "#2f855a", "red": "#c53030", "rot": "#c53030",
	"blue": "#2b6cb0", "blau": "#2b6cb0", "orange": "#b7560f", "pink": "#b83280",
}

var (
	accent  = regexp.MustCompile(`--accent: #[0-9a-f]{6}`)
	ground  = regexp.MustCompile(`--ground: [^;]+`)
	onPage  = regexp.MustCompile(`(?i)background|hintergrund|untergrund`)
	size    = regexp.MustCompile(`--size: [0-9.]+`)
	bigger  = regexp.MustCompile(`(?i)big|large|größer`)
	smaller = regexp.MustCompile(`(?i)small|kleiner`)
	title   = regexp.MustCompile(`<title>[^<]*</title>`)
	renames = regexp.MustCompile(`(?i)^"(?:call|nenne?) (?:it|the app|es|sie|die app) ([^<>&"]{1,40}?)[.!]?"$`)
)

// writeDemoApp answers a request of the VOX assistant to a text model with a demo, or with a changed app. The last line
// of the request has the user's words.
func writeDemoApp(text string) string {
	text = strings.TrimSpace(text)
	about, words, _ := strings.Cut(text[strings.LastIndexByte(text, '\n')+1:], ": ")
	lowercase := strings.ToLower(words)
	var app string
	if before, found := lastAppPage(text); found && strings.Contains(about, "change") {
		app = before
		if bigger.MatchString(lowercase) {
			app = size.ReplaceAllString(app, "--size: 1.25")
		}
		if smaller.MatchString(lowercase) {
			app = size.ReplaceAllString(app, "--size: 0.85")
		}
		if found := renames.FindStringSubmatch(words); found != nil {
			app = title.ReplaceAllLiteralString(app, "<title>"+found[1]+"</title>")
		}
	} else {
		page, err := demoFiles.ReadFile("demos/" + findDemo(words).file)
		if err != nil {
			return "" // unreachable: the file is embedded
		}
		app = string(page)
		if isGerman(words) {
			app = strings.Replace(app, `<html lang="en">`, `<html lang="de">`, 1)
		}
	}
	for name, colour := range colours {
		switch {
		case !strings.Contains(lowercase, name):
		case onPage.MatchString(lowercase): // a tint, on which the words can be read
			app = ground.ReplaceAllLiteralString(app, "--ground: color-mix(in oklab, "+colour+" 30%, var(--plain))")
		default:
			app = accent.ReplaceAllLiteralString(app, "--accent: "+colour)
		}
	}
	return beginFile + strings.TrimSuffix(app, "\n") + "\n<<<end>>>\n"
}

// beginFile is the line that begins an app's page in a request or an answer.
const beginFile = "<<<file index.html>>>\n"

// lastAppPage returns the page of the app that the request asks to change.
func lastAppPage(text string) (page string, ok bool) {
	if strings.Count(text, beginFile) < 2 {
		return "", false // the first occurrence of beginFile only explains the format
	}
	page = text[strings.LastIndex(text, beginFile)+len(beginFile):]
	page, _, ok = strings.Cut(page, "\n<<<end>>>")
	return page, ok
}

// buildGuidedPart returns the guide's function call for a request to a text model, or its comment on a result. It
// returns nil if the guide does not handle the request.
func (r *request) buildGuidedPart(text string) live.Object {
	declared := false
	for _, t := range r.Tools {
		for _, f := range t.FunctionDeclarations {
			declared = declared || f.Name == guideTool
		}
	}
	if !declared {
		return nil
	}
	var words []string
	for _, c := range r.Contents {
		for _, p := range c.Parts {
			if c.Role != "model" && p.Text != "" {
				words = append(words, p.Text)
			}
		}
	}
	if len(words) == 0 {
		return nil
	}
	c, ok := chooseGuidedCall(words[len(words)-1], words)
	switch {
	case !ok && r.isGuide && text != "":
		return textPart(commentIn(isGerman(words...), "unknown"))
	case !ok:
		return nil
	case text != "":
		return r.buildCallPart(c.Name, string(c.Args))
	}
	for _, p := range r.Contents[len(r.Contents)-1].Parts {
		var response map[string]any
		if f := p.FunctionResponse; f != nil && json.Unmarshal(f.Response, &response) == nil {
			return textPart(cmp.Or(commentOnResult(f.Name, response, isGerman(words...)), "Done."))
		}
	}
	return nil
}
