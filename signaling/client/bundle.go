package client

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Bundles maps the path of a script to the scripts that are delivered in the same file. A script must come after those
// that it imports. Each script keeps its own address, where a small file re-exports it from the bundle.
type Bundles map[string][]string

var (
	importLine    = regexp.MustCompile(`(?m)^import (?:\{([^}]*)\} from )?'(\.[^']+)';$`)
	exportLine    = regexp.MustCompile(`(?m)^export ((?:async )?(?:function\*?|class|const) (\w+))`)
	mutableExport = regexp.MustCompile(`(?m)^export let\b`)
	moduleKeyword = regexp.MustCompile(`(?m)^(import|export)\b`)
	renamedImport = regexp.MustCompile(`(\w+) as (\w+)`)
	importedName  = regexp.MustCompile(`(\w+)\s*(?:,|\}| from )`) // a name in an import line
)

// bundler joins scripts that follow the style of this project: each import or export begins at the start of a line and
// lists names. It does not parse JavaScript in general.
type bundler struct {
	sources  map[string][]byte // by path; replaced by bundleScripts at its end
	bundleOf map[string]string // path of the bundle, by path of a bundled script
}

// bundleScripts joins the scripts of each bundle, and makes all other scripts import from the bundles. It fails if it
// cannot parse a script, or if a script imports one that comes later in the bundle.
func (b Bundles) bundleScripts(sources map[string][]byte) error {
	r := &bundler{sources, map[string]string{}}
	for into, members := range b {
		for _, name := range members {
			r.bundleOf[name] = into
		}
	}
	for name, script := range sources {
		if len(b) > 0 && path.Ext(name) == ".js" && mutableExport.Match(script) {
			return fmt.Errorf("%s: a bundle cannot export a variable that changes (export let)", name)
		}
	}
	joined := map[string][]byte{}
	for name := range sources {
		if path.Ext(name) != ".js" || r.bundleOf[name] != "" {
			continue
		}
		text, err := r.joinScripts(name, b[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		joined[name] = text
	}
	for name, into := range r.bundleOf {
		if sources[name] == nil || sources[into] == nil || path.Dir(name) != path.Dir(into) {
			return fmt.Errorf("%s: the bundle and its scripts must exist and lie in the same folder: %s", into, name)
		}
		joined[name] = fmt.Appendf(nil, "import {%s} from './%s';\nexport const {%s} = %[1]s;\n",
			scriptVariable(name), path.Base(into), strings.Join(exportedNames(sources[name]), ", "))
	}
	maps.Copy(sources, joined)
	return nil
}

// joinScripts returns the text of a bundle: the scripts `members`, and then the script `target`. The bundle exports the
// names that target exports. It also exports an object for each member, under the member's scriptVariable.
func (b *bundler) joinScripts(target string, members []string) ([]byte, error) {
	var text strings.Builder
	importLines := map[string]bool{} // import lines for scripts outside the bundle
	var before []string
	for _, name := range members {
		body, err := b.stripImports(name, target, before, importLines)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		names := exportedNames(b.sources[name])
		body = exportLine.ReplaceAllString(body, "$1")
		if odd := moduleKeyword.FindStringIndex(body); odd != nil {
			return nil, fmt.Errorf("%s: unsupported statement in a bundled script: %.60q", name, body[odd[0]:])
		}
		fmt.Fprintf(&text, "const %s = (() => {\n%s\nreturn {%s};\n})();\n", scriptVariable(name), body, strings.Join(names, ", "))
		before = append(before, name)
	}
	body, err := b.stripImports(target, target, before, importLines)
	if err == nil {
		err = checkDuplicateImports(importLines)
	}
	if err != nil {
		return nil, err
	}
	text.WriteString(body)
	if len(members) > 0 {
		all := make([]string, len(members))
		for i, name := range members {
			all[i] = scriptVariable(name)
		}
		fmt.Fprintf(&text, "\nexport {%s};\n", strings.Join(all, ", "))
	}
	return []byte(strings.Join(slices.Sorted(maps.Keys(importLines)), "\n") + "\n" + text.String()), nil
}

// checkDuplicateImports returns an error if a name is imported from two places, because browsers reject such a script.
func checkDuplicateImports(importLines map[string]bool) error {
	from := map[string]string{}
	for line := range importLines {
		for _, m := range importedName.FindAllStringSubmatch(line, -1) {
			if other := from[m[1]]; other != "" {
				return fmt.Errorf("it imports %s twice: %s %s", m[1], other, line)
			}
			from[m[1]] = line
		}
	}
	return nil
}

// stripImports returns the text of the script `name`, with constants instead of imports. It adds import lines to
// importLines that the bundle `target` needs at its beginning. before lists the scripts that precede this script in the
// bundle.
func (b *bundler) stripImports(name, target string, before []string, importLines map[string]bool) (string, error) {
	var failed error
	body := importLine.ReplaceAllStringFunc(string(b.sources[name]), func(line string) string {
		m := importLine.FindStringSubmatch(line)
		from := path.Join(path.Dir(name), m[2])
		bundle := b.bundleOf[from]
		switch {
		case bundle == target && slices.Contains(before, from):
		case bundle == target || from == target:
			failed = fmt.Errorf("it imports %s, which comes after it", from)
		case bundle != "":
			folder := strings.TrimSuffix(m[2], path.Base(from))
			importLines[fmt.Sprintf("import {%s} from '%s%s';", scriptVariable(from), folder, path.Base(bundle))] = true
		case name == target || m[1] == "":
			importLines[line] = true
			return ""
		default:
			importLines[fmt.Sprintf("import * as %s from '%s';", scriptVariable(from), m[2])] = true
		}
		return fmt.Sprintf("const {%s} = %s;", renamedImport.ReplaceAllString(m[1], "$1: $2"), scriptVariable(from))
	})
	return body, failed
}

func exportedNames(script []byte) (names []string) {
	for _, m := range exportLine.FindAllSubmatch(script, -1) {
		names = append(names, string(m[2]))
	}
	return names
}

// scriptVariable returns the name of the constant that holds a script's exports inside a bundle.
func scriptVariable(name string) string {
	return "_" + strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(strings.TrimSuffix(name, ".js"))
}

var (
	styleLinks = regexp.MustCompile(`(?:<link rel="stylesheet" href="[^"]+" />\s*){2,}`)
	styleHref  = regexp.MustCompile(`href="([^"]+)"`)
)

// joinStyles joins consecutive style sheets of each page into one file with the name of the page.
func joinStyles(sources map[string][]byte) {
	for name, html := range maps.Clone(sources) {
		if path.Ext(name) != ".html" {
			continue
		}
		sources[name] = styleLinks.ReplaceAllFunc(html, func(links []byte) []byte {
			var all []byte
			for _, m := range styleHref.FindAllSubmatch(links, -1) {
				sheet := sources[path.Join(path.Dir(name), string(m[1]))]
				if sheet == nil {
					return links // one of the style sheets is not a file of this site
				}
				all = append(append(all, sheet...), '\n')
			}
			joined := strings.TrimSuffix(name, ".html") + ".css"
			sources[joined] = all
			return fmt.Appendf(nil, `<link rel="stylesheet" href="%s" />`, path.Base(joined))
		})
	}
}
