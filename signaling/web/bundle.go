package web

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Bundles defines which scripts are delivered in one file. It maps a script's path to the scripts that are bundled with
// it, each after the scripts that it imports. Every script keeps its address and remains a single instance: its own
// file only re-exports from the bundle.
type Bundles map[string][]string

var (
	imported = regexp.MustCompile(`(?m)^import (?:\{([^}]*)\} from )?'(\.[^']+)';$`)
	exported = regexp.MustCompile(`(?m)^export ((?:async )?(?:function\*?|class|const) (\w+))`)
	varies   = regexp.MustCompile(`(?m)^export let\b`)
	anything = regexp.MustCompile(`(?m)^(import|export)\b`)
	asName   = regexp.MustCompile(`(\w+) as (\w+)`)
	local    = regexp.MustCompile(`(\w+)\s*(?:,|\}| from )`) // a name in an import line
)

// bundler joins scripts in the style of our own: imports and exports begin at the start of a line, and name what they
// import or export.
type bundler struct {
	sources map[string][]byte // by path; changed by bundle
	in      map[string]string // the bundle of each bundled script
}

// bundle joins scripts, and changes the imports of all others to the bundles. It returns an error if it cannot parse a
// script, or if a script imports one that comes after it.
func (b Bundles) bundle(sources map[string][]byte) error {
	r := &bundler{sources, map[string]string{}}
	for into, members := range b {
		for _, name := range members {
			r.in[name] = into
		}
	}
	for name, script := range sources {
		if len(b) > 0 && path.Ext(name) == ".js" && varies.Match(script) {
			return fmt.Errorf("%s: a bundle cannot hand on what changes", name)
		}
	}
	joined := map[string][]byte{}
	for name := range sources {
		if path.Ext(name) != ".js" || r.in[name] != "" {
			continue
		}
		text, err := r.join(name, b[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		joined[name] = text
	}
	for name, into := range r.in {
		if sources[name] == nil || sources[into] == nil || path.Dir(name) != path.Dir(into) {
			return fmt.Errorf("%s: a bundle is of scripts that there are, in its own folder: %s", into, name)
		}
		joined[name] = fmt.Appendf(nil, "import {%s} from './%s';\nexport const {%s} = %[1]s;\n",
			variable(name), path.Base(into), strings.Join(exports(sources[name]), ", "))
	}
	maps.Copy(sources, joined)
	return nil
}

// join makes one script of several. The last one keeps its exports.
func (r *bundler) join(into string, members []string) ([]byte, error) {
	var text strings.Builder
	head := map[string]bool{} // imports from outside the bundle
	var before []string
	for _, name := range members {
		body, err := r.body(name, into, before, head)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		names := exports(r.sources[name])
		body = exported.ReplaceAllString(body, "$1")
		if odd := anything.FindStringIndex(body); odd != nil {
			return nil, fmt.Errorf("%s: a bundle cannot have %.60q", name, body[odd[0]:])
		}
		fmt.Fprintf(&text, "const %s = (() => {\n%s\nreturn {%s};\n})();\n", variable(name), body, strings.Join(names, ", "))
		before = append(before, name)
	}
	body, err := r.body(into, into, before, head)
	if err == nil {
		err = unambiguous(head)
	}
	if err != nil {
		return nil, err
	}
	text.WriteString(body)
	if len(members) > 0 {
		all := make([]string, len(members))
		for i, name := range members {
			all[i] = variable(name)
		}
		fmt.Fprintf(&text, "\nexport {%s};\n", strings.Join(all, ", "))
	}
	return []byte(strings.Join(slices.Sorted(maps.Keys(head)), "\n") + "\n" + text.String()), nil
}

// unambiguous returns an error for a name that is imported from two places: browsers reject such a script.
func unambiguous(head map[string]bool) error {
	from := map[string]string{}
	for line := range head {
		for _, m := range local.FindAllStringSubmatch(line, -1) {
			if other := from[m[1]]; other != "" {
				return fmt.Errorf("it imports %s twice: %s %s", m[1], other, line)
			}
			from[m[1]] = line
		}
	}
	return nil
}

// body returns a script without its imports, and adds those from outside the bundle to head.
func (r *bundler) body(name, into string, before []string, head map[string]bool) (string, error) {
	var failed error
	body := imported.ReplaceAllStringFunc(string(r.sources[name]), func(line string) string {
		m := imported.FindStringSubmatch(line)
		from := path.Join(path.Dir(name), m[2])
		bundle := r.in[from]
		switch {
		case bundle == into && slices.Contains(before, from):
		case bundle == into || from == into:
			failed = fmt.Errorf("it imports %s, which comes after it", from)
		case bundle != "":
			head[fmt.Sprintf("import {%s} from '%s%s';", variable(from), strings.TrimSuffix(m[2], path.Base(from)), path.Base(bundle))] = true
		case name == into || m[1] == "":
			head[line] = true
			return ""
		default:
			head[fmt.Sprintf("import * as %s from '%s';", variable(from), m[2])] = true
		}
		return fmt.Sprintf("const {%s} = %s;", asName.ReplaceAllString(m[1], "$1: $2"), variable(from))
	})
	return body, failed
}

func exports(script []byte) (names []string) {
	for _, m := range exported.FindAllSubmatch(script, -1) {
		names = append(names, string(m[2]))
	}
	return names
}

// variable returns the name of a script inside a bundle.
func variable(name string) string {
	return "_" + strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(strings.TrimSuffix(name, ".js"))
}

var (
	styles = regexp.MustCompile(`(?:<link rel="stylesheet" href="[^"]+" />\s*){2,}`)
	style  = regexp.MustCompile(`href="([^"]+)"`)
)

// joinStyles joins the style sheets that follow one another in a page.
func joinStyles(sources map[string][]byte) {
	for name, html := range maps.Clone(sources) {
		if path.Ext(name) != ".html" {
			continue
		}
		sources[name] = styles.ReplaceAllFunc(html, func(links []byte) []byte {
			var all []byte
			for _, m := range style.FindAllSubmatch(links, -1) {
				sheet := sources[path.Join(path.Dir(name), string(m[1]))]
				if sheet == nil {
					return links // one of them is not our own
				}
				all = append(append(all, sheet...), '\n')
			}
			joined := strings.TrimSuffix(name, ".html") + ".css"
			sources[joined] = all
			return fmt.Appendf(nil, `<link rel="stylesheet" href="%s" />`, path.Base(joined))
		})
	}
}
