package telephony

import (
	"net/http"
	"testing"
	"time"
)

// The signatures are those of the providers' own libraries: Twilio's examples, and what Plivo's plivo 4.75.6 for Node makes.
func TestSignaturesOfTheProvidersLibraries(t *testing.T) {
	plivo := &http.Request{Header: http.Header{"X-Plivo-Signature-V3-Nonce": {"12345"}}}
	for _, test := range []struct {
		verify                      func(secret, signature, at string, r *http.Request, body []byte) error
		secret, signature, at, body string
	}{
		{verifyTwilio, "12345", "0/KCTR6DLpKmkAf8muzZqo1nDgQ=", "https://mycompany.com/myapp.php?foo=1&bar=2", "CallSid=CA1234567890ABCDE&Caller=%2B12349013030&Digits=1234&From=%2B12349013030&To=%2B18005551212"},
		{verifyTwilio, "12345", "RSOYDt4T1cUTdK1PDd93/VVr8B8=", "https://mycompany.com/myapp.php?foo=1&bar=2", "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212"},
		{verifyPlivo, "token", "g4p/l+wsXEY/i+ZAqP4Y98hX7Dnbj/zmA7wrrrYrXmw=", "https://voice.example.com/telephony/plivo/answer", "To=%2B4930123&CallUUID=b7-1&From=%2B4917012345"},
		{verifyPlivo, "token", "VU+nA7wDVSuRpFrhCO7tm6sD6jCNQaveS1s/5qvP//c=", "https://voice.example.com/telephony/plivo/answer?b=2&a=1", "To=%2B4930123&CallUUID=b7-1&From=%2B4917012345"},
	} {
		if err := test.verify(test.secret, test.signature, test.at, plivo, []byte(test.body)); err != nil {
			t.Errorf("%s %s: %v", test.at, test.body, err)
		}
		if test.verify(test.secret+"x", test.signature, test.at, plivo, []byte(test.body)) == nil {
			t.Errorf("%s with another secret is as good", test.at)
		}
	}
}

// A ticket is good for its provider, once, and until it expires.
func TestTickets(t *testing.T) {
	twilio, plivo := &Provider{}, &Provider{}
	all := tickets{list: map[string]ticket{}}
	name := all.put("", ticket{provider: twilio})
	if _, ok := all.take(name, plivo); ok {
		t.Error("another provider has it")
	}
	if _, ok := all.take(name, twilio); !ok {
		t.Error("it is not there")
	}
	if _, ok := all.take(name, twilio); ok {
		t.Error("it is there twice")
	}
	name = all.put("", ticket{provider: twilio})
	old := all.list[name]
	if life := time.Until(old.expires); life > ticketLife || life < ticketLife-time.Second {
		t.Errorf("it lives for %v", life)
	}
	old.expires = time.Now().Add(-time.Millisecond)
	all.list[name] = old
	if _, ok := all.take(name, twilio); ok {
		t.Error("it has expired")
	}
	all.list[name] = old
	if all.put("", ticket{}); len(all.list) != 1 {
		t.Errorf("%d are kept", len(all.list))
	}
}
