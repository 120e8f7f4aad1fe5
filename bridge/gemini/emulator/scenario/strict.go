package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/emulator/live"
)

// readStrict decodes JSON into a struct by its tags. Unlike encoding/json it takes durations as strings, and its errors
// name the place: a typing error in a scenario would otherwise be a test that tests nothing.
func readStrict(data []byte, into any) error {
	tree, err := live.Decode(data)
	if err != nil {
		return err
	}
	return assign(reflect.ValueOf(into).Elem(), tree, "")
}

var durationType = reflect.TypeFor[time.Duration]()

func assign(to reflect.Value, value any, path string) error {
	wrong := func(want string) error { return fmt.Errorf("%s must be %s", orWhole(path), want) }
	if to.Type() == durationType {
		text, ok := value.(string)
		if text == "forever" {
			to.SetInt(int64(Forever))
			return nil
		}
		d, err := time.ParseDuration(text)
		if !ok || err != nil || d < 0 {
			return wrong(`a duration as "1.5s" or "forever"`)
		}
		to.SetInt(int64(d))
		return nil
	}
	switch to.Kind() {
	case reflect.Struct:
		fields, ok := value.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		return assignFields(to, fields, path)
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return wrong("a list")
		}
		to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
		for i, element := range list {
			if err := assign(to.Index(i), element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.String:
		text, ok := value.(string)
		if !ok {
			return wrong("a string")
		}
		to.SetString(text)
	case reflect.Bool:
		is, ok := value.(bool)
		if !ok {
			return wrong("true or false")
		}
		to.SetBool(is)
	default: // int
		number, _ := value.(json.Number)
		n, err := number.Int64()
		if err != nil || n > math.MaxInt32 || n < math.MinInt32 {
			return wrong("a whole number")
		}
		to.SetInt(n)
	}
	return nil
}

func assignFields(to reflect.Value, fields map[string]any, path string) error {
	byName := make(map[string]int)
	for i := range to.NumField() {
		byName[to.Type().Field(i).Tag.Get("json")] = i
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		i, ok := byName[name]
		if !ok {
			return fmt.Errorf("%s has no field %q; there are %s", orWhole(path), name,
				strings.Join(slices.Sorted(maps.Keys(byName)), ", "))
		}
		at := name
		if path != "" {
			at = path + "." + name
		}
		if err := assign(to.Field(i), fields[name], at); err != nil {
			return err
		}
	}
	return nil
}

func orWhole(path string) string {
	if path == "" {
		return "the whole"
	}
	return path
}
