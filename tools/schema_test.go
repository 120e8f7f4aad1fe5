package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"voxgate/tools"
)

func schemaOf(t *testing.T, text string) (*tools.Schema, error) {
	t.Helper()
	tree, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
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
	// Each definition has the one before twice: 2^13 parts in a few lines.
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
		`{"properties":{"a":7}}`:               `something that is no schema`,
		`{"properties":{"a":{"type":"word"}}}`: `type`,
		strings.Repeat(`{"properties":{"a":`, 40) + `{}` + strings.Repeat(`}}`, 40): `nested more than`,
		bomb: `too many parts`,
	} {
		if _, err := schemaOf(t, schema); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", schema, err, want)
		} else if strings.Contains(err.Error(), "file:") {
			t.Errorf("%.80s tells where the gateway runs: %v", schema, err)
		}
	}
}
