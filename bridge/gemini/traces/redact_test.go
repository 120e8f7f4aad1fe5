package traces_test

import (
	"testing"

	"voxgate/bridge/gemini/traces"
)

// Secrets are replaced, and everything else is unchanged. The same secret always gets the same replacement.
func TestRedactor(t *testing.T) {
	r := traces.Redactor{Numbers: true}
	for _, test := range []struct{ message, want string }{
		{`{"newHandle":"abc"}`, `{"newHandle":"<newHandle 1>"}`},
		{`{"handle":"abc","sessionId":"def"}`, `{"handle":"<newHandle 1>","sessionId":"<sessionId 2>"}`},
		{`{"data":"AAA="}`, `{"data":"AAA="}`},
		{`{"data":"AAAAAAAA"}`, `{"data":"<8 chars>"}`},
		{`{"text":"key AIzaSyA1234567890abc, token ya29.abc-d"}`, `{"text":"key <key>, token <key>"}`},
		{`{"model":"projects/mine/locations/eu/models/m"}`, `{"model":"projects/P/locations/L/models/m"}`},
		{`{"error":"projects/mine/quota of 123456789012"}`, `{"error":"projects/P/locations/L/quota of <number>"}`},
		{`{"promptTokenCount":1234567}`, `{"promptTokenCount":1234567}`},
		{`not JSON`, `"<8 bytes that are not JSON>"`},
	} {
		if got := string(r.RedactMessage([]byte(test.message))); got != test.want {
			t.Errorf("%s became %s, want %s", test.message, got, test.want)
		}
	}
	if got := (&traces.Redactor{}).RedactText("call_741485"); got != "call_741485" {
		t.Errorf("the id of a call became %s", got)
	}
}
