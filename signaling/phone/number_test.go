package phone

import (
	"testing"

	"voxgate/agents"
)

// All notations of a number give one spelling, and placeholders for a hidden number give none.
func TestNumberNormalization(t *testing.T) {
	const n = "+15551234567"
	for text, want := range map[string]string{
		n: n, " " + n + " ": n, "+1 (555) 123-4567": n, "+1-555-123.4567": n, "+1/555/1234567": n, "%2B15551234567": n, "%2b1%20555%201234567": n,
		n + ";npdi": n, n + ";npdi;rn=+15559990000": n, n + ";cic=+16789;rn=+15559990000": n, n + ";isub=1234": n, n + ";ext=12": n,
		n + ";tgrp=a;trunk-context=b.example": n, n + ";isup-oli=62": n, n + ";CPC=ordinary": n, n + ";verstat=TN-Validation-Passed": n,
		"5551234567;phone-context=+1": n, "5551234567;PHONE-CONTEXT=%2B1": n, "555-1234567;phone-context=+1": n,
		"1234567;phone-context=+1-555": n,
		"tel:" + n:                     n, "TEL:+1-555-123-4567;npdi": n, "tel:5551234567;phone-context=+1": n, "<tel:" + n + ">": n,
		"sip:" + n + ";npdi@h;user=phone": n, "SIPS:+1-555-1234567@h": n, `"Ada" <sip:` + n + `:secret@h:5060;user=phone>;tag=1`: n,
		"sip:%2B1555%2D1234567@h": n, "+49 (0) 30 123": "+4930123", "tel:" + n + ";phone-context=+49": n,
		"15551234567": "15551234567", "tel:7042;phone-context=example.com": "7042", "911;phone-context=+1": "911", "500": "500", "*97": "*97",
		"#31#": "#31#", "sip:500@h": "500", "sip:500;x=y@h": "500", "sip:5-0-0@h;user=phone": "500", "1-200": "1-200", "alice": "alice",
		"sip:alice@h": "alice", "sip:j%C3%BCrgen@h": "jürgen", "client:alice": "client:alice", "john.doe": "john.doe",
		"alice;day=tuesday": "alice;day=tuesday",
		"sip:h":             "", "": "", "%zz": "%zz", "sip:desk.2@h": "desk.2", "tel:112": "112", "+": "+",
	} {
		if got := ParseNumber(text); string(got) != want {
			t.Errorf("%q is read as %q, not %q", text, got, want)
		}
		if IsPlaceholder(want) != (want == "") && want != "+" {
			t.Errorf("%q is a placeholder", want)
		}
	}
	for _, text := range []string{
		"anonymous", "Anonymous", "ANONYMOUS", "restricted", "Restricted", "unavailable", "Unavailable", "unknown", "private", "withheld",
		"Withheld",
		"blocked", "Blocked", "Private Number", "Unknown Caller", "unknownnumber", "No Caller ID", "Caller ID withheld", "Number Withheld",
		"Out of Area", "N/A",
		"null", "undefined", "", " ", "-", "anonymous;cpc=ordinary", "sip:anonymous@anonymous.invalid", "sip:Anonymous@192.0.2.1",
		"sip:unavailable@unknown.invalid",
		"sip:+4930123@anonymous.invalid", "sip:restricted:x@h;user=phone", "<sip:anonymous@h>", "sip:192.0.2.1",
		"sip:c8oqz84zk7z@anonymous.INVALID.",
		"+266696687", "+7378742833", "+2562533", "+8656696", "+86282452253", "266696687", "sip:+266696687@h", "tel:+266696687", "0000000000",
		"+0000000",
		"anonymous%20caller",
	} {
		if got := ParseCaller(text); got != "" {
			t.Errorf("the placeholder %q is read as the number %q", text, got)
		}
		if got := ParseFullNumber(text); got != "" {
			t.Errorf("the placeholder %q is read as the full number %q", text, got)
		}
	}
	for text, want := range map[string]string{
		"4930123456": "+4930123456", "+4930123456": "+4930123456", "14155551234": "+14155551234", "500": "500", "0301234567": "0301234567",
		"alice": "alice", "1234567890123456": "1234567890123456", "sip:alice@h": "alice", "client:alice": "client:alice",
		"49 30 123456": "+4930123456",
	} {
		if got := ParseFullNumber(text); string(got) != want {
			t.Errorf("of a provider without + %q is %q, not %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"Anonymous": "", "Unknown Caller": "", "Ada": "Ada", "Private Bank": "Private Bank",
		"Unavailable": "",
	} {
		if got := CallerName(text); got != want {
			t.Errorf("the name %q is %q", text, got)
		}
	}
}

// The operator's patterns match a number in each of their notations, and no other number.
func TestNumbersMatchPatterns(t *testing.T) {
	for _, c := range []struct {
		number, pattern string
		want            bool
	}{
		{"+4930123456", "+49*", true},
		{"+49 30 123456", "+49 30 *", true},
		{"+4930123456", "+49-30-123456", true},
		{"+4930123456", "+49 (30) 12345?", true},
		{"tel:+49-30-123456", "+4930123456", true},
		{"4930123456", "+49*", false}, // permission to call is exact: no "+" is added
		{"+4930123456", "49*", false},
		{"500", "5??", true},
		{"1-200", "1-200", true},
		{"alice", "[a-c]*", true},
		{"+4930123456", "+4[8-9]*", true},
		{"+15559", "+49*", false},
	} {
		if got := ParseNumber(c.number).Matches([]string{c.pattern}); got != c.want {
			t.Errorf("%s has the number %s: %v", c.pattern, c.number, got)
		}
	}
	for text, want := range map[string]bool{
		"+49 30 123": true, "TEL:+4930123": true, "SIP:alice@pbx": true, "sip:bob@pbx": false,
		"+1555": false, "": false,
	} {
		if _, ok := parseTransferTarget([]string{"+4930*", "sip:alice@pbx"}, text); ok != want {
			t.Errorf("%q may be called: %v", text, ok)
		}
	}
}

// The longest pattern selects the agent, and one without wildcards wins. A number with "+" equals the same number without it.
func TestAgentByCalledNumber(t *testing.T) {
	list := []*agents.Agent{
		{Name: "berlin", Numbers: []string{"+4930*"}},
		{Name: "desk", Numbers: []string{"+49301", "desk", "+49 30 555 0001"}},
		{Name: "none"},
		{Name: "pages", Numbers: []string{"+49302"}, Protocols: []string{"sip"}},
		{Name: "plain", Numbers: []string{"4940*"}},
	}
	f := agents.New(list...)
	answers := func(protocol, number, want string) {
		t.Helper()
		got := ""
		if a := FindAgent(f, protocol, ParseNumber(number)); a != nil {
			got = a.Name
		}
		if got != want {
			t.Errorf("%s is answered by %q, not %q", number, got, want)
		}
	}
	for number, want := range map[string]string{
		"+49301": "desk", "desk": "desk", "+49309": "berlin", "+49302": "pages", "sip:+49-301;npdi@h": "desk", "49305550001": "desk",
		"+49305550001": "desk",
		"4930123456":   "berlin", "+4940123456": "plain", "4940123456": "plain", "+1": "", "49301": "", "030123456": "",
	} {
		answers("sip", number, want)
	}
	answers("telephony", "+49302", "berlin")
	f = agents.New(append(list, &agents.Agent{Name: "all", Numbers: []string{"*"}})...)
	for number, want := range map[string]string{"+1": "all", "49305550001": "desk", "4930123456": "all", "+49309": "berlin"} {
		answers("sip", number, want)
	}
}
