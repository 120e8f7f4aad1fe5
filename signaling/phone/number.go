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

// Number is a telephone number without parameters and separators, a name or an extension; empty means unknown.
// [ParseNumber], [ParseCaller] and [ParseFullNumber] return the same Number for different spellings of a number.
type Number string

const (
	// maxDigits is the length of the longest international number, without "+" (ITU-T E.164, section 6).
	maxDigits = 15
	// minDigits is the minimum length of an international number that is written without "+". Shorter numbers are
	// extensions and short codes.
	minDigits = 8
	// minFullDigits is the minimum length of a number with "+" that is also tried without the "+": see
	// alternateSpelling.
	minFullDigits = 5
	// minLocalDigits is the minimum number of digits from which a text with separators is a number, and not the name of
	// a room such as "1-200".
	minLocalDigits = 7
)

// ParseNumber parses a number as networks, operators and models write it (RFC 3966; RFC 3261, section 19.1.6): "+1
// (555) 123-4567", "tel:5551234567;phone-context=+1", "%2B15551234567;npdi;rn=+15559990000",
// "sip:+15551234567;cpc=ordinary@host;user=phone". Names and extensions stay unchanged.
func ParseNumber(text string) Number {
	n, _ := parseSubscriber(text)
	return n
}

// ParseCaller parses the number of a caller. Placeholders for a hidden number give an empty Number.
func ParseCaller(text string) Number {
	n, host := parseSubscriber(text)
	if IsInvalidHost(host) || IsPlaceholder(string(n)) {
		return ""
	}
	return n
}

// ParseFullNumber is [ParseCaller] for providers that always send international numbers, but without "+".
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
			return "", hostIn(rest)
		}
		host = hostIn(rest[at+1:])
		isNumber = strings.Contains(strings.ToLower(rest[at+1:]), ";user=phone")
		text, _, _ = strings.Cut(rest[:at], ":") // drops a password
	}
	subscriber, parameters, _ := strings.Cut(text, ";")
	number, ok := withoutSeparators(percentDecode(subscriber), isNumber)
	if !ok && !IsPlaceholder(percentDecode(subscriber)) && !isNumber {
		return Number(percentDecode(text)), host // the text is a name, which may have a semicolon
	}
	return Number(inContext(number, ParameterValue(parameters, "phone-context"))), host
}

// hostIn returns the host in the part of a SIP URI after the @.
func hostIn(hostport string) string {
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

// inContext puts the phone-context before a local number (RFC 3966, section 5.1.5). Short numbers stay unchanged: in
// the context of +1, 911 is 911.
func inContext(number, context string) string {
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
// number. A few digits with separators count as a number only if isNumber is set.
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

// ParameterValue returns a parameter of a list such as "npdi;rn=+15559990000", unescaped, or "".
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

// unavailablePhrases are further texts for an unavailable number or name. Only their letters are compared.
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

// isPlaceholderWord reports whether a word is a placeholder, or a compound of one and fillers, such as "unknowncaller".
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

// Key returns the number without "+": the same key for both spellings of an international number.
func (n Number) Key() string { return strings.TrimPrefix(string(n), "+") }

// Matches reports whether the number matches one of the patterns. Separators in patterns are ignored.
func (n Number) Matches(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return bridge.MatchesAny([]string{plainPattern(p), p}, string(n)) })
}

// plainPattern removes separators from a number pattern: "+49 30 *" becomes "+4930*". Patterns of names are returned unchanged.
func plainPattern(pattern string) string {
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

// alternateSpelling returns an international number with its "+" added or removed. It returns "" for short numbers,
// which may be services such as 112, and for names.
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
// wildcard, then a longer pattern over a shorter one, then the first name.
//
// Not all networks send "+", so an international number is also tried with its "+" added or removed. An exact match of
// the received spelling wins, then an exact match of the other spelling, then a pattern for the received one, then a
// pattern for the other.
func FindAgent(folder *agents.Folder, protocol string, number Number) (agent *agents.Agent) {
	const exactMatch = 1 << 20 // larger than the length of any pattern
	best := -1
	for rank, spelling := range []Number{number.alternateSpelling(), number} {
		if spelling == "" && rank == 0 {
			continue
		}
		for _, a := range folder.PhoneAgents(protocol) {
			for _, pattern := range a.Numbers {
				fit := len(plainPattern(pattern)) + rank*exactMatch
				if number := string(spelling); pattern == number || plainPattern(pattern) == number {
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
