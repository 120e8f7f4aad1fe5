package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/tools"
)

func schemaOf(t *testing.T, text string) (*tools.Schema, error) {
	t.Helper()
	tree, err := tools.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tools.ParseSchema(tree, nil)
}

func TestCheck(t *testing.T) {
	const person = `{"type":"object","properties":{"name":{"type":"string","minLength":1},"age":{"type":"integer","minimum":0},
		"tags":{"type":"array","items":{"enum":["a","b"]}}},"required":["name"]}`
	const google = `{"type":"OBJECT","properties":{"name":{"type":"STRING"},"age":{"type":"INTEGER","nullable":true},
		"tags":{"type":"ARRAY","min_items":"1","items":{"type":"STRING","enum":["a","b"]}}},"required":["name"]}`
	const refers = `{"type":"object","properties":{"to":{"$ref":"#/$defs/place"}},"$defs":{"place":{"type":"object",
		"properties":{"city":{"$ref":"#/$defs/word","description":"Where"}},"required":["city"]},"word":{"type":"string"}}}`
	for _, test := range []struct{ schema, args, want string }{
		{person, `{"name":"Ada","age":36}`, ``},
		{person, `{"name":"Ada","more":1}`, ``},
		{person, `{}`, `args: missing property 'name'`},
		{person, ``, `missing property 'name'`},
		{person, `{"name":7}`, `args.name: got number, want string`},
		{person, `{"name":"Ada","age":1.5}`, `args.age: got number, want integer`},
		{person, `{"name":"Ada","age":9007199254740993}`, ``},
		{person, `{"name":"Ada","tags":["c"]}`, `args.tags.0: value must be one of 'a', 'b'`},
		{person, `{"name":"","age":-1}`, `args.age: minimum`},
		{person, `{"name":`, `not valid JSON`},
		{google, `{"name":"Ada","age":null,"tags":["a"]}`, ``},
		{google, `{"name":"Ada","tags":[]}`, `args.tags: minItems: got 0, want 1`},
		{google, `{"name":null}`, `args.name: got null, want string`},
		{refers, `{"to":{"city":"Bern"}}`, ``},
		{refers, `{"to":{"city":1}}`, `args.to.city: got number, want string`},
		{`{"properties":{"a":{"type":"string","pattern":"^(?!x)"}}}`, `{"a":"x"}`, ``},
		{`{"patternProperties":{"^(?!x)":{"type":"number"}},"additionalProperties":false}`, `{"a":"x"}`, ``},
		{`{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{}`, `missing property`},
		{`{"additionalProperties":false}`, `{"a":1}`, `additional properties 'a' not allowed`},
		{`null`, `{"anything":1}`, ``},
		{`null`, `[]`, `args: got array, want object`},
	} {
		schema, err := schemaOf(t, test.schema)
		if err != nil {
			t.Errorf("%s: %v", test.schema, err)
			continue
		}
		err = schema.Check(json.RawMessage(test.args))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %s is %v, want %q", test.schema, test.args, err, test.want)
		}
	}
}

func TestSchemaRefused(t *testing.T) {
	// Each definition refers to the previous one twice: a few lines expand to 2^13 parts.
	bomb := `{"properties":{"a":{"$ref":"#/$defs/d12"}},"$defs":{"d0":{"type":"string"}`
	for i := range 12 {
		bomb += fmt.Sprintf(`,"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
	}
	bomb += `}}`
	for schema, want := range map[string]string{
		`[]`:                                `must be an object`,
		`true`:                              `must be an object`,
		`{"type":"array"}`:                  `are an object and not of type array`,
		`{"properties":{"a":{"$ref":"#"}}}`: `refers to itself by "#"`,
		`{"properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}}}`: `refers to itself by "#/$defs/n"`,
		`{"properties":{"a":{"$ref":"https://example.com/s.json"}}}`:                                           `which is not part of it`,
		`{"properties":{"a":{"$ref":"#/$defs/nowhere"}}}`:                                                      `which is not there`,
		`{"properties":{"a":7}}`:               `a value that is not a schema`,
		`{"properties":{"a":{"type":"word"}}}`: `type`,
		strings.Repeat(`{"properties":{"a":`, 40) + `{}` + strings.Repeat(`}}`, 40): `nested more than`,
		bomb: `too many parts`,
	} {
		if _, err := schemaOf(t, schema); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", schema, err, want)
		} else if strings.Contains(err.Error(), "file:") {
			t.Errorf("%.80s reveals where the gateway runs: %v", schema, err)
		}
	}
}

// A regression test: an untrusted declaration of a few kilobytes took seconds of CPU time, because the limits counted nodes
// and not the cost of a node. The library handles 1e-999999 as a number with a million digits (big.Rat), and multipleOf
// divides by it. A repeated a{0,900} is a program of a million steps for regexp.
//
// A config may have 1 MB with hundreds of functions, and UPDATE_CONFIG is parsed in the session's loop. So any client could
// cause minutes of CPU time per message.
func TestSchemasAreCheap(t *testing.T) {
	var numbers strings.Builder
	for i := range 20 {
		fmt.Fprintf(&numbers, `"p%d":{"type":"number","minimum":1e-999999,"maximum":1e999999,"multipleOf":1e-999999},`, i)
	}
	var patterns strings.Builder
	for i := range 50 {
		fmt.Fprintf(&patterns, `"p%d":{"pattern":"%s"},`, i, strings.Repeat("a{0,900}", 63))
	}
	for name, text := range map[string]string{
		"patterns": `{"properties":{` + strings.TrimSuffix(patterns.String(), ",") + `}}`,
		"keys":     `{"patternProperties":{"` + strings.Repeat("a{0,900}", 900) + `":{}}}`,
		"numbers":  `{"properties":{` + strings.TrimSuffix(numbers.String(), ",") + `}}`,
		"pattern":  `{"properties":{"a":{"pattern":"` + strings.Repeat("a{0,900}", 900) + `"}}}`,
	} {
		began := mediatest.CPUTime(t)
		_, err := schemaOf(t, text)
		if took := mediatest.CPUTime(t) - began; took > 2*time.Second { // without the limits it takes longer
			t.Errorf("%s: %d bytes took %v (%v)", name, len(text), took, err)
		}
	}
}

// A regression test: keywords beside a $ref replaced those of the referenced schema, so a tool could get arguments that its
// declaration forbids. In JSON Schema (2020-12) both apply: the lists "required", for example, add up.
func TestKeywordsBesideReference(t *testing.T) {
	for _, test := range []struct{ schema, args string }{
		{
			`{"$defs":{"a":{"type":"object","required":["y"]}},
				"type":"object","properties":{"v":{"$ref":"#/$defs/a","required":["x"]}}}`,
			`{"v":{"x":1}}`,
		},
		{
			`{"$defs":{"a":{"type":"object","properties":{"y":{"type":"string"}}}},
				"type":"object","properties":{"v":{"$ref":"#/$defs/a","properties":{"x":{"type":"string"}}}}}`,
			`{"v":{"y":1}}`,
		},
		{
			`{"$defs":{"a":{"type":"string","maxLength":3}},
				"type":"object","properties":{"v":{"$ref":"#/$defs/a","maxLength":100}}}`,
			`{"v":"much too long"}`,
		},
	} {
		s, err := schemaOf(t, test.schema)
		if err != nil {
			t.Fatal(err)
		}
		if s.Check(json.RawMessage(test.args)) == nil {
			t.Errorf("%s takes %s", test.schema, test.args)
		}
	}
}

// A regression test: additionalItems of a tuple in the form of draft 7 was not converted to items of 2020-12. So a tuple
// accepted more items than its schema allows.
func TestDraft7Tuples(t *testing.T) {
	s, err := schemaOf(
		t,
		`{"$schema":"http://json-schema.org/draft-07/schema#",
			"type":"object","properties":{"t":{"type":"array","items":[{"type":"string"}],"additionalItems":false}}}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	if s.Check(json.RawMessage(`{"t":["a",1,2]}`)) == nil {
		t.Error("takes three items")
	}
}

// FuzzSchema: an untrusted schema causes no panic and takes little time, and so does the check of arguments with it.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"type":["string","null"],"minLength":"1"}},"required":["a"]}`,
		`{"type":"OBJECT","properties":{"a":{"anyOf":[{"type":"STRING"},{"$ref":"#/$defs/x"}]}},"$defs":{"x":{"const":1}}}`,
		`{"minimum":"abc"}`, `{"min_items":"","maxFoo":"x","nullable":true,"enum":["a"]}`,
		`{"properties":{"a":{"multipleOf":1e-3,"minimum":1e99}}}`,
		`{"dependencies":{"a":{"$ref":"#"}},"if":true,"then":false}`, `{"$ref":"#"}`, `{"$ref":"#x"}`, `{"type":[]}`, `{"pattern":"(?=a)"}`,
		`{"prefixItems":[{}],"unevaluatedProperties":false,"$vocabulary":{},"$recursiveRef":"#"}`,
	} {
		f.Add([]byte(s), []byte(`{"a":"b"}`))
		f.Add([]byte(s), []byte(`{"a":1e400}`))
	}
	f.Fuzz(func(t *testing.T, raw, args []byte) {
		v, err := tools.Decode(raw)
		if err != nil {
			return
		}
		began := mediatest.CPUTime(t)
		s, err := tools.ParseSchema(v, nil)
		if err == nil {
			_ = s.Check(args)
		}
		if took := mediatest.CPUTime(t) - began; took > 2*time.Second {
			t.Fatalf("%s took %v", raw, took)
		}
	})
}
