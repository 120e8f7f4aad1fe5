package ua

import (
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// The caller and the called number are read from all headers for them, in all spellings. A hidden number is treated as missing.
func TestCallerAndCalledNumber(t *testing.T) {
	const from, n = "<sip:+15550001111@192.0.2.9>", phone.Number("+15550001111")
	for _, c := range []struct {
		line, from, headers string // line: the request's URI
		want                phone.Party
	}{
		{"", from, "", phone.Party{Number: n}},
		{"sip:+15551234567;npdi;rn=+15559990000@gw;user=phone", from, "", phone.Party{Number: n, Called: "+15551234567"}},
		{"sip:5551234567;phone-context=+1@gw", from, "", phone.Party{Number: n, Called: "+15551234567"}},
		{"tel:+1-555-1234567;isub=12", from, "", phone.Party{Number: n, Called: "+15551234567"}},
		{"sip:%2B15551234567@gw", from, "", phone.Party{Number: n, Called: "+15551234567"}},
		{"", `"Ada" <sip:+15550001111;cpc=ordinary;isup-oli=62@192.0.2.9;user=phone>`, "", phone.Party{Number: n, Name: "Ada"}},
		{"", "<tel:+1-555-000-1111;cpc=ordinary>", "", phone.Party{Number: n}},
		{"", "<sip:+15550001111;verstat=TN-Validation-Passed@h>", "", phone.Party{Number: n, Verify: "TN-Validation-Passed"}},
		{"", "<tel:+15550001111;verstat=TN-Validation-Failed>", "", phone.Party{Number: n, Verify: "TN-Validation-Failed"}},
		{"", "<sip:+15550001111@h;user=phone;verstat=No-TN-Validation>", "", phone.Party{Number: n, Verify: "No-TN-Validation"}},
		{"", "<sip:+15550001111@h>;verstat=TN-Validation-Passed", "", phone.Party{Number: n, Verify: "TN-Validation-Passed"}},
		{
			"", "<sip:anonymous@h>", "P-Asserted-Identity: \"Ada\" <sip:+15550001111;cpc=ordinary;verstat=TN-Validation-Passed@h;user=phone>\r\n",
			phone.Party{Number: n, Name: "Ada", Verify: "TN-Validation-Passed"},
		},
		{"", "<sip:x@h>", "P-Asserted-Identity: \"Ada, B\" <sip:ada@h>, <tel:+1-555-000-1111>\r\n", phone.Party{Number: n}},
		{"", "<sip:x@h>", "P-Asserted-Identity: <sip:ada@h>\r\nP-Asserted-Identity: <tel:+15550001111>\r\n", phone.Party{Number: n}},
		{"", "<sip:x@h>", "P-Asserted-Identity: <sip:anonymous@anonymous.invalid>\r\n", phone.Party{Number: "x"}},
		{
			"", "<sip:x@h>", "Remote-Party-ID: \"Bo\" <sip:+15550001111;cpc=ordinary@h>;party=calling;screen=yes;privacy=off\r\n",
			phone.Party{Number: n, Name: "Bo"},
		},
		{"", "<sip:x@h>", "Remote-Party-ID: <sip:+49301@h>;party=called\r\n", phone.Party{Number: "x"}},
		{"", "<sip:x@h>", "Remote-Party-ID: <sip:+15550001111@h>;party=calling;privacy=full\r\n", phone.Party{}},
		{"", from, "Privacy: id\r\n", phone.Party{}},
		{"", from, "Privacy: header;user;critical\r\n", phone.Party{}},
		{"", from, "Privacy: none\r\n", phone.Party{Number: n}},
		{"", from, "Privacy: history\r\n", phone.Party{Number: n}},
		{"", `"Anonymous" <sip:anonymous@anonymous.invalid>`, "", phone.Party{}},
		{"", `"Restricted" <sip:Restricted@192.0.2.9>`, "", phone.Party{}},
		{"", "<sip:+15550001111@anonymous.invalid>", "", phone.Party{}},
		{"", `"Unknown Caller" <sip:+266696687@h>`, "", phone.Party{}},
		{"", "<sip:192.0.2.9>", "", phone.Party{}},
		{"", `"A \"B\" \\ C" <sip:500@h>`, "", phone.Party{Number: "500", Name: `A "B" \ C`}},
		{"", "\"J\xfcrgen\" <sip:500@h>", "", phone.Party{Number: "500", Name: "Jürgen"}},
		{"", "J\xfcrgen <sip:500@h>", "", phone.Party{Number: "500", Name: "Jürgen"}},
		{"", "\"Jürgen\" <sip:500@h>", "", phone.Party{Number: "500", Name: "Jürgen"}},
		{"", from, "Diversion: <sip:+1-555-222;npdi;rn=+1@h;user=phone>;reason=unconditional, <tel:+1555333;cpc=x>\r\n", phone.Party{
			Number: n, Attributes: phone.Attributes{"diversion": "<sip:+1555222@h;user=phone>;reason=unconditional, <tel:+1555333>"},
		}},
		{"", from, "History-Info: <sip:+1555;verstat=x@h?Reason=SIP%3Bcause%3D302>;index=1, <sip:bob;x=y@h>;index=1.1\r\n", phone.Party{
			Number: n, Attributes: phone.Attributes{"history-info": "<sip:+1555@h?Reason=SIP%3Bcause%3D302>;index=1, <sip:bob;x=y@h>;index=1.1"},
		}},
	} {
		line := c.line
		if line == "" {
			line, c.want.Called = "sip:500@gw", "500"
		}
		text := "INVITE " +
			line + " SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKa\r\nFrom: " + c.from + ";tag=1\r\nTo: <sip:500@gw>\r\n" +
			"Call-ID: a\r\nCSeq: 1 INVITE\r\n" + c.headers + "Content-Length: 0\r\n\r\n"
		m, err := sip.ParseMessage([]byte(text))
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		got := partyOf(m.(*sip.Request), true, nil)
		delete(got.Attributes, "call-id")
		if len(got.Attributes) == 0 {
			got.Attributes = nil
		}
		if got.PromptData() != c.want.PromptData() || got.Attributes["diversion"] != c.want.Attributes["diversion"] ||
			got.Attributes["history-info"] != c.want.Attributes["history-info"] {
			t.Errorf("%s %s %s:\n%+v, not\n%+v", c.line, c.from, strings.TrimSpace(c.headers), got, c.want)
		}
	}
}

// A number is transferred only to a real network, never to a placeholder host.
func TestTransferTargets(t *testing.T) {
	for _, c := range []struct{ from, contact, server, target, want string }{
		{"sip:+1555@pstn.example.net", "sip:a@192.0.2.9:5070", "", "+49 30 1234", "sip:+49301234@pstn.example.net"},
		{
			"sip:anonymous@anonymous.invalid", "sip:a@192.0.2.9:5070", "sip:carrier.example:5080", "+49301234",
			"sip:+49301234@carrier.example:5080",
		},
		{"sip:+1555@unknown.INVALID", "sip:a@192.0.2.9:5070", "", "+49301234", "sip:+49301234@192.0.2.9:5070"},
		{"tel:+1555", "sip:a@pbx.invalid", "", "+49301234", "sip:+49301234@192.0.2.7"},
		{"sip:x@invalid", "sip:a@pbx.invalid", "", "TEL:+49-30-1234;npdi", "sip:+49301234@192.0.2.7"},
		{"sip:x@anonymous.invalid", "sip:a@192.0.2.9", "", "SIP:desk@pbx.example", "sip:desk@pbx.example"},
	} {
		var from, contact sip.Uri
		if err := sip.ParseUri(c.from, &from); err != nil {
			t.Fatal(err)
		}
		if err := sip.ParseUri(c.contact, &contact); err != nil {
			t.Fatal(err)
		}
		k := &Call{trunk: &trunkState{Trunk: &Trunk{}}, dialog: &dialog{
			remote: sip.ToHeader{Address: from}, target: contact,
			source: "192.0.2.7:5060",
		}}
		if c.server != "" {
			k.trunk.Outbound = &Outbound{Server: c.server}
		}
		if got, err := k.TransferURI(c.target); err != nil || got.String() != c.want {
			t.Errorf("%+v: %s %v", c, got.String(), err)
		}
	}
}

// isBehindNAT recognizes addresses that cannot be reached from the source of requests.
func TestHostsBehindNAT(t *testing.T) {
	for _, c := range []struct {
		host, source string
		want         bool
	}{
		{"192.168.1.7", "203.0.113.5:5060", true},
		{"100.64.1.2", "203.0.113.5:5060", true},
		{"fd00::1", "[2001:db8::1]:5060", true},
		{"127.0.0.1", "10.9.0.2:5060", true},
		{"[::1]", "[2001:db8::1]:5060", true},
		{"169.254.1.2", "10.9.0.2:5060", true},
		{"0.0.0.0", "10.9.0.2:5060", true},
		{"pbx.invalid", "10.9.0.2:5060", true},
		{"192.168.1.7", "10.9.0.2:5060", false},
		{"203.0.113.9", "203.0.113.5:5060", false},
		{"127.0.0.1", "127.0.0.2:5060", false},
		{"pbx.example.com", "203.0.113.5:5060", false},
		{"192.168.1.7", "", false},
	} {
		if got := isBehindNAT(c.host, c.source); got != c.want {
			t.Errorf("%s of %s: %v", c.host, c.source, got)
		}
	}
}
