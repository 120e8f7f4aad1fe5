package testkit

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// wrongValues are JSON texts that replace the valid values of a message.
var wrongValues = []string{
	`null`, `true`, `-1`, `1e999`, `18446744073709551616`, `""`, `"\ud800"`, `"` + "\xff\xfe" + `"`, `{}`, `[]`, `[null]`, `{"":{"":null}}`,
	strings.Repeat("[", 20000) + strings.Repeat("]", 20000), strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000),
	`"` + strings.Repeat("A", 70<<10) + `"`, `nul`, `"`, ``,
}

// placeInJSON is the position of a value or of a field's name in a JSON text.
type placeInJSON struct {
	from, end int
	isName    bool
}

// jsonPlaces returns the positions of all values in a JSON text, including objects and lists, and of all field names.
func jsonPlaces(text string) (places []placeInJSON) {
	dec := json.NewDecoder(strings.NewReader(text))
	type level struct {
		at       int // index in places
		isObject bool
		tokens   int
	}
	var open []level
	for {
		token, err := dec.Token()
		if err != nil {
			return places
		}
		end := int(dec.InputOffset())
		if token == json.Delim('}') || token == json.Delim(']') {
			places[open[len(open)-1].at].end = end
			open = open[:len(open)-1]
			continue
		}
		isName := false
		if in := len(open) - 1; in >= 0 {
			isName = open[in].isObject && open[in].tokens%2 == 0
			open[in].tokens++
		}
		if delim, ok := token.(json.Delim); ok {
			open = append(open, level{at: len(places), isObject: delim == '{'})
			places = append(places, placeInJSON{end - 1, end, false})
			continue
		}
		raw := Must(json.Marshal(token))
		if from := end - len(raw); from >= 0 && text[from:end] == string(raw) {
			places = append(places, placeInJSON{from, end, isName})
		}
	}
}

// otherShapes returns a value in wrong shapes: put into a list or an object, taken out of a list, a number or an object as
// text, a text without quotation marks. It adds some unrelated values.
func otherShapes(value string) []string {
	shapes := []string{
		"[" + value + "]", "[" + value + "," + value + "]", `{"value":` + value + `}`, "7", `"text"`, "[7]", `{"a":"b"}`, "[[]]",
	}
	switch value[0] {
	case '[':
		shapes = append(shapes, strings.Trim(value[1:len(value)-1], " "))
	case '"':
		shapes = append(shapes, strings.Trim(value, `"`))
	case '{':
		shapes = append(shapes, strconv.Quote(value))
	default:
		shapes = append(shapes, `"`+value+`"`, value+".0", value+"e0", value+"e400", value+strings.Repeat("0", 400))
	}
	return shapes
}

var capital = regexp.MustCompile(`[A-Z]`)

// MalformedVariants returns malformed versions of a JSON text: wrong values, shapes, names and ends.
func MalformedVariants(text string) (all []string) {
	for i, p := range jsonPlaces(text) {
		put := func(value string) { all = append(all, text[:p.from]+value+text[p.end:]) }
		value := text[p.from:p.end]
		if p.isName {
			put(strings.ToLower(capital.ReplaceAllString(value, "_$0")))
			put(strings.ToUpper(value))
			put(value + `:null,` + value)
			continue
		}
		for j, wrong := range wrongValues {
			if (i+j)%3 == 0 { // a third of all combinations: each value in some places, and some values in each place
				put(wrong)
			}
		}
		for j, shape := range otherShapes(value) {
			if (i+j)%2 == 0 {
				put(shape)
			}
		}
	}
	for n := 1; n < len(text); n += 1 + len(text)/7 {
		all = append(all, text[:n])
	}
	return append(all, text[:len(text)-1]+","+text[1:], text+text, "\ufeff"+text, text+"\x00", "["+text+"]")
}

// SampleMalformed returns every step-th malformed variant of these messages, because a test of all variants would take
// too long.
func SampleMalformed(step int, good ...string) (list []string) {
	for _, g := range good {
		for i, bad := range MalformedVariants(g) {
			if i%step == 0 {
				list = append(list, bad)
			}
		}
	}
	return list
}
