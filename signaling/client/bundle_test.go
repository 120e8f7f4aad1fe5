package client_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"voxgate/signaling/client"
)

// Scripts are bundled, and an import of one of them gets the same instance. The browser tests check that they still
// work.
func TestBundles(t *testing.T) {
	get := func(t *testing.T, bundles client.Bundles, scripts map[string]string, name string) (string, error) {
		files := fstest.MapFS{}
		for name, text := range scripts {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		site, err := client.ReadSite(bundles, files)
		if err != nil {
			return "", err
		}
		w := httptest.NewRecorder()
		site.Handler(client.Status{}, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/"+name, nil))
		return w.Body.String(), nil
	}
	scripts := map[string]string{
		"main.js": "import { a as b } from './part.js';\n" +
			"import { c } from './alone.js';\n" +
			"import { d } from './other.js';\n" +
			"export const e = b + c + d;",
		"part.js":  "import { c } from './alone.js';\nexport const a = c;\nexport function f() {}",
		"alone.js": "export const c = 1;",
		"other.js": "export const d = 1;",
		"side.js":  "import { d } from './deep.js';\nimport './alone.js';\nd();",
		"deep.js":  "export class d {}",
	}
	for name, want := range map[string]string{
		"main.js": `import*as _alone from"./alone.js";import{c}from"./alone.js";import{d}from"./other.js";` +
			`const _part=(()=>{const{c:e}=_alone,t=e;function n(){}return{a:t,f:n}})(),{a:b}=_part;` +
			`export const e=b+c+d;export{_part}`,
		"part.js":  `import{_part}from"./main.js";export const{a,f}=_part`,
		"side.js":  `import"./alone.js";import{_deep}from"./other.js";const{d}=_deep;d()`,
		"alone.js": `export const c=1`,
	} {
		if got, err := get(t, client.Bundles{"main.js": {"part.js"}, "other.js": {"deep.js"}}, scripts, name); err != nil || got != want {
			t.Errorf("%s: %v\n%s\nwanted\n%s", name, err, got, want)
		}
	}
	for wrong, scripts := range map[string]map[string]string{
		"comes after it":        {"part.js": "import { e } from './main.js';"},
		"unsupported statement": {"part.js": "export default 1;"},
		"export let":            {"part.js": "export let a = 1;"},
		"in the same folder":    {"main.js": "export const a = 1;"},
		`script: "import x fro`: {"part.js": "import x from './main.js';"},
		"it imports c twice": {
			"part.js": "export const a = 1;", "main.js": "import { b, c } from './x.js';\nimport { d as c } from './y.js';",
		},
	} {
		if scripts["main.js"] == "" {
			scripts["main.js"] = "export const e = 1;"
		}
		if _, err := get(t, client.Bundles{"main.js": {"part.js"}}, scripts, "main.js"); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: %v, and not that %s", scripts, err, wrong)
		}
	}
}

// Consecutive style sheets of a page are joined.
func TestStylesAreJoined(t *testing.T) {
	site, err := client.ReadSite(nil, fstest.MapFS{
		"a.css": {Data: []byte("a{color:red}")}, "x/b.css": {Data: []byte("b{color:red}")},
		"x/index.html": {Data: []byte("<html >\n<link rel=\"stylesheet\" href=\"../a.css\" />\n<link rel=\"stylesheet\" href=\"b.css\" />\n<p>")},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	site.Handler(client.Status{}, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/x/index.css", nil))
	if got := w.Body.String(); got != "a{color:red}b{color:red}" {
		t.Errorf("%q", got)
	}
}
