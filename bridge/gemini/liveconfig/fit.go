package liveconfig

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

// fieldsText lists all fields of a setup in Google's Go SDK. Each line has a type, with its fields and their kinds. A
// capitalized kind is a type or an enumeration, [] means a list, and map[ ] an object with arbitrary names. With this
// list the program does not need the SDK's types, which would be a tenth of its size.
//
//go:embed fields.txt
var fieldsText string

// newerFields lists fields in Google's SDKs for Python (3.4.0) and JavaScript (3.1.0) that are not in the SDK for Go
// (1.77.0).
const newerFields = `
AudioTranscriptionConfig sourceText:string
ProactivityConfig proactiveVideo:bool
`

// types maps each type to its fields and their kinds.
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

// fitValue returns a JSON value without the fields that its kind does not have (see fieldsText), and with names in
// camelCase. It drops nulls silently, and unknown fields with a warning. A value of the wrong type is a *FieldError.
// path names the value in messages.
//
// The value stays JSON. Converting it to a type of the SDK would lose some zeros and round durations.
func (w *warnings) fitValue(value any, kind, path string) (any, error) {
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
			return normalizeEnum(v, words, wrong)
		case json.Number: // proto3 JSON accepts the number of an enumeration's value
			if slices.Contains(numberedEnums, kind) {
				return normalizeEnum(enumWordByNumber(v, words), words, wrong)
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
		data, err := wire.AppendDecodedBase64(nil, []byte(text))
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
		return encodeInteger(value, kind, wrong)
	case "float32", "float64":
		if number, ok := tools.ParseNumber(value); ok {
			if _, err := number.Float64(); err == nil {
				return number, nil
			}
		}
		return nil, wrong("a number")
	}
	if done, ok := value.(fittedObject); ok {
		return map[string]any(done), nil
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, wrong("an object")
	}
	return w.fitFields(fields, kind, path)
}

// encodeInteger returns an integer as proto3 JSON encodes it: a number for int32, a string for int64. The input may be a
// number or a string.
func encodeInteger(value any, kind string, newError func(string) error) (any, error) {
	bits, _ := strconv.Atoi(strings.TrimPrefix(kind, "int"))
	number, ok := tools.ParseWholeNumber(value)
	n, err := strconv.ParseInt(string(number), 10, bits)
	if err != nil || !ok {
		return nil, newError("a whole number")
	}
	if text := strconv.FormatInt(n, 10); bits == 32 {
		return json.Number(text), nil
	} else {
		return text, nil
	}
}

// fittedObject is an object that the parser has already translated. fitValue returns it unchanged.
type fittedObject map[string]any

// enums maps the SDK's enumerations to their values. Google closes the session for any other value. Two enumerations
// are missing here: fitModalities handles Modality, and takeCallOptions handles Behavior.
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

// numberedEnums lists the enumerations that clients may write as numbers of the protocol. Their values in enums are in
// the order of these numbers, which begin with 1.
var numberedEnums = []string{
	"ActivityHandling", "EndSensitivity", "HarmBlockMethod", "HarmBlockThreshold", "MediaResolution",
	"StartSensitivity", "TurnCoverage", "Type",
}

// enumWordByNumber returns the value with this number in an enumeration of the protocol. For 0 (unspecified) it returns
// "". For an unknown number it returns "?", which normalizeEnum rejects.
func enumWordByNumber(number json.Number, words []string) string {
	switch n, err := strconv.Atoi(string(number)); {
	case err != nil, n < 0, n > len(words):
		return "?"
	case n == 0:
		return ""
	default:
		return words[n-1]
	}
}

// normalizeEnum returns a value of an enumeration in the API's spelling, or nil for the unspecified value.
func normalizeEnum(text string, words []string, newError func(string) error) (any, error) {
	word := strings.ToUpper(strings.ReplaceAll(text, "-", "_"))
	switch {
	case slices.Contains(words, word):
		return word, nil
	case word == "" || strings.HasSuffix(word, "UNSPECIFIED"):
		return nil, nil
	}
	return nil, newError(strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1])
}

// openTypes lists types to which Google may have added fields since this gateway was built. So their unknown fields are
// forwarded. In other types, an unknown field more likely belongs to another API, and is dropped.
var openTypes = []string{
	"AudioTranscriptionConfig", "AutomaticActivityDetection", "AvatarConfig", "ContextWindowCompressionConfig", "GenerationConfig",
	"ProactivityConfig", "RealtimeInputConfig", "SlidingWindow", "SpeechConfig", "ThinkingConfig", "TranslationConfig", "VoiceConfig",
}

// fieldName matches names of Google's fields.
var fieldName = regexp.MustCompile(`^[a-z][A-Za-z0-9]{0,63}$`)

// newerFieldWarning and unknownFieldWarning are the endings of the warnings about forwarded and dropped unknown fields.
const (
	newerFieldWarning   = " is newer than this gateway: it goes up as it is."
	unknownFieldWarning = " was dropped: the Live API does not have it."
)

// WithoutNewerFields returns a copy of the config without fields that are newer than this gateway, because some servers
// close the session for them. dropped has the warnings about these fields, and is nil if there are no such fields.
func (c Config) WithoutNewerFields() (pruned Config, dropped []string) {
	tree, _ := tools.Decode(c.Effective()) // cannot fail: Effective returns valid JSON
	pruned = c
	var ok bool
	if pruned.setup, ok = tree.(map[string]any); !ok || !pruneUnknownFields(tree, "LiveClientSetup") {
		return c, nil
	}
	pruned.Warnings, dropped = nil, []string{}
	for _, warning := range c.Warnings {
		if field, newer := strings.CutSuffix(warning, newerFieldWarning); newer {
			warning = field + unknownFieldWarning
			dropped = append(dropped, warning)
		}
		pruned.Warnings = append(pruned.Warnings, warning)
	}
	return pruned, dropped
}

// pruneUnknownFields removes unknown fields from a JSON value of this kind, at all levels. It reports whether it has
// removed any.
func pruneUnknownFields(value any, kind string) (isPruned bool) {
	fields, ok := value.(map[string]any)
	if !ok || types[kind] == nil {
		return false
	}
	for name, field := range fields {
		inner, known := types[kind][name]
		if !known {
			delete(fields, name)
		}
		isPruned = pruneUnknownFields(field, inner) || isPruned || !known
	}
	return isPruned
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
		case !known && slices.Contains(openTypes, kind) && fieldName.MatchString(name):
			w.warnf("%s", at+newerFieldWarning)
			out[name] = fields[name]
			continue
		case !known:
			w.warnf("%s", at+unknownFieldWarning)
			continue
		}
		fitted, err := w.fitValue(fields[name], inner, at)
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
		fitted, err := w.fitValue(fields[name], kind, path+"."+name)
		if err != nil {
			return nil, err
		}
		out[name] = fitted
	}
	return out, nil
}

func (w *warnings) fitList(value any, kind, path string) (any, error) {
	list, ok := value.([]any)
	if one, is := value.(map[string]any); is && types[kind] != nil { // a single object in place of a list, as proto3 JSON parsers accept it
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
		fitted, err := w.fitValue(v, kind, at)
		if err != nil {
			return nil, err
		}
		out = append(out, fitted)
	}
	return out, nil
}
