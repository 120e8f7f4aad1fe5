package flow

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/tools/digits"
)

// maxText limits a text value, in bytes: enough for an address.
const maxText = 1000

// fieldRule describes the valid values of a field and checks a value.
type fieldRule struct {
	description string    // for the model: "a number from 1 to 4"
	bounds      []float64 // minimum and maximum of a number; empty means unlimited; nil means that the value is a text
	choices     []string  // allowed texts; nil means any text
	optional    bool
	check       func(given any) (value any, ok bool)
}

// jsonSchema describes a field, or the choice of the next step, to the model.
type jsonSchema struct {
	Type        string   `json:"type"`
	Enum        []string `json:"enum,omitempty"`
	Minimum     *float64 `json:"minimum,omitempty"`
	Maximum     *float64 `json:"maximum,omitempty"`
	Description string   `json:"description"`
}

func (r fieldRule) toSchema() jsonSchema {
	s := jsonSchema{Type: "string", Enum: r.choices, Description: r.description}
	if r.bounds != nil {
		s.Type = "number"
	}
	if len(r.bounds) == 2 {
		s.Minimum, s.Maximum = &r.bounds[0], &r.bounds[1]
	}
	return s
}

// promptLine returns the line of the instruction that describes the field to the model.
func (f Field) promptLine() string {
	rule := f.parseRuleOrText()
	if rule.optional {
		return f.Name + ": " + rule.description + ", if the person wants to say it"
	}
	return f.Name + ": " + rule.description
}

// parseRuleOrText returns the rule of a field that [Plan.Check] has validated. If the type is unknown, it returns the
// rule for text.
func (f Field) parseRuleOrText() fieldRule {
	r, err := f.parseRule()
	if err != nil { // the plan may come from a gateway of another version, with other types
		r = fieldRule{description: "a text", check: wrapTextCheck(parseText)}
	}
	return r
}

var rangePattern = regexp.MustCompile(`^(-?\d+(?:\.\d+)?)(?:(?: to | ?- ?)(-?\d+(?:\.\d+)?))?$`)

// parseRule parses the type of a field, such as "number 1 to 4".
func (f Field) parseRule() (r fieldRule, err error) {
	words := strings.Fields(f.Kind)
	optional := len(words) > 0 && words[0] == "optional"
	if optional {
		words = words[1:]
	}
	if len(words) == 0 {
		return r, fmt.Errorf("type missing: use %s", typeList)
	}
	rest := strings.Join(words[1:], " ")
	switch kind := words[0]; {
	case kind == "number":
		r, err = parseNumberRule(rest)
	case kind == "choice":
		r, err = parseChoiceRule(rest)
	case kind == "digits":
		r, err = parseDigitsRule(rest)
	case rest != "" && simpleRules[kind].check != nil:
		err = fmt.Errorf("%q takes no argument", kind)
	case simpleRules[kind].check != nil:
		r = simpleRules[kind]
	default:
		err = fmt.Errorf("unknown type %q: use %s", kind, typeList)
	}
	r.optional = optional
	return r, err
}

const typeList = "text, number, date, e-mail, phone, choice or digits"

// simpleRules are the types without an argument.
var simpleRules = map[string]fieldRule{
	"text":   {description: "a text", check: wrapTextCheck(parseText)},
	"date":   {description: "a date, written as 2027-12-31", check: wrapTextCheck(checkISODate)},
	"e-mail": {description: "an e-mail address", check: wrapTextCheck(parseMail)},
	"phone":  {description: "a telephone number, written in digits", check: wrapTextCheck(parsePhone)},
}

// wrapTextCheck returns a check that accepts only text and numbers. It converts the value to text, removes the spaces
// around it, and passes it to check.
func wrapTextCheck(check func(text string) (value string, ok bool)) func(any) (any, bool) {
	return func(given any) (any, bool) {
		var text string
		switch given := given.(type) {
		case string:
			text = strings.TrimSpace(given)
		case json.Number:
			text = given.String()
		default:
			return nil, false
		}
		value, ok := check(text)
		return value, ok
	}
}

func parseText(text string) (value string, ok bool) { return text, text != "" && len(text) <= maxText }

func checkISODate(text string) (value string, ok bool) {
	_, err := time.Parse(time.DateOnly, text)
	return text, err == nil
}

func parseMail(text string) (value string, ok bool) {
	a, err := mail.ParseAddress(text)
	if err != nil || a.Address != text || len(text) > 254 { // RFC 5321, 4.5.3.1.3
		return text, false
	}
	return text, strings.Contains(text[strings.LastIndex(text, "@"):], ".")
}

// parsePhone parses a telephone number in the usual notations. It returns a leading plus and the digits, at most 15 as
// in E.164.
func parsePhone(text string) (value string, ok bool) {
	number := strings.NewReplacer(" ", "", "-", "", "/", "", "(", "", ")", "", ".", "").Replace(text)
	n := strings.TrimPrefix(number, "+")
	return number, len(n) >= 3 && len(n) <= 15 && strings.Trim(n, "0123456789") == ""
}

// parseRange parses "1 to 4", "1-4" or "4". If the text is empty, isLimited is false.
func parseRange(text string) (from, to float64, isLimited bool, err error) {
	if text == "" {
		return 0, 0, false, nil
	}
	m := rangePattern.FindStringSubmatch(strings.ReplaceAll(text, "–", "-"))
	if m == nil {
		return 0, 0, false, fmt.Errorf("%q is not a range such as 1 to 4", text)
	}
	from, _ = strconv.ParseFloat(m[1], 64)
	to = from
	if m[2] != "" {
		to, _ = strconv.ParseFloat(m[2], 64)
	}
	if to < from {
		return 0, 0, false, fmt.Errorf("%q: the end is less than the start", text)
	}
	return from, to, true, nil
}

func parseNumberRule(text string) (fieldRule, error) {
	from, to, limited, err := parseRange(text)
	words, bounds := "a number", []float64{}
	if limited {
		words, bounds = fmt.Sprintf("a number from %v to %v", from, to), []float64{from, to}
	}
	return fieldRule{description: words, bounds: bounds, check: func(given any) (any, bool) {
		n, err := strconv.ParseFloat(strings.TrimSpace(fmt.Sprint(given)), 64)
		return n, err == nil && n-n == 0 && (!limited || n >= from && n <= to) // neither infinite nor NaN
	}}, err
}

func parseChoiceRule(text string) (fieldRule, error) {
	choices := strings.Split(text, ",")
	for i, c := range choices {
		choices[i] = strings.TrimSpace(c)
	}
	if len(choices) < 2 || slices.Contains(choices, "") {
		return fieldRule{}, fmt.Errorf("%q is not a choice such as single, double", text)
	}
	return fieldRule{description: "one of " + strings.Join(choices, ", "), choices: choices, check: wrapTextCheck(func(text string) (string,
		bool,
	) {
		i := slices.IndexFunc(choices, func(c string) bool { return strings.EqualFold(c, text) })
		return choices[max(i, 0)], i >= 0
	})}, nil
}

// parseDigitsRule parses a type that begins with "digits": the number of digits, and the name of a check.
func parseDigitsRule(text string) (r fieldRule, err error) {
	words := strings.Fields(text)
	name := ""
	if n := len(words); n > 0 && digits.FindCheck(words[n-1]) != nil {
		name, words = words[n-1], words[:n-1]
	}
	from, to, limited, err := parseRange(strings.Join(words, " "))
	if err != nil {
		return r, fmt.Errorf("digits: %w, nor a check (iban, %s)", err, digits.Names)
	}
	right := digits.FindCheck(name)
	r.description = "digits"
	switch {
	case limited && from == to:
		r.description = fmt.Sprintf("%v digits", from)
	case limited:
		r.description = fmt.Sprintf("%v to %v digits", from, to)
	}
	kind, _, _ := strings.Cut(name, ":")
	r.description += map[string]string{
		"luhn": " whose last one, the check digit, fits the others", "iban": " and letters of a bank account (IBAN), whose check digits fit",
		"date": " that are a date (" + strings.TrimPrefix(name, "date:") + ")",
	}[kind]
	r.check = wrapTextCheck(func(text string) (string, bool) {
		number := strings.ToUpper(strings.NewReplacer(" ", "", "-", "", ".", "").Replace(text))
		good := name == "iban" || number != "" && strings.Trim(number, "0123456789") == ""
		if n := float64(len(number)); limited && (n < from || n > to) {
			good = false
		}
		return number, good && len(number) <= maxText && right(number)
	})
	return r, nil
}
