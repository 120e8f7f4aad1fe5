package emulator

import (
	"strings"
	"testing"
)

// TestGuide: the sentences that the page of VOX proposes lead to tool calls, and other sentences do not.
func TestGuide(t *testing.T) {
	for text, want := range map[string]string{
		"A list for my family":       `recommend_tools {"project_summary":"A list for my family"}`,
		"Eine Liste für die Familie": `recommend_tools {"project_summary":"Eine Liste für die Familie"}`,
		"Add Supabase.":              `add_tool {"tool_id":"Supabase"}`,
		"Build it.":                  `generate_app {"name":"Family list","prompt":"A list for my family"}`,
		"Yes, please.":               `answer_question {"yes":true}`,
		"Not now":                    `answer_question {"yes":false}`,
		"Make the button green":      `change_app {"change":"Make the button green"}`,
		"Undo that":                  `undo_change {}`,
		"And now?":                   "",
		"one two three":              "",
	} {
		c, ok := guide(text, []string{"A list for my family", "Add Supabase."})
		if got := strings.TrimSpace(c.Name + " " + string(c.Args)); got != want || ok != (want != "") {
			t.Errorf("%q leads to %s, want %s", text, got, want)
		}
	}
}

func TestGuideApp(t *testing.T) {
	plain := writeApp("Write <<<file index.html>>>\nThe app, in the person's words: \"a list\"\n")
	green := writeApp("Write <<<file index.html>>>\n" + plain + "\nThe change, in the person's words: \"make the button green\"\n")
	if plain == green || !strings.Contains(green, "--accent: #2f855a") || !strings.Contains(plain, "This week") {
		t.Error(green)
	}
}
