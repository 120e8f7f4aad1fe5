package liveconfig

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"voxgate/tools"
)

// parseFunction parses a config with one function. It returns the function's parameters as Google gets them, or nil.
func parseFunction(t testing.TB, field, schema string) (c Config, parameters map[string]any) {
	t.Helper()
	c, err := Parse(json.RawMessage(`{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"f","`+field+`":`+schema+`}]}]}`),
		"c", Scope{})
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	tree, err := tools.Decode(c.Effective())
	if err != nil {
		t.Fatal(err)
	}
	list, _ := tree.(map[string]any)["tools"].([]any)
	for _, tool := range list {
		for _, f := range tool.(map[string]any)["functionDeclarations"].([]any) {
			parameters, _ = f.(map[string]any)["parameters"].(map[string]any)
		}
	}
	return c, parameters
}

// TestSchemasFollowGoogle: for any schema of a property, Google gets a schema that it accepts (sent), and the function is declared. args is
// the value with which the model calls the function, and call the value that the client gets.
func TestSchemasFollowGoogle(t *testing.T) {
	const same = "" // the client gets args unchanged
	for schema, c := range map[string]struct{ sent, args, call string }{
		`{"type":"string"}`:           {`{"type":"STRING"}`, `"x"`, same},
		`{"type":"str"}`:              {`{"type":"STRING"}`, `"x"`, same},
		`{"type":"float"}`:            {`{"type":"NUMBER"}`, `1.5`, same},
		`{"type":"int"}`:              {`{"type":"INTEGER"}`, `1`, same},
		`{"type":"bool"}`:             {`{"type":"BOOLEAN"}`, `true`, same},
		`{"type":"int[]"}`:            {`{"items":{"type":"INTEGER"},"type":"ARRAY"}`, `[1]`, same},
		`{"type":"List[str]"}`:        {`{"items":{"type":"STRING"},"type":"ARRAY"}`, `["a"]`, same},
		`{"type":"string|null"}`:      {`{"nullable":true,"type":"STRING"}`, `null`, same},
		`{"type":["integer","null"]}`: {`{"nullable":true,"type":"INTEGER"}`, `null`, same},
		`"int"`:                       {`{"type":"INTEGER"}`, `1`, same},

		// An object of any kind is JSON as text.
		`{"type":"object"}`: {
			`"A JSON object as text."`, `"{\"x\":1}"`, `{"x":1}`,
		},
		`{"type":"dict"}`: {
			`"A JSON object as text."`, `"{\"x\":1}"`, `{"x":1}`,
		},
		`{"type":"object","properties":{}}`: {
			`A JSON object as text.`, `"{\"x\":[1,{\"y\":null}]}"`, `{"x":[1,{"y":null}]}`,
		},
		`{"type":"object","description":"Filters."}`: {
			`"Filters.\nA JSON object as text."`, `"{}"`, `{}`,
		},
		`{"type":"object","additionalProperties":{"type":"number"}}`: {
			`additionalProperties`, "\"```json\\n{\\\"x\\\":1}\\n```\"", `{"x":1}`,
		},
		`{"type":["object","null"]}`: {
			`"nullable":true,"type":"STRING"`, `null`, same,
		},
		`{"type":"array","items":{"type":"object"}}`: {
			`"items":{"description":"A JSON object as text."`, `["{\"x\":1}",{"y":2}]`, `[{"x":1},{"y":2}]`,
		},
		`{"type":"array","items":{"type":"array","items":{"type":"object"}}}`: {
			`{"items":{"items":{`, `[["{\"x\":1}"]]`, `[[{"x":1}]]`,
		},
		`{"type":"array"}`: {
			`"items":{"description"`, `["a","{\"x\":1}"]`, `["a",{"x":1}]`,
		},
		`{"type":"array","items":true}`:                    {`"items":{"description"`, `["a"]`, same},
		`{"type":"array","items":{}}`:                      {`"items":{"description"`, `["a"]`, same},
		`{"anyOf":[{"type":"string"},{"type":"object"}]}`:  {`"type":"STRING"`, `"{\"x\":1}"`, `{"x":1}`},
		`{"anyOf":[{"type":"integer"},{"type":"object"}]}`: {`"anyOf":[`, `"{\"x\":1}"`, `{"x":1}`},
		`{"oneOf":[{"type":"string"},{"type":"object","properties":{"y":{"type":"object"}}}]}`: {
			`"anyOf":[`, `{"y":"{\"x\":1}"}`, `{"y":{"x":1}}`,
		},
		`{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]}`: {
			`"anyOf":[`, `["{\"x\":1}"]`, `[{"x":1}]`,
		},
		`{"anyOf":[{"type":"object"},{"type":"null"}]}`: {
			`"nullable":true`, `"{\"x\":1}"`, `{"x":1}`,
		},
		`{"type":["string","object"]}`: {
			`"type":"STRING"`, `"x"`, same,
		},
		`{"type":"object","properties":{"y":{"type":"object","properties":{"z":{"type":"object"}}}}}`: {
			`"z":{"description":"A JSON object as text."`, `{"y":{"z":"{\"x\":1}"}}`, `{"y":{"z":{"x":1}}}`,
		},
		`{"type":"object","properties":{"a.b/c":{"type":"object"}}}`: {
			`"a.b/c"`, `{"a.b/c":"{\"x\":1}"}`, `{"a.b/c":{"x":1}}`,
		},
		`{}`:                     {`"type":"STRING"`, `"a"`, same},
		`true`:                   {`"type":"STRING"`, `"{\"x\":1}"`, `{"x":1}`},
		`{"type":"any"}`:         {`"type":"STRING"`, `"12"`, same},
		`{"type":"money"}`:       {`"type":"STRING"`, `"12"`, same},
		`{"type":7}`:             {`"type":"STRING"`, `"12"`, same},
		`{"description":"Any."}`: {`Any.`, `"x"`, same},

		// References.
		`{"$ref":"#/$defs/node"}`: {
			`"next":{"description":"A JSON object as text`, `{"v":1,"next":"{\"v\":2}"}`, `{"v":1,"next":{"v":2}}`,
		},
		`{"$ref":"#/$defs/my_type"}`:     {`"type":"INTEGER"`, `1`, same},
		`{"$ref":"#/$defs/nowhere"}`:     {`"type":"STRING"`, `"x"`, same},
		`{"$ref":"https://a.example/b"}`: {`"type":"STRING"`, `"x"`, same},
		`{"$dynamicRef":"#x"}`:           {`"type":"STRING"`, `"x"`, same},
		`{"$ref":"#/$defs/tree"}`: {
			`"items":{"description":"A JSON object as text`, `{"branches":["{\"branches\":[]}"]}`, `{"branches":[{"branches":[]}]}`,
		},

		// Enumerations and constants.
		`{"enum":["a","b"]}`:                                    {`"enum":["a","b"]`, `"a"`, same},
		`{"type":"string","enum":["a","","a"]}`:                 {`"enum":["a"]`, `"a"`, same},
		`{"type":"string","enum":[""]}`:                         {`{"type":"STRING"}`, `""`, same},
		`{"type":"string","enum":[]}`:                           {`{"type":"STRING"}`, `"a"`, same},
		`{"type":"integer","enum":[1,2]}`:                       {`"One of: 1,2"`, `1`, same},
		`{"enum":[1,2.5]}`:                                      {`"type":"NUMBER"`, `2.5`, same},
		`{"enum":["a",1]}`:                                      {`One of: \"a\",1`, `"a"`, same},
		`{"const":5}`:                                           {`"One of: 5","type":"INTEGER"`, `5`, same},
		`{"const":true}`:                                        {`"type":"BOOLEAN"`, `true`, same},
		`{"const":"x"}`:                                         {`"enum":["x"]`, `"x"`, same},
		`{"enum":{"A":"a"}}`:                                    {`"enum":["a"]`, `"a"`, same},
		`{"anyOf":[{"const":"a"},{"const":"b"}]}`:               {`"anyOf":[`, `"b"`, same},
		`{"anyOf":[{"const":1},{"const":"b"}]}`:                 {`"anyOf":[`, `"b"`, same},
		`{"type":"string","format":"uri"}`:                      {`{"type":"STRING"}`, `"a:b"`, same},
		`{"type":"integer","format":"int64"}`:                   {`"format":"int64"`, `1`, same},
		`{"type":"integer","minimum":"1","maximum":9}`:          {`"minimum":1`, `1`, same},
		`{"type":"string","minLength":"1","maxLength":2.0}`:     {`"maxLength":"2"`, `"a"`, same},
		`{"type":"number","exclusiveMinimum":true,"minimum":0}`: {`{"type":"NUMBER"}`, `1`, same},
		`{"type":"string","minimum":1,"items":{},"properties":{"a":{}},"pattern":"a"}`: {
			`{"pattern":"a","type":"STRING"}`, `"a"`, same,
		},
		`{"type":"null"}`: {`"nullable":true`, `null`, same},
		`{"type":"array","items":[{"type":"string"},{"type":"integer"}]}`: {`"anyOf":[`, `["a",1]`, same},
		`{"type":"array","prefixItems":[{"type":"string"},{"type":"object"}]}`: {
			`"items":{"description"`, `["a","{\"x\":1}"]`, `["a",{"x":1}]`,
		},

		// Objects whose keywords are of the wrong kind.
		`{"type":"object","properties":{"y":{"type":"string","required":true}}}`: {
			`"required":["y"]`, `{"y":"a"}`, same,
		},
		`{"type":"object","properties":{"y":{"type":"string","required":"true"}}}`: {
			`"required":["y"]`, `{"y":"a"}`, same,
		},
		`{"type":"object","properties":{"y":{"type":"string","required":false}},"required":["y"]}`: {
			`"y":{"type":"STRING"}}`, `{}`, same,
		},
		`{"type":"object","properties":{"y":{"type":"string"}},"required":"y"}`: {
			`"required":["y"]`, `{"y":"a"}`, same,
		},
		`{"type":"object","properties":{"y":{"type":"string"}},"required":true}`: {
			`"y":{"type":"STRING"}}`, `{}`, same,
		},
		`{"type":"object","properties":{"y":{"type":"string"}},"required":["y","y"]}`: {
			`"required":["y"]`, `{"y":"a"}`, same,
		},
		`{"type":"object","properties":[{"name":"y","type":"string"}]}`: {
			`"y":{"type":"STRING"}`, `{"y":"a"}`, same,
		},
		`{"properties":{"y":"string"}}`: {
			`"y":{"type":"STRING"}`, `{"y":"a"}`, same,
		},
		`{"type":"object","properties":{"y":{"type":"string"}},"propertyOrdering":["y","z"]}`: {
			`"y":{"type":"STRING"}`, `{"y":"a"}`, same,
		},
		`{"type":"object","properties":{"y":{"type":"string"}},"anyOf":[{"required":["y"]},{"properties":{"z":{"type":"integer"}}}]}`: {
			`"z":{"type":"INTEGER"}`, `{"y":"a"}`, same,
		},
		`{"type":"object","anyOf":[{"type":"object","properties":{"y":{"type":"string"}}},{"type":"object"}]}`: {
			`"anyOf":[`, `{"y":"a"}`, same,
		},
		`{"allOf":[{"$ref":"#/$defs/my_type"},{"description":"How many."}]}`: {
			`"type":"INTEGER"`, `1`, same,
		},
		`{"type":"string","description":["a","b"],"title":7,"nullable":"true"}`: {
			`"nullable":true`, `null`, same,
		},
		`{"anyOf":{"type":"string"}}`: {`"type":"STRING"`, `"a"`, same},
		`{"anyOf":[]}`:                {`"type":"STRING"`, `"a"`, same},
		`{"anyOf":[{"anyOf":[{"type":"integer"},{"type":"object"}]},{"type":"boolean"}]}`: {
			`"type":"BOOLEAN"`, `"{\"x\":1}"`, `{"x":1}`,
		},
	} {
		for _, field := range []string{"parameters", "parametersJsonSchema"} {
			whole := `{"type":"object","properties":{"a":` + schema + `},"$defs":{"my_type":{"type":"integer"},` +
				`"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/node"}}},` +
				`"tree":{"type":"object","properties":{"branches":{"type":"array","items":{"$ref":"#/$defs/tree"}}}}}}`
			config, sent := parseFunction(t, field, whole)
			f, declared := config.Functions.Find("f")
			if !declared || sent == nil {
				t.Errorf("%s: the function is not there: %q", schema, config.Warnings)
				continue
			}
			if err := checkSchema(sent, "f"); err != nil || strings.Contains(strings.Join(config.Warnings, " "), "as it is") {
				t.Errorf("%s: Google gets %s: %v, %q", schema, tools.EncodeOrEmpty(sent), err, config.Warnings)
			}
			if text := string(tools.EncodeOrEmpty(sent)); !strings.Contains(text, c.sent) {
				t.Errorf("%s: Google gets %s, want %s", schema, text, c.sent)
			}
			want := c.call
			if want == same {
				want = c.args
			}
			args := f.Arguments(json.RawMessage(`{"a":` + c.args + `}`))
			if tree, _ := tools.Decode([]byte(`{"a":` + want + `}`)); string(tools.EncodeOrEmpty(tree)) != string(reencode(t, args)) {
				t.Errorf("%s: the client gets %s, want %s", schema, args, want)
			}
			if err := f.Check(args); err != nil {
				t.Errorf("%s: %s is refused: %v", schema, args, err)
			}
		}
	}
}

func reencode(t *testing.T, raw json.RawMessage) json.RawMessage {
	t.Helper()
	tree, err := tools.Decode(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return tools.EncodeOrEmpty(tree)
}

// TestTextThatIsNoJSON: if the model writes a text without JSON in place of an object, the call is rejected with a reason.
func TestTextThatIsNoJSON(t *testing.T) {
	c, _ := parseFunction(t, "parameters", `{"type":"object","properties":{"a":{"type":"object"}},"required":["a"]}`)
	f, _ := c.Functions.Find("f")
	for _, args := range []string{`{"a":"{\"x\":"}`, `{"a":"hello"}`, `{"a":""}`, `{"a":"{} and more"}`} {
		read := f.Arguments(json.RawMessage(args))
		if err := f.Check(read); err == nil || !strings.Contains(err.Error(), "args.a: got string, want object") {
			t.Errorf("%s is %s: %v", args, read, err)
		}
	}
	for _, args := range []string{``, `null`, `[]`, `{`, `{"b":"{}"}`} {
		if got := string(f.Arguments(json.RawMessage(args))); got != args {
			t.Errorf("%s became %s", args, got)
		}
	}
}

// TestRulesRefuse: the check of schemas to be sent refuses what Google refuses.
func TestRulesRefuse(t *testing.T) {
	for _, s := range []string{
		`{}`, `{"type":"string"}`, `{"type":"NULL"}`, `{"type":"OBJECT"}`, `{"type":"OBJECT","properties":{}}`, `{"type":"ARRAY"}`,
		`{"type":"ARRAY","items":{}}`, `{"type":"STRING","enum":[]}`, `{"type":"STRING","enum":[""]}`, `{"type":"STRING","enum":[1]}`,
		`{"type":"INTEGER","enum":["1"]}`, `{"type":"STRING","format":"uri"}`, `{"type":"STRING","additionalProperties":false}`,
		`{"anyOf":[]}`, `{"anyOf":[{}]}`, `{"type":"STRING","anyOf":[{"type":"STRING"}]}`, `{"anyOf":[{"type":"OBJECT"}]}`,
		`{"type":"OBJECT","properties":{"a":{"type":"STRING"}},"required":["b"]}`, `{"type":"STRING","properties":{"a":{"type":"STRING"}}}`,
		`{"type":"OBJECT","properties":{"a":{"type":"STRING"}},"required":["a","a"]}`, `{"type":"STRING","minLength":-1}`,
		`{"type":"NUMBER","minimum":"1"}`, `{"type":"STRING","description":7}`, `{"type":"STRING","$ref":"#"}`,
		`{"type":["STRING"]}`, `{"type":"OBJECT","properties":{"a":{"type":"STRING"}},"propertyOrdering":["b"]}`,
	} {
		tree, err := tools.Decode([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		if checkSchema(tree.(map[string]any), "s") == nil {
			t.Errorf("%s is taken", s)
		}
	}
}

// TestAnySchemaFollowsGoogle builds schemas of random keywords and values. Each is declared in a form that Google
// accepts, at once.
func TestAnySchemaFollowsGoogle(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 42))
	for range 3000 {
		schema := string(tools.EncodeOrEmpty(map[string]any{
			"type": "object", "properties": map[string]any{"a": randomSchema(random, 3), "b": randomSchema(random, 3)},
			"required": []any{"a"}, "$defs": map[string]any{"x": randomSchema(random, 2)},
		}))
		c, sent := parseFunction(t, "parameters", schema)
		if _, declared := c.Functions.Find("f"); !declared {
			t.Errorf("%s: the function is not there: %q", schema, c.Warnings)
			continue
		}
		if strings.Contains(strings.Join(c.Warnings, " "), "as it is") {
			t.Errorf("%s: the translation was put right by the check: %q", schema, c.Warnings)
		}
		if err := checkSchema(sent, "f"); err != nil {
			t.Errorf("%s: Google gets %s: %v", schema, tools.EncodeOrEmpty(sent), err)
		}
	}
}

func randomSchema(random *rand.Rand, depth int) any {
	one := func(values ...any) any { return values[random.IntN(len(values))] }
	below := func() any {
		if depth == 0 {
			return one(map[string]any{}, map[string]any{"type": "string"}, true, map[string]any{"$ref": "#/$defs/x"})
		}
		return randomSchema(random, depth-1)
	}
	list := func() (l []any) {
		for range random.IntN(4) {
			l = append(l, below())
		}
		return l
	}
	s := map[string]any{}
	for range 1 + random.IntN(4) {
		switch random.IntN(12) {
		case 0, 1, 2, 3:
			s["type"] = one("string", "STRING", "integer", "number", "boolean", "array", "object", "null", "any", "float", "dict", "list", 7, "",
				[]any{"string", "null"}, []any{"object", "string"}, []any{"array", "object", "null"}, []any{}, map[string]any{"type": "string"})
		case 4:
			s["properties"] = one(map[string]any{"p": below(), "q": below()}, map[string]any{}, nil, []any{}, "x")
			s["required"] = one([]any{"p"}, []any{"p", "z"}, true, "q", map[string]any{"p": true}, []any{7})
		case 5:
			s["items"] = one(below(), list(), true, false, nil, "string")
		case 6:
			s[one("anyOf", "oneOf", "allOf").(string)] = one(list(), []any{below(), below()}, below())
		case 7:
			s["enum"] = one([]any{"a", ""}, []any{1, 2}, []any{nil}, []any{}, "a", []any{"a", 1, nil}, []any{true}, map[string]any{"a": "b"})
		case 8:
			s["const"] = one("a", 1, 1.5, nil, true, map[string]any{"a": 1}, []any{1})
		case 9:
			s[one("minimum", "minLength", "maxItems", "minProperties", "exclusiveMaximum", "multipleOf").(string)] = one(1, "2", 1.5, -1, true, nil)
		case 10:
			s[one("additionalProperties", "not", "if", "patternProperties", "prefixItems", "contains").(string)] = one(below(), list(), true, false)
		case 11:
			s[one("format", "pattern", "title", "description", "nullable", "propertyOrdering", "default", "$ref").(string)] = one(
				"date-time", "int32", 7, true, []any{"p"}, "#/$defs/x", "#", "#/$defs/none")
		}
	}
	return s
}

// TestFunctionNames: a name that Google refuses is replaced by a valid, unique one, and the model's calls reach the
// declared function.
func TestFunctionNames(t *testing.T) {
	long := strings.Repeat("long_", 20)
	names := []string{
		"plain", "a.b", "a_b", "a/b", "a b", "7th", "größe", "天気", "天候", long + "1", long + "2", strings.Repeat("x", 64),
		"-dash", "a:b", "f.g()",
		"mcp__server__tool", " a", strings.Repeat("ü", 200),
	}
	var list []map[string]string
	for _, name := range names {
		list = append(list, map[string]string{"name": name})
	}
	c, err := Parse(tools.EncodeOrEmpty(map[string]any{"tools": []any{map[string]any{"functionDeclarations": list}}}), "c", Scope{})
	if err != nil || len(c.Functions) != len(names) {
		t.Fatalf("%d of %d functions: %v", len(c.Functions), len(names), err)
	}
	seen := map[string]bool{}
	for i, name := range names {
		f, ok := c.Functions.Find(name)
		if !ok || c.Functions[i].Name != name {
			t.Errorf("%q is not there", name)
		}
		if !wireName.MatchString(f.WireName) || seen[f.WireName] ||
			!strings.Contains(string(c.Effective()), fmt.Sprintf(`"name":%q`, f.WireName)) {
			t.Errorf("%q goes up as %q", name, f.WireName)
		}
		if seen[f.WireName] = true; wireName.MatchString(name) && name != f.WireName && name != "a_b" {
			t.Errorf("%q goes up as %q", name, f.WireName)
		}
		for _, called := range []string{f.WireName, "default_api:" + f.WireName, "default_api." + f.WireName} {
			if g, ok := c.Functions.FindCalled(called); !ok || g.Name != name {
				t.Errorf("%q calls %q, want %q", called, g.Name, name)
			}
		}
	}
	if g, _ := c.Functions.FindCalled("7th"); g.Name != "7th" {
		t.Errorf("7th calls %q", g.Name)
	}
	if g, ok := c.Functions.FindCalled("default_api"); ok {
		t.Errorf("default_api calls %q", g.Name)
	}
}
