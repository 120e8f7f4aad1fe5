package sip

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// address is one value of a header such as From or P-Asserted-Identity (RFC 3261, section 20.10).
type address struct {
	name   string // the display name
	uri    string
	params string // of the header, without the first semicolon
}

// parseAddresses parses all values of a header.
func parseAddresses(text string) (list []address) {
	for _, one := range splitList(text) {
		var a address
		begin := indexOutsideQuotes(one, '<')
		if end := strings.IndexByte(one[max(begin, 0):], '>'); begin >= 0 && end > 0 {
			a.name, a.uri, a.params = readDisplayName(one[:begin]), one[begin+1:begin+end], one[begin+end+1:]
		} else {
			a.uri, a.params, _ = strings.Cut(one, ";")
		}
		a.uri, a.params = strings.TrimSpace(a.uri), strings.TrimPrefix(strings.TrimSpace(a.params), ";")
		if a.uri != "" {
			list = append(list, a)
		}
	}
	return list
}

// splitList splits a header at commas that are neither quoted nor inside a URI.
func splitList(text string) (list []string) {
	begin, inURI, inQuotes := 0, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inQuotes && c == '\\':
			i++
		case c == '"' && !inURI:
			inQuotes = !inQuotes
		case inQuotes:
		case c == '<', c == '>':
			inURI = c == '<'
		case c == ',' && !inURI:
			list = append(list, strings.TrimSpace(text[begin:i]))
			begin = i + 1
		}
	}
	return append(list, strings.TrimSpace(text[begin:]))
}

func indexOutsideQuotes(text string, want byte) int {
	inQuotes := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inQuotes && c == '\\':
			i++
		case c == '"':
			inQuotes = !inQuotes
		case c == want && !inQuotes:
			return i
		}
	}
	return -1
}

// readDisplayName removes the quotes and escapes of a display name (RFC 3261, section 25.1).
func readDisplayName(text string) string {
	text = strings.TrimSpace(text)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	return unescapeName(text)
}

// unescapeName removes the backslashes of a quoted string, and makes it valid UTF-8.
func unescapeName(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.WriteByte(text[i])
	}
	return validText(b.String())
}

// validText returns text as UTF-8, which SIP requires. Invalid text is decoded as ISO 8859-1: carriers copy names from ISDN.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(rune(text[i]))
	}
	return b.String()
}

// headerAddresses returns the values of all headers with a name.
func headerAddresses(req *sip.Request, header string) (list []address) {
	for _, h := range req.GetHeaders(header) {
		list = append(list, parseAddresses(h.Value())...)
	}
	return list
}

// number returns the caller's number in an address, or "".
func (a address) number() phone.Number { return phone.ParseCaller(a.uri) }

// verstat returns the result of the networks' verification of the number (RFC 8224; 3GPP TS 24.229, section 7.2A.20). It is a parameter of
// the number, of the URI or of the header.
func (a address) verstat() string {
	user, rest, _ := strings.Cut(a.uri, "@")
	return cmp.Or(phone.ParameterValue(user, "verstat"), phone.ParameterValue(rest, "verstat"), phone.ParameterValue(a.params, "verstat"))
}

// assertedBy returns the identity that a network asserts, by P-Asserted-Identity (RFC 3325) or, in older systems, Remote-Party-ID. Of
// several, the first with a phone number counts, since others may be names.
func assertedBy(req *sip.Request) (found address, ok bool) {
	list := headerAddresses(req, "P-Asserted-Identity")
	if len(list) == 0 {
		list = slices.DeleteFunc(headerAddresses(req, "Remote-Party-ID"), func(a address) bool {
			party := phone.ParameterValue(a.params, "party")
			return party != "" && !strings.EqualFold(party, "calling")
		})
	}
	for _, a := range list {
		number := a.number()
		isNumber := number != "" && strings.Trim(string(number), "+0123456789") == ""
		if number != "" && (!ok || isNumber) {
			found, ok = a, true
		}
		if isNumber {
			break
		}
	}
	return found, ok
}

// isPrivate reports whether the caller, or the network on its behalf, requests that its identity be withheld (RFC 3323, section 4.2; RFC
// 3325, section 7).
func isPrivate(req *sip.Request, asserted bool) bool {
	for _, h := range req.GetHeaders("Privacy") {
		for value := range strings.FieldsFuncSeq(strings.ToLower(h.Value()), func(r rune) bool { return strings.ContainsRune(";, ", r) }) {
			if !slices.Contains([]string{"none", "critical", "session", "history"}, value) {
				return true
			}
		}
	}
	if !asserted || len(req.GetHeaders("P-Asserted-Identity")) > 0 {
		return false
	}
	return slices.ContainsFunc(headerAddresses(req, "Remote-Party-ID"), func(a address) bool {
		privacy := strings.ToLower(phone.ParameterValue(a.params, "privacy"))
		return privacy != "" && privacy != "off"
	})
}

// partyOf returns the caller and the called number. If asserted is true, an identity asserted by the network takes precedence over From.
func (d *Server) partyOf(req *sip.Request, asserted bool) phone.Party {
	from := req.From()
	caller := address{name: unescapeName(from.DisplayName), uri: from.Address.String(), params: from.Params.ToString(';')}
	p := phone.Party{
		Number: caller.number(), Name: phone.CallerName(caller.name), Verify: caller.verstat(), Called: d.calledNumber(req),
	}
	if a, ok := assertedBy(req); asserted && ok {
		p.Number, p.Name, p.Verify = a.number(), cmp.Or(phone.CallerName(a.name), p.Name), cmp.Or(a.verstat(), p.Verify)
	}
	if isPrivate(req, asserted) {
		p.Number, p.Name = "", ""
	}
	for _, h := range req.Headers() {
		name := strings.ToLower(h.Name())
		if strings.HasPrefix(name, "x-") || slices.Contains(tellingHeaders, name) {
			p.Attributes.Add(name, withPlainNumbers(validText(h.Value())))
		}
	}
	return p
}

// tellingHeaders are the headers with the origin of a call that are kept in addition to X- headers: RFC 5806, 7044, 7433 and 3261.
var tellingHeaders = []string{"diversion", "history-info", "user-to-user", "call-id"}

var uriInBrackets = regexp.MustCompile(`(?i)<(sips?|tel):([^@>]*)(@[^>]*)?>`)

// withPlainNumbers removes parameters and separators from the numbers in an address header, such as Diversion.
func withPlainNumbers(value string) string {
	return uriInBrackets.ReplaceAllStringFunc(value, func(text string) string {
		m := uriInBrackets.FindStringSubmatch(text)
		scheme, user, rest := strings.ToLower(m[1]), m[2], m[3]
		number := string(phone.ParseNumber(scheme + ":" + user + rest))
		if scheme != "tel" && rest == "" || number == "" || strings.Trim(number, "+0123456789*#") != "" { // a host, or a name
			return text
		}
		return "<" + scheme + ":" + number + rest + ">"
	})
}

// calledNumber returns the called number. A trunk where we are registered calls our Contact, and gives the number elsewhere: in
// P-Called-Party-ID (RFC 7315, section 4.2), or in To.
func (d *Server) calledNumber(req *sip.Request) phone.Number {
	number := numberIn(req.Recipient)
	isOurContact := slices.ContainsFunc(d.gate.trunks, func(t *trunkState) bool {
		return t.Outbound != nil && t.Outbound.Register && numberIn(t.Outbound.localURI("here")).Key() == number.Key()
	})
	if !isOurContact {
		return number
	}
	var called phone.Number
	if list := headerAddresses(req, "P-Called-Party-ID"); len(list) > 0 {
		called = phone.ParseNumber(list[0].uri)
	}
	return cmp.Or(called, numberIn(req.To().Address), number)
}

// numberIn returns the number, or the name, in a URI.
func numberIn(uri sip.Uri) phone.Number { return phone.ParseNumber(uri.String()) }
