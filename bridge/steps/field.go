package steps

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

// maxText bounds a text that was found out, in bytes: an address, not a letter.
const maxText = 1000

// rule is what a field must be.
type rule struct {
	words    string    // "a number from 1 to 4"
	number   []float64 // the least and the most of a number; of length 0: there is no such limit; nil: it is a text
	choices  []string  // of a text; nil: any
	optional bool
	check    func(given any) (value any, ok bool)
}

// schema is a field, or the next step, for the model.
type schema struct {
	Type        string   `json:"type"`
	Enum        []string `json:"enum,omitempty"`
	Minimum     *float64 `json:"minimum,omitempty"`
	Maximum     *float64 `json:"maximum,omitempty"`
	Description string   `json:"description"`
}

func (r rule) schema() schema {
	s := schema{Type: "string", Enum: r.choices, Description: r.words}
	if r.number != nil {
		s.Type = "number"
	}
	if len(r.number) == 2 {
		s.Minimum, s.Maximum = &r.number[0], &r.number[1]
	}
	return s
}

// words are the field for the model.
func (f Field) words() string {
	rule := f.mustRule()
	if rule.optional {
		return f.Name + ": " + rule.words + ", if the person wants to say it"
	}
	return f.Name + ": " + rule.words
}

// mustRule is the rule of a field that [Plan.Check] has read.
func (f Field) mustRule() rule {
	r, err := f.rule()
	if err != nil { // of another gateway's version
		r = rule{words: "a text", check: ofText(isText)}
	}
	return r
}

var between = regexp.MustCompile(`^(-?\d+(?:\.\d+)?)(?:(?: to | ?- ?)(-?\d+(?:\.\d+)?))?$`)

// rule reads the kind of a field.
func (f Field) rule() (r rule, err error) {
	words := strings.Fields(f.Kind)
	optional := len(words) > 0 && words[0] == "optional"
	if optional {
		words = words[1:]
	}
	if len(words) == 0 {
		return r, fmt.Errorf("it has no type: %s", kinds)
	}
	rest := strings.Join(words[1:], " ")
	switch kind := words[0]; {
	case kind == "number":
		r, err = numberRule(rest)
	case kind == "choice":
		r, err = choiceRule(rest)
	case kind == "digits":
		r, err = digitsRule(rest)
	case rest != "" && plain[kind].check != nil:
		err = fmt.Errorf("%q has nothing behind it", kind)
	case plain[kind].check != nil:
		r = plain[kind]
	default:
		err = fmt.Errorf("%q is no type: %s", kind, kinds)
	}
	r.optional = optional
	return r, err
}

const kinds = "text, number, date, e-mail, phone, choice or digits"

// plain are the types that have nothing behind them.
var plain = map[string]rule{
	"text":   {words: "a text", check: ofText(isText)},
	"date":   {words: "a date, written as 2027-12-31", check: ofText(isDate)},
	"e-mail": {words: "an e-mail address", check: ofText(isMail)},
	"phone":  {words: "a telephone number, written in digits", check: ofText(isPhone)},
}

// ofText checks a text without the spaces around it. Numbers are texts, too.
func ofText(check func(text string) (value string, ok bool)) func(any) (any, bool) {
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

func isText(text string) (string, bool) { return text, text != "" && len(text) <= maxText }

func isDate(text string) (string, bool) {
	_, err := time.Parse(time.DateOnly, text)
	return text, err == nil
}

func isMail(text string) (string, bool) {
	a, err := mail.ParseAddress(text)
	if err != nil || a.Address != text || len(text) > 254 { // RFC 5321, 4.5.3.1.3
		return text, false
	}
	return text, strings.Contains(text[strings.LastIndex(text, "@"):], ".")
}

// isPhone takes a number as people write it, and keeps its digits and a leading plus. E.164 has 15 digits at most.
func isPhone(text string) (string, bool) {
	number := strings.NewReplacer(" ", "", "-", "", "/", "", "(", "", ")", "", ".", "").Replace(text)
	n := strings.TrimPrefix(number, "+")
	return number, len(n) >= 3 && len(n) <= 15 && strings.Trim(n, "0123456789") == ""
}

// limits reads "1 to 4", "1-4" or "4". Nothing is no limit.
func limits(text string) (from, to float64, limited bool, err error) {
	if text == "" {
		return 0, 0, false, nil
	}
	m := between.FindStringSubmatch(strings.ReplaceAll(text, "–", "-"))
	if m == nil {
		return 0, 0, false, fmt.Errorf("%q is no range, as 1 to 4", text)
	}
	from, _ = strconv.ParseFloat(m[1], 64)
	to = from
	if m[2] != "" {
		to, _ = strconv.ParseFloat(m[2], 64)
	}
	if to < from {
		return 0, 0, false, fmt.Errorf("%q ends before it begins", text)
	}
	return from, to, true, nil
}

func numberRule(text string) (rule, error) {
	from, to, limited, err := limits(text)
	words, limits_ := "a number", []float64{}
	if limited {
		words, limits_ = fmt.Sprintf("a number from %v to %v", from, to), []float64{from, to}
	}
	return rule{words: words, number: limits_, check: func(given any) (any, bool) {
		n, err := strconv.ParseFloat(strings.TrimSpace(fmt.Sprint(given)), 64)
		return n, err == nil && n-n == 0 && (!limited || n >= from && n <= to) // not infinite, and not NaN
	}}, err
}

func choiceRule(text string) (rule, error) {
	choices := strings.Split(text, ",")
	for i, c := range choices {
		choices[i] = strings.TrimSpace(c)
	}
	if len(choices) < 2 || slices.Contains(choices, "") {
		return rule{}, fmt.Errorf("%q is no choice, as single, double", text)
	}
	return rule{words: "one of " + strings.Join(choices, ", "), choices: choices, check: ofText(func(text string) (string, bool) {
		i := slices.IndexFunc(choices, func(c string) bool { return strings.EqualFold(c, text) })
		return choices[max(i, 0)], i >= 0
	})}, nil
}

// digitsRule reads how many digits there are, and a check.
func digitsRule(text string) (r rule, err error) {
	words := strings.Fields(text)
	name := ""
	if n := len(words); n > 0 && digits.Check(words[n-1]) != nil {
		name, words = words[n-1], words[:n-1]
	}
	from, to, limited, err := limits(strings.Join(words, " "))
	if err != nil {
		return r, fmt.Errorf("digits: %w, and no check (iban, %s)", err, digits.Names)
	}
	right := digits.Check(name)
	r.words = "digits"
	switch {
	case limited && from == to:
		r.words = fmt.Sprintf("%v digits", from)
	case limited:
		r.words = fmt.Sprintf("%v to %v digits", from, to)
	}
	kind, _, _ := strings.Cut(name, ":")
	r.words += map[string]string{
		"luhn": " whose last one, the check digit, fits the others", "iban": " and letters of a bank account (IBAN), whose check digits fit",
		"date": " that are a date (" + strings.TrimPrefix(name, "date:") + ")",
	}[kind]
	r.check = ofText(func(text string) (string, bool) {
		number := strings.ToUpper(strings.NewReplacer(" ", "", "-", "", ".", "").Replace(text))
		good := name == "iban" || number != "" && strings.Trim(number, "0123456789") == ""
		if n := float64(len(number)); limited && (n < from || n > to) {
			good = false
		}
		return number, good && len(number) <= maxText && right(number)
	})
	return r, nil
}
