package liveconfig

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"
)

// TestNewerFieldsAreNotInSDK: a field of newerFields that the SDK has meanwhile belongs in fields.txt only.
func TestNewerFieldsAreNotInSDK(t *testing.T) {
	for line := range strings.Lines(strings.TrimSpace(newerFields)) {
		words := strings.Fields(line)
		for _, word := range words[1:] {
			for old := range strings.Lines(fieldsText) {
				if fields := strings.Fields(old); fields[0] == words[0] && slices.Contains(fields, word) {
					t.Errorf("%s of %s is in fields.txt, too", word, words[0])
				}
			}
		}
	}
}

// TestFieldsMatchSDK compares fields.txt with the types of Google's SDK. If it fails after an update of the SDK, its
// output is the new file.
func TestFieldsMatchSDK(t *testing.T) {
	lines := map[string]string{}
	var kind func(reflect.Type) string
	kind = func(x reflect.Type) string {
		switch {
		case x == reflect.TypeFor[time.Time]():
			return "string"
		case x == reflect.TypeFor[[]byte]():
			return "bytes"
		}
		switch x.Kind() {
		case reflect.Pointer:
			return kind(x.Elem())
		case reflect.Slice:
			return "[]" + kind(x.Elem())
		case reflect.Map:
			return "map[" + kind(x.Elem()) + "]"
		case reflect.Interface:
			return "any"
		case reflect.String:
			if enums[x.Name()] != nil {
				return x.Name()
			}
			return "string"
		case reflect.Struct:
		default:
			return x.Kind().String()
		}
		if _, seen := lines[x.Name()]; seen {
			return x.Name()
		}
		lines[x.Name()] = ""
		words := []string{}
		for i := range x.NumField() {
			if name, _, _ := strings.Cut(x.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
				words = append(words, name+":"+kind(x.Field(i).Type))
			}
		}
		slices.Sort(words)
		lines[x.Name()] = strings.Join(append([]string{x.Name()}, words...), " ")
		return x.Name()
	}
	kind(reflect.TypeFor[genai.LiveClientSetup]())
	kind(reflect.TypeFor[genai.Schema]())
	if want := strings.Join(slices.Sorted(maps.Values(lines)), "\n") + "\n"; want != fieldsText {
		t.Errorf("fields.txt must be\n%s", want)
	}
}
