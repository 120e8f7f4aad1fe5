package emulator

import (
	"encoding/json"
	"strings"
	"testing"

	"voxgate/tools"
)

// TestSmallestValueOfSchema: the smallest value of a schema is valid for an independent validator; an infinite schema
// has none.
func TestSmallestValueOfSchema(t *testing.T) {
	for schema, want := range map[string]string{
		``: `{}`, `null`: `{}`, `{}`: `{}`,
		`{"type":"object"}`: `{}`,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["b"]}`:   `{"b":0}`,
		`{"type":"object","properties":{"a":{"type":"string"}}}`:                                           `{"a":""}`,
		`{"type":["null","boolean"]}`:                                                                      `false`,
		`{"enum":["x","y"]}`:                                                                               `"x"`,
		`{"const":7}`:                                                                                      `7`,
		`{"type":"array","items":{"type":"number","minimum":2.5},"minItems":2}`:                            `[2.5,2.5]`,
		`{"type":"array","items":{"type":"string"}}`:                                                       `[]`,
		`{"type":"integer","exclusiveMinimum":3}`:                                                          `4`,
		`{"type":"integer","maximum":-3}`:                                                                  `-3`,
		`{"type":"string","minLength":3}`:                                                                  `"xxx"`,
		`{"type":"string","format":"date"}`:                                                                `"2026-01-01"`,
		`{"anyOf":[{"type":"null"},{"type":"boolean"}]}`:                                                   `false`,
		`{"$ref":"#/$defs/n","$defs":{"n":{"type":"integer","minimum":1}}}`:                                `1`,
		`{"allOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},{"required":["b"]}]}`: `{"a":1,"b":null}`,
		`{"$ref":"#"}`: `{}`,
		`{"type":"array","minItems":1e9,"items":{"type":"string"}}`: `{}`,
	} {
		got := buildSmallestValue(json.RawMessage(schema))
		if got != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
		if strings.Contains(schema, "$ref") || strings.Contains(schema, "1e9") || len(schema) < 5 {
			continue // these point to their root, have no small instance, or are no schema
		}
		decoded, err := tools.Decode([]byte(`{"type":"object","properties":{"v":` + schema + `},"required":["v"]}`)) // its schemas are of objects
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := tools.ParseSchema(decoded, nil)
		if err == nil {
			err = parsed.CheckValue(json.RawMessage(`{"v":`+got+`}`), "value")
		}
		if err != nil {
			t.Errorf("%s does not fit %s: %v", got, schema, err)
		}
	}
	// Google's own spelling.
	google := `{"type":"OBJECT","required":["n","tags"],"properties":{"n":{"type":"INTEGER","nullable":true},` +
		`"tags":{"type":"ARRAY","minItems":"1","items":{"type":"STRING"}}}}`
	if got := buildSmallestValue(json.RawMessage(google)); got != `{"n":0,"tags":[""]}` {
		t.Errorf("Google's Schema: %s", got)
	}
}
