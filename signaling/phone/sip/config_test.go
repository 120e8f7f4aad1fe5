package sip

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The example files in docs/sip.md are valid. One is a single trunk, and one the list of fields to collect from callers.
func TestDocumentedConfigs(t *testing.T) {
	for _, name := range []string{"TRUNK_PASSWORD", "TWILIO_TRUNK_PASSWORD", "TELNYX_TRUNK_PASSWORD", "PAY_SECRET"} {
		t.Setenv(name, "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sip.md"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := m[1]
		switch {
		case strings.Contains(text, `"outbound"`) && !strings.Contains(text, `"listen"`):
			text = `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[` + text + `]}`
		case strings.HasPrefix(strings.TrimLeft(text, "{ \n"), `"collect"`):
			text = `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[{"name":"a","from":["192.0.2.1"]}],` + strings.TrimLeft(text, "{ \n")
			if !strings.HasPrefix(m[1], "{") {
				text += "}"
			}
		}
		file := filepath.Join(t.TempDir(), "sip.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
		read++
	}
	if read < 5 {
		t.Errorf("there are %d files", read)
	}
}

// Each mistake in the configuration is reported with its location.
func TestBadConfigs(t *testing.T) {
	t.Setenv("SIP_SECRET", `se"cret`)
	good := `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[{"name":"a","from":["192.0.2.0/24"]}]}`
	for change, want := range map[[2]string]string{
		{`"udp"`, `"ftp"`}:                                                      "listen[0].transport",
		{`"udp"`, `"tls"`}:                                                      "listen[0].cert",
		{`":5060"`, `"x"`}:                                                      "listen[0].address",
		{`["192.0.2.0/24"]`, `["192.0.2.0/33"]`}:                                "trunks[0].from[0]",
		{`["192.0.2.0/24"]`, `[]`}:                                              "trunks[0].from",
		{`"name":"a"`, `"name":""`}:                                             "trunks[0].name",
		{`"name":"a"`, `"name":"a","username":"x"`}:                             "trunks[0].password",
		{`"name":"a"`, `"name":"a","srtp":"maybe"`}:                             "trunks[0].srtp",
		{`"name":"a"`, `"name":"a","music":"pass"`}:                             `unknown field "music"`,
		{`"name":"a"`, `"name":"a","transfer":"hot"`}:                           "trunks[0].transfer",
		{`"name":"a"`, `"name":"a","transfer":"warm"`}:                          "trunks[0].transfer",
		{`"name":"a"`, `"name":"a","listen":true`}:                              "trunks[0].listen",
		{`"name":"a"`, `"name":"a","calls":-1`}:                                 "trunks[0].calls",
		{`"name":"a"`, `"name":"a","calls":"many"`}:                             "calls",
		{`"name":"a"`, `"name":"a","transferTo":["["]`}:                         "trunks[0].transferTo[0]",
		{`"name":"a"`, `"name":"a","outbound":{"server":"x"}`}:                  "trunks[0].outbound.server",
		{`"name":"a"`, `"name":"a","outbound":{"server":"sip:a;transport=ws"}`}: "trunks[0].outbound.server",
		{`"name":"a"`, `"name":"a","cals":1`}:                                   "cals",
		{`"name":"a"`, `"name":"${NO_SUCH_VARIABLE}"`}:                          "NO_SUCH_VARIABLE",
		{`"listen"`, `"rtp":{"ports":"9-8"},"listen"`}:                          "rtp.ports",
		{`"listen"`, `"external":"example.com:5060","listen"`}:                  "external",
		{`[{"transport":"udp","address":":5060"}]`, `[]`}:                       "listen",
		{`[{"name":"a","from":["192.0.2.0/24"]}]`, `[]`}:                        "trunks",
		{good, good + "{}"}:                                                     "unexpected data after the value",
		{`"listen"`, `"agents":[{"to":["*"]}],"listen"`}:                        `unknown field "agents"`,
	} {
		file := filepath.Join(t.TempDir(), "sip.json")
		if err := os.WriteFile(file, []byte(strings.Replace(good, change[0], change[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	file := filepath.Join(t.TempDir(), "sip.json")
	withPassword := strings.Replace(good, `"name":"a"`, `"name":"a","username":"x","password":"${SIP_SECRET}"`, 1)
	if err := os.WriteFile(file, []byte(withPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file)
	if err != nil || c.Trunks[0].Password != `se"cret` {
		t.Errorf("%+v, %v", c, err)
	}
}
