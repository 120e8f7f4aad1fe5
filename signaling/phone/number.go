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

// Number is a telephone number without parameters and visual separators, or the name or extension that stands in its place. The empty
// Number means that there is none. Make one with [ParseNumber], [ParseCaller] or [ParseFullNumber], so that one number has one spelling.
type Number string

const (
	// maxDigits is the length of the longest international number, without "+" (ITU-T E.164, section 6).
	maxDigits = 15
	// minDigits is the length from which digits without "+" can be an international number: shorter ones are extensions and short codes.
	minDigits = 8
	// minFullDigits is the length from which digits with "+" are compared with those without.
	minFullDigits = 5
	// localDigits is the length from which digits with separators are a number, and not the name of a room such as "1-200".
	localDigits = 7
)

// ParseNumber reads a number as networks, operators and models write it: "+1 (555) 123-4567", "tel:5551234567;phone-context=+1",
// "%2B15551234567;npdi;rn=+15559990000", "sip:+15551234567;cpc=ordinary@host;user=phone" (RFC 3966; RFC 3261, section 19.1.6). Names and
// extensions stay as they are.
func ParseNumber(text string) Number {
	n, _ := parseSubscriber(text)
	return n
}

// ParseCaller is [ParseNumber] for the number of a caller: the names and numbers that stand for a hidden one are no number.
func ParseCaller(text string) Number {
	n, host := parseSubscriber(text)
	if IsInvalidHost(host) || IsPlaceholder(string(n)) {
		return ""
	}
	return n
}

// ParseFullNumber is [ParseCaller] for a provider that always sends international numbers, but without "+".
func ParseFullNumber(text string) Number {
	n := ParseCaller(text)
	if digits := string(n); isDigits(digits) && digits[0] != '0' && len(digits) >= minDigits && len(digits) <= maxDigits {
		return "+" + n
	}
	return n
}

// parseSubscriber also returns the host of a SIP URI.
func parseSubscriber(text string) (n Number, host string) {
	text = strings.TrimSpace(text)
	if begin, end := strings.LastIndexByte(text, '<'), strings.LastIndexByte(text, '>'); begin >= 0 && end > begin {
		text = strings.TrimSpace(text[begin+1 : end])
	}
	isNumber := false // whatever its length
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
		text, _, _ = strings.Cut(rest[:at], ":") // of a password
	}
	subscriber, parameters, _ := strings.Cut(text, ";")
	number, ok := withoutSeparators(unescape(subscriber), isNumber)
	if !ok && !IsPlaceholder(unescape(subscriber)) && !isNumber {
		return Number(unescape(text)), host // a name may have a semicolon
	}
	return Number(inContext(number, Parameter(parameters, "phone-context"))), host
}

// hostIn is the host of what follows the @ of a SIP URI.
func hostIn(hostport string) string {
	end := strings.IndexAny(hostport, ";?>")
	if end >= 0 {
		hostport = hostport[:end]
	}
	host, _, _ := strings.Cut(hostport, ":")
	return host
}

// IsInvalidHost reports whether a host is one that leads nowhere, such as anonymous.invalid (RFC 3323, section 4.1.1.3; RFC 2606).
func IsInvalidHost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "invalid" || strings.HasSuffix(host, ".invalid")
}

func unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil && utf8.ValidString(plain) {
		return plain
	}
	return text
}

// inContext completes a local number by its phone-context, if that is a number, too, and the result is long enough to be international: 911
// stays 911 in the context of +1 (RFC 3966, section 5.1.5).
func inContext(number, context string) string {
	prefix, ok := withoutSeparators(unescape(strings.Trim(context, `"`)), true)
	if !ok || !strings.HasPrefix(prefix, "+") || !isDigits(number) {
		return number
	}
	if whole := prefix + number; len(whole) > minDigits && len(whole) <= maxDigits+1 {
		return whole
	}
	return number
}

// withoutSeparators removes what separates digits for the eye (RFC 3966, section 5.1.1, and blanks). ok is false for what is no number,
// which is returned as it is. Short digits with separators are a number only where the sender says so.
func withoutSeparators(text string, isNumber bool) (number string, ok bool) {
	var b strings.Builder
	digits, digitsOnly := 0, text
	if strings.HasPrefix(text, "+") { // +49 (0) 30 123
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
	if len(number) != len(text) && !isNumber && digits < localDigits && number[0] != '+' {
		return text, false
	}
	return number, true
}

// Parameter is the value of a parameter in a list such as "npdi;rn=+15559990000", without escapes; "" if there is none.
func Parameter(list, name string) string {
	for one := range strings.SplitSeq(list, ";") {
		key, value, _ := strings.Cut(one, "=")
		if strings.EqualFold(strings.TrimSpace(key), name) {
			return unescape(strings.TrimSpace(value))
		}
	}
	return ""
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// placeholders are the words that networks send in the place of a number or a name that is hidden (RFC 3323, section 4.1.1.3, and
// carriers').
var placeholders = []string{
	"anonymous", "anonym", "anonymus", "restricted", "unavailable", "unknown", "private", "withheld", "blocked", "hidden", "undisclosed",
	"unidentified", "suppressed", "undefined", "null", "none", "nil", "unbekannt", "inconnu", "desconocido",
}

// fillers are the words that may stand beside a placeholder: "Unknown Number", "Caller ID withheld".
var fillers = []string{"number", "caller", "callerid", "id", "name", "call", "user", "party", "the", "by", "network"}

// missing are the phrases that say the same without a word of its own, letters only.
var missing = []string{
	"nocallerid", "nonumber", "noname", "noid", "notavailable", "notprovided", "outofarea", "na", "coinlinepayphone",
	"interactionwithotherservice",
}

// spelled are placeholders typed on the keys of a telephone, which Twilio sends as numbers: ANONYMOUS, RESTRICTED, BLOCKED, UNKNOWN and
// UNAVAILABLE (https://help.twilio.com/articles/223179988).
var spelled = []string{"266696687", "7378742833", "2562533", "8656696", "86282452253"}

// IsPlaceholder reports whether a network sends a text in the place of a hidden number or name. An empty text is one.
func IsPlaceholder(text string) bool {
	text = strings.ToLower(strings.TrimSpace(unescape(text)))
	if digits := strings.TrimPrefix(text, "+"); isDigits(digits) {
		return slices.Contains(spelled, digits) || len(digits) >= localDigits && strings.Trim(digits, "0") == ""
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if slices.Contains(missing, strings.Join(words, "")) {
		return true
	}
	words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(fillers, w) })
	return text == "" || strings.Trim(text, `-_.?*"' `) == "" && text != "*" ||
		len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !isPlaceholderWord(w) })
}

// isPlaceholderWord also knows words that are written as one: "unknowncaller".
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

// CallerName is the name of a caller, or "" where it only says that there is none.
func CallerName(text string) string {
	if IsPlaceholder(text) {
		return ""
	}
	return text
}

// Key is the same for all spellings of a number: with "+" and without.
func (n Number) Key() string { return strings.TrimPrefix(string(n), "+") }

// Matches reports whether one of the patterns has the number, whose separators do not count.
func (n Number) Matches(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return bridge.MatchesAny([]string{plainPattern(p), p}, string(n)) })
}

// plainPattern is a pattern of numbers without separators: "+49 30 *" is "+4930*". One of names stays as it is.
func plainPattern(pattern string) string {
	held := strings.NewReplacer("*", "", "?", "").Replace(pattern)
	if _, ok := withoutSeparators(held, true); !ok {
		return pattern
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-.()/", r) || unicode.IsSpace(r) {
			return -1
		}
		return r
	}, pattern)
}

// other returns the same international number in its other spelling, with "+" or without; "" if it cannot be international. One with "+"
// may be short, but not as short as a service such as 112.
func (n Number) other() Number {
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

// Called returns the agent that answers a number at a protocol, or nil. A pattern that is the number itself comes first, then the longest
// pattern, and of two alike the first agent by its name. Not all networks send "+", so an international number also has the agent of its
// other spelling: before patterns with wildcards if that is named in full, else where nobody answers the number as it came.
func Called(folder *agents.Folder, protocol string, number Number) (answers *agents.Agent) {
	const inFull = 1 << 20 // more than any pattern is long
	best := -1
	for rank, spelling := range []Number{number.other(), number} {
		if spelling == "" && rank == 0 {
			continue
		}
		for _, a := range folder.PhoneAgents(protocol) {
			for _, pattern := range a.Numbers {
				fit := len(plainPattern(pattern)) + rank*inFull
				if number := string(spelling); pattern == number || plainPattern(pattern) == number {
					fit = (2 + rank) * inFull
				}
				if fit > best && spelling.Matches([]string{pattern}) {
					best, answers = fit, a
				}
			}
		}
	}
	return answers
}
