package setup_test

import (
	"strings"
	"testing"

	"voxgate/bridge/gemini/setup"
)

// declared parses a config with one function and returns the tools that Google is told of.
func declared(t *testing.T, parameters string) (told string, c setup.Config) {
	t.Helper()
	c, err := setup.Parse([]byte(`{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"f","parameters":`+parameters+`}]}]}`),
		"c", setup.Scope{Screen: true})
	if err != nil {
		t.Fatal(err)
	}
	_, told, _ = strings.Cut(string(c.Effective()), `"tools":`)
	return told, c
}

// Was wrong: googles() makes a json.Number of any string in a field whose name begins with min or max, fit takes
// "NaN" and "Inf" for numbers (ParseFloat does), the meta schema does not complain (a bad json.Number is no number for it), and
// mustMarshal panics. Config.Effective is called by the session's loop (dial, setupComplete), which is a goroutine of its own:
// any client that may connect ends the whole gateway with one CONNECT_GEMINI or UPDATE_CONFIG. A schema of a webhook or an MCP
// server does the same in every conversation.
func TestNumbersThatAreNone(t *testing.T) {
	for _, number := range []string{"NaN", "Inf", "-Infinity", "0x1p-2", "1_000"} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("minimum %q: panic: %v", number, p)
				}
			}()
			declared(t, `{"type":"object","properties":{"a":{"type":"number","minimum":"`+number+`"}}}`)
		}()
	}
}

// Was wrong: a function whose arguments are alternatives (oneOf or anyOf at the root: what zod makes of a discriminated union), or a map
// (additionalProperties), is declared without any parameters, without a warning: parameters() looks at properties alone. The
// model calls it with {} for ever and is told each time that something is missing which it was never told of. The issue wants
// "what cannot be expressed refuses that tool by name".
func TestAlternativesAtTheRoot(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","oneOf":[{"properties":{"id":{"type":"string"}},"required":["id"]},{"properties":{"name":{"type":"string"}},"required":["name"]}]}`,
		`{"type":"object","additionalProperties":{"type":"string"},"minProperties":1}`,
	} {
		told, c := declared(t, schema)
		f, declared := c.Functions.Find("f")
		if declared && !strings.Contains(told, "parameters") && f.Check([]byte(`{}`)) != nil && len(c.Warnings) == 0 {
			t.Errorf("%s: Google is told %s, and the only call it can make is refused: %v", schema, told, f.Check([]byte(`{}`)))
		}
	}
}

// WRONG: `true` and a missing items become a STRING because "a property must say what it is", but {} and {"title":…}, which say the
// same and are what pydantic (FastMCP) makes of Any and list, are passed on without a type, and so are the alternatives that
// schemaRequired has emptied. Google's documentation has type as required (https://ai.google.dev/api/caching#Schema); Vertex AI
// answers "schema didn't specify the schema type field", which costs the session and not the tool.
func TestEverySchemaHasAType(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{}}}`,
		`{"type":"object","properties":{"a":{"title":"Value"}}}`,
		`{"type":"object","properties":{"a":{"type":"array","items":{}}}}`,
		`{"type":"object","properties":{"a":{"const":5}}}`,
		`{"type":"object","properties":{"a":{"properties":{"b":{"type":"string"}}}}}`,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
	} {
		told, _ := declared(t, schema)
		for _, bad := range []string{`"a":{}`, `"items":{}`, `"a":{"title":"Value"}`, `"a":{"properties":{"b":{"type":"STRING"}}}`, `"anyOf":[{},{}]`} {
			if strings.Contains(told, bad) {
				t.Errorf("%s: Google is told %s", schema, told)
			}
		}
	}
}

// Was wrong: nullable beside anyOf (how Google's SDKs say Optional[Union]) is deleted by googles(): the model is not told, and a null is
// refused by Check although the declaration allows it.
func TestNullableBesideAlternatives(t *testing.T) {
	told, c := declared(t, `{"type":"OBJECT","properties":{"a":{"nullable":true,"anyOf":[{"type":"STRING"},{"type":"INTEGER"}]}}}`)
	f, _ := c.Functions.Find("f")
	if err := f.Check([]byte(`{"a":null}`)); err != nil || !strings.Contains(told, "nullable") && !strings.Contains(told, "NULL") {
		t.Errorf("null is allowed; Google is told %s; %v", told, err)
	}
}

// Was wrong: an enumeration whose only strings are empty becomes "enum":[]: nothing at all is allowed.
func TestEmptyEnumeration(t *testing.T) {
	if told, _ := declared(t, `{"type":"object","properties":{"a":{"type":"string","enum":["",null]}}}`); strings.Contains(told, `"enum":[]`) {
		t.Errorf("Google is told %s", told)
	}
}

// Was wrong: an enumeration with null among strings loses it: the type becomes STRING and not nullable.
func TestEnumerationWithNull(t *testing.T) {
	told, c := declared(t, `{"type":"object","properties":{"a":{"enum":["x",null]}},"required":["a"]}`)
	f, _ := c.Functions.Find("f")
	if f.Check([]byte(`{"a":null}`)) == nil && !strings.Contains(told, "nullable") {
		t.Errorf("Google is told %s", told)
	}
}

// What the model cannot be told of is left out, or leaves its function out if it cannot be called without.
func TestObjectsOfAnyKind(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"object"},"b":{"type":"string"}}}`:                                                                                      `[{"functionDeclarations":[{"name":"f","parameters":{"properties":{"b":{"type":"STRING"}},"type":"OBJECT"}}]}]`,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","additionalProperties":{"type":"string"}}},"b":{"type":"integer","format":"uint32"}}}`: `[{"functionDeclarations":[{"name":"f","parameters":{"properties":{"b":{"type":"INTEGER"}},"type":"OBJECT"}}]}]`,
		`{"type":"object","properties":{"a":{"type":"object"},"b":{"type":"string"}},"required":["a"]}`:                                                                     ``,
		`{"type":"object","properties":{"b":{"type":"number","format":"double"}}}`:                                                                                          `[{"functionDeclarations":[{"name":"f","parameters":{"properties":{"b":{"format":"double","type":"NUMBER"}},"type":"OBJECT"}}]}]`,
	} {
		told, c := declared(t, schema)
		if want == "" && len(c.Functions) > 0 || strings.TrimSuffix(told, "}") != want {
			t.Errorf("%s: Google is told %s, %q", schema, told, c.Warnings)
		}
		if f, ok := c.Functions.Find("f"); ok && f.Check([]byte(`{"a":{"any":"thing"}}`)) != nil && strings.Contains(schema, `"a":{"type":"object"}`) {
			t.Errorf("%s: what was declared is refused", schema)
		}
	}
}
