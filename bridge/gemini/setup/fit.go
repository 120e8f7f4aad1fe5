package setup

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/genai"
)

// fit returns the part of a JSON tree that the SDK's type t has fields for, in camelCase. What t does not know and
// null are left out, the former with a warning; what is of the wrong kind is a *FieldError. Path names the tree in both.
//
// The tree is sent on instead of the SDK's value: that would lose zeros (temperature 0 stays, candidateCount 0 goes) and
// round durations.
func (w *warnings) fit(value any, t reflect.Type, path string) (any, error) {
	wrong := func(want string) error { return &FieldError{Field: path, Problem: "must be " + want} }
	switch t.Kind() {
	case reflect.Pointer:
		return w.fit(value, t.Elem(), path)
	case reflect.Interface:
		return value, nil
	case reflect.Struct:
		if done, ok := value.(fitted); ok {
			return map[string]any(done), nil
		}
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, wrong("an object")
		}
		return w.fitStruct(fields, t, path)
	case reflect.Map:
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, wrong("an object")
		}
		out := make(map[string]any, len(fields))
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if fields[name] == nil {
				continue
			}
			fitted, err := w.fit(fields[name], t.Elem(), path+"."+name)
			if err != nil {
				return nil, err
			}
			out[name] = fitted
		}
		return out, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			text, ok := value.(string)
			if _, err := base64.StdEncoding.DecodeString(text); !ok || err != nil {
				return nil, wrong("base64")
			}
			return text, nil
		}
		return w.fitSlice(value, t, path)
	case reflect.String:
		text, ok := value.(string)
		if !ok {
			return nil, wrong("a string")
		}
		if words := enums[t]; words != nil {
			return enum(text, words, wrong)
		}
		return text, nil
	case reflect.Bool:
		if is, ok := value.(bool); ok {
			return is, nil
		}
		return nil, wrong("true or false")
	case reflect.Int, reflect.Int32, reflect.Int64:
		// proto3 JSON has 64-bit integers as strings and takes both.
		text := fmt.Sprint(value)
		if _, isBool := value.(bool); isBool {
			return nil, wrong("a whole number")
		}
		n, err := strconv.ParseInt(text, 10, t.Bits())
		if err != nil {
			return nil, wrong("a whole number")
		}
		if text = strconv.FormatInt(n, 10); t.Kind() == reflect.Int64 {
			return text, nil
		}
		return json.Number(text), nil
	case reflect.Float32, reflect.Float64:
		if number, ok := value.(json.Number); ok {
			if _, err := number.Float64(); err == nil {
				return number, nil
			}
		}
		return nil, wrong("a number")
	default:
		return nil, wrong("left out")
	}
}

// fitted is a part of a tree that was made to fit before the whole.
type fitted map[string]any

// enums are the words of the SDK's enumerations: Google closes the session for another one. Modality and Behavior are
// read elsewhere.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[genai.ActivityHandling]():             {"START_OF_ACTIVITY_INTERRUPTS", "NO_INTERRUPTION"},
	reflect.TypeFor[genai.AudioTranscriptionConfigMode](): {"VERBATIM", "SMART"},
	reflect.TypeFor[genai.EndSensitivity]():               {"END_SENSITIVITY_HIGH", "END_SENSITIVITY_LOW"},
	reflect.TypeFor[genai.HarmBlockMethod]():              {"SEVERITY", "PROBABILITY"},
	reflect.TypeFor[genai.HarmBlockThreshold]():           {"BLOCK_LOW_AND_ABOVE", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_ONLY_HIGH", "BLOCK_NONE", "OFF"},
	reflect.TypeFor[genai.MediaResolution]():              {"MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_MEDIUM", "MEDIA_RESOLUTION_HIGH"},
	reflect.TypeFor[genai.StartSensitivity]():             {"START_SENSITIVITY_HIGH", "START_SENSITIVITY_LOW"},
	reflect.TypeFor[genai.ThinkingLevel]():                {"MINIMAL", "LOW", "MEDIUM", "HIGH"},
	reflect.TypeFor[genai.TurnCoverage]():                 {"TURN_INCLUDES_ONLY_ACTIVITY", "TURN_INCLUDES_ALL_INPUT", "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"},
	reflect.TypeFor[genai.Type]():                         {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"},
	reflect.TypeFor[genai.HarmCategory](): {
		"HARM_CATEGORY_HARASSMENT", "HARM_CATEGORY_HATE_SPEECH", "HARM_CATEGORY_SEXUALLY_EXPLICIT",
		"HARM_CATEGORY_DANGEROUS_CONTENT", "HARM_CATEGORY_CIVIC_INTEGRITY", "HARM_CATEGORY_JAILBREAK",
	},
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

func (w *warnings) fitStruct(fields map[string]any, t reflect.Type, path string) (any, error) {
	fields = camelKeys(fields)
	out := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == nil {
			continue
		}
		at := path + "." + name
		field, known := jsonFields(t)[name]
		if !known {
			w.warnf("%s was dropped: the Live API does not have it.", at)
			continue
		}
		fitted, err := w.fit(fields[name], field, at)
		if err != nil {
			return nil, err
		}
		if fitted != nil {
			out[name] = fitted
		}
	}
	return out, nil
}

func (w *warnings) fitSlice(value any, t reflect.Type, path string) (any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, &FieldError{Field: path, Problem: "must be an array"}
	}
	out := make([]any, 0, len(list))
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if v == nil {
			return nil, &FieldError{Field: at, Problem: "must not be null"}
		}
		fitted, err := w.fit(v, t.Elem(), at)
		if err != nil {
			return nil, err
		}
		out = append(out, fitted)
	}
	return out, nil
}

// fieldTypes keeps what jsonFields has found.
var fieldTypes sync.Map // of reflect.Type to map[string]reflect.Type

// jsonFields returns the types of a struct's fields by their JSON names.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldTypes.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = t.Field(i).Type
		}
	}
	fieldTypes.Store(t, fields)
	return fields
}
