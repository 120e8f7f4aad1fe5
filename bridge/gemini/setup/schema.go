package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func emptyObject(v any) bool {
	m, ok := v.(map[string]any)
	return v == nil || ok && len(m) == 0
}

// maxSchemaDepth is a bound for hostile schemas; the API's own is lower.
const maxSchemaDepth = 64

// schema rewrites JSON Schema as the OpenAPI subset of the API: types in capitals, one type with nullable for a list of
// types, enum for const, anyOf for oneOf. What has no equal is dropped with a warning, here or by fit.
func (p *parser) schema(s map[string]any, at string, depth int) map[string]any {
	if depth > maxSchemaDepth {
		p.warnf("%s was dropped: it is nested too deeply.", at)
		return map[string]any{"type": "STRING"}
	}
	s = camelKeys(s)
	for _, name := range []string{"$schema", "$id", "$comment", "additionalProperties", "$defs", "definitions"} {
		delete(s, name) // they constrain nothing the model would say; not worth a warning
	}
	if _, ref := s["$ref"]; ref {
		delete(s, "$ref")
		s["type"] = "OBJECT"
		p.warnf("%s.$ref was dropped: the Live API does not follow references.", at)
	}
	p.schemaType(s, at)
	if constant, ok := s["const"].(string); ok && s["enum"] == nil {
		s["enum"] = []any{constant}
		delete(s, "const")
	}
	if of, ok := s["oneOf"]; ok && s["anyOf"] == nil {
		s["anyOf"] = of
		delete(s, "oneOf")
	}
	if format, ok := s["format"].(string); ok && s["type"] == "STRING" && format != "enum" && format != "date-time" {
		delete(s, "format")
		p.warnf("%s.format was dropped: the API knows only enum and date-time for strings.", at)
	}
	p.schemaEnum(s, at)
	if items, ok := s["items"].(map[string]any); ok {
		s["items"] = p.schema(items, at+".items", depth+1)
	} else if s["type"] == "ARRAY" && s["items"] == nil { // "items: missing field." is Google's answer
		s["items"] = map[string]any{"type": "STRING"}
		p.warnf("%s.items became a STRING: an array must say what is in it.", at)
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		out := make(map[string]any, len(properties))
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			v := properties[name]
			if property, ok := v.(map[string]any); ok {
				v = p.schema(property, at+".properties."+name, depth+1)
			}
			out[name] = v
		}
		s["properties"] = out
	}
	p.schemaRequired(s, at)
	if list, ok := s["anyOf"].([]any); ok {
		list = slices.Clone(list)
		for i, v := range list {
			if option, ok := v.(map[string]any); ok {
				list[i] = p.schema(option, fmt.Sprintf("%s.anyOf[%d]", at, i), depth+1)
			}
		}
		s["anyOf"] = list
	}
	return s
}

// schemaEnum drops an enumeration of anything but strings, and empty strings from one of strings.
func (p *parser) schemaEnum(s map[string]any, at string) {
	list, ok := s["enum"].([]any)
	if !ok {
		return
	}
	isString := func(v any) bool { _, is := v.(string); return is }
	if kind := s["type"]; kind != nil && kind != "STRING" || !slices.ContainsFunc(list, isString) ||
		slices.ContainsFunc(list, func(v any) bool { return v != nil && !isString(v) }) {
		delete(s, "enum")
		p.warnf("%s.enum was dropped: only strings can be enumerated.", at)
		return
	}
	s["type"] = "STRING"
	s["enum"] = slices.DeleteFunc(slices.Clone(list), func(v any) bool { return v == nil || v == "" })
}

// schemaRequired drops from required what is no property: Google refuses the schema for it.
func (p *parser) schemaRequired(s map[string]any, at string) {
	list, ok := s["required"].([]any)
	if !ok {
		return
	}
	properties, _ := s["properties"].(map[string]any)
	known := make([]any, 0, len(list))
	for i, v := range list {
		name, isName := v.(string)
		if _, is := properties[name]; isName && !is {
			p.warnf("%s.required[%d] was dropped: there is no property %q.", at, i, name)
			continue
		}
		known = append(known, v)
	}
	if s["required"] = known; len(known) == 0 {
		delete(s, "required")
	}
}

// schemaType makes a type one word in capitals.
func (p *parser) schemaType(s map[string]any, at string) {
	switch t := s["type"].(type) {
	case string:
		s["type"] = strings.ToUpper(t)
	case []any:
		var names []string
		for _, v := range t {
			if name, ok := v.(string); ok && strings.EqualFold(name, "null") {
				s["nullable"] = true
			} else if ok {
				names = append(names, strings.ToUpper(name))
			}
		}
		if len(names) == 0 {
			names = []string{"STRING"}
		}
		if s["type"] = names[0]; len(names) > 1 {
			p.warnf("%s.type became %s: the API takes one type.", at, names[0])
		}
	}
}
