package assistant_test

import (
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"voxgate/vox/assistant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// commands lists, for each registry, the commands that add a package.
var commands = map[string][]string{
	"npm": {"npm install ", "npm install --save-dev "}, "pypi": {"pip install "}, "go": {"go get "}, "crates": {"cargo add "},
}

// TestRegistry validates the registry without the network. The program vox/assistant/check queries the package registries.
func TestRegistry(t *testing.T) {
	data, err := os.ReadFile("registry.json")
	if err != nil {
		t.Fatal(err)
	}
	var entries []assistant.Entry
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&entries); err != nil {
		t.Fatal(err)
	}
	domains := map[string]int{}
	seen := map[string]bool{}
	for _, e := range entries {
		domains[e.Domain]++
		for _, key := range []string{"id " + e.ID, "name " + strings.ToLower(e.Name), e.Registry + " " + strings.ToLower(e.Package)} {
			if seen[key] {
				t.Errorf("%s: %s is there twice", e.ID, key)
			}
			seen[key] = true
		}
		if found, ok := assistant.Find(strings.ToUpper(e.ID)); !ok || found.Name != e.Name {
			t.Errorf("%s is not found", e.ID)
		}
		if e.Role == "" || len(e.Role) > 24 {
			t.Errorf("%s: role %q", e.ID, e.Role)
		}
		if e.ID != strings.ToLower(e.ID) || strings.ContainsAny(e.ID, " ./@") || e.Name == "" {
			t.Errorf("id %q, name %q", e.ID, e.Name)
		}
		if !strings.HasSuffix(e.Description, ".") || len(e.Description) < 20 || strings.Contains(e.Description, ". ") {
			t.Errorf("%s: %q is not one sentence", e.ID, e.Description)
		}
		if len(e.Tags) < 3 || len(e.Tags) > 6 || slices.Contains(e.Tags, "") {
			t.Errorf("%s: tags %q", e.ID, e.Tags)
		}
		if home, err := url.Parse(e.Homepage); err != nil || home.Scheme != "https" || home.Host == "" {
			t.Errorf("%s: homepage %q, %v", e.ID, e.Homepage, err)
		}
		if e.Package == "" || !slices.ContainsFunc(commands[e.Registry], func(c string) bool { return e.Add == c+e.Package }) {
			t.Errorf("%s: %q does not add %s of %s", e.ID, e.Add, e.Package, e.Registry)
		}
	}
	for domain, n := range domains {
		if !slices.Contains(assistant.Domains, domain) || n < 15 {
			t.Errorf("%d entries of %q", n, domain)
		}
	}
	if len(domains) != len(assistant.Domains) {
		t.Errorf("domains %v", domains)
	}
}

// A search finds the entries for the purpose of the query, and not those that only share a word with it.
func TestSearchLeavesSideAspectsOut(t *testing.T) {
	for query, want := range map[string]string{
		"upload files":      "uppy supabase",
		"maps":              "leaflet maplibre turf",
		"translate my page": "i18next formatjs",
		"speech":            "openai google-genai livekit",
		"drum machine":      "smplr tone howler",
		"cron job":          "croner bullmq",
	} {
		var got []string
		for _, e := range assistant.Search(query, "", len(strings.Fields(want))) {
			got = append(got, e.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	for _, query := range []string{"upload files", "maps"} {
		for _, e := range assistant.Search(query, "", 8) {
			if slices.Contains([]string{"mido", "music-metadata", "rot-js"}, e.ID) {
				t.Errorf("%s: %s", query, e.ID)
			}
		}
	}
}

func TestSearch(t *testing.T) {
	for _, c := range []struct{ query, domain, want string }{
		{"payments for subscriptions", "", "stripe"},
		{"take PayPal", "", "paypal"},
		{"something to draw diagrams", "", "mermaid"},
		{"multiplayer server", "", "colyseus"},
		{"next.js", "", "nextjs"},
		{"Next.js", "", "nextjs"},
		{"nextjs", "", "nextjs"},
		{"NEXT JS", "", "nextjs"},
		{"@tanstack/react-query", "", "tanstack-query"},
		{"ｓｔｒｉｐｅ", "", "stripe"}, // full-width letters
		{"login with google", "", "clerk"},
		{"an editor that several people use at once", "", "yjs"},
		{"chart", "", "chartjs"},
		{"sending e-mails", "", "resend"},
		{"vector databases", "", "qdrant"},
		{"3D graphics", "", "three"},
		{"sheet music", "", "vexflow"},
		{"drum machines", "", "smplr"},
		{"a bot for Reddit", "", "praw"},
		{"search that forgives typos", "", "meilisearch"},
		{"voice and video calls", "", "livekit"},
		{"kanban board", "", "dnd-kit"},
		{"Python web framework", "", "django"},
		{"physics", "gaming", "matter-js"},
		{"search", "ecommerce", "algolia"},
		{"chatbot", "ai-ml", "ai-sdk"},
		{"chat", "social", "stream-chat"},
		{"effects", "music", "pedalboard"},
	} {
		found := assistant.Search(c.query, c.domain, 3)
		if len(found) > 3 || !slices.ContainsFunc(found, func(e assistant.Entry) bool { return e.ID == c.want }) {
			t.Errorf("%q in %q: %v; want %s among the first three", c.query, c.domain, ids(found), c.want)
		}
		for _, e := range found {
			if c.domain != "" && e.Domain != c.domain {
				t.Errorf("%q in %q: %s is of %s", c.query, c.domain, e.ID, e.Domain)
			}
		}
	}
	if first := assistant.Search("react", "", 1); len(first) != 1 || first[0].ID != "react" {
		t.Errorf("a name by itself: %v", ids(first))
	}
	for _, nothing := range []string{"", "   ", "xyzzy qwrtz", "for the of and", "физика", "🎵", "\xff\xfe", "....", "Zürich"} {
		if found := assistant.Search(nothing, "", 3); found != nil {
			t.Errorf("%q: %v", nothing, ids(found))
		}
	}
	if found := assistant.Search("payments", "music", 3); found != nil {
		t.Errorf("payments in music: %v", ids(found))
	}
}

// FuzzSearch: the stemmer accepts arbitrary words.
func FuzzSearch(f *testing.F) {
	for _, query := range []string{"payments for subscriptions", "Next.js", "ｓｔｒｉｐｅ", "\xff' 's''", "y", "ying ied eed ly"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		found := assistant.Search(query, "", 5)
		if len(found) > 5 || slices.ContainsFunc(found, func(e assistant.Entry) bool { return e.ID == "" }) {
			t.Errorf("%q: %v", query, ids(found))
		}
	})
}

func ids(entries []assistant.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, e.ID)
	}
	return all
}
