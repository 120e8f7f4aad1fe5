package mediastream_test

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/signaling/phone/mediastream"
)

// expectRefusal checks that a WebSocket is refused before the upgrade, and by which rule: the log has the rule once more than before.
func (g *testGateway) expectRefusal(rule, at string, header http.Header) {
	g.t.Helper()
	before := strings.Count(g.logs.String(), "rule="+rule+" ")
	conn, resp, err := websocket.DefaultDialer.Dial("ws"+at[strings.Index(at, ":"):], header)
	if err == nil {
		conn.Close()
		g.t.Errorf("%s was let in", at)
		return
	}
	if resp == nil || !slices.Contains([]int{403, 429, 503}, resp.StatusCode) {
		g.t.Errorf("%v %v", err, resp)
	}
	if after := strings.Count(g.logs.String(), "rule="+rule+" "); after != before+1 {
		g.t.Errorf("the log said rule=%s %d times, and says it %d times:\n%s", rule, before, after, g.logs)
	}
}

// A provider's request is accepted only with a valid signature, and only unchanged.
func TestWebhookSignatures(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	for _, provider := range []string{"twilio", "signalwire", "plivo", "telnyx"} {
		path, form := "/telephony/"+provider+"/answer", incomingForm(provider, "CA1", "+100")
		if status, body := g.postForm(provider, path, form, nil); status != 200 || !strings.Contains(body, "/telephony/"+provider+"/stream/") {
			t.Errorf("%s: %d %s", provider, status, body)
		}
		if status, _ := g.postForm("nobody", path, form, nil); status != 403 {
			t.Errorf("%s without a signature: %d", provider, status)
		}
		for name, change := range map[string]func(*http.Request){
			"another body": func(r *http.Request) {
				r.Body = newReadCloser(strings.NewReader(form.Encode() + "&a=b"))
				r.ContentLength += 4
			},
			"another signature": func(r *http.Request) {
				for _, h := range []string{"X-Twilio-Signature", "X-SignalWire-Signature", "X-Plivo-Signature-V3", "Telnyx-Signature-Ed25519"} {
					if r.Header.Get(h) != "" {
						r.Header.Set(h, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 64)))
					}
				}
			},
			"no base64": func(r *http.Request) {
				for _, h := range []string{"X-Twilio-Signature", "X-SignalWire-Signature", "X-Plivo-Signature-V3", "Telnyx-Signature-Ed25519"} {
					if r.Header.Get(h) != "" {
						r.Header.Set(h, "-")
					}
				}
			},
		} {
			if status, _ := g.postForm(provider, path, form, change); status != 403 {
				t.Errorf("%s with %s: %d", provider, name, status)
			}
		}
	}
	if status, _ := g.postForm("telnyx", "/telephony/telnyx/answer", incomingForm("telnyx", "CA1", "+100"), func(r *http.Request) {
		r.Header.Set("Telnyx-Timestamp", strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10))
	}); status != 403 {
		t.Errorf("an hour old: %d", status)
	}
	// The signature covers a query of the URL, and a port that the provider adds.
	if status, _ := g.postForm("twilio", "/telephony/twilio/answer?branch=north", incomingForm("twilio", "CA1", "+100"), nil); status != 200 {
		t.Errorf("with a query: %d", status)
	}
	for _, path := range []string{"/telephony/asterisk/answer", "/telephony/nobody/answer"} {
		if status, _ := g.postForm("twilio", path, url.Values{}, nil); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if body := g.logs.String(); !strings.Contains(body, "rule=signature") {
		t.Errorf("the log has no rule: %s", body)
	}
	before := len(g.logs.String())
	status, _ := g.postForm("twilio", "/telephony/plivo/answer?"+strings.Repeat("x", 100<<10), nil, func(r *http.Request) {
		r.Header.Set("X-Plivo-Signature-V3", "AAAA")
	})
	if status != 403 {
		t.Errorf("a long address: %d", status)
	}
	if more := len(g.logs.String()) - before; more == 0 || more > 1000 {
		t.Errorf("a stranger's long address makes a line of %d bytes", more)
	}
}

func newReadCloser(r *strings.Reader) *closer { return &closer{r} }

type closer struct{ *strings.Reader }

func (*closer) Close() error { return nil }

// Calls without an agent are rejected in the provider's format.
func TestCallsAreRefusedInProviderFormat(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(config map[string]any) { config["calls"] = 1 })
	for provider, want := range map[string]string{"twilio": `<Reject reason="busy"/>`, "plivo": `<Hangup reason="busy"/>`} {
		form := incomingForm(provider, "CA1", "+999")
		if _, body := g.postForm(provider, "/telephony/"+provider+"/answer", form, nil); !strings.Contains(body, want) {
			t.Errorf("%s: %s", provider, body)
		}
		if _, body := g.postForm(provider, "/telephony/"+provider+"/answer", url.Values{"To": {"+100"}}, nil); !strings.Contains(body, want) {
			t.Errorf("%s: %s", provider, body)
		}
	}
	first, second := wireFormats()["asterisk in words"], wireFormats()["twilio"]
	p := g.dialProvider(first, "+100")
	g.awaitSession()
	form := incomingForm("twilio", "CA1", "+100")
	if _, body := g.postForm("twilio", "/telephony/twilio/answer", form, nil); !strings.Contains(body, "<Reject") {
		t.Errorf("a call too many: %s", body)
	}
	g.expectRefusal("calls", g.http+"/telephony/asterisk/stream?to=%2B100&token=shown", nil)
	p.conn.Close()
	g.awaitIdle()
	g.dialProvider(second, "+100") // there is room again
	g.awaitSession()
	for _, rule := range []string{"rule=agent", "rule=call ", "rule=calls"} {
		if !strings.Contains(g.logs.String(), rule) {
			t.Errorf("the log has no %s: %s", rule, g.logs)
		}
	}
}

// A token is valid once, for one call of one provider, for 30 s. Twilio also signs the WebSocket request.
func TestTicketsAreValidOnce(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	s := wireFormats()["twilio"]
	token := func() string {
		_, body := g.postForm("twilio", "/telephony/twilio/answer", incomingForm("twilio", "CA1", "+100"), nil)
		return streamURL(t, body)
	}
	signed := func(at string) http.Header {
		r, _ := http.NewRequest("GET", at, nil)
		g.signRequest(r, "twilio", at, nil)
		return r.Header
	}
	at := token()
	g.expectRefusal("signature", at, nil)
	p := dialWebSocket(t, s, at, signed(at))
	g.expectRefusal("token", at, signed(at))
	for _, text := range s.begin("CA1", "") {
		p.sendText(text)
	}
	g.awaitSession()
	p.conn.Close()

	for _, call := range []string{"CA2", ""} {
		other := token()
		p = dialWebSocket(t, s, other, signed(other))
		for _, text := range s.begin(call, "") {
			p.sendText(text)
		}
		p.awaitClose()
	}
	g.awaitLog("the token belongs to another call", 2)
	guess := g.http + "/telephony/twilio/stream/AAAAAAAAAAAAAAAAAAAAAAAAAA"
	g.expectRefusal("token", guess, signed("ws"+guess[4:]))
	none := g.http + "/telephony/twilio/stream"
	g.expectRefusal("token", none, signed("ws"+none[4:]))
	g.expectRefusal("token", strings.Replace(token(), "/twilio/", "/plivo/", 1), nil)
}

// A client that tries passwords is blocked for a while, even with the right one. Once, 300 could be tried in 3 s.
func TestPasswordGuessingIsBlocked(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	began := time.Now()
	shows := func(password string) (in bool) {
		at := "ws" + strings.TrimPrefix(g.http, "http") + "/telephony/asterisk/stream?token=" + password
		conn, resp, err := websocket.DefaultDialer.Dial(at, nil)
		if err == nil {
			conn.Close()
		} else if resp == nil || resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %v %v", password, err, resp)
		}
		return err == nil
	}
	for i := range 12 {
		if shows(fmt.Sprint("guess", i)) {
			t.Error("a wrong password is let in")
		}
	}
	in := shows("shown")
	// Ten at once, and then one every 6 s.
	most := 10 + int(time.Since(began)/(6*time.Second))
	if tried := strings.Count(g.logs.String(), "rule=password "); tried > most || in && tried == most {
		t.Errorf("%d passwords were looked at, want %d at most; the right one then: %v", tried, most, in)
	}
}

// A provider without signatures must send a password, or a credential of the gateway.
func TestPasswordsOfUnsignedProviders(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	if log := g.logs.String(); strings.Contains(log, "refused") {
		t.Errorf("somebody was refused before anybody came: %s", log)
	}
	at := g.http + "/telephony/asterisk/stream"
	basic := func(password string) http.Header {
		return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+password))}}
	}
	g.expectRefusal("password", at, nil)
	g.expectRefusal("password", at, basic("wrong"))
	g.expectRefusal("password", at+"?token=wrong", nil)
	g.expectRefusal("password", at, basic(g.key)) // only this provider's password is accepted
	pbx := g.http + "/telephony/pbx/stream"
	g.expectRefusal("password", pbx, nil)
	g.expectRefusal("access", pbx, basic("shown"))
	s := wireFormats()["asterisk in words"]
	for _, let := range []struct {
		at     string
		header http.Header
	}{
		{at + "?to=%2B100", basic("shown")},
		{at + "?to=%2B100&token=shown", nil},
		{at + "/shown?to=%2B100", nil},
		{at + "?to=%2B100", http.Header{"Authorization": {"Bearer shown"}}},
		{pbx + "?to=%2B100", basic(g.key)},
	} {
		p := dialWebSocket(t, s, let.at, let.header)
		for _, text := range s.begin("1.1", "") {
			p.sendText(text)
		}
		g.awaitSession()
		p.sendText("HANGUP")
		p.awaitClose()
		g.awaitIdle()
	}
	p := dialWebSocket(t, s, at+"?to=%2B999", basic("shown"))
	for _, text := range s.begin("1.1", "") {
		p.sendText(text)
	}
	p.awaitClose()
	g.awaitLog("rule=agent", 1)
}

// A key that is limited to agents by a pattern admits only the calls to those agents.
func TestKeyGrantLimitsAgents(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	text, err := os.ReadFile(g.keys)
	if err != nil {
		t.Fatal(err)
	}
	grant := func(pattern string) {
		changed := strings.Replace(string(text), `"grant": {}`, `"grant": {"agents": ["`+pattern+`"]}`, 1)
		if err := os.WriteFile(g.keys, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		g.clockOffset.Add(int64(2 * time.Second)) // until the gate reloads the file
	}
	dials := func() *providerCall {
		s := wireFormats()["asterisk in words"]
		p := dialWebSocket(t, s, g.http+"/telephony/pbx/stream?to=%2B100", http.Header{"Authorization": {"Bearer " + g.key}})
		for _, text := range s.begin("1.1", "") {
			p.sendText(text)
		}
		return p
	}
	grant("agent-*")
	p := dials()
	g.awaitSession()
	p.sendText("HANGUP")
	p.awaitClose()
	g.awaitIdle()
	grant("night-*")
	dials().awaitClose()
	g.awaitLog("This token is not for the agent", 1)
}

// The gate's limits apply to these calls: by the provider's name, or by the key that they use.
func TestGateLimitsProviderCalls(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]func(g *testGateway) http.Header{
		"vonage": func(*testGateway) http.Header { return http.Header{"Authorization": {"Bearer shown"}} },
		"pbx":    func(g *testGateway) http.Header { return http.Header{"Authorization": {"Bearer " + g.key}} },
	} {
		g := startGateway(t, nil)
		s := wireFormats()["vonage"]
		if name == "pbx" {
			s = wireFormats()["asterisk in words"]
		}
		begin := func() *providerCall {
			p := dialWebSocket(t, s, g.http+"/telephony/"+name+"/stream?to=%2B100", header(g))
			for _, text := range s.begin("1", "+100") {
				p.sendText(text)
			}
			return p
		}
		begin()
		g.awaitSession()
		begin().awaitClose()
		g.awaitLog(`rule="sessions of key"`, 1)
	}
}

// A provider with the name of a key does not use up the limits of the key.
func TestProviderAndKeyLimitsAreSeparate(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(config map[string]any) {
		config["providers"] = append(
			config["providers"].([]any),
			map[string]any{"profile": "asterisk", "name": "phones", "password": "shown"},
		) // the name of newGateway's key, too
	})
	s := wireFormats()["asterisk in words"]
	for _, at := range []string{"phones/stream?token=shown&to=", "pbx/stream?token=" + g.key + "&to="} {
		p := dialWebSocket(t, s, g.http+"/telephony/"+at+"%2B100", nil)
		for _, text := range s.begin("1", "") {
			p.sendText(text)
		}
	}
	g.awaitLog("msg=call ", 2)
}

// Errors in the configuration name the field.
func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	const calls, twilio = `"calls":7`, `{"profile":"twilio","verify":"v"`
	private := func(provider string) string { return `{"providers":[` + provider + `],` + calls + `}` }
	public := func(provider string) string {
		return `{"publicURL":"https://a","providers":[` + provider + `],` + calls + `}`
	}
	for text, want := range map[string]string{
		`{`:                        "not valid JSON: unexpected end",
		"{\n\"calls\": x}":         "line 2",
		`{"call":1}`:               `unknown field "call"`,
		`{"calls":"1"}`:            "calls must be a whole number, not a string",
		`{} {}`:                    "not valid JSON: unexpected data after the value",
		`{"publicURL":"voice.me"}`: "publicURL:",
		`{` + calls + `}`:          "providers: must not be empty",

		`{"agents":[{"to":["*"]}]}`:              `unknown field "agents"`,
		`{"audioSocket":{"listen":"127.0.0.1"}}`: `unknown field "audioSocket"`,

		`{"providers":[{"profile":"exotel","password":"x"}],"maxSeconds":-1}`:      "maxSeconds: must not be negative",
		private(`{"profile":"acme"}`):                                              `providers[0].profile: "acme"`,
		private(`{"profile":"twilio"}`):                                            "providers[0].verify: is missing",
		private(twilio + `}`):                                                      "requires publicURL",
		public(twilio + `,"password":"x"}`):                                        "providers[0].password",
		public(twilio + `,"apiKey":"x"}`):                                          "providers[0].account",
		public(twilio + `,"transferTo":["1"]}`):                                    "providers[0].transferTo",
		public(twilio + `},` + twilio + `}`):                                       `providers[1].name: "twilio" is used twice`,
		public(twilio + `,"name":"a/b"}`):                                          `providers[0].name: "a/b"`,
		public(twilio + `,"calls":-1}`):                                            "providers[0].calls",
		public(`{"profile":"telnyx","verify":"AAAA"}`):                             "providers[0].verify: must be an Ed25519",
		public(`{"profile":"twilio","verify":"${NO_SUCH}"}`):                       "variable NO_SUCH is not set",
		private(`{"profile":"jambonz"}`):                                           "providers[0].password: is missing",
		private(`{"profile":"jambonz","verify":"x"}`):                              "providers[0].verify",
		private(`{"profile":"jambonz","password":"x","apiKey":"x"}`):               "providers[0].apiKey",
		private(`{"profile":"jambonz","access":true}`):                             "providers[0].access: no server keys",
		public(`{"profile":"signalwire","verify":"v","account":"P","apiKey":"x"}`): "providers[0].api:",
	} {
		file := filepath.Join(t.TempDir(), "telephony.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		door, err := mediastream.New(file, mediastream.Options{Host: &bridge.Host{}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
		door.Close()
	}
	if door, err := mediastream.New("", mediastream.Options{}); door != nil || err != nil || len(door.Endpoints()) > 0 {
		t.Errorf("no file: %v %v", door, err)
	}
}

// FuzzForm sends arbitrary signed forms as a provider's request: the response is XML, or an error.
func FuzzForm(f *testing.F) {
	f.Add("CallSid=CA1&From=%2B49&To=%2B100&CallerName=Ada")
	f.Add("CallUUID=x&To=sip%3Ax%40y&From=")
	f.Add("CallSid=%3C%26%22&To=%00&To=%2B100;x=%")
	g := startGateway(f, nil)
	f.Fuzz(func(t *testing.T, text string) {
		g.t = t
		defer func() { g.t = f }()
		form, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		for _, provider := range []string{"twilio", "plivo"} {
			status, body := g.postForm(provider, "/telephony/"+provider+"/answer", form, nil)
			if status != 200 && status != 400 && status != 403 {
				t.Errorf("%s is answered %d %s", provider, status, body)
			}
			if status == 200 {
				for dec := xml.NewDecoder(strings.NewReader(body)); err == nil; {
					_, err = dec.Token()
				}
				if err != io.EOF {
					t.Errorf("%s is answered %q: %v", provider, body, err)
				}
			}
		}
	})
}
