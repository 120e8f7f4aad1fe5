package liveconfig

import (
	"errors"
	"testing"

	"voxgate/tools"
)

// TestFit writes values of each kind in the forms that Google's JSON reader accepts
// (https://protobuf.dev/programming-guides/json/), and in some invalid ones. The result is the one form that is sent.
func TestFit(t *testing.T) {
	const refused = ""
	for _, test := range []struct{ kind, in, want string }{
		{"bytes", `"-_-_"`, `"+/+/"`},
		{"bytes", `"+/+/"`, `"+/+/"`},
		{"bytes", `"AA"`, `"AA=="`},
		{"bytes", `"AA=="`, `"AA=="`},
		{"bytes", `"_w"`, `"/w=="`},
		{"bytes", `"AAAA\r\nAAAA\n"`, `"AAAAAAAA"`},
		{"bytes", `" AA\tAA "`, `"AAAA"`},
		{"bytes", `""`, `""`},
		{"bytes", `"A"`, refused},
		{"bytes", `"AA!A"`, refused},
		{"bytes", `7`, refused},
		{"bytes", `["AAAA"]`, refused},
		{"string", `"a"`, `"a"`},
		{"string", `12.50`, `"12.50"`},
		{"string", `{"a":1}`, refused},
		{"bool", `true`, `true`},
		{"bool", `"false"`, `false`},
		{"bool", `"perhaps"`, refused},
		{"int32", `"7"`, `7`},
		{"int32", `7.0`, `7`},
		{"int32", `1e2`, `100`},
		{"int32", `7.5`, refused},
		{"int32", `2147483648`, refused},
		{"int64", `7`, `"7"`},
		{"int64", `"9223372036854775807"`, `"9223372036854775807"`},
		{"int64", `9223372036854775808`, refused},
		{"int64", `1e999999999`, refused},
		{"float32", `"0.5"`, `0.5`},
		{"float32", `1e999`, refused},
		{"float32", `"high"`, refused},
		{"EndSensitivity", `"end-sensitivity-low"`, `"END_SENSITIVITY_LOW"`},
		{"EndSensitivity", `1`, `"END_SENSITIVITY_HIGH"`},
		{"EndSensitivity", `0`, `null`},
		{"EndSensitivity", `"END_SENSITIVITY_UNSPECIFIED"`, `null`},
		{"EndSensitivity", `3`, refused},
		{"EndSensitivity", `-1`, refused},
		{"EndSensitivity", `["END_SENSITIVITY_LOW"]`, refused},
		{"[]string", `"a"`, `["a"]`},
		{"[]string", `["a",1]`, `["a","1"]`},
		{"[]string", `[null]`, refused},
		{"[]string", `{}`, refused},
		{"[]Part", `{"text":"a"}`, `[{"text":"a"}]`},
		{"[]Part", `"a"`, refused},
		{"map[string]", `{"a":1,"b":null}`, `{"a":"1"}`},
		{"map[string]", `["a"]`, refused},
		{"Blob", `{"mime_type":"image/png","data":"_w"}`, `{"data":"/w==","mimeType":"image/png"}`},
		{"Blob", `{"mimeType":null}`, `{}`},
		{"Blob", `[{"data":"AAAA"}]`, refused},
		{"Content", `{"parts":{"inline_data":{"data":"AA"}}}`, `{"parts":[{"inlineData":{"data":"AA=="}}]}`},
	} {
		value, err := tools.Decode([]byte(test.in))
		if err != nil {
			t.Fatal(err)
		}
		var w warnings
		fitted, err := w.fitValue(value, test.kind, "c.x")
		if _, isField := errors.AsType[*FieldError](err); test.want == refused {
			if !isField {
				t.Errorf("%s %s: %v, %v; want a *FieldError", test.kind, test.in, fitted, err)
			}
			continue
		}
		if got := string(tools.EncodeOrEmpty(fitted)); err != nil || got != test.want {
			t.Errorf("%s %s: %s, %v; want %s", test.kind, test.in, got, err, test.want)
		}
	}
}
