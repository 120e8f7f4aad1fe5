package tools_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/tools"
)

func schemaFrom(t *testing.T, text string) (*tools.Schema, error) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return tools.ParseSchema(v, nil)
}

// Was wrong: a declaration of a stranger's few kilobytes takes seconds of a core: the parser's bounds count nodes, not what a node costs.
// 1e-999999 is a number of a million digits for the library (big.Rat), and multipleOf divides by it; a{0,900} repeated is a
// program of a million steps for regexp. A config may have 1 MB, hundreds of functions, and UPDATE_CONFIG parses in the session's
// loop: minutes of a core per message, for anybody who may connect.
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
		start := time.Now()
		_, err := schemaFrom(t, text)
		if took := time.Since(start); took > 2*time.Second { // on a busy machine; without a bound, more
			t.Errorf("%s: %d bytes took %v (%v)", name, len(text), took, err)
		}
	}
}

// Was wrong: what stands beside a $ref replaces what the reference says, where JSON Schema (2020-12) wants both to hold: "required"
// beside a reference takes the required fields of the referenced schema away, "properties" its properties. So arguments that the
// declaration forbids reach the tool, although the original is "kept for validation".
func TestBesideAReference(t *testing.T) {
	for text, args := range map[string]string{
		`{"$defs":{"a":{"type":"object","required":["y"]}},"type":"object","properties":{"v":{"$ref":"#/$defs/a","required":["x"]}}}`:                                         `{"v":{"x":1}}`,
		`{"$defs":{"a":{"type":"object","properties":{"y":{"type":"string"}}}},"type":"object","properties":{"v":{"$ref":"#/$defs/a","properties":{"x":{"type":"string"}}}}}`: `{"v":{"y":1}}`,
		`{"$defs":{"a":{"type":"string","maxLength":3}},"type":"object","properties":{"v":{"$ref":"#/$defs/a","maxLength":100}}}`:                                             `{"v":"much too long"}`,
	} {
		s, err := schemaFrom(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if s.Check(json.RawMessage(args)) == nil {
			t.Errorf("%s takes %s", text, args)
		}
	}
}

// Was wrong: additionalItems of a tuple in the old form is left as it is, but 2020-12 calls it items: a tuple that allows two takes ten.
func TestTuplesOfTheOldForm(t *testing.T) {
	s, err := schemaFrom(t, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"t":{"type":"array","items":[{"type":"string"}],"additionalItems":false}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if s.Check(json.RawMessage(`{"t":["a",1,2]}`)) == nil {
		t.Error("takes three items")
	}
}
