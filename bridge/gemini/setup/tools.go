package setup

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

// searchTool is the one tool besides functions that current live models have; maps, code execution, URL context and the
// rest are for other models (https://ai.google.dev/gemini-api/docs/live-guide, comparison of models).
const searchTool = "googleSearch"

// allowed takes out of a fitted tool what the model does not have, and tells whether something is left.
func (p *parser) allowed(tool map[string]any, at string) bool {
	has := []string{"functionDeclarations", searchTool}
	if p.row.calls == callsNothing {
		has = nil
	}
	for _, name := range slices.Sorted(maps.Keys(tool)) {
		if !slices.Contains(has, name) {
			delete(tool, name)
			p.warnf("%s.%s was dropped: %s does not have it.", at, name, p.Model)
		}
	}
	return len(tool) > 0
}
