package liveconfig_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"voxgate/bridge/gemini/liveconfig"
)

// declared parses a config with one function and returns the tools that Google gets.
func declared(t *testing.T, parameters string) (seen string, c liveconfig.Config) {
	t.Helper()
	config := `{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"f","parameters":` + parameters + `}]}]}`
	c, err := liveconfig.Parse([]byte(config), "c", liveconfig.Scope{Screen: true})
	if err != nil {
		t.Fatal(err)
	}
	_, seen, _ = strings.Cut(string(c.Effective()), `"tools":`)
	return seen, c
}

// TestInvalidNumbers: an invalid number once ended the gateway with a panic.
func TestInvalidNumbers(t *testing.T) {
	for _, number := range []string{"NaN", "Inf", "-Infinity", "0x1p-2", "1_000"} {
		declared(t, `{"type":"object","properties":{"a":{"type":"number","minimum":"`+number+`"}}}`)
	}
}

// TestAlternativesAtTheRoot: such a function was once declared without parameters, so that all calls of the model
// failed.
func TestAlternativesAtTheRoot(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","oneOf":[{"properties":{"id":{"type":"string"}},"required":["id"]},` +
			`{"properties":{"name":{"type":"string"}},"required":["name"]}]}`,
		`{"type":"object","additionalProperties":{"type":"string"},"minProperties":1}`,
	} {
		seen, c := declared(t, schema)
		f, declared := c.Functions.Find("f")
		if declared && !strings.Contains(seen, "parameters") && f.Check([]byte(`{}`)) != nil && len(c.Warnings) == 0 {
			t.Errorf("%s: Google gets %s, and the only call it can make is refused: %v", schema, seen, f.Check([]byte(`{}`)))
		}
	}
}

// Google wants a type (https://ai.google.dev/api/caching#Schema): "schema didn't specify the schema type field" costs the session. These
// are what pydantic (FastMCP) makes of Any and list, and others like them.
func TestEverySchemaHasAType(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{}}}`,
		`{"type":"object","properties":{"a":{"title":"Value"}}}`,
		`{"type":"object","properties":{"a":{"type":"array","items":{}}}}`,
		`{"type":"object","properties":{"a":{"const":5}}}`,
		`{"type":"object","properties":{"a":{"properties":{"b":{"type":"string"}}}}}`,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
	} {
		seen, _ := declared(t, schema)
		for _, bad := range []string{
			`"a":{}`, `"items":{}`, `"a":{"title":"Value"}`, `"a":{"properties":{"b":{"type":"STRING"}}}`,
			`"anyOf":[{},{}]`,
		} {
			if strings.Contains(seen, bad) {
				t.Errorf("%s: Google gets %s", schema, seen)
			}
		}
	}
}

// TestNullableBesideAlternatives: nullable next to anyOf, by which Google's SDKs express Optional[Union], was once
// lost.
func TestNullableBesideAlternatives(t *testing.T) {
	seen, c := declared(t, `{"type":"OBJECT","properties":{"a":{"nullable":true,"anyOf":[{"type":"STRING"},{"type":"INTEGER"}]}}}`)
	f, _ := c.Functions.Find("f")
	if err := f.Check([]byte(`{"a":null}`)); err != nil || !strings.Contains(seen, "nullable") && !strings.Contains(seen, "NULL") {
		t.Errorf("null is allowed; Google gets %s; %v", seen, err)
	}
}

// TestEnumerations: an empty enumeration once allowed nothing, and one with null among strings lost it.
func TestEnumerations(t *testing.T) {
	if seen, _ := declared(t, `{"type":"object","properties":{"a":{"type":"string","enum":["",null]}}}`); strings.Contains(seen, `"enum":[]`) {
		t.Errorf("Google gets %s", seen)
	}
	seen, c := declared(t, `{"type":"object","properties":{"a":{"enum":["x",null]}},"required":["a"]}`)
	if f, _ := c.Functions.Find("f"); f.Check([]byte(`{"a":null}`)) != nil || !strings.Contains(seen, "nullable") {
		t.Errorf("Google gets %s", seen)
	}
}

// TestExpandingSchemasAreBounded: the size of each schema with its references was once bounded, but not the number of
// schemas: 800 KB of them took 48 s of a core and 14 GB of allocations. A hundred are enough to show it.
func TestExpandingSchemasAreBounded(t *testing.T) {
	var list []string
	for i := range 100 {
		// 12 * 12 * 12 = 1728 parts
		refs := func(n int, to string) string {
			var b []string
			for k := range n {
				b = append(b, fmt.Sprintf(`"%c":{"$ref":"#/$defs/%s"}`, 'a'+k, to))
			}
			return `{"type":"object","properties":{` + strings.Join(b, ",") + `}}`
		}
		list = append(list, fmt.Sprintf(`{"name":"f%d","parameters":{"type":"object","$defs":{"x":%s,"y":%s},"properties":{"a":%s}}}`, i,
			strings.Replace(refs(10, "y"), "{}", "", 1), `{"type":"object","properties":{`+leaves(12)+`}}`, refs(12, "x")))
	}
	config := `{"tools":[{"functionDeclarations":[` + strings.Join(list, ",") + `]}]}`
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c, err := liveconfig.Parse([]byte(config), "c", liveconfig.Scope{Screen: true})
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	allocated := after.TotalAlloc - before.TotalAlloc // says what it costs on a busy machine, too
	if allocated > 200<<20 || kept > 50<<20 {
		t.Errorf(
			"%d KB allocated %d MB and keep %d MB (%d functions, %v, %d)",
			len(config)>>10,
			allocated>>20,
			kept>>20,
			len(c.Functions),
			err,
			len(c.Warnings),
		)
	}
	runtime.KeepAlive(c)
}

// TestALargeConfigIsCheap: a config of 330 KB, the declarations of many MCP servers, once took 140 ms of a core and 38
// MB of allocations, since every schema was compiled although few functions are ever called.
func TestALargeConfigIsCheap(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := liveconfig.Parse(largeConfig(300), "c", liveconfig.Scope{Screen: true})
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || len(c.Functions) != 300 || allocated > 15<<20 {
		t.Errorf("%d functions allocated %d MB (%v)", len(c.Functions), allocated>>20, err)
	}
	f := c.Functions[0]
	if f.Check([]byte(`{"city":"Rome","days":1}`)) != nil || f.Check([]byte(`{"city":"Rome","days":0}`)) == nil {
		t.Error("the arguments of a call are not checked")
	}
	var many []string
	for i := range 513 {
		many = append(many, fmt.Sprintf(`{"name":"f%d"}`, i))
	}
	if _, err := liveconfig.Parse([]byte(`{"tools":[{"functionDeclarations":[`+strings.Join(many, ",")+`]}]}`), "c",
		liveconfig.Scope{Screen: true}); err == nil ||
		!strings.Contains(err.Error(), "functionDeclarations[512] is one too many") {
		t.Errorf("513 functions: %v", err)
	}
}

func leaves(n int) string {
	var b []string
	for k := range n {
		b = append(b, fmt.Sprintf(`"%c":{}`, 'a'+k))
	}
	return strings.Join(b, ",")
}

// largeConfig declares n functions of 1.3 KB.
func largeConfig(n int) []byte {
	about := strings.Repeat("What this is about, said at some length. ", 5)
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"name":"f%d","description":%q,"parametersJsonSchema":{"type":"object","properties":{
			"city":{"type":"string","description":%q},"days":{"type":"integer","minimum":1},"unit":{"enum":["C","F"]},
			"tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]+$"}},
			"to":{"type":"object","required":["street"],
				"properties":{"street":{"type":"string","description":%q},"number":{"type":["integer","null"]}}}
			},"required":["city"],"additionalProperties":false}}`, i, about, about, about))
	}
	return []byte(`{"tools":[{"functionDeclarations":[` + strings.Join(list, ",") + `]}]}`)
}
