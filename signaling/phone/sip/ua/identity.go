package ua

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// address is one value of a header such as From or P-Asserted-Identity (RFC 3261, section 20.10).
type address struct {
	name   string // the display name
	uri    string
	params string // parameters of the header, without the first semicolon
}

// parseAddresses parses all values of a header.
func parseAddresses(text string) (list []address) {
	for _, one := range splitList(text) {
		var a address
		begin := indexOutsideQuotes(one, '<')
		if end := strings.IndexByte(one[max(begin, 0):], '>'); begin >= 0 && end > 0 {
			a.name, a.uri, a.params = parseDisplayName(one[:begin]), one[begin+1:begin+end], one[begin+end+1:]
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

// indexOutsideQuotes returns the index of the first char outside of quoted strings, or -1.
func indexOutsideQuotes(text string, char byte) int {
	inQuotes := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inQuotes && c == '\\':
			i++
		case c == '"':
			inQuotes = !inQuotes
		case c == char && !inQuotes:
			return i
		}
	}
	return -1
}

// parseDisplayName removes the quotes and escapes of a display name (RFC 3261, section 25.1).
func parseDisplayName(text string) string {
	text = strings.TrimSpace(text)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	return unescapeQuoted(text)
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

// verstat returns the result of the networks' verification of the number (RFC 8224; 3GPP TS 24.229, section 7.2A.20).
// It is a parameter of the number, the URI or the header.
func (a address) verstat() string {
	user, rest, _ := strings.Cut(a.uri, "@")
	return cmp.Or(phone.ParameterValue(user, "verstat"), phone.ParameterValue(rest, "verstat"), phone.ParameterValue(a.params, "verstat"))
}

// assertedIdentity returns the caller's identity that a network asserts in P-Asserted-Identity (RFC 3325) or, in older
// systems, in Remote-Party-ID. If the network asserts several, it returns the first with a phone number, or else the
// first name.
func assertedIdentity(req *sip.Request) (found address, ok bool) {
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

// isPrivate reports whether the caller's identity must be withheld (RFC 3323, section 4.2; RFC 3325, section 7). If
// trustAsserted is true and there is no P-Asserted-Identity, a Remote-Party-ID can also require this.
func isPrivate(req *sip.Request, trustAsserted bool) bool {
	for _, h := range req.GetHeaders("Privacy") {
		for value := range strings.FieldsFuncSeq(strings.ToLower(h.Value()), func(r rune) bool { return strings.ContainsRune(";, ", r) }) {
			if !slices.Contains([]string{"none", "critical", "session", "history"}, value) {
				return true
			}
		}
	}
	if !trustAsserted || len(req.GetHeaders("P-Asserted-Identity")) > 0 {
		return false
	}
	return slices.ContainsFunc(headerAddresses(req, "Remote-Party-ID"), func(a address) bool {
		privacy := strings.ToLower(phone.ParameterValue(a.params, "privacy"))
		return privacy != "" && privacy != "off"
	})
}

// partyOf returns the caller and the called number; see [calledNumber] for ownNumbers. If trustAsserted is true, the
// identity that the network asserts takes precedence over From.
func partyOf(req *sip.Request, trustAsserted bool, ownNumbers []phone.Number) phone.Party {
	from := req.From()
	caller := address{name: unescapeQuoted(from.DisplayName), uri: from.Address.String(), params: from.Params.ToString(';')}
	p := phone.Party{
		Number: caller.number(), Name: phone.CallerName(caller.name), Verify: caller.verstat(), Called: calledNumber(req, ownNumbers),
	}
	if a, ok := assertedIdentity(req); trustAsserted && ok {
		p.Number, p.Name, p.Verify = a.number(), cmp.Or(phone.CallerName(a.name), p.Name), cmp.Or(a.verstat(), p.Verify)
	}
	if isPrivate(req, trustAsserted) {
		p.Number, p.Name = "", ""
	}
	for _, h := range req.Headers() {
		name := strings.ToLower(h.Name())
		if strings.HasPrefix(name, "x-") || slices.Contains(originHeaders, name) {
			p.Attributes.Add(name, normalizeHeaderNumbers(toValidUTF8(h.Value())))
		}
	}
	return p
}

// originHeaders lists the headers that describe the origin of a call (RFC 5806, 7044, 7433 and 3261). Like the headers
// that begin with "X-", they become attributes of the call.
var originHeaders = []string{"diversion", "history-info", "user-to-user", "call-id"}

var uriInBrackets = regexp.MustCompile(`(?i)<(sips?|tel):([^@>]*)(@[^>]*)?>`)

// normalizeHeaderNumbers removes parameters and separators from the numbers in an address header, such as Diversion.
func normalizeHeaderNumbers(value string) string {
	return uriInBrackets.ReplaceAllStringFunc(value, func(text string) string {
		m := uriInBrackets.FindStringSubmatch(text)
		scheme, user, rest := strings.ToLower(m[1]), m[2], m[3]
		number := string(phone.ParseNumber(scheme + ":" + user + rest))
		if scheme != "tel" && rest == "" || number == "" || strings.Trim(number, "+0123456789*#") != "" { // the URI has only a host, or a name
			return text
		}
		return "<" + scheme + ":" + number + rest + ">"
	})
}

// calledNumber returns the called number. A trunk where we are registered sends the call to our Contact, which has one
// of ownNumbers. In that case the called number is in P-Called-Party-ID (RFC 7315, section 4.2), or in To.
func calledNumber(req *sip.Request, ownNumbers []phone.Number) phone.Number {
	number := userNumber(req.Recipient)
	if !slices.ContainsFunc(ownNumbers, func(n phone.Number) bool { return n.Key() == number.Key() }) {
		return number
	}
	var called phone.Number
	if list := headerAddresses(req, "P-Called-Party-ID"); len(list) > 0 {
		called = phone.ParseNumber(list[0].uri)
	}
	return cmp.Or(called, userNumber(req.To().Address), number)
}
