package liveconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// kindsOfFields maps the fields of a Schema to their JSON types (https://ai.google.dev/api/caching#Schema). "whole" is
// an int64, as a number or a string, and "texts" is a list of strings.
var kindsOfFields = map[string]string{
	"type": "text", "format": "text", "title": "text", "description": "text", "pattern": "text", "nullable": "bool",
	"enum": "texts", "required": "texts", "propertyOrdering": "texts", "minimum": "number", "maximum": "number",
	"minItems": "whole", "maxItems": "whole", "minLength": "whole", "maxLength": "whole", "minProperties": "whole", "maxProperties": "whole",
	"default": "any", "example": "any", "anyOf": "any", "items": "any", "properties": "any",
}

var (
	googlesTypes   = []string{"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}
	googlesFormats = map[string][]string{
		"STRING": {"enum", "date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"},
	}

	// onlyFor maps fields of a Schema to the types with which Google accepts them. The types are separated by spaces.
	onlyFor = map[string]string{
		"enum": "STRING", "pattern": "STRING", "minLength": "STRING", "maxLength": "STRING", "minimum": "NUMBER INTEGER",
		"maximum": "NUMBER INTEGER", "items": "ARRAY", "minItems": "ARRAY", "maxItems": "ARRAY", "properties": "OBJECT",
		"required": "OBJECT", "propertyOrdering": "OBJECT", "minProperties": "OBJECT", "maxProperties": "OBJECT",
	}
)

// checkSchema checks a schema against Google's documented and observed rules before it is sent. It shares no code with
// the functions that build schemas, so that it finds their mistakes.
func checkSchema(s map[string]any, path string) error {
	bad := func(format string, args ...any) error {
		return &FieldError{Field: path, Problem: "is refused by Google: " + fmt.Sprintf(format, args...)}
	}
	for name := range s {
		kind, known := kindsOfFields[name]
		if !known {
			return bad("unknown name %q", name)
		}
		if !isOfKind(s[name], kind) {
			return bad("%s of the wrong kind", name)
		}
	}
	kind, _ := s["type"].(string)
	options, isUnion := s["anyOf"].([]any)
	switch {
	case isUnion != (s["anyOf"] != nil):
		return bad("anyOf must be a list")
	case isUnion && (kind != "" || len(options) == 0):
		return bad("anyOf must be the only thing that says what it is, and not empty")
	case !isUnion && !slices.Contains(googlesTypes, kind):
		return bad("type %q", kind)
	}
	for i, o := range options {
		option, _ := o.(map[string]any)
		if err := checkSchema(option, fmt.Sprintf("%s.anyOf[%d]", path, i)); err != nil {
			return err
		}
	}
	for name, kinds := range onlyFor {
		if s[name] != nil && (kind == "" || !strings.Contains(kinds, kind)) {
			return bad("%s: only allowed for %s type", name, kinds)
		}
	}
	if format, given := s["format"].(string); given && !slices.Contains(googlesFormats[kind], format) {
		return bad("format %q", format)
	}
	if list, given := s["enum"].([]any); given && (len(list) == 0 || slices.Contains(list, any(""))) {
		return bad("enum: cannot be empty")
	}
	switch kind {
	case "ARRAY":
		items, ok := s["items"].(map[string]any)
		if !ok {
			return bad("items: missing field")
		}
		return checkSchema(items, path+".items")
	case "OBJECT":
		return checkProperties(s, path, bad)
	}
	return nil
}

func checkProperties(s map[string]any, path string, newError func(string, ...any) error) error {
	properties, _ := s["properties"].(map[string]any)
	if len(properties) == 0 {
		return newError("properties: should be non-empty for OBJECT type")
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, ok := properties[name].(map[string]any)
		if !ok || name == "" {
			return newError("property %q", name)
		}
		if err := checkSchema(property, path+".properties."+name); err != nil {
			return err
		}
	}
	for _, list := range []string{"required", "propertyOrdering"} {
		names, _ := s[list].([]any)
		for i, v := range names {
			if name, _ := v.(string); properties[name] == nil || slices.Contains(names[:i], v) {
				return newError("%s[%d]: property is not defined, or is there twice", list, i)
			}
		}
	}
	return nil
}

func isOfKind(v any, kind string) bool {
	switch kind {
	case "text":
		_, ok := v.(string)
		return ok
	case "bool":
		_, ok := v.(bool)
		return ok
	case "number":
		number, ok := v.(json.Number)
		_, err := strconv.ParseFloat(string(number), 64)
		return ok && err == nil
	case "whole":
		n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		return err == nil && n >= 0
	case "texts":
		list, ok := v.([]any)
		return ok && !slices.ContainsFunc(list, func(v any) bool { _, is := v.(string); return !is })
	}
	return v != nil
}
