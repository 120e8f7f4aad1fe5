package emulator

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
)

const (
	// maxNesting limits the depth of a value, and maxInstance limits the number of values in it. The limits are needed
	// because an untrusted client sends the schema.
	maxNesting  = 64
	maxInstance = 2000
)

// instance builds the smallest value that a schema allows, so that structured output can be tried without a key. It
// supports Google's Schema and JSON Schema. "pattern" is ignored.
type instance struct {
	root   map[string]any
	values int // number of values built so far
}

// buildSmallestValue returns the smallest value that a schema allows, as JSON. It is "{}" without a schema, or if the
// schema refers to itself and allows no finite value.
func buildSmallestValue(schema json.RawMessage) string {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil || len(root) == 0 {
		return "{}"
	}
	inst := &instance{root: root}
	value := inst.buildValue(root, 0)
	if inst.values > maxInstance {
		return "{}"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "{}"
	}
	return string(text)
}

// buildValue returns the smallest value of a schema.
func (i *instance) buildValue(schema map[string]any, depth int) any {
	if i.values++; depth > maxNesting || i.values > maxInstance {
		i.values = maxInstance + 1 // above the limit, so that building stops
		return nil
	}
	if reference, ok := schema["$ref"].(string); ok {
		if target := i.resolveReference(reference); target != nil {
			return i.buildValue(target, depth+1)
		}
	}
	if value, ok := schema["const"]; ok {
		return value
	}
	if list, ok := schema["enum"].([]any); ok && len(list) > 0 {
		return list[0]
	}
	for _, name := range []string{"anyOf", "oneOf", "any_of"} {
		if list, ok := schema[name].([]any); ok {
			if first := firstNonNullSchema(list); first != nil {
				return i.buildValue(first, depth+1)
			}
		}
	}
	if list, ok := schema["allOf"].([]any); ok {
		schema = mergeAllOf(schema, list)
	}
	switch kind := schemaType(schema); kind {
	case "object":
		return i.buildObject(schema, depth)
	case "array":
		list := []any{}
		items, _ := schema["items"].(map[string]any)
		for range min(int(firstNumber(schema, 0, "minItems", "min_items")), maxInstance) {
			list = append(list, i.buildValue(items, depth+1))
		}
		return list
	case "string":
		return sampleText(schema)
	case "integer":
		return math.Ceil(closestToZero(schema))
	case "number":
		return closestToZero(schema)
	case "boolean":
		return false
	}
	return nil
}

// buildObject returns a value with the required properties, or with all properties if none is required.
func (i *instance) buildObject(schema map[string]any, depth int) map[string]any {
	properties, _ := schema["properties"].(map[string]any)
	object := map[string]any{}
	required, ok := schema["required"].([]any)
	if !ok {
		for name := range properties {
			required = append(required, name)
		}
	}
	for _, name := range required {
		if name, ok := name.(string); ok {
			property, _ := properties[name].(map[string]any)
			object[name] = i.buildValue(property, depth+1)
		}
	}
	return object
}

// resolveReference returns the schema at a reference such as "#" or "#/$defs/name".
func (i *instance) resolveReference(reference string) map[string]any {
	at, ok := strings.CutPrefix(reference, "#")
	if !ok {
		return nil
	}
	here := i.root
	for step := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		if step != "" {
			here, _ = here[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)].(map[string]any)
		}
	}
	return here
}

// firstNonNullSchema returns the first schema of the list that allows something other than null.
func firstNonNullSchema(list []any) map[string]any {
	for _, one := range list {
		if schema, ok := one.(map[string]any); ok && schemaType(schema) != "null" {
			return schema
		}
	}
	return nil
}

// mergeAllOf merges the parts of an allOf, but only object properties and simple limits.
func mergeAllOf(schema map[string]any, parts []any) map[string]any {
	whole := map[string]any{}
	properties := map[string]any{}
	var required []any
	for _, part := range append(slices.Clone(parts), schema) {
		fields, _ := part.(map[string]any)
		for name, value := range fields {
			switch name {
			case "properties":
				inner, _ := value.(map[string]any)
				for name, property := range inner {
					properties[name] = property
				}
			case "required":
				more, _ := value.([]any)
				required = append(required, more...)
			case "allOf":
			default:
				whole[name] = value
			}
		}
	}
	if len(properties) > 0 {
		whole["properties"] = properties
	}
	if required != nil {
		whole["required"] = required
	}
	return whole
}

// schemaType returns the type of a schema in lower case. If it has no type, the type is inferred from other fields.
func schemaType(schema map[string]any) string {
	kinds, ok := schema["type"].([]any)
	if !ok {
		kinds = []any{schema["type"]}
	}
	for _, kind := range kinds {
		if kind, ok := kind.(string); ok && (!strings.EqualFold(kind, "null") || len(kinds) == 1) {
			return strings.ToLower(kind)
		}
	}
	switch {
	case schema["properties"] != nil:
		return "object"
	case schema["items"] != nil:
		return "array"
	}
	return ""
}

// samples maps formats of strings to examples (OpenAPI 3.0, JSON Schema 2020-12).
var samples = map[string]string{
	"date-time": "2026-01-01T00:00:00Z", "date": "2026-01-01", "time": "00:00:00Z", "duration": "PT0S", "email": "ada@example.com",
	"uri": "https://example.com/", "url": "https://example.com/", "uuid": "00000000-0000-4000-8000-000000000000",
	"hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
}

// sampleText returns a text in the format of a schema (a date, an e-mail address), and of at least its minimum length.
func sampleText(schema map[string]any) string {
	format, _ := schema["format"].(string)
	text := samples[format]
	for range min(int(firstNumber(schema, 0, "minLength", "min_length"))-len(text), maxInstance) {
		text += "x"
	}
	return text
}

// closestToZero returns the number closest to 0 that a schema allows.
func closestToZero(schema map[string]any) float64 {
	low := firstNumber(schema, math.Inf(-1), "minimum")
	if above := firstNumber(schema, math.Inf(-1), "exclusiveMinimum"); above >= low {
		low = above + 1
	}
	high := firstNumber(schema, math.Inf(1), "maximum")
	if below := firstNumber(schema, math.Inf(1), "exclusiveMaximum"); below <= high {
		high = below - 1
	}
	return max(low, min(high, 0))
}

// firstNumber returns the first of several limits in a schema, or fallback if the schema has none of them. Google's
// JSON may encode the number as a string.
func firstNumber(schema map[string]any, fallback float64, names ...string) float64 {
	for _, name := range names {
		switch value := schema[name].(type) {
		case float64:
			return value
		case string:
			var n float64
			if json.Unmarshal([]byte(value), &n) == nil {
				return n
			}
		}
	}
	return fallback
}
