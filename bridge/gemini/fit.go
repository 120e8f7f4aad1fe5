package gemini

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// fit returns the part of a JSON tree that the SDK's type t has fields for, in camelCase. What t does not know and
// null are left out, the former with a warning; what is of the wrong kind is a *FieldError.
//
// The tree is sent on instead of the SDK's value: that would lose zeros (temperature 0 stays, candidateCount 0 goes) and
// round durations.
func (p *parser) fit(value any, t reflect.Type, path string) (any, error) {
	wrong := func(want string) error { return &FieldError{Field: path, Problem: "must be " + want} }
	switch t.Kind() {
	case reflect.Pointer:
		return p.fit(value, t.Elem(), path)
	case reflect.Interface:
		return value, nil
	case reflect.Struct:
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, wrong("an object")
		}
		return p.fitStruct(fields, t, path)
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
			fitted, err := p.fit(fields[name], t.Elem(), path+"."+name)
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
		return p.fitSlice(value, t, path)
	case reflect.String:
		if text, ok := value.(string); ok {
			return text, nil
		}
		return nil, wrong("a string")
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

func (p *parser) fitStruct(fields map[string]any, t reflect.Type, path string) (any, error) {
	fields = camelKeys(fields)
	out := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := path + "." + name
		if fields[name] == nil {
			continue
		}
		field, known := jsonField(t, name)
		if !known {
			p.warnf("%s was dropped: the Live API does not have it.", at)
			continue
		}
		fitted, err := p.fit(fields[name], field, at)
		if err != nil {
			return nil, err
		}
		out[name] = fitted
	}
	return out, nil
}

func (p *parser) fitSlice(value any, t reflect.Type, path string) (any, error) {
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
		fitted, err := p.fit(v, t.Elem(), at)
		if err != nil {
			return nil, err
		}
		out = append(out, fitted)
	}
	return out, nil
}

// jsonField finds the type of a struct's field by its JSON name.
func jsonField(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name && tag != "" && tag != "-" {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
