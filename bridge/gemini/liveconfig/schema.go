package liveconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"voxgate/tools"
)

func isEmptyObject(v any) bool {
	m, ok := v.(map[string]any)
	return v == nil || ok && len(m) == 0
}

// translateSchema translates a JSON Schema without references to the OpenAPI subset of the API
// (https://ai.google.dev/api/caching#Schema). Keywords without an equivalent are dropped with a warning. This does no
// harm, because the gateway validates the arguments against the original schema.
func (p *parser) translateSchema(in map[string]any, path string) map[string]any {
	s := p.translateObjectSchema(in, path)
	// Google rejects an object whose properties are unknown.
	if s["type"] == "OBJECT" && isEmptyObject(s["properties"]) {
		return p.declareAsText(in, s, "A JSON object", path)
	}
	return s
}

// translateObjectSchema is like translateSchema, but it may return an object without known properties. This is needed
// for the arguments of a function.
func (p *parser) translateObjectSchema(in map[string]any, path string) map[string]any {
	s := maps.Clone(in)
	for _, name := range []string{"additionalProperties", "default", "examples", "deprecated", "readOnly", "writeOnly"} {
		delete(s, name) // dropped without a warning, because they do not constrain the model
	}
	p.mergeAllOf(s, path)
	if s["properties"] != nil {
		s = mergeAlternatives(s)
	}
	p.convertType(s, path)
	p.convertConstToEnum(s)
	if of, ok := s["oneOf"]; ok && s["anyOf"] == nil {
		s["anyOf"] = of
		delete(s, "oneOf")
	}
	if format, ok := s["format"].(string); ok && !slices.Contains(formats[s["type"]], format) {
		delete(s, "format")
		p.warnf("%s.format was dropped: the API does not know %q there.", path, format)
	}
	p.fitEnum(s, path)
	p.completeItems(s, path)
	if properties, ok := s["properties"].(map[string]any); ok {
		out := make(map[string]any, len(properties))
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if property, ok := properties[name].(map[string]any); ok || properties[name] == true { // a property with the schema false is left out
				out[name] = p.translateSchema(property, path+".properties."+name)
			}
		}
		s["properties"] = out
	}
	p.fitRequired(s, path)
	p.translateAlternatives(s, path)
	if s["type"] == nil && s["anyOf"] == nil {
		s = p.inferType(in, s, path)
	}
	if s["type"] == "NULL" { // Google does not accept NULL as the only type
		s["type"], s["nullable"] = "STRING", true
	}
	dropInapplicableKeywords(s)
	return s
}

// completeItems sets the items of an array, because Google rejects an array without items ("items: missing field.").
func (p *parser) completeItems(s map[string]any, path string) {
	items, ok := s["items"].(map[string]any)
	if tuple, is := s["prefixItems"].([]any); is && s["type"] == "ARRAY" && !ok {
		items, ok = map[string]any{"anyOf": tuple}, true
		p.warnf("%s.prefixItems became items: the API has one schema for all elements.", path)
		p.isLossy = true
	}
	delete(s, "prefixItems")
	delete(s, "items")
	switch {
	case ok && (s["type"] == "ARRAY" || s["type"] == nil):
		s["items"] = p.translateSchema(items, path+".items")
	case s["type"] == "ARRAY":
		s["items"] = p.declareAsText(map[string]any{}, map[string]any{}, "A text, or any other JSON value", path+".items")
	}
}

// convertConstToEnum converts a const to an enum. It also sets a missing type, according to the values of the enum.
func (p *parser) convertConstToEnum(s map[string]any) {
	if constant, given := s["const"]; given {
		if delete(s, "const"); s["enum"] == nil {
			s["enum"] = []any{constant}
		}
	}
	list, ok := s["enum"].([]any)
	if !ok || s["type"] != nil {
		return
	}
	var kind any
	for _, v := range list {
		var one any
		switch v := v.(type) {
		case nil:
			continue
		case json.Number:
			one = "NUMBER"
			if !strings.ContainsAny(string(v), ".eE") {
				one = "INTEGER"
			}
		case bool:
			one = "BOOLEAN"
		case string:
			one = "STRING"
		}
		switch {
		case kind == nil || kind == "INTEGER" && one == "NUMBER":
			kind = one
		case kind != one && !(kind == "NUMBER" && one == "INTEGER"):
			return
		}
	}
	if kind != nil {
		s["type"] = kind
	}
}

// textMark is the name of a field that marks values which the model has to write as text with JSON in it. The field is
// in translated schemas until removeTextMarks removes it.
const textMark = "\x00json"

// maxSchemaText limits a schema, or a list of values, that is repeated in a description, in bytes.
const maxSchemaText = 600

// declareAsText returns the schema of a string in which the model has to write a value as JSON. It is for values that
// Google's Schema cannot express. in is the original schema of the value, and s its translation. description describes
// the value.
//
// Objects without properties are such values, because Google rejects them: "should be non-empty for OBJECT type"
// (langchain-google #463).
func (p *parser) declareAsText(in, s map[string]any, description, path string) map[string]any {
	about := description + " as text."
	if own, ok := s["description"].(string); ok && own != "" {
		about = own + "\n" + about
	}
	rules := maps.Clone(in)
	for _, name := range []string{"title", "description", "default", "examples", "nullable"} {
		delete(rules, name)
	}
	if text := tools.EncodeOrEmpty(rules); (len(rules) > 1 || rules["type"] == nil && len(rules) > 0) && len(text) <= maxSchemaText {
		about += " Its JSON Schema: " + string(text)
	}
	p.warnf("%s became a STRING with JSON in it: an object of any kind cannot be declared to Gemini.", path)
	out := map[string]any{"type": "STRING", "description": about, textMark: true}
	for _, name := range []string{"title", "nullable"} {
		if s[name] != nil {
			out[name] = s[name]
		}
	}
	return out
}

// ownKeywords maps keywords to the types with which Google accepts them ("only allowed for OBJECT type").
var ownKeywords = map[string]string{
	"properties": "OBJECT", "required": "OBJECT", "propertyOrdering": "OBJECT", "minProperties": "OBJECT", "maxProperties": "OBJECT",
	"items": "ARRAY", "minItems": "ARRAY", "maxItems": "ARRAY",
	"enum": "STRING", "pattern": "STRING", "minLength": "STRING", "maxLength": "STRING",
	"minimum": "NUMBER INTEGER", "maximum": "NUMBER INTEGER", "format": "STRING NUMBER INTEGER",
}

// dropInapplicableKeywords drops keywords that do not apply to the type of s, and therefore do not constrain its
// values. If s has anyOf, it has no type, and all keywords that need a type are dropped.
func dropInapplicableKeywords(s map[string]any) {
	kind, _ := s["type"].(string)
	for name := range s {
		if kinds, ok := ownKeywords[name]; ok && (kind == "" || !strings.Contains(kinds, kind)) {
			delete(s, name)
		}
	}
	if format, ok := s["format"].(string); ok && !slices.Contains(formats[kind], format) {
		delete(s, "format")
	}
	properties, _ := s["properties"].(map[string]any)
	if order, ok := s["propertyOrdering"].([]any); ok {
		order = slices.DeleteFunc(slices.Clone(order), func(v any) bool { name, _ := v.(string); return properties[name] == nil })
		if s["propertyOrdering"] = order; len(order) != len(properties) { // Google accepts an order only of all properties
			delete(s, "propertyOrdering")
		}
	}
}

// formats are the formats supported by the API (https://ai.google.dev/api/caching#Schema).
var formats = map[any][]string{
	"STRING": {"enum", "date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"},
}

// translateAlternatives translates anyOf. If one alternative has no constraints, anyOf is dropped.
func (p *parser) translateAlternatives(s map[string]any, path string) {
	list, ok := s["anyOf"].([]any)
	if !ok {
		return
	}
	delete(s, "anyOf")
	var options []map[string]any
	for i, v := range list {
		option, _ := v.(map[string]any)
		if option["type"] == "null" {
			s["nullable"] = true
			continue
		}
		if s["type"] != nil && option["type"] == nil { // the alternative has no type, such as {"required": …} next to properties
			return
		}
		one := p.translateSchema(option, fmt.Sprintf("%s.anyOf[%d]", path, i))
		if one["nullable"] == true {
			s["nullable"] = true
		}
		if nested, ok := one["anyOf"].([]any); ok && one["type"] == nil {
			for _, v := range nested {
				options = append(options, v.(map[string]any))
			}
			continue
		}
		options = append(options, one)
	}
	if s["type"] == "OBJECT" && !isEmptyObject(s["properties"]) || len(options) == 0 {
		return
	}
	kind := s["type"]
	delete(s, "type")
	if options = mergePlainStrings(options); len(options) > 1 {
		s["anyOf"] = toAnyList(options)
		return
	}
	for name, v := range options[0] {
		if own, given := s[name].(string); given && name == "description" && options[0][textMark] != nil {
			s[name] = own + "\n" + v.(string)
		} else if s[name] == nil {
			s[name] = v
		}
	}
	if s["type"] == nil {
		s["type"] = kind
	}
}

// mergePlainStrings merges all alternatives that are strings into one, for example a text, and an object that the
// model writes as text.
func mergePlainStrings(options []map[string]any) (merged []map[string]any) {
	var text map[string]any
	for _, o := range options {
		if o["type"] != "STRING" || o["enum"] != nil || o["format"] != nil || o["pattern"] != nil {
			merged = append(merged, o)
			continue
		}
		if text == nil {
			text = maps.Clone(o)
			merged = append(merged, text)
			continue
		}
		one, _ := text["description"].(string)
		other, _ := o["description"].(string)
		if one != other {
			text["description"] = strings.Trim(one+"\nOr: "+other, "\n")
		}
		if one == "" && o[textMark] != nil {
			text["description"] = "A text, or: " + other
		}
		if o[textMark] != nil {
			text[textMark] = true
		}
		delete(text, "minLength")
		delete(text, "maxLength")
	}
	return merged
}

func toAnyList(options []map[string]any) []any {
	list := make([]any, len(options))
	for i, o := range options {
		list[i] = o
	}
	return list
}

// inferType adds a type to a schema, because Google requires one (https://ai.google.dev/api/caching#Schema).
func (p *parser) inferType(in, s map[string]any, path string) map[string]any {
	switch {
	case s["properties"] != nil:
		s["type"] = "OBJECT"
	case s["items"] != nil:
		s["type"] = "ARRAY"
	case s["enum"] != nil, s["pattern"] != nil, s["minLength"] != nil, s["maxLength"] != nil:
		s["type"] = "STRING"
	case s["minimum"] != nil, s["maximum"] != nil:
		s["type"] = "NUMBER"
	default:
		return p.declareAsText(in, s, "A text, or any other JSON value", path)
	}
	return s
}

// mergeAlternatives merges the alternatives of a function's arguments into one object, because a declaration must be
// one object. A property is required only if all alternatives require it.
func mergeAlternatives(tree map[string]any) map[string]any {
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

// mergeAllOf merges the schemas of allOf into s. If a keyword has conflicting values, the first is kept.
func (p *parser) mergeAllOf(s map[string]any, path string) {
	list, ok := s["allOf"].([]any)
	if !ok {
		return
	}
	delete(s, "allOf")
	for i, v := range list {
		part, _ := v.(map[string]any)
		part = maps.Clone(part)
		if part != nil {
			p.mergeAllOf(part, path)
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
					p.warnf("%s.allOf[%d].%s was dropped: it is said twice.", path, i, name)
				}
			}
		}
	}
}

// fitEnum adapts an enum to Google's rules. If it has values other than strings, the enum is removed, and the
// description lists its values instead. Otherwise only empty strings are removed.
func (p *parser) fitEnum(s map[string]any, path string) {
	list, ok := s["enum"].([]any)
	if !ok {
		return
	}
	isString := func(v any) bool { _, is := v.(string); return is }
	if kind := s["type"]; kind != nil && kind != "STRING" || !slices.ContainsFunc(list, isString) ||
		slices.ContainsFunc(list, func(v any) bool { return v != nil && !isString(v) }) {
		delete(s, "enum")
		p.warnf("%s.enum was dropped: only strings can be enumerated. The description says it.", path)
		if text := tools.EncodeOrEmpty(list); len(text) <= maxSchemaText {
			own, _ := s["description"].(string)
			s["description"] = strings.TrimSpace(own + "\nOne of: " + strings.Trim(string(text), "[]"))
		}
		return
	}
	s["type"] = "STRING"
	if slices.Contains(list, nil) {
		s["nullable"] = true
	}
	values := slices.DeleteFunc(slices.Clone(list), func(v any) bool { return v == nil || v == "" })
	s["enum"] = slices.CompactFunc(values, func(a, b any) bool { return a == b })
	if len(s["enum"].([]any)) == 0 {
		delete(s, "enum")
	}
}

// fitRequired removes names from required that are not names of properties, because Google rejects a schema with such
// names.
func (p *parser) fitRequired(s map[string]any, path string) {
	list, ok := s["required"].([]any)
	if !ok {
		return
	}
	properties, _ := s["properties"].(map[string]any)
	types := make([]any, 0, len(list))
	for i, v := range list {
		name, isName := v.(string)
		if slices.Contains(types, v) {
			continue
		}
		if _, is := properties[name]; isName && !is {
			p.warnf("%s.required[%d] was dropped: there is no property %q.", path, i, name)
			continue
		}
		types = append(types, v)
	}
	if s["required"] = types; len(types) == 0 {
		delete(s, "required")
	}
}

// convertType converts the type to one word in capitals. A list of several types becomes anyOf.
func (p *parser) convertType(s map[string]any, path string) {
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
		case len(names) == 0 && s["nullable"] == nil: // the list has no valid type
			delete(s, "type")
		case len(names) == 0:
			s["type"] = "NULL"
		case len(names) == 1 || s["anyOf"] != nil || s["oneOf"] != nil:
			if s["type"] = strings.ToUpper(names[0]); len(names) > 1 {
				delete(s, "type") // the type is in the alternatives
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
