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

// schema translates a JSON Schema without references into the OpenAPI subset of the API
// (https://ai.google.dev/api/caching#Schema): types in capitals, one type with nullable for a list of types, enum for const, anyOf
// for oneOf. What has no equal is dropped with a warning, here or by fit: the model gets less, the arguments are checked
// against the original.
func (p *parser) schema(in map[string]any, at string) map[string]any {
	s := maps.Clone(in)
	for _, name := range []string{"additionalProperties", "default", "examples", "deprecated", "readOnly", "writeOnly"} {
		delete(s, name) // they constrain nothing the model would say; not worth a warning
	}
	p.merge(s, at)
	p.schemaType(s, at)
	if constant, ok := s["const"].(string); ok && s["enum"] == nil {
		s["enum"] = []any{constant}
		delete(s, "const")
	}
	if of, ok := s["oneOf"]; ok && s["anyOf"] == nil {
		s["anyOf"] = of
		delete(s, "oneOf")
	}
	if format, ok := s["format"].(string); ok && !slices.Contains(formats[s["type"]], format) {
		delete(s, "format")
		p.warnf("%s.format was dropped: the API does not know %q there.", at, format)
	}
	p.schemaEnum(s, at)
	if items, ok := s["items"].(map[string]any); ok {
		s["items"] = p.schema(items, at+".items")
	} else if delete(s, "items"); s["type"] == "ARRAY" { // "items: missing field." is Google's answer
		s["items"] = map[string]any{"type": "STRING"}
		p.warnf("%s.items became a STRING: an array must say what is in it.", at)
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		out := make(map[string]any, len(properties))
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			property, ok := properties[name].(map[string]any)
			if !ok && properties[name] != true { // false: there is no such property
				continue
			}
			if declared := p.schema(property, at+".properties."+name); !anyObject(declared) {
				out[name] = declared
			} else {
				p.without(s, name, at)
			}
		}
		s["properties"] = out
	}
	p.schemaRequired(s, at)
	p.alternatives(s, at)
	if s["type"] == nil && s["anyOf"] == nil {
		p.untyped(s, at)
	}
	return s
}

// formats are those that the API knows (https://ai.google.dev/api/caching#Schema).
var formats = map[any][]string{
	"STRING": {"enum", "date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"},
}

// alternatives translates anyOf. One that says nothing makes all of them say nothing.
func (p *parser) alternatives(s map[string]any, at string) {
	list, ok := s["anyOf"].([]any)
	if !ok {
		return
	}
	delete(s, "anyOf")
	var options []any
	for i, v := range list {
		option, _ := v.(map[string]any)
		if option["type"] == "null" {
			s["nullable"] = true
			continue
		}
		if s["type"] != nil && option["type"] == nil { // as {"required": …} beside properties
			return
		}
		options = append(options, p.schema(option, fmt.Sprintf("%s.anyOf[%d]", at, i)))
	}
	switch {
	case len(options) == 1 && s["type"] == nil:
		for name, v := range options[0].(map[string]any) {
			if s[name] == nil {
				s[name] = v
			}
		}
	case len(options) > 0:
		s["anyOf"] = options
	}
}

// untyped gives a schema a type: Google wants one (https://ai.google.dev/api/caching#Schema).
func (p *parser) untyped(s map[string]any, at string) {
	switch {
	case s["properties"] != nil:
		s["type"] = "OBJECT"
	case s["items"] != nil:
		s["type"] = "ARRAY"
	default:
		s["type"] = "STRING"
		if s["enum"] == nil {
			p.warnf("%s became a STRING: it must say what it is.", at)
		}
	}
}

// anyObject reports whether a translated schema is, or holds, an object of which nothing is known. Google takes none: "should be
// non-empty for OBJECT type" (langchain-google #463 and many others, of generateContent).
func anyObject(s map[string]any) bool {
	if s["type"] == "OBJECT" && s["anyOf"] == nil && emptyObject(s["properties"]) {
		return true
	}
	items, ok := s["items"].(map[string]any)
	return ok && anyObject(items)
}

// without leaves out a property that cannot be declared to the model. A required one makes the function unusable.
func (p *parser) without(s map[string]any, name, at string) {
	required, _ := s["required"].([]any)
	if slices.Contains(required, any(name)) && p.cannot == "" {
		p.cannot = name
	}
	p.warnf("%s.properties.%s was dropped: an object of any kind cannot be declared to Gemini.", at, name)
}

// atRoot makes of the alternatives of a function's arguments one object that has all their properties: a declaration is one
// object. Required is what all of them require.
func atRoot(tree map[string]any) map[string]any {
	for _, name := range []string{"anyOf", "oneOf"} {
		list, ok := tree[name].([]any)
		if !ok {
			continue
		}
		tree = maps.Clone(tree)
		delete(tree, name)
		properties := map[string]any{}
		var required []any
		for i, v := range list {
			option, _ := v.(map[string]any)
			more, _ := option["properties"].(map[string]any)
			maps.Copy(properties, more)
			needs, _ := option["required"].([]any)
			if required = slices.DeleteFunc(required, func(v any) bool { return !slices.Contains(needs, v) }); i == 0 {
				required = slices.Clone(needs)
			}
		}
		if own, ok := tree["properties"].(map[string]any); ok {
			maps.Copy(properties, own)
		}
		if own, ok := tree["required"].([]any); ok {
			required = append(required, own...)
		}
		tree["properties"], tree["required"] = properties, required
	}
	return tree
}

// merge makes one schema of those that must all hold, as far as they speak of different things.
func (p *parser) merge(s map[string]any, at string) {
	list, ok := s["allOf"].([]any)
	if !ok {
		return
	}
	delete(s, "allOf")
	for i, v := range list {
		part, _ := v.(map[string]any)
		part = maps.Clone(part)
		if part != nil {
			p.merge(part, at)
		}
		for _, name := range slices.Sorted(maps.Keys(part)) {
			switch was := s[name].(type) {
			case nil:
				s[name] = part[name]
			case map[string]any:
				if more, ok := part[name].(map[string]any); ok && name == "properties" {
					more = maps.Clone(more)
					maps.Copy(more, was)
					s[name] = more
				}
			case []any:
				if more, ok := part[name].([]any); ok && name == "required" {
					s[name] = append(slices.Clone(was), more...)
				}
			default:
				if fmt.Sprint(was) != fmt.Sprint(part[name]) && name != "description" && name != "title" {
					p.warnf("%s.allOf[%d].%s was dropped: it is said twice.", at, i, name)
				}
			}
		}
	}
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
	if slices.Contains(list, nil) {
		s["nullable"] = true
	}
	s["enum"] = slices.DeleteFunc(slices.Clone(list), func(v any) bool { return v == nil || v == "" })
	if len(s["enum"].([]any)) == 0 {
		delete(s, "enum")
	}
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
		if slices.Contains(known, v) {
			continue
		}
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

// schemaType makes a type one word in capitals; of several it makes alternatives.
func (p *parser) schemaType(s map[string]any, at string) {
	switch t := s["type"].(type) {
	case string:
		s["type"] = strings.ToUpper(t)
	case []any:
		var names []string
		for _, v := range t {
			if name, ok := v.(string); ok && name == "null" {
				s["nullable"] = true
			} else if ok {
				names = append(names, name)
			}
		}
		switch {
		case len(names) == 0:
			s["type"] = "NULL"
		case len(names) == 1 || s["anyOf"] != nil || s["oneOf"] != nil:
			if s["type"] = strings.ToUpper(names[0]); len(names) > 1 {
				p.warnf("%s.type became %s: the API takes one type.", at, s["type"])
			}
		default:
			delete(s, "type")
			var options []any
			for _, name := range names {
				option := map[string]any{"type": name}
				for _, below := range map[string][]string{"array": {"items"}, "object": {"properties", "required"}}[name] {
					if v, given := s[below]; given {
						option[below] = v
					}
				}
				options = append(options, option)
			}
			for _, below := range []string{"items", "properties", "required"} {
				delete(s, below)
			}
			s["anyOf"] = options
		}
	}
}
