package phone_test

import (
	"fmt"
	"strings"
	"testing"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// Attributes are bounded, and the model gets only those that its agent lists.
func TestAttributes(t *testing.T) {
	long := strings.Repeat("x", 9000)
	var a phone.Attributes
	for _, field := range [][2]string{
		{"X-Order", "17"}, {"x-ORDER", "18"}, {"X-Lines", "one\r\n\ttwo"}, {"X-Bytes", "a\xffb"}, {"X-Long", long}, {"", "no name"}, {long, "?"},
	} {
		a.Add(field[0], field[1])
	}
	want := map[string]string{"x-order": "17, 18", "x-lines": "one two", "x-bytes": "ab"}
	for name, value := range want {
		if a[name] != value {
			t.Errorf("%s is %q, not %q", name, a[name], value)
		}
	}
	if len(a) != 5 || len(a["x-long"]) > 303 {
		t.Errorf("%d attributes, %d bytes", len(a), len(a["x-long"]))
	}
	for i := range 100 {
		a.Add(fmt.Sprint("n", i), "")
	}
	if len(a) != 32 {
		t.Errorf("%d attributes", len(a))
	}

	var open bridge.SessionRequest
	phone.ConfigureSession(&open, &agents.Agent{Attributes: []string{"x-ord*"}}, phone.Party{Number: "+49", Attributes: a})
	if !strings.HasSuffix(open.PromptSuffix, `{"number":"+49","attributes":{"x-order":"17, 18"}}`) {
		t.Errorf("%q", open.PromptSuffix)
	}
	if phone.ConfigureSession(&open, &agents.Agent{}, phone.Party{Attributes: a}); !strings.HasSuffix(open.PromptSuffix, "\n{}") {
		t.Errorf("%q", open.PromptSuffix)
	}
}
