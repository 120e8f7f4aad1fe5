package gemini

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// functionName is what the API accepts as the name of a function.
var functionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$`)

// tools rewrites the tools a client sends into what the Live API takes, where it can be told what was meant. It leaves
// values of the wrong kind to fit, which knows how to complain.
func (p *parser) tools(fields map[string]any) {
	list, ok := fields["tools"].([]any)
	if !ok {
		return
	}
	out := make([]any, 0, len(list))
	for i, t := range list {
		tool, ok := t.(map[string]any)
		if !ok {
			out = append(out, t)
			continue
		}
		tool = camelKeys(tool)
		if old, given := tool["googleSearchRetrieval"]; given && old != nil { // its name before 2.0
			delete(tool, "googleSearchRetrieval")
			if tool[searchTool] == nil {
				tool[searchTool] = map[string]any{}
			}
			p.warnf("%s.tools[%d].googleSearchRetrieval was sent as googleSearch.", p.path, i)
		}
		if functions, ok := tool["functionDeclarations"].([]any); ok {
			functions = slices.Clone(functions)
			for j, f := range functions {
				if function, ok := f.(map[string]any); ok {
					at := fmt.Sprintf("%s.tools[%d].functionDeclarations[%d]", p.path, i, j)
					functions[j] = p.function(camelKeys(function), at)
				}
			}
			tool["functionDeclarations"] = functions
		}
		out = append(out, tool)
	}
	fields["tools"] = out
}

// function rewrites one declaration.
func (p *parser) function(f map[string]any, at string) map[string]any {
	for _, name := range []string{"scheduling", "defaultScheduling"} {
		if _, given := f[name]; given {
			delete(f, name)
			p.warnf("%s.%s was dropped: scheduling belongs to a tool's response.", at, name)
		}
	}
	if behavior, given := f["defaultBehavior"]; given {
		delete(f, "defaultBehavior")
		if f["behavior"] == nil {
			f["behavior"] = behavior
		}
		p.warnf("%s.defaultBehavior was read as behavior.", at)
	}
	if behavior, ok := f["behavior"].(string); ok {
		f["behavior"] = strings.ToUpper(strings.ReplaceAll(behavior, "-", "_"))
	}
	for _, name := range []string{"parameters", "response"} {
		jsonSchema := f[name+"JsonSchema"]
		delete(f, name+"JsonSchema")
		if jsonSchema != nil && f[name] == nil {
			f[name] = jsonSchema
			p.warnf("%s.%sJsonSchema was sent as %s: the Live API ignores JSON Schema.", at, name, name)
		}
		if schema, ok := f[name].(map[string]any); ok {
			f[name] = p.schema(schema, at+"."+name, 0)
			// A function without parameters has no schema: an object without properties is refused.
			if s := f[name].(map[string]any); name == "parameters" && s["type"] == "OBJECT" && emptyObject(s["properties"]) {
				delete(f, name)
			}
		}
	}
	return f
}

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

// declarations checks the functions of a fitted setup, notes their names, takes out what the model does not have, and gives
// functions a tool of their own: search and functions in one tool end the session with 1011.
func (p *parser) declarations(setup map[string]any) error {
	list, given := setup["tools"].([]any)
	if !given {
		return nil
	}
	var split []any
	for i, t := range list {
		tool, at := t.(map[string]any), fmt.Sprintf("%s.tools[%d]", p.path, i)
		if !p.allowed(tool, at) {
			continue
		}
		functions, _ := tool["functionDeclarations"].([]any)
		for j, f := range functions {
			if err := p.declaration(f.(map[string]any), fmt.Sprintf("%s.functionDeclarations[%d]", at, j)); err != nil {
				return err
			}
		}
		delete(tool, "functionDeclarations")
		if len(functions) > 0 {
			split = append(split, map[string]any{"functionDeclarations": functions})
		}
		if len(tool) > 0 {
			split = append(split, tool)
		}
	}
	if delete(setup, "tools"); split != nil {
		setup["tools"] = split
	}
	return nil
}

func (p *parser) declaration(function map[string]any, at string) error {
	name, _ := function["name"].(string)
	if !functionName.MatchString(name) {
		return &FieldError{Field: at + ".name", Problem: "must be a letter or _, then letters, digits, _ . : or -, 128 at most"}
	}
	if slices.Contains(p.FunctionNames, name) {
		return &FieldError{Field: at + ".name", Problem: fmt.Sprintf("%q is declared twice", name)}
	}
	p.FunctionNames = append(p.FunctionNames, name)
	behavior, _ := function["behavior"].(string)
	switch behavior {
	case "BLOCKING", "NON_BLOCKING":
	case "", "UNSPECIFIED":
		delete(function, "behavior")
		return nil
	default:
		return &FieldError{Field: at + ".behavior", Problem: "must be BLOCKING or NON_BLOCKING"}
	}
	// What the model cannot do otherwise it is not told: some close the session for the very field.
	only := map[calls]string{callsSync: "BLOCKING", callsAsync: "NON_BLOCKING"}[p.row.calls]
	if only == "" {
		if p.behavior == nil {
			p.behavior = make(map[string]string)
		}
		p.behavior[name] = behavior
		return nil
	}
	if delete(function, "behavior"); behavior != only {
		p.warnf("%s.behavior was dropped: on %s every function of %s is %s.", at, p.backend, p.Model, only)
	}
	return nil
}
