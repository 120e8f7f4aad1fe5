package phone

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"voxgate/agents"
	"voxgate/bridge"
)

// Number is a telephone number without parameters and separators, a name or an extension. An empty Number means
// unknown. [ParseNumber], [ParseCaller] and [ParseFullNumber] return the same Number for different spellings of a
// number.
type Number string

const (
	// maxDigits is the length of the longest international number, without "+" (ITU-T E.164, section 6).
	maxDigits = 15
	// minDigits is the minimum length of an international number that is written without "+". Shorter numbers are
	// extensions and short codes.
	minDigits = 8
	// minFullDigits is the minimum length of a number with "+" for which alternateSpelling also returns the spelling
	// without "+".
	minFullDigits = 5
	// minLocalDigits is the minimum number of digits in a text with separators that counts as a number. A text with
	// fewer digits may be the name of a room, such as "1-200".
	minLocalDigits = 7
)

// ParseNumber parses a number as networks, operators and models write it (RFC 3966; RFC 3261, section 19.1.6): "+1
// (555) 123-4567", "tel:5551234567;phone-context=+1", "%2B15551234567;npdi;rn=+15559990000",
// "sip:+15551234567;cpc=ordinary@host;user=phone". Names and extensions stay unchanged.
func ParseNumber(text string) Number {
	n, _ := parseSubscriber(text)
	return n
}

// ParseCaller parses the number of a caller. For a placeholder, which hides the number, it returns an empty Number.
func ParseCaller(text string) Number {
	n, host := parseSubscriber(text)
	if IsInvalidHost(host) || IsPlaceholder(string(n)) {
		return ""
	}
	return n
}

// ParseFullNumber is [ParseCaller] for providers that always send international numbers without "+". It adds the "+".
func ParseFullNumber(text string) Number {
	n := ParseCaller(text)
	if digits := string(n); isDigits(digits) && digits[0] != '0' && len(digits) >= minDigits && len(digits) <= maxDigits {
		return "+" + n
	}
	return n
}

// parseSubscriber parses a number. If text is a SIP URI, it also returns the host.
func parseSubscriber(text string) (n Number, host string) {
	text = strings.TrimSpace(text)
	if begin, end := strings.LastIndexByte(text, '<'), strings.LastIndexByte(text, '>'); begin >= 0 && end > begin {
		text = strings.TrimSpace(text[begin+1 : end])
	}
	isNumber := false // the URI says that text is a phone number, even if it is short
	scheme, rest, _ := strings.Cut(text, ":")
	switch strings.ToLower(scheme) {
	case "tel":
		text, isNumber = rest, true
	case "sip", "sips":
		at := strings.LastIndexByte(rest, '@')
		if at < 0 {
			return "", hostOf(rest)
		}
		host = hostOf(rest[at+1:])
		isNumber = strings.Contains(strings.ToLower(rest[at+1:]), ";user=phone")
		text, _, _ = strings.Cut(rest[:at], ":") // drops a password
	}
	subscriber, parameters, _ := strings.Cut(text, ";")
	number, ok := withoutSeparators(percentDecode(subscriber), isNumber)
	if !ok && !IsPlaceholder(percentDecode(subscriber)) && !isNumber {
		return Number(percentDecode(text)), host // the text is a name, which may have a semicolon
	}
	return Number(withPhoneContext(number, ParameterValue(parameters, "phone-context"))), host
}

// hostOf returns the host in the part of a SIP URI after the @.
func hostOf(hostport string) string {
	end := strings.IndexAny(hostport, ";?>")
	if end >= 0 {
		hostport = hostport[:end]
	}
	host, _, _ := strings.Cut(hostport, ":")
	return host
}

// IsInvalidHost reports whether a host is in the reserved domain "invalid", such as anonymous.invalid, which hides the
// caller (RFC 3323, section 4.1.1.3; RFC 2606).
func IsInvalidHost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "invalid" || strings.HasSuffix(host, ".invalid")
}

func percentDecode(text string) string {
	if plain, err := url.PathUnescape(text); err == nil && utf8.ValidString(plain) {
		return plain
	}
	return text
}

// withPhoneContext puts the phone-context before a local number (RFC 3966, section 5.1.5). It leaves short numbers
// unchanged, because they are services: in the context of +1, 911 is still 911.
func withPhoneContext(number, context string) string {
	prefix, ok := withoutSeparators(percentDecode(strings.Trim(context, `"`)), true)
	if !ok || !strings.HasPrefix(prefix, "+") || !isDigits(number) {
		return number
	}
	if whole := prefix + number; len(whole) > minDigits && len(whole) <= maxDigits+1 {
		return whole
	}
	return number
}

// withoutSeparators removes visual separators (RFC 3966, section 5.1.1) and blanks. ok is false if text is not a
// number. A text with separators and few digits counts as a number only if isNumber is true.
func withoutSeparators(text string, isNumber bool) (number string, ok bool) {
	var b strings.Builder
	digits, digitsOnly := 0, text
	if strings.HasPrefix(text, "+") { // as in +49 (0) 30 123
		digitsOnly = strings.Replace(text, "(0)", "", 1)
	}
	for _, r := range digitsOnly {
		switch {
		case r >= '0' && r <= '9':
			digits++
			b.WriteRune(r)
		case r == '+' && b.Len() == 0, r == '*', r == '#':
			b.WriteRune(r)
		case strings.ContainsRune("-.()/", r), unicode.IsSpace(r):
		default:
			return text, false
		}
	}
	number = b.String()
	if number == "" || number == "+" {
		return text, false
	}
	if len(number) != len(text) && !isNumber && digits < minLocalDigits && number[0] != '+' {
		return text, false
	}
	return number, true
}

// ParameterValue returns the unescaped value of a parameter in a list such as "npdi;rn=+15559990000", or "" if the list
// lacks it.
func ParameterValue(list, name string) string {
	for one := range strings.SplitSeq(list, ";") {
		key, value, _ := strings.Cut(one, "=")
		if strings.EqualFold(strings.TrimSpace(key), name) {
			return percentDecode(strings.TrimSpace(value))
		}
	}
	return ""
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// placeholders are words that networks send in place of a hidden number or name (RFC 3323, section 4.1.1.3, and
// carriers).
var placeholders = []string{
	"anonymous", "anonym", "anonymus", "restricted", "unavailable", "unknown", "private", "withheld", "blocked", "hidden", "undisclosed",
	"unidentified", "suppressed", "undefined", "null", "none", "nil", "unbekannt", "inconnu", "desconocido",
}

// fillers are words that may accompany a placeholder: "Unknown Number", "Caller ID withheld".
var fillers = []string{"number", "caller", "callerid", "id", "name", "call", "user", "party", "the", "by", "network"}

// unavailablePhrases are further texts that mean an unavailable number or name. Only their letters are compared with a
// received text.
var unavailablePhrases = []string{
	"nocallerid", "nonumber", "noname", "noid", "notavailable", "notprovided", "outofarea", "na", "coinlinepayphone",
	"interactionwithotherservice",
}

// keypadPlaceholders are placeholders spelled on a telephone keypad: ANONYMOUS, RESTRICTED, BLOCKED, UNKNOWN and
// UNAVAILABLE. Twilio sends them as numbers (https://help.twilio.com/articles/223179988).
var keypadPlaceholders = []string{"266696687", "7378742833", "2562533", "8656696", "86282452253"}

// IsPlaceholder reports whether text stands for a hidden number or name. It returns true for an empty text.
func IsPlaceholder(text string) bool {
	text = strings.ToLower(strings.TrimSpace(percentDecode(text)))
	if digits := strings.TrimPrefix(text, "+"); isDigits(digits) {
		return slices.Contains(keypadPlaceholders, digits) || len(digits) >= minLocalDigits && strings.Trim(digits, "0") == ""
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if slices.Contains(unavailablePhrases, strings.Join(words, "")) {
		return true
	}
	words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(fillers, w) })
	return text == "" || strings.Trim(text, `-_.?*"' `) == "" && text != "*" ||
		len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !isPlaceholderWord(w) })
}

// isPlaceholderWord reports whether a word is a placeholder, or consists of a placeholder and fillers, such as
// "unknowncaller".
func isPlaceholderWord(word string) bool {
	for _, p := range placeholders {
		rest, ok := strings.CutPrefix(word, p)
		if ok && (rest == "" || slices.Contains(fillers, rest)) {
			return true
		}
		if rest, ok = strings.CutSuffix(word, p); ok && slices.Contains(fillers, rest) {
			return true
		}
	}
	return false
}

// CallerName returns the name of a caller, or "" for a placeholder.
func CallerName(text string) string {
	if IsPlaceholder(text) {
		return ""
	}
	return text
}

// Key returns the number without "+", so that both spellings of an international number have the same key.
func (n Number) Key() string { return strings.TrimPrefix(string(n), "+") }

// Matches reports whether the number matches one of the patterns. It ignores separators in the patterns.
func (n Number) Matches(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return bridge.MatchesAny([]string{normalizePattern(p), p}, string(n)) })
}

// normalizePattern removes separators from a number pattern: "+49 30 *" becomes "+4930*". Patterns of names are returned unchanged.
func normalizePattern(pattern string) string {
	literal := strings.NewReplacer("*", "", "?", "").Replace(pattern)
	if _, ok := withoutSeparators(literal, true); !ok {
		return pattern
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-.()/", r) || unicode.IsSpace(r) {
			return -1
		}
		return r
	}, pattern)
}

// alternateSpelling returns an international number with its "+" added or removed. For names, and for short numbers,
// which may be services such as 112, it returns "".
func (n Number) alternateSpelling() Number {
	digits, least := n.Key(), minDigits
	if strings.HasPrefix(string(n), "+") {
		least = minFullDigits
	}
	switch {
	case !isDigits(digits) || len(digits) < least || len(digits) > maxDigits || digits[0] == '0':
		return ""
	case digits == string(n):
		return "+" + n
	}
	return Number(digits)
}

// FindAgent returns the agent for a called number at a protocol, or nil. An exact number wins over a pattern with a
// wildcard, and a longer pattern over a shorter one. Among equal ones, the agent whose name comes first wins.
//
// Not all networks send "+", so an international number is also tried in the other spelling, with its "+" added or
// removed. The order is: an exact match of the received spelling, an exact match of the other spelling, a pattern that
// matches the received spelling, a pattern that matches the other spelling.
func FindAgent(folder *agents.Folder, protocol string, number Number) (agent *agents.Agent) {
	const exactMatch = 1 << 20 // larger than the length of any pattern
	best := -1
	for rank, spelling := range []Number{number.alternateSpelling(), number} {
		if spelling == "" && rank == 0 {
			continue
		}
		for _, a := range folder.PhoneAgents(protocol) {
			for _, pattern := range a.Numbers {
				fit := len(normalizePattern(pattern)) + rank*exactMatch
				if number := string(spelling); pattern == number || normalizePattern(pattern) == number {
					fit = (2 + rank) * exactMatch
				}
				if fit > best && spelling.Matches([]string{pattern}) {
					best, agent = fit, a
				}
			}
		}
	}
	return agent
}
