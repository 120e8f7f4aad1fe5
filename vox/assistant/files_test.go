package assistant

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseApp(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   []file
	}{
		"one file":      {"<<<file index.html>>>\n<p>\n<<<end>>>", []file{{"index.html", "<p>\n"}}},
		"windows":       {"<<<file index.html>>>\r\n<p>\r\n<<<end>>>\r\n", []file{{"index.html", "<p>\n"}}},
		"dot slash":     {" <<<file ./index.html>>> \n<p>\n <<<end>>> \n", []file{{"index.html", "<p>\n"}}},
		"fenced file":   {"<<<file index.html>>>\n```html\n<p>\n```\n<<<end>>>\n", []file{{"index.html", "<p>\n"}}},
		"fenced answer": {"```\n<<<file index.html>>>\n<p>\n<<<end>>>\n```\n", []file{{"index.html", "<p>\n"}}},
		"markdown": {
			"<<<file index.html>>>\n<<<end>>>\n<<<file a.md>>>\nx\n```\ny\n```\n<<<end>>>\n",
			[]file{{"index.html", ""}, {"a.md", "x\n```\ny\n```\n"}},
		},
		"stray end":      {"<<<end>>>\n<!doctype html>x</html>", []file{{"index.html", "<!doctype html>x</html>\n"}}},
		"document":       {"a <HTML lang=en>x</HTML > b", []file{{"index.html", "<HTML lang=en>x</HTML >\n"}}},
		"word in script": {"<html><script>'</html>'</script></html>", []file{{"index.html", "<html><script>'</html>'</script></html>\n"}}},
	} {
		if got, err := parseApp(c.answer, nil); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestPartBeingWritten(t *testing.T) {
	for answer, want := range map[string]string{
		"":                              "",
		"Here is the app.":              "",
		"<<<file index.html>>>\n<html>": "page",
		"<<<file index.html>>>\n<style>b { color: red }":                                 "style",
		"<<<file index.html>>>\n<STYLE></STYLE><body><p>":                                "page",
		"<<<file index.html>>>\n<script src=x></script><style></style><script>let a = 1": "script",
		"<<<file index.html>>>\n<script>\n<<<end>>>\n<<<file style.css>>>\nb {":          "style",
		"<<<file js/app.js>>>\n'<style>'":                                                "script",
		"```html\n<html><style>":                                                         "style",
	} {
		if got := partBeingWritten(answer); got != want {
			t.Errorf("%q: %q, want %q", answer, got, want)
		}
	}
}

func TestUsedTools(t *testing.T) {
	for text, want := range map[string]string{
		`<script src="https://cdn.jsdelivr.net/npm/chart.js@4/dist/chart.umd.js"></script>`: "Chart.js",
		`<script src="https://cdnjs.cloudflare.com/ajax/libs/Chart.js/4.4.1/chart.min.js">`: "Chart.js",
		`<script src="https://unpkg.com/chart.js"></script>`:                                "Chart.js",
		`import { createClient } from 'https://esm.sh/@supabase/supabase-js@2';`:            "Supabase",
		"import dj from \"django\"; const l = await import('leaflet')":                      "Leaflet",
		`import L from "https://esm.sh/leaflet-draw@1"; el.classList.add('leaflet')`:        "",
		`<a href="https://leafletjs.com">Made without Leaflet</a>`:                          "",
	} {
		var known []Entry
		for _, id := range []string{"chartjs", "supabase", "leaflet", "django"} {
			e, _ := Find(id)
			known = append(known, e)
		}
		if got := usedTools([]file{{"index.html", "<p>"}, {"app.js", text}}, known); got == nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzParseApp(f *testing.F) {
	f.Add("<<<file index.html>>>\n<p>\n<<<end>>>\n<<<file js/app.js>>>\nx\n<<<end>>>\n")
	f.Add("```html\n<!doctype html><html></html>\n```")
	f.Add("<<<file ../x>>>\n<<<end>>>\n<<<file index.html>>>\n<<<end>>>")
	f.Add("<<<file index.html>>>\n```\n```\n<<<end>>>\n<<<file >>>\n<<<end>>>")
	f.Add("<<<file index.html>>>\n<<<file>>>\r\n<<<end>>>\xff")
	f.Fuzz(func(t *testing.T, answer string) {
		files, err := parseApp(answer, nil)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("%d bytes: %.100q", len(err.Error()), err)
			}
			return
		}
		size, index := 0, false
		for i, f := range files {
			size += len(f.text)
			index = index || f.path == "index.html"
			hidden := slices.ContainsFunc(strings.Split(f.path, "/"), func(s string) bool { return s == "" || s[0] == '.' })
			if !filepath.IsLocal(f.path) || hidden || filepath.ToSlash(filepath.Clean(f.path)) != f.path {
				t.Errorf("path %q", f.path)
			}
			if slices.ContainsFunc(files[:i], func(g file) bool { return g.path == f.path }) {
				t.Errorf("%q is there twice", f.path)
			}
			if strings.Contains(f.text, "\n"+endFile+"\n") {
				t.Errorf("a marker in %q", f.path)
			}
		}
		if !index || size > maxApp || len(files) > maxFiles {
			t.Errorf("%d files of %d bytes", len(files), size)
		}
	})
}

func TestDiffFiles(t *testing.T) {
	old := []file{{"index.html", "<p>\n<b>\n<b>\n"}, {"app.js", "1\n"}}
	files, err := parseApp("<<<file index.html>>>\n<p>\n<i>\n<b>\n<<<end>>>\n<<<file new.css>>>\nx\n<<<end>>>\n", old)
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	want := []Change{{"index.html", 1, 1}, {"new.css", 1, 0}}
	if got := diffFiles(old, files); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := diffFiles(old, old); got != nil {
		t.Errorf("%v", got)
	}
}
