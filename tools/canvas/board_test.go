package canvas_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"voxgate/tools"
	"voxgate/tools/canvas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sign(url string) string { return "canvas/image?u=" + url }

// args returns the arguments with which a model sends a schema.
func args(schema string) json.RawMessage {
	b, _ := json.Marshal(map[string]string{"schema": schema})
	return b
}

// schemaOf returns the schema in the arguments that a client gets.
func schemaOf(t testing.TB, args json.RawMessage) string {
	t.Helper()
	var a map[string]string
	if err := json.Unmarshal(args, &a); err != nil || len(a) != 1 {
		t.Fatalf("%s: %v", args, err)
	}
	return a["schema"]
}

func put(t testing.TB, b *canvas.Board, name, schema string) (clean string, interactive bool) {
	t.Helper()
	got, interactive, err := b.HandleCall(name, args(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return schemaOf(t, got), interactive
}

func TestDeclarations(t *testing.T) {
	var names []string
	for _, d := range canvas.Declarations() {
		names = append(names, d.Name)
		var parameters struct {
			Type       string
			Required   []string
			Properties struct {
				Schema struct{ Type, Description string }
			}
		}
		if err := json.Unmarshal(d.Parameters, &parameters); err != nil {
			t.Fatal(err)
		}
		if parameters.Type != "object" || !slices.Equal(parameters.Required, []string{"schema"}) ||
			parameters.Properties.Schema.Type != "string" {
			t.Errorf("%s takes %s", d.Name, d.Parameters)
		}
		// The example in the description for the model must be valid.
		_, example, _ := strings.Cut(parameters.Properties.Schema.Description, "e.g., ")
		put(t, canvas.NewBoard(nil), canvas.Create, example)
		if !canvas.IsCanvasTool(d.Name) || !strings.Contains(d.Title, "canvas…") || d.Timeout != tools.PersonTimeout ||
			!strings.Contains(d.Description, "all keys and string values use double quotes") {
			t.Errorf("%+v", d)
		}
	}
	if want := []string{"create_canvas_tool", "append_to_canvas_tool", "show_canvas_tool"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	if canvas.IsCanvasTool("weather") {
		t.Error("weather is no canvas tool")
	}
}

func TestPut(t *testing.T) {
	for _, test := range []struct {
		name, schema, want string
		interactive        bool
	}{
		{
			"seed",
			`{"type":"canvas","elements":[{"type":"text","value":"Some <b>bold</b> and <i>italic</i> text."},
				{"type":"input","label":"Your name","id":"name","hint":"Enter name..."},{"type":"button","label":"Submit","action":"submit"}]}`,
			`{"type":"canvas","elements":[{"type":"text","value":"Some <b>bold</b> and <i>italic</i> text."},` +
				`{"type":"input","id":"name","label":"Your name","hint":"Enter name..."},{"type":"button","label":"Submit","action":"submit"}]}`,
			true,
		},
		{"bare", `{"type":"text","value":"a"}`, `{"type":"canvas","elements":[{"type":"text","value":"a"}]}`, false},
		{"array", ` [{"type":"text","value":""}] `, `{"type":"canvas","elements":[{"type":"text","value":""}]}`, false},
		{"no type", `{"elements":[]}`, `{"type":"canvas","elements":[]}`, false},
		{"version", `{"type":"canvas","v": 1 , "elements":[ ]}`, `{"type":"canvas","v":1,"elements":[]}`, false},
		{
			"null", `{"v":null,"elements":[{"type":"text","id":null,"value":"a"}]}`, `{"type":"canvas","elements":[{"type":"text","value":"a"}]}`,
			false,
		},
		{
			"unknown fields", `{"elements":[{"type":"text","value":"a","onclick":"x()","style":"y","Src":"z"}],"script":1}`,
			`{"type":"canvas","elements":[{"type":"text","value":"a"}]}`, false,
		},
		{
			"fields of others", `{"type":"text","value":"a","src":5,"action":"b","elements":7}`,
			`{"type":"canvas","elements":[{"type":"text","value":"a"}]}`, false,
		},
		{
			"https", `[{"type":"image","src":"https://a.test/b?c&d","alt":"<b>"},{"type":"video","src":"https://a.test","fetch":"javascript:x"}]`,
			`{"type":"canvas","elements":[{"type":"image","src":"https://a.test/b?c&d","fetch":"canvas/image?u=https://a.test/b?c&d","alt":"<b>"},` +
				`{"type":"video","src":"https://a.test","fetch":"canvas/image?u=https://a.test"}]}`, false,
		},
		{
			"data", `[{"type":"image","src":"data:image/png;base64,AA=="},{"type":"audio","src":"data:audio/mpeg;base64,"}]`,
			`{"type":"canvas","elements":[{"type":"image","src":"data:image/png;base64,AA=="},{"type":"audio","src":"data:audio/mpeg;base64,"}]}`,
			false,
		},
		{
			"numbers",
			`[{"type":"input","id":"n","kind":"number","value":9007199254740993,"required":true},` +
				`{"type":"input","id":"m","value":1e999999}]`,
			`{"type":"canvas","elements":[{"type":"input","id":"n","value":"9007199254740993","kind":"number","required":true},` +
				`{"type":"input","id":"m","value":"1e999999"}]}`, true,
		},
		{
			"list", `[{"type":"list","items":["<b>a</b>","<script>b</script>"],"ordered":true},{"type":"list","items":[]}]`,
			`{"type":"canvas","elements":[{"type":"list","items":["<b>a</b>",""],"ordered":true},{"type":"list","items":[]}]}`, false,
		},
		{
			"form", `{"type":"form","id":"f","label":"<F>","elements":[{"type":"input","id":"a"},{"type":"button","label":"Go","action":"go_1"}]}`,
			`{"type":"canvas","elements":[{"type":"form","id":"f","label":"<F>","elements":[{"type":"input","id":"a"},` +
				`{"type":"button","label":"Go","action":"go_1"}]}]}`, true,
		},
		{"empty form", `{"type":"form","elements":[]}`, `{"type":"canvas","elements":[{"type":"form","elements":[]}]}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, interactive := put(t, canvas.NewBoard(sign), canvas.Show, test.schema)
			if got != test.want || interactive != test.interactive {
				t.Errorf("%s, %v\nwant %s", got, interactive, test.want)
			}
			// A schema need not be a string.
			object, _, err := canvas.NewBoard(sign).HandleCall(canvas.Create, json.RawMessage(`{"schema": `+test.schema+`}`))
			if err != nil || schemaOf(t, object) != test.want {
				t.Errorf("%s, %v", object, err)
			}
			question, err := canvas.NewBoard(sign).BuildQuestion(json.RawMessage(test.schema))
			if test.interactive != (err == nil) || err == nil && schemaOf(t, question) != test.want {
				t.Errorf("%s, %v", question, err)
			}
		})
	}
}

func TestPutRefuses(t *testing.T) {
	element := func(fields string) string {
		return `{"elements":[{"type":"text","value":"a"},{"type":` + fields + `}]}`
	}
	for _, test := range []struct{ schema, want string }{
		{
			`{'type':'canvas'}`,
			`schema must be valid JSON with double quotes: invalid character '\'' looking for beginning of object key string, at byte 2`,
		},
		{`{"type":"canvas","elements":[`, "schema must be valid JSON with double quotes: unexpected end of JSON input"},
		{strings.Repeat("[", 100000), "schema must be valid JSON with double quotes: invalid character '[' exceeded max depth"},
		{``, "schema must be valid JSON"},
		{`7`, "schema must be a canvas"},
		{`null`, "schema must be a canvas"},
		{`true`, "schema must be a canvas"},
		{`{}`, "schema.type must be one of text, image"},
		{`{"type":"canvas"}`, "schema.elements must be an array"},
		{`{"type":"canvas","elements":null}`, "schema.elements must be an array"},
		{`{"type":"canvas","elements":{}}`, "schema.elements must be an array"},
		{`{"type":["canvas"]}`, "schema.type must be a string"},
		{`{"v":2,"elements":[]}`, "schema.v must be 1"},
		{`{"v":"1","elements":[]}`, "schema.v must be 1"},
		{`[1]`, "schema[0] must be an element"},
		{`[null]`, "schema[0] must be an element"},
		{element(`"script"`), "schema.elements[1].type must be one of text, image, input, button, list, form, audio, video"},
		{element(`"canvas","elements":[]`), "schema.elements[1].type must be one of"},
		{element(`"text"`), "schema.elements[1].value is missing"},
		{element(`"text","value":5`), "schema.elements[1].value must be a string"},
		{element(`"text","value":"a","id":5`), "schema.elements[1].id must be a string"},
		{element(`"text","value":"a","id":""`), "schema.elements[1].id must be 1 to 64 characters"},
		{element(`"text","value":"a","id":"` + strings.Repeat("é", 65) + `"`), "schema.elements[1].id must be 1 to 64 characters"},
		{element(`"text","value":"a","id":"\u0000"`), "schema.elements[1].id must be 1 to 64 characters"},
		{element(`"input"`), "schema.elements[1].id must be 1 to 64 characters"},
		{element(`"input","id":"action"`), "schema.elements[1].id must not be action"},
		{element(`"input","id":"__proto__"`), "schema.elements[1].id must not be __proto__"},
		{element(`"input","id":"a","kind":"password"`), "schema.elements[1].kind must be one of text, multiline"},
		{element(`"input","id":"a","required":"yes"`), "schema.elements[1].required must be true or false"},
		{element(`"input","id":"a","value":true`), "schema.elements[1].value must be a string"},
		{element(`"input","id":"a"},{"type":"input","id":"a"`), `schema.elements[2].id is "a", which another element`},
		{element(`"input","id":"a"},{"type":"form","elements":[{"type":"input","id":"a"}]`), `schema.elements[2].elements[0].id is "a"`},
		{element(`"button","action":"submit"`), "schema.elements[1].label is missing"},
		{element(`"button","label":"a"`), "schema.elements[1].action must be submit, dismiss or a plain name"},
		{element(`"button","label":"a","action":"javascript:x()"`), "schema.elements[1].action must be submit, dismiss or a plain name"},
		{element(`"button","label":"a","action":"https://a.test"`), "schema.elements[1].action must be submit, dismiss or a plain name"},
		{element(`"list"`), "schema.elements[1].items must be an array of strings"},
		{element(`"list","items":["a",null]`), "schema.elements[1].items must be an array of strings"},
		{element(`"list","items":[],"ordered":1`), "schema.elements[1].ordered must be true or false"},
		{element(`"list","items":[` + strings.Repeat(`"a",`, 200) + `"a"]`), "schema.elements[1].items has 201 entries"},
		{element(`"form"`), "schema.elements[1].elements must be an array"},
		{
			element(`"form","elements":[{"type":"form","elements":[]}]`),
			"schema.elements[1].elements[0].type must be one of text, input, button, list, image, in a form",
		},
		{element(`"form","elements":[{"type":"video","src":"https://a.test"}]`), "schema.elements[1].elements[0].type must be one of"},
		{"[" + strings.Repeat(`{"type":"text","value":""},`, 200) + `{"type":"text","value":""}]`, "schema has 201 elements"},
		{
			"[" + strings.Repeat(`{"type":"text","value":""},`, 100) + `{"type":"form","elements":[` +
				strings.Repeat(`{"type":"text","value":""},`, 99) + `{"type":"text","value":""}]}]`, "the canvas would have 201 elements",
		},
		{`{"type":"text","value":"` + strings.Repeat("a", 256<<10) + `"}`, "the canvas would have 262"},
		{`{"type":"text","value":"` + strings.Repeat("a", 3<<20) + `"}`, "schema has 3"},
	} {
		b := canvas.NewBoard(sign)
		put(t, b, canvas.Create, `{"type":"text","id":"kept","value":"a"}`)
		for _, name := range []string{canvas.Create, canvas.Append} {
			got, _, err := b.HandleCall(name, args(test.schema))
			if err == nil || got != nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%.200s: %.200s, %v\nwant %s", test.schema, got, err, test.want)
			}
		}
	}
	b := canvas.NewBoard(sign)
	for _, bad := range []string{``, `7`, `{}`, `{"schema":null}`, `"x"`, `{"schema":"{}`} {
		if _, _, err := b.HandleCall(canvas.Create, json.RawMessage(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	if _, _, err := b.HandleCall("weather", args(`[]`)); err == nil {
		t.Error("weather is no canvas tool")
	}
}

func TestSources(t *testing.T) {
	b := canvas.NewBoard(sign)
	b.AddReferences(json.RawMessage(`{"photo":"photo:a-1","more":[{"deep":["video:v","audio:a"]}],"other":"photo:b/c","text":"see photo:c"}`))
	b.AddReferences(json.RawMessage(`"image:d`)) // not JSON
	for _, test := range []struct {
		kind, src string
		good      bool
	}{
		{"image", "photo:a-1", true},
		{"video", "video:v", true},
		{"audio", "audio:a", true},
		{"image", "photo:b", false},
		{"image", "photo:b/c", false},
		{"image", "photo:c", false},
		{"image", "image:d", false},
		{"video", "photo:a-1", false},
		{"image", "video:v", false},
		{"image", "https://a.test/b.png", true},
		{"image", "https://münchen.test/ü", true},
		{"image", "http://a.test/b.png", false},
		{"image", "HTTPS://a.test", false},
		{"image", "https://", false},
		{"image", "https://:443/", false},
		{"image", "https:a.test", false},
		{"image", "https://user:secret@a.test/", false},
		{"image", `https://a.test\@b.test/`, false},
		{"image", "https://a.test/\n", false},
		{"image", "https://a.test/a b", false},
		{"image", "https://a.test/" + strings.Repeat("x", 2048), false},
		{"image", "//a.test/b.png", false},
		{"image", "javascript:alert(1)", false},
		{"image", "data:image/svg+xml;base64,AAAA", false},
		{"image", "data:image/png,AAAA", false},
		{"image", "data:image/png;base64,AAA", false},
		{"image", "data:image/png;base64,AA\nAA", false},
		{"image", "data:image/png;base64,AAAA\" onerror=\"x", false},
		{"image", "data:text/html;base64,AAAA", false},
		{"image", "data:audio/mpeg;base64,AAAA", false},
		{"audio", "data:audio/mpeg;base64,AAAA", true},
		{"audio", "data:video/mp4;base64,AAAA", false},
		{"video", "data:video/mp4;base64,AAAA", true},
		{"video", "file:///etc/passwd", false},
		{"video", "blob:https://a.test/1", false},
		{"video", "", false},
	} {
		schema, _ := json.Marshal(map[string]string{"type": test.kind, "src": test.src})
		_, _, err := b.HandleCall(canvas.Create, args(string(schema)))
		if test.good != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "schema.src must be ") {
			t.Errorf("%s %.60q: %v", test.kind, test.src, err)
		}
	}
	for i := range 64 {
		b.AddReferences(json.RawMessage(fmt.Sprintf(`["photo:n%d","photo:n0"]`, i)))
	}
	for src, good := range map[string]bool{"photo:a-1": false, "photo:n0": true, "photo:n1": true, "photo:n63": true} {
		if _, _, err := b.HandleCall(canvas.Create, args(`{"type":"image","src":"`+src+`"}`)); good != (err == nil) {
			t.Errorf("%s: %v", src, err)
		}
	}
}

func TestAppend(t *testing.T) {
	b := canvas.NewBoard(sign)
	if _, _, err := b.HandleCall(canvas.Append, args(`[]`)); err == nil || !strings.Contains(err.Error(), "call create_canvas_tool first") {
		t.Errorf("appended to nothing: %v", err)
	}
	put(t, b, canvas.Create, `[{"type":"input","id":"a"},{"type":"form","id":"f","elements":[{"type":"input","id":"b"}]}]`)
	got, interactive := put(t, b, canvas.Append, `{"type":"text","value":"more"}`)
	if got != `{"type":"canvas","elements":[{"type":"text","value":"more"}]}` || interactive {
		t.Errorf("the client gets %s, %v: not only what is new", got, interactive)
	}
	for _, test := range []struct{ schema, want string }{
		{`{"type":"text","id":"a","value":"replaces"}`, ""},
		{`{"type":"input","id":"a"}`, ""},
		{`{"type":"input","id":"b","label":"in the form"}`, ""},
		{`{"type":"video","id":"b","src":"https://a.test"}`, "schema replaces an element of a form, which cannot have a video"},
		{`{"type":"form","id":"b","elements":[]}`, "schema replaces an element of a form, which cannot have a form"},
		{`{"type":"form","elements":[{"type":"input","id":"a"}]}`, `schema.elements[0].id is "a", which another element`},
		{
			`[{"type":"form","id":"f","elements":[{"type":"input","id":"b"},{"type":"input","id":"c"}]},{"type":"input","id":"c"}]`,
			`schema[1].id is "c"`,
		},
		{`{"type":"form","id":"f","elements":[{"type":"input","id":"b"},{"type":"input","id":"c"}]}`, ""},
		{`{"type":"form","id":"f","elements":[{"type":"input","id":"c"}]}`, ""},
		{`{"type":"input","id":"b","label":"is free again"}`, ""},
	} {
		if _, _, err := b.HandleCall(canvas.Append, args(test.schema)); (err == nil) != (test.want == "") ||
			err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v", test.schema, err)
		}
	}
	put(t, b, canvas.Show, `{"type":"form","elements":[{"type":"input","id":"a"}]}`) // a new canvas does not keep elements of the last one
}

func TestAppendKeepsTheLimits(t *testing.T) {
	b := canvas.NewBoard(sign)
	put(t, b, canvas.Create, `[]`)
	for range 200 {
		put(t, b, canvas.Append, `{"type":"text","value":""}`)
	}
	if _, _, err := b.HandleCall(canvas.Append, args(`{"type":"text","value":""}`)); err == nil {
		t.Error("201 elements")
	}
	put(t, b, canvas.Create, `{"type":"text","id":"a","value":""}`)
	big := strings.Repeat("b", 200<<10)
	put(t, b, canvas.Append, `{"type":"text","id":"a","value":"`+big+`"}`)
	put(t, b, canvas.Append, `{"type":"text","id":"a","value":"`+big+`"}`) // replaces the first text, so the size stays
	if _, _, err := b.HandleCall(canvas.Append, args(`{"type":"text","value":"`+big+`"}`)); err == nil {
		t.Error("400 KB")
	}
	put(t, b, canvas.Append, `{"type":"text","value":"small"}`)
	// The addresses that are added for the client count, too.
	image := `{"type":"image","src":"https://a.test/` + strings.Repeat("i", 1500) + `"}`
	images := "[" + strings.Repeat(image+",", 99) + image + "]"
	put(t, canvas.NewBoard(nil), canvas.Create, images)
	if _, _, err := canvas.NewBoard(sign).HandleCall(canvas.Create, args(images)); err == nil {
		t.Error("300 KB with the addresses")
	}
}

// A regression test: a canvas was rejected because of a dismiss button, which models add although every canvas has one.
func TestDismissButtonIsLeftOut(t *testing.T) {
	b := canvas.NewBoard(nil)
	clean, interactive := put(
		t,
		b,
		canvas.Create,
		`{"type":"canvas","elements":[{"type":"text","value":"Hi"},{"type":"dismiss_button","label":"Hide"},
		{"type":"form","elements":[{"type":"dismiss_button"}]}]}`,
	)
	if clean != `{"type":"canvas","elements":[{"type":"text","value":"Hi"},{"type":"form","elements":[]}]}` || interactive {
		t.Errorf("%s, interactive: %t", clean, interactive)
	}
}

func TestLongTextsAreTruncated(t *testing.T) {
	long := strings.Repeat("ü", 501)
	got, _ := put(t, canvas.NewBoard(nil), canvas.Create, `[{"type":"input","id":"a","label":"`+long+`","hint":"`+long+`","value":"`+long+`"},
		{"type":"image","src":"https://a.test","alt":"`+long+`"}]`)
	if n := strings.Count(got, "ü"); n != 3*500+501 {
		t.Errorf("%d are left", n)
	}
}

func TestQuestionLeavesTheBoard(t *testing.T) {
	b := canvas.NewBoard(nil)
	b.AddReferences(json.RawMessage(`"photo:a"`))
	question := `{"elements":[{"type":"image","src":"photo:a"},{"type":"button","label":"Yes","action":"submit"}]}`
	for _, form := range []json.RawMessage{json.RawMessage(question), []byte(fmt.Sprintf("%q", question))} {
		if got, err := b.BuildQuestion(form); err != nil || !strings.Contains(schemaOf(t, got), `"label":"Yes"`) {
			t.Errorf("%s, %v", got, err)
		}
	}
	if _, _, err := b.HandleCall(canvas.Append, args(`[]`)); err == nil {
		t.Error("a question is no canvas to append to")
	}
	for _, bad := range []string{
		``, `{}`, `[]`, `{"type":"text","value":"nothing to press"}`,
		`[{"type":"input","id":"a"},{"type":"input","id":"a"}]`,
	} {
		if got, err := b.BuildQuestion(json.RawMessage(bad)); err == nil || got != nil {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

func TestConcurrentBoardUse(t *testing.T) {
	b := canvas.NewBoard(sign)
	put(t, b, canvas.Create, `[]`)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			ref := fmt.Sprintf("photo:%d", i)
			b.AddReferences([]byte(`"` + ref + `"`))
			put(t, b, canvas.Append, `{"type":"image","src":"`+ref+`"}`)
			_, _ = b.BuildQuestion(json.RawMessage(`{"type":"input","id":"a"}`))
		})
	}
	all.Wait()
}

// elements returns all elements of a clean canvas.
func elements(t testing.TB, clean string) (all []map[string]any) {
	t.Helper()
	var sheet struct {
		Type     string
		Elements []map[string]any
	}
	if err := json.Unmarshal([]byte(clean), &sheet); err != nil || sheet.Type != "canvas" {
		t.Fatalf("%s: %v", clean, err)
	}
	for _, e := range sheet.Elements {
		all = append(all, e)
		nested, _ := e["elements"].([]any)
		for _, n := range nested {
			all = append(all, n.(map[string]any))
		}
	}
	return all
}

var allowed = strings.Fields(
	"b i u em strong s small sub sup br p h1 h2 h3 h4 ul ol li blockquote code pre span hr table tr td th thead tbody a",
)

// checkHTML parses HTML as a browser does and checks it against the allow-list.
func checkHTML(t testing.TB, text string) {
	t.Helper()
	nodes, err := html.ParseFragment(strings.NewReader(text), &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		switch {
		case n.Type == html.ElementNode && !slices.Contains(allowed, n.Data), n.Type == html.CommentNode, n.Namespace != "":
			t.Errorf("%q has <%s>", text, n.Data)
		case n.Type == html.ElementNode && n.Data != "a" && len(n.Attr) > 0:
			t.Errorf("%q has attributes %v", text, n.Attr)
		}
		for _, a := range n.Attr {
			switch a.Key {
			case "rel", "target":
			case "href":
				if !strings.HasPrefix(a.Val, "https://") && !strings.HasPrefix(a.Val, "mailto:") && !strings.HasPrefix(a.Val, "tel:") {
					t.Errorf("%q links to %q", text, a.Val)
				}
				if strings.HasPrefix(a.Val, "https://") && !strings.Contains(fmt.Sprint(n.Attr), "noopener") {
					t.Errorf("%q opens with an opener", text)
				}
			default:
				t.Errorf("%q has the attribute %s", text, a.Key)
			}
		}
		for c := range n.ChildNodes() {
			walk(c)
		}
	}
	for _, n := range nodes {
		walk(n)
	}
}

// hostile lists malicious HTML, with the harmless HTML that must be left of it.
var hostile = []struct{ html, want string }{
	{`<script>alert(1)</script>`, ``},
	{`<SCRIPT SRC=//evil.test></SCRIPT>a`, `a`},
	{`<scr<script>ipt>alert(1)</scr</script>ipt>`, `ipt&gt;alert(1)ipt&gt;`},
	{`<script>unclosed`, ``},
	{`<img src=x onerror=alert(1)>a`, `a`},
	{`<b onclick="alert(1)" style="position:fixed" class=x id=y>a</b>`, `<b>a</b>`},
	{`<svg onload=alert(1)><script>alert(2)</script></svg>`, ``},
	{`<svg><style><img src=x onerror=alert(1)></style></svg>a`, `a`},
	{`<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">`, `<table>`},
	{`<iframe srcdoc="<script>alert(1)</script>"></iframe>a`, `a`},
	{`<object data="data:text/html;base64,PHNjcmlwdD4="></object><embed src=x><form action=x><input name=y><button>b</button></form>`, `b`},
	{`<a href="javascript:alert(1)">a</a>`, `a`},
	{`<a href="JaVaScRiPt:alert(1)">a</a>`, `a`},
	{`<a href="java&#10;script:alert(1)">a</a>`, `a`},
	{`<a href="&#106;avascript&colon;alert(1)">a</a>`, `a`},
	{"<a href=\"\x01javascript:alert(1)\">a</a>", `a`},
	{`<a href="data:text/html,<script>alert(1)</script>">a</a>`, `a`},
	{`<a href="vbscript:x">a</a><a href="/local">b</a><a href="//a.test">c</a><a href="http://a.test">d</a>`, `abcd`},
	{`<a href="https:a.test">a</a><a href="https://u:p@a.test">b</a>`, `ab`},
	{
		`<a href="https://a.test/?b=1&amp;c" onmouseover=x target=_top rel=opener>a</a>`,
		`<a href="https://a.test/?b=1&amp;c" rel="noreferrer noopener" target="_blank">a</a>`,
	},
	{`<a href="mailto:a@b.test">a</a>`, `<a href="mailto:a@b.test" rel="noreferrer">a</a>`},
	{
		`<a href='https://a.test/"onmouseover="x'>a</a>`,
		`<a href="https://a.test/%22onmouseover=%22x" rel="noreferrer noopener" target="_blank">a</a>`,
	},
	{`<b>unclosed <i`, `<b>unclosed `},
	{`</b></div>closed`, `</b>closed`},
	{`<!-- <b>a</b> --><![CDATA[<b>b</b>]]><?php c ?>`, `b</b>]]&gt;`},
	{`&lt;script&gt;alert(1)&lt;/script&gt;`, `&lt;script&gt;alert(1)&lt;/script&gt;`},
	{`&amp;lt;b&amp;gt; 1 < 2 & 3 > 2 "q" 'r'`, `&amp;lt;b&amp;gt; 1 &lt; 2 &amp; 3 &gt; 2 &#34;q&#34; &#39;r&#39;`},
	{`<base href="https://evil.test"><meta http-equiv=refresh content=0><link rel=stylesheet href=x><style>*{}</style>a`, `a`},
	{`<noscript><p title="</noscript><img src=x onerror=alert(1)>">a`, `&#34;&gt;a`},
	{`<textarea><b></textarea><title><i></title><template><b>c</b></template><xmp><s></xmp>`, `&lt;b&gt;<b>c</b>&lt;s&gt;`},
	{"<p\x00onclick=x>a</p>", `a</p>`},
}

func TestHostileHTML(t *testing.T) {
	for _, test := range hostile {
		schema, _ := json.Marshal([]map[string]any{
			{"type": "text", "value": test.html},
			{"type": "list", "items": []string{test.html}},
			{"type": "form", "elements": []any{map[string]string{"type": "text", "value": test.html}}},
			{"type": "button", "label": "<script>a</script>", "action": "a"},
		})
		clean, _ := put(t, canvas.NewBoard(sign), canvas.Create, string(schema))
		all := elements(t, clean)
		if got := all[0]["value"]; got != test.want {
			t.Errorf("%q became %q, want %q", test.html, got, test.want)
		}
		if items := all[1]["items"].([]any); items[0] != all[0]["value"] || all[3]["value"] != all[0]["value"] {
			t.Errorf("%q is not the same everywhere: %s", test.html, clean)
		}
		checkHTML(t, all[0]["value"].(string))
		if all[4]["label"] != "<script>a</script>" {
			t.Errorf("a label is no HTML, but became %q", all[4]["label"])
		}
	}
}

func FuzzBoard(f *testing.F) {
	for _, test := range hostile {
		schema, _ := json.Marshal([]map[string]any{{"type": "text", "value": test.html}, {"type": "list", "items": []string{test.html}}})
		f.Add(string(schema))
	}
	for _, seed := range []string{
		`{"type":"canvas","v":1,"elements":[{"type":"input","id":"a","value":1e99},{"type":"button","label":"b","action":"c"}]}`,
		`[{"type":"form","elements":[{"type":"input","id":"a"},{"type":"image","src":"https://a.test/b"}]},{"type":"image","src":"photo:p"}]`,
		`{'type':'canvas'}`, `"{\"elements\":[]}"`, "[[[[", `{"elements":[{"type":"video","src":"data:video/mp4;base64,AAAA"}]}`, "\xff{",
		`{"type":"text","value":"\ud800"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		board := func() *canvas.Board {
			b := canvas.NewBoard(sign)
			b.AddReferences(json.RawMessage(`"photo:p"`))
			return b
		}
		b := board()
		_, _, _ = b.HandleCall(canvas.Create, json.RawMessage(schema))
		got, interactive, err := b.HandleCall(canvas.Create, json.RawMessage(args(schema)))
		if err != nil {
			return
		}
		clean := schemaOf(t, got)
		if again, also, err := board().HandleCall(canvas.Create, got); err != nil || string(again) != string(got) || also != interactive {
			t.Fatalf("%s became %s, %v, %v", got, again, also, err)
		}
		all := elements(t, clean)
		if len(all) > canvas.MaxElements || len(clean) > canvas.MaxBytes || !utf8.ValidString(clean) {
			t.Errorf("%d elements, %d bytes", len(all), len(clean))
		}
		for _, e := range all {
			if text, ok := e["value"].(string); ok && e["type"] == "text" {
				checkHTML(t, text)
			}
			items, _ := e["items"].([]any)
			for _, item := range items {
				checkHTML(t, item.(string))
			}
		}
	})
}
