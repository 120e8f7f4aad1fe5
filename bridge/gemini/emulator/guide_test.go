package emulator

import (
	"strings"
	"testing"
)

// TestGuide: the sentences that the page of VOX proposes lead to tool calls, and other sentences do not.
func TestGuide(t *testing.T) {
	for text, want := range map[string]string{
		"A list for my family":       `recommend_tools {"project_summary":"A list for my family"}`,
		"Eine Liste für die Familie": `recommend_tools {"project_summary":"A list for my family"}`,
		"A quiz about trees":         `recommend_tools {"project_summary":"A quiz about trees"}`,
		"Add Supabase.":              `add_tool {"tool_id":"Supabase"}`,
		"Füge Supabase hinzu.":       `add_tool {"tool_id":"Supabase"}`,
		"Nimm bitte Supabase.":       `add_tool {"tool_id":"Supabase"}`,
		"Build it.":                  `generate_app {"name":"Family list","prompt":"A list for my family"}`,
		"Yes, please.":               `answer_question {"yes":true}`,
		"Not now":                    `answer_question {"yes":false}`,
		"Make the button green":      `change_app {"change":"Make the button green"}`,
		"Undo that":                  `undo_change {}`,
		"Build a drum machine":       `generate_app {"name":"Drum machine","prompt":"Build a drum machine"}`,
		"Mach den Knopf grün":        `change_app {"change":"Mach den Knopf grün"}`,
		"Mache den Knopf grün":       `change_app {"change":"Mache den Knopf grün"}`,
		"Find maps":                  `search_tools {"query":"maps"}`,
		"Suche Karten":               `search_tools {"query":"maps"}`,
		"How is my project?":         `get_project_status {}`,
		"Wie steht mein Projekt?":    `get_project_status {}`,
		"Open the tools":             `navigate_ui {"target":"studio"}`,
		"Zeige die Dateien":          `navigate_ui {"target":"files"}`,
		"And now?":                   "",
		"one two three":              "",
	} {
		c, ok := chooseGuidedCall(text, []string{"A list for my family", "Add Supabase."})
		if got := strings.TrimSpace(c.Name + " " + string(c.Args)); got != want || ok != (want != "") {
			t.Errorf("%q leads to %s, want %s", text, got, want)
		}
	}
}

// TestGuideApps: each proposed wish gets its own app, in its own language, and a change keeps what was changed before.
func TestGuideApps(t *testing.T) {
	const task = "Write\n<<<file index.html>>>\nthe whole text of the file\n<<<end>>>\n\nThe app, in the person's words: "
	names := map[string]bool{}
	for _, test := range []struct{ wish, build, name, part, lang string }{
		{"A list for my family", "Build it", "Family list", "Piano lesson", "en"},
		{"A map of restaurants", "Build it", "Restaurants", "Osteria Nove", "en"},
		{"A drum machine", "Build it", "Drum machine", "Hi-hat", "en"},
		{"A quiz about trees", "Build it", "Example list", "Piano lesson", "en"},
		{"Eine Familienliste", "Baue es", "Familienliste", "Klavierstunde", "de"},
		{"Eine Karte mit Restaurants", "Baue es", "Restaurants", "Osteria Nove", "de"},
		{"Ein Drumcomputer", "Baue es", "Drumcomputer", "Klatschen", "de"},
	} {
		c, _ := chooseGuidedCall(test.build, []string{test.wish})
		app := writeDemoApp(task + `"` + test.wish + `"`)
		if want := `{"name":"` + test.name + `","prompt":"` + test.wish + `"}`; string(c.Args) != want {
			t.Errorf("%s: %s", test.wish, c.Args)
		}
		if !strings.Contains(app, test.part) || !strings.Contains(app, `lang="`+test.lang+`"`) {
			t.Errorf("%s: %s", test.wish, app)
		}
		names[app] = true
		for change, want := range map[string][]string{
			`"make the button green"`:          {"--accent: #2f855a"},
			`"make the background green"`:      {"--accent: #6a4fd8", "--ground: color-mix(in oklab, #2f855a 30%, var(--plain))"},
			`"Mach es größer"`:                 {"--size: 1.25"},
			`"make it smaller and blue"`:       {"--size: 0.85", "--accent: #2b6cb0"},
			`"call it Ada and Ben."`:           {"<title>Ada and Ben</title>"},
			`"put the children's names on it"`: {app},
		} {
			changed := writeDemoApp(task + "x\n" + app + "\nThe change, in the person's words: " + change)
			for _, part := range want {
				if !strings.Contains(changed, part) || (changed == app) != (part == app) {
					t.Errorf("%s, %s: %s is missing", test.wish, change, part)
				}
			}
			again := writeDemoApp(task + "x\n" + changed + "\nThe change, in the person's words: \"make it pink\"")
			const grown = "--size: 1.25"
			if !strings.Contains(again, "--accent: #b83280") || strings.Contains(changed, grown) != strings.Contains(again, grown) {
				t.Errorf("%s, %s, then pink: %s", test.wish, change, again)
			}
		}
	}
	if len(names) != 6 { // two wishes lead to the English list
		t.Errorf("%d different apps", len(names))
	}
}

func TestGuideComments(t *testing.T) {
	for _, test := range []struct {
		tool     string
		response map[string]any
		german   bool
		want     string
	}{
		{"add_tool", nil, false, "Added. When you are ready"},
		{"add_tool", nil, true, "Ist dabei. Wenn Sie so weit sind"},
		{"generate_app", map[string]any{"status": "not begun: the person must agree first"}, true, "Soll ich es bauen?"},
		{"generate_app", map[string]any{"app": "Example list"}, false, "I only have three apps"},
		{"generate_app", map[string]any{"app": "Family list"}, false, "Here it is. Tell me"},
		{"generate_app", map[string]any{"app": "Family list", "uses": []any{}}, false, "Here it is. The example apps use none of your tools"},
		{"generate_app", map[string]any{"app": "Familienliste", "uses": []any{}}, true, "Da ist sie. Die Beispiel-Apps nutzen keins Ihrer"},
		{"generate_app", map[string]any{"error": "the person does not want it"}, false, "All right"},
		{"change_app", map[string]any{"error": "the writing model has changed nothing"}, false, "In this example I can change the colour"},
		{"recommend_tools", map[string]any{"tools": []any{}}, false, "I found nothing that fits."},
		{"get_project_status", map[string]any{"tools": []any{1}, "apps": []any{}}, true, "Werkzeuge in Ihrem Projekt: 1, Apps: 0."},
		{"something_else", map[string]any{}, true, ""},
	} {
		if got := commentOnResult(test.tool, test.response, test.german); !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s %v: %q", test.tool, test.response, got)
		}
	}
}
