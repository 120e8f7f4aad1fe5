package tools_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"voxgate/tools"
)

// FuschemaFrom: no schema of a stranger panics or takes long, and neither do arguments checked by it.
func FuschemaFrom(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"type":["string","null"],"minLength":"1"}},"required":["a"]}`,
		`{"type":"OBJECT","properties":{"a":{"anyOf":[{"type":"STRING"},{"$ref":"#/$defs/x"}]}},"$defs":{"x":{"const":1}}}`,
		`{"minimum":"abc"}`, `{"min_items":"","maxFoo":"x","nullable":true,"enum":["a"]}`, `{"properties":{"a":{"multipleOf":1e-3,"minimum":1e99}}}`,
		`{"dependencies":{"a":{"$ref":"#"}},"if":true,"then":false}`, `{"$ref":"#"}`, `{"$ref":"#x"}`, `{"type":[]}`, `{"pattern":"(?=a)"}`,
		`{"prefixItems":[{}],"unevaluatedProperties":false,"$vocabulary":{},"$recursiveRef":"#"}`,
	} {
		f.Add([]byte(s), []byte(`{"a":"b"}`))
		f.Add([]byte(s), []byte(`{"a":1e400}`))
	}
	f.Fuzz(func(t *testing.T, raw, args []byte) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return
		}
		start := time.Now()
		s, err := tools.ParseSchema(v, nil)
		if err == nil {
			_ = s.Check(args)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Fatalf("%s took %v", raw, d)
		}
	})
}
