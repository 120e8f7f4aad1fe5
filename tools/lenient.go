package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// typeNames maps type names that clients write, such as those of Python and Go, to type names of JSON Schema. "" means
// that any value is allowed.
var typeNames = map[string]string{
	"string": "string", "number": "number", "integer": "integer", "boolean": "boolean", "array": "array", "object": "object", "null": "null",

	"any": "", "mixed": "", "unknown": "", "json": "", "value": "",
	"str": "string", "text": "string", "char": "string", "character": "string", "varchar": "string", "enum": "string", "date": "string",
	"datetime": "string", "date-time": "string", "time": "string", "timestamp": "string", "uuid": "string", "uri": "string", "url": "string",
	"email": "string", "bytes": "string", "binary": "string", "file": "string", "path": "string",
	"float": "number", "float32": "number", "float64": "number", "double": "number", "decimal": "number", "real": "number", "num": "number",
	"int": "integer", "int32": "integer", "int64": "integer", "uint": "integer", "uint32": "integer", "uint64": "integer",
	"long": "integer", "short": "integer", "byte": "integer", "bigint": "integer",
	"bool": "boolean", "list": "array", "tuple": "array", "set": "array", "sequence": "array",
	"dict": "object", "dictionary": "object", "map": "object", "hash": "object", "record": "object", "struct": "object",
	"none": "null", "nil": "null", "undefined": "null", "void": "null", "nonetype": "null",
}

// addNote records a change or loss in the schema, as a sentence.
func (r *resolver) addNote(format string, args ...any) {
	const most = 8
	text := fmt.Sprintf(format, args...)
	if len(r.notes) < most && !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// correctSchema returns a copy of one schema. In the copy, keywords with values of the wrong type are corrected or
// removed.
func (r *resolver) correctSchema(in map[string]any) map[string]any {
	out := make(map[string]any, len(in))
	for name, v := range in {
		if camel, ok := snakeNames[name]; ok {
			name = camel
		}
		if v != nil || name == "const" {
			out[name] = v
		}
	}
	if text, ok := out["type"].(string); ok && typeNames[text] == text { // already correct
	} else if v, given := out["type"]; given {
		delete(out, "type")
		for name, kind := range r.convertType(v) {
			if _, given := out[name]; !given {
				out[name] = kind
			}
		}
	}
	for name, v := range out {
		if text, ok := v.(string); ok && (name == "description" || name == "title" || name == "type") && text != "" {
			continue // most keywords: nothing to correct
		}
		if keep, ok := r.correctKeyword(name, v); ok {
			out[name] = keep
		} else {
			delete(out, name)
			r.addNote("%q of the wrong kind was left out", name)
		}
	}
	upgradeExclusiveBounds(out)
	r.correctRequired(out)
	return out
}

// convertType converts the value of "type", in any form that clients write, to keywords of JSON Schema.
func (r *resolver) convertType(v any) map[string]any {
	switch v := v.(type) {
	case string:
		return r.convertTypeName(v)
	case []any:
		var names []any
		for _, one := range v {
			name, _ := r.convertType(one)["type"].(string)
			switch {
			case name == "" && one != nil: // without a name, the type allows anything
				return nil
			case name == "":
				name = "null"
			}
			if !slices.Contains(names, any(name)) {
				names = append(names, name)
			}
		}
		switch len(names) {
		case 0:
			return nil
		case 1:
			return map[string]any{"type": names[0]}
		}
		return map[string]any{"type": names}
	case map[string]any:
		return r.correctSchema(v)
	}
	r.addNote("a type that is not a string was left out")
	return nil
}

func (r *resolver) convertTypeName(text string) map[string]any {
	word := strings.ToLower(strings.TrimSpace(text))
	if word == "" || strings.HasSuffix(word, "unspecified") {
		return nil
	}
	if name, ok := typeNames[word]; ok {
		if name == "" {
			return nil
		}
		return map[string]any{"type": name}
	}
	if strings.Contains(word, "|") && !strings.ContainsAny(word, "<[(") {
		var list []any
		for one := range strings.SplitSeq(word, "|") {
			list = append(list, strings.TrimSpace(one))
		}
		return r.convertType(list)
	}
	if element, ok := strings.CutSuffix(word, "[]"); ok {
		return r.arrayOf(element)
	}
	if at := strings.IndexAny(word, "<["); at > 0 && strings.ContainsAny(word[len(word)-1:], ">]") {
		inner := word[at+1 : len(word)-1]
		if word[:at] == "optional" {
			return r.convertType([]any{inner, "null"})
		}
		switch typeNames[word[:at]] {
		case "array":
			return r.arrayOf(inner)
		case "object":
			return map[string]any{"type": "object"}
		}
	}
	r.addNote("the type %q is not known; any value is taken", Truncate(text, 40))
	return nil
}

func (r *resolver) arrayOf(element string) map[string]any {
	out := map[string]any{"type": "array"}
	if items := r.convertTypeName(element); items != nil {
		out["items"] = items
	}
	return out
}

// correctKeyword converts the value of a keyword to the type that JSON Schema requires. It returns false if that is
// impossible.
func (r *resolver) correctKeyword(name string, v any) (value any, ok bool) {
	switch name {
	case "title", "description", "format", "pattern", "$ref":
		_, ok := v.(string)
		if list, is := v.([]any); is && name == "description" {
			return strings.Trim(fmt.Sprint(list), "[]"), true
		}
		return v, ok
	case "minimum", "maximum", "multipleOf":
		return readNumber(v)
	case "exclusiveMinimum", "exclusiveMaximum":
		if is, ok := readBool(v); ok {
			return is, true
		}
		return readNumber(v)
	case "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties":
		return readCount(v)
	case "nullable", "uniqueItems":
		return readBool(v)
	case "enum":
		switch v := v.(type) {
		case []any:
			return v, len(v) > 0
		case map[string]any: // enum values by their names
			return slices.Collect(func(yield func(any) bool) {
				for _, key := range slices.Sorted(maps.Keys(v)) {
					if !yield(v[key]) {
						return
					}
				}
			}), len(v) > 0
		}
		return nil, false
	case "anyOf", "oneOf", "allOf":
		if one, ok := v.(map[string]any); ok {
			return []any{one}, true
		}
		list, ok := v.([]any)
		return v, ok && len(list) > 0
	case "prefixItems", "propertyOrdering":
		_, ok := v.([]any)
		return v, ok
	case "properties":
		return convertProperties(v)
	case "patternProperties", "dependentSchemas", "$defs", "definitions":
		_, ok := v.(map[string]any)
		return v, ok
	case "additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems":
		if is, ok := readBool(v); ok {
			return is, true
		}
		_, ok := v.(map[string]any)
		return v, ok
	}
	return v, true
}

// convertProperties converts a list of properties with names to a map by name.
func convertProperties(v any) (value any, ok bool) {
	list, ok := v.([]any)
	if !ok {
		_, ok = v.(map[string]any)
		return v, ok
	}
	properties := map[string]any{}
	for _, one := range list {
		property, _ := one.(map[string]any)
		name, ok := property["name"].(string)
		if !ok {
			return nil, false
		}
		property = maps.Clone(property)
		delete(property, "name")
		properties[name] = property
	}
	return properties, true
}

// exclusives maps each keyword for an exclusive bound to the keyword with the number. In older drafts, the exclusive
// bound is only true or false, and the other keyword has the number.
var exclusives = map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}

// upgradeExclusiveBounds converts the exclusive bounds of older drafts, which are true or false, to the current form,
// in which they are numbers.
func upgradeExclusiveBounds(out map[string]any) {
	for exclusive, bound := range exclusives {
		is, ok := out[exclusive].(bool)
		if !ok {
			continue
		}
		delete(out, exclusive)
		if number, given := out[bound]; is && given {
			out[exclusive] = number
			delete(out, bound)
		}
	}
}

// correctRequired converts the keyword "required" to a list of names. Clients also write a single name, an object of
// bools, or a bool in the property itself (draft 3 of JSON Schema).
func (r *resolver) correctRequired(out map[string]any) {
	properties, _ := out["properties"].(map[string]any)
	var names []any
	add := func(v any) {
		if name, ok := v.(string); ok && !slices.Contains(names, any(name)) {
			names = append(names, name)
		}
	}
	switch required := out["required"].(type) {
	case []any:
		for _, v := range required {
			add(v)
		}
	case string:
		if properties[required] != nil {
			add(required)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(required)) {
			if required[name] == true {
				add(name)
			}
		}
	}
	var requiredProperties []string
	for name, v := range properties {
		property, _ := v.(map[string]any)
		switch is, ok := readBool(property["required"]); {
		case ok && is == true:
			requiredProperties = append(requiredProperties, name)
		case ok:
			names = slices.DeleteFunc(names, func(v any) bool { return v == name })
		}
	}
	slices.Sort(requiredProperties)
	for _, name := range requiredProperties {
		add(name)
	}
	if delete(out, "required"); len(names) > 0 {
		out["required"] = names
	}
}

// readBool reads a boolean, or the text "true" or "false" in upper or lower case. For everything else, ok is false.
func readBool(v any) (value any, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		switch strings.ToLower(v) {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	return nil, false
}

func readNumber(v any) (value any, ok bool) {
	switch v := v.(type) {
	case json.Number:
		return v, true
	case string:
		if number := json.Number(strings.TrimSpace(v)); isNumber.MatchString(string(number)) && checkNumbers(number) == nil {
			return number, true
		}
	}
	return nil, false
}

// readCount reads a count, which may be a string or have decimals.
func readCount(v any) (value any, ok bool) {
	number, ok := readNumber(v)
	if !ok || checkNumbers(number) != nil {
		return nil, false
	}
	rat, ok := new(big.Rat).SetString(string(number.(json.Number)))
	if !ok || !rat.IsInt() || !rat.Num().IsInt64() || rat.Sign() < 0 {
		return nil, false
	}
	return json.Number(rat.Num().String()), true
}

// approximateRef returns a replacement for a reference that cannot be followed, because of err. The replacement has
// only the type and the description of the reference's target, if they are known.
func (r *resolver) approximateRef(ref any, err error) any {
	r.addNote("it %v; nothing more is known there", err)
	out := map[string]any{}
	text, _ := ref.(string)
	var target any = r.root
	for _, step := range parseRefPath(text) {
		fields, _ := target.(map[string]any)
		target = fields[step]
	}
	if fields, ok := target.(map[string]any); ok {
		for _, name := range []string{"type", "description"} {
			if word, ok := r.correctSchema(fields)[name].(string); ok {
				out[name] = word
			}
		}
		if out["type"] == nil && fields["properties"] != nil {
			out["type"] = "object"
		}
	}
	return out
}
