package mediastream

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The signatures come from the providers' own libraries: Twilio's examples, and the output of Plivo's plivo 4.75.6 for Node.
func TestSignaturesOfTheProvidersLibraries(t *testing.T) {
	plivo := &http.Request{Header: http.Header{"X-Plivo-Signature-V3-Nonce": {"12345"}}}
	for _, test := range []struct {
		verify                      func(secret, signature, at string, r *http.Request, body []byte) error
		secret, signature, at, body string
	}{
		{
			verifyTwilio, "12345", "0/KCTR6DLpKmkAf8muzZqo1nDgQ=",
			"https://mycompany.com/myapp.php?foo=1&bar=2",
			"CallSid=CA1234567890ABCDE&Caller=%2B12349013030&Digits=1234&From=%2B12349013030&To=%2B18005551212",
		},
		{
			verifyTwilio, "12345", "RSOYDt4T1cUTdK1PDd93/VVr8B8=",
			"https://mycompany.com/myapp.php?foo=1&bar=2",
			"CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212",
		},
		{
			verifyPlivo, "token", "g4p/l+wsXEY/i+ZAqP4Y98hX7Dnbj/zmA7wrrrYrXmw=",
			"https://voice.example.com/telephony/plivo/answer",
			"To=%2B4930123&CallUUID=b7-1&From=%2B4917012345",
		},
		{
			verifyPlivo, "token", "VU+nA7wDVSuRpFrhCO7tm6sD6jCNQaveS1s/5qvP//c=",
			"https://voice.example.com/telephony/plivo/answer?b=2&a=1",
			"To=%2B4930123&CallUUID=b7-1&From=%2B4917012345",
		},
	} {
		if err := test.verify(test.secret, test.signature, test.at, plivo, []byte(test.body)); err != nil {
			t.Errorf("%s %s: %v", test.at, test.body, err)
		}
		if test.verify(test.secret+"x", test.signature, test.at, plivo, []byte(test.body)) == nil {
			t.Errorf("%s with another secret is as good", test.at)
		}
	}
}

// The signature is from the example in Genesys' documentation.
func TestSignatureOfAudioHook(t *testing.T) {
	t.Parallel()
	const secret = "TXlTdXBlclNlY3JldEtleVRlbGxOby0xITJAMyM0JDU="
	r := httptest.NewRequest("GET", "/api/v1/voicebiometrics/ws", nil)
	r.Host = "audiohook.example.com"
	for name, value := range map[string]string{
		"Audiohook-Organization-Id": "d7934305-0972-4844-938e-9060eef73d05",
		"Audiohook-Session-Id":      "30b0e395-84d3-4570-ac13-9a62d8f514c0",
		"Audiohook-Correlation-Id":  "e160e428-53e2-487c-977d-96989bf5c99d",
		"X-API-KEY":                 "SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh",
		"Signature":                 "sig1=:NZBwyBHRRyRoeLqy1IzOa9VYBuI8TgMFt2GRDkDuJh4=:",
		"Signature-Input": `sig1=("@request-target" "@authority" "audiohook-organization-id" "audiohook-session-id" "audiohook-correlation-id" ` +
			`"x-api-key");keyid="SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh";nonce="VGhpc0lzQVVuaXF1ZU5vbmNl";alg="hmac-sha256";` +
			`created=1641013200;expires=3282026430`,
	} {
		r.Header.Set(name, value)
	}
	now := time.Unix(1641013205, 0)
	if err := verifyAudioHook(secret, "", r, now); err != nil {
		t.Error(err)
	}
	if err := verifyAudioHook(secret, "https://audiohook.example.com", r, now); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string]func(r *http.Request) (secret, public string, now time.Time){
		"another secret": func(*http.Request) (string, string, time.Time) { return "AAAA", "", now },
		"another host":   func(*http.Request) (string, string, time.Time) { return secret, "https://voice.example.com", now },
		"a minute later": func(*http.Request) (string, string, time.Time) { return secret, "", now.Add(time.Minute) },
		"another session": func(r *http.Request) (string, string, time.Time) {
			r.Header.Set("Audiohook-Session-Id", "1")
			return secret, "", now
		},
		"another key": func(r *http.Request) (string, string, time.Time) {
			r.Header.Set("X-API-KEY", "1")
			return secret, "", now
		},
		"fewer parts": func(r *http.Request) (string, string, time.Time) {
			r.Header.Set("Signature-Input", strings.Replace(r.Header.Get("Signature-Input"), ` "audiohook-session-id"`, "", 1))
			return secret, "", now
		},
		"no signature": func(r *http.Request) (string, string, time.Time) { r.Header.Del("Signature"); return secret, "", now },
		"no input": func(r *http.Request) (string, string, time.Time) {
			r.Header.Del("Signature-Input")
			return secret, "", now
		},
	} {
		other := r.Clone(t.Context())
		secret, public, now := wrong(other)
		if verifyAudioHook(secret, public, other, now) == nil {
			t.Errorf("%s is as good", name)
		}
	}
}

// A ticket is valid for its provider, once, and until it expires.
func TestTickets(t *testing.T) {
	twilio, plivo := &Provider{}, &Provider{}
	all := tickets{pending: map[string]ticket{}}
	name := all.issue(ticket{provider: twilio})
	if _, ok := all.redeem(name, plivo); ok {
		t.Error("another provider has it")
	}
	if _, ok := all.redeem(name, twilio); !ok {
		t.Error("it is not there")
	}
	if _, ok := all.redeem(name, twilio); ok {
		t.Error("it is there twice")
	}
	name = all.issue(ticket{provider: twilio})
	old := all.pending[name]
	if life := time.Until(old.expires); life > ticketLifetime || life < ticketLifetime-time.Second {
		t.Errorf("it lives for %v", life)
	}
	old.expires = time.Now().Add(-time.Millisecond)
	all.pending[name] = old
	if _, ok := all.redeem(name, twilio); ok {
		t.Error("it has expired")
	}
	all.pending[name] = old
	if all.issue(ticket{}); len(all.pending) != 1 {
		t.Errorf("%d are kept", len(all.pending))
	}
}
