package setup

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// fieldsText is every field of a setup, as Google's SDK for Go has them: one type a line, its fields with their kinds. Capitals are
// further types or enumerations, [] repeats, map has names of its own. A test compares it with the SDK, which itself would be a tenth of
// the program.
//
//go:embed fields.txt
var fieldsText string

// newerFields are those that Google's SDKs for Python (3.4.0) and JavaScript (3.1.0) have, and the one for Go (1.77.0) has not.
const newerFields = `
AudioTranscriptionConfig sourceText:string
ProactivityConfig proactiveVideo:bool
`

// types are the fields of each type, with their kinds.
var types = func() map[string]map[string]string {
	types := map[string]map[string]string{}
	for line := range strings.Lines(fieldsText + strings.TrimSpace(newerFields)) {
		words := strings.Fields(line)
		fields := types[words[0]]
		if fields == nil {
			fields = make(map[string]string, len(words)-1)
		}
		for _, word := range words[1:] {
			name, kind, _ := strings.Cut(word, ":")
			fields[name] = kind
		}
		types[words[0]] = fields
	}
	return types
}()

// fit returns the part of a JSON tree that a kind has fields for, in camelCase. What the kind does not know and null are left out, the
// former with a warning; what is of the wrong kind is a *FieldError. Path names the tree in both.
//
// The tree is sent on instead of a Go value: that would lose zeros (temperature 0 stays, candidateCount 0 goes) and round durations.
func (w *warnings) fit(value any, kind, path string) (any, error) {
	wrong := func(want string) error { return &FieldError{Field: path, Problem: "must be " + want} }
	if element, ok := strings.CutPrefix(kind, "[]"); ok {
		return w.fitList(value, element, path)
	}
	if element, ok := strings.CutPrefix(kind, "map["); ok {
		return w.fitMap(value, strings.TrimSuffix(element, "]"), path)
	}
	if words := enums[kind]; words != nil {
		switch v := value.(type) {
		case string:
			return enum(v, words, wrong)
		case json.Number: // proto3 JSON has them, too
			if slices.Contains(numbered, kind) {
				return enum(wordOfNumber(v, words), words, wrong)
			}
		}
		return nil, wrong("a string")
	}
	switch kind {
	case "any":
		return value, nil
	case "string":
		switch v := value.(type) {
		case string:
			return v, nil
		case json.Number:
			return string(v), nil
		}
		return nil, wrong("a string")
	case "bytes":
		text, ok := value.(string)
		data, err := wire.AppendBase64(nil, []byte(text))
		if !ok || err != nil {
			return nil, wrong("base64")
		}
		return base64.StdEncoding.EncodeToString(data), nil
	case "bool":
		if is, ok := tools.ParseBool(value); ok {
			return is, nil
		}
		return nil, wrong("true or false")
	case "int32", "int64":
		return fitWhole(value, kind, wrong)
	case "float32", "float64":
		if number, ok := tools.ParseNumber(value); ok {
			if _, err := number.Float64(); err == nil {
				return number, nil
			}
		}
		return nil, wrong("a number")
	}
	if done, ok := value.(fitted); ok {
		return map[string]any(done), nil
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, wrong("an object")
	}
	return w.fitFields(fields, kind, path)
}

// fitWhole fits a whole number. proto3 JSON has those of 64 bits as strings and takes both.
func fitWhole(value any, kind string, wrong func(string) error) (any, error) {
	bits, _ := strconv.Atoi(strings.TrimPrefix(kind, "int"))
	number, ok := tools.WholeNumber(value)
	n, err := strconv.ParseInt(string(number), 10, bits)
	if err != nil || !ok {
		return nil, wrong("a whole number")
	}
	if text := strconv.FormatInt(n, 10); bits == 32 {
		return json.Number(text), nil
	} else {
		return text, nil
	}
}

// fitted is a part of a tree that was made to fit before the whole.
type fitted map[string]any

// enums are the words of the SDK's enumerations: Google closes the session for another one. Modality and Behavior are
// read elsewhere.
var enums = map[string][]string{
	"ActivityHandling":             {"START_OF_ACTIVITY_INTERRUPTS", "NO_INTERRUPTION"},
	"AudioTranscriptionConfigMode": {"VERBATIM", "SMART"},
	"EndSensitivity":               {"END_SENSITIVITY_HIGH", "END_SENSITIVITY_LOW"},
	"HarmBlockMethod":              {"SEVERITY", "PROBABILITY"},
	"HarmBlockThreshold":           {"BLOCK_LOW_AND_ABOVE", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_ONLY_HIGH", "BLOCK_NONE", "OFF"},
	"MediaResolution":              {"MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_MEDIUM", "MEDIA_RESOLUTION_HIGH"},
	"StartSensitivity":             {"START_SENSITIVITY_HIGH", "START_SENSITIVITY_LOW"},
	"ThinkingLevel":                {"MINIMAL", "LOW", "MEDIUM", "HIGH"},
	"TurnCoverage":                 {"TURN_INCLUDES_ONLY_ACTIVITY", "TURN_INCLUDES_ALL_INPUT", "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"},
	"Type":                         {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"},
	"HarmCategory": {
		"HARM_CATEGORY_HARASSMENT", "HARM_CATEGORY_HATE_SPEECH", "HARM_CATEGORY_SEXUALLY_EXPLICIT",
		"HARM_CATEGORY_DANGEROUS_CONTENT", "HARM_CATEGORY_CIVIC_INTEGRITY", "HARM_CATEGORY_JAILBREAK",
	},
}

// numbered are the enumerations whose words above are in the order of their numbers, from 1.
var numbered = []string{
	"ActivityHandling", "EndSensitivity", "HarmBlockMethod", "HarmBlockThreshold", "MediaResolution",
	"StartSensitivity", "TurnCoverage", "Type",
}

// wordOfNumber returns the word of a number in an enumeration: empty for 0, which says nothing, and one that is no word for others.
func wordOfNumber(number json.Number, words []string) string {
	switch n, err := strconv.Atoi(string(number)); {
	case err != nil, n < 0, n > len(words):
		return "?"
	case n == 0:
		return ""
	default:
		return words[n-1]
	}
}

// enum returns a word as the API spells it, and nil for the one that says nothing.
func enum(text string, words []string, wrong func(string) error) (any, error) {
	word := strings.ToUpper(strings.ReplaceAll(text, "-", "_"))
	switch {
	case slices.Contains(words, word):
		return word, nil
	case word == "" || strings.HasSuffix(word, "UNSPECIFIED"):
		return nil, nil
	}
	return nil, wrong(strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1])
}

// open are the types whose fields may be newer than this gateway: unknown ones go up as they are. Elsewhere a name that is not known is
// more likely one of another API.
var open = []string{
	"AudioTranscriptionConfig", "AutomaticActivityDetection", "AvatarConfig", "ContextWindowCompressionConfig", "GenerationConfig",
	"ProactivityConfig", "RealtimeInputConfig", "SlidingWindow", "SpeechConfig", "ThinkingConfig", "TranslationConfig", "VoiceConfig",
}

// fieldName is what names of Google's fields look like.
var fieldName = regexp.MustCompile(`^[a-z][A-Za-z0-9]{0,63}$`)

// isNewer and isUnknown end the warnings about a field that is not known here.
const (
	isNewer   = " is newer than this gateway: it goes up as it is."
	isUnknown = " was dropped: the Live API does not have it."
)

// Known returns the config without the fields that are newer than this gateway, and sentences for the client that say so; none if there are
// no such fields. A server that does not know one either closes the session for it.
func (c Config) Known() (known Config, dropped []string) {
	tree, _ := tools.Decode(c.Effective()) // it was encoded
	known = c
	var ok bool
	if known.setup, ok = tree.(map[string]any); !ok || !prune(tree, "LiveClientSetup") {
		return c, nil
	}
	known.Warnings, dropped = nil, []string{}
	for _, warning := range c.Warnings {
		if field, newer := strings.CutSuffix(warning, isNewer); newer {
			warning = field + isUnknown
			dropped = append(dropped, warning)
		}
		known.Warnings = append(known.Warnings, warning)
	}
	return known, dropped
}

// prune takes out what a type and those below it do not know, and reports whether there was something.
func prune(value any, kind string) (pruned bool) {
	fields, ok := value.(map[string]any)
	if !ok || types[kind] == nil {
		return false
	}
	for name, field := range fields {
		inner, known := types[kind][name]
		if !known {
			delete(fields, name)
		}
		pruned = prune(field, inner) || pruned || !known
	}
	return pruned
}

func (w *warnings) fitFields(fields map[string]any, kind, path string) (any, error) {
	kinds := types[kind]
	fields = camelKeys(fields)
	out := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == nil {
			continue
		}
		at := path + "." + name
		inner, known := kinds[name]
		switch {
		case !known && slices.Contains(open, kind) && fieldName.MatchString(name):
			w.warnf("%s", at+isNewer)
			out[name] = fields[name]
			continue
		case !known:
			w.warnf("%s", at+isUnknown)
			continue
		}
		fitted, err := w.fit(fields[name], inner, at)
		if err != nil {
			return nil, err
		}
		if fitted != nil {
			out[name] = fitted
		}
	}
	return out, nil
}

func (w *warnings) fitMap(value any, kind, path string) (any, error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, &FieldError{Field: path, Problem: "must be an object"}
	}
	out := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == nil {
			continue
		}
		fitted, err := w.fit(fields[name], kind, path+"."+name)
		if err != nil {
			return nil, err
		}
		out[name] = fitted
	}
	return out, nil
}

func (w *warnings) fitList(value any, kind, path string) (any, error) {
	list, ok := value.([]any)
	if one, is := value.(map[string]any); is && types[kind] != nil { // one for a list, as proto3's readers take it
		list, ok = []any{one}, true
	}
	if text, is := value.(string); is && types[kind] == nil {
		list, ok = []any{text}, true
	}
	if !ok {
		return nil, &FieldError{Field: path, Problem: "must be an array"}
	}
	out := make([]any, 0, len(list))
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if v == nil {
			return nil, &FieldError{Field: at, Problem: "must not be null"}
		}
		fitted, err := w.fit(v, kind, at)
		if err != nil {
			return nil, err
		}
		out = append(out, fitted)
	}
	return out, nil
}
