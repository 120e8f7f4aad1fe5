package liveconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"voxgate/tools"
)

// rewriteTools rewrites a client's tools to the form of the Live API, and adds the gateway's tools. It leaves values of
// the wrong type unchanged, because fitValue reports them later.
func (p *parser) rewriteTools(fields map[string]any) error {
	list, ok := asList(fields["tools"])
	if !ok && fields["tools"] != nil {
		return nil // fitValue reports the wrong type
	}
	p.schemaParts = maxParts
	out := p.declareGatewayTools()
	for i, t := range list {
		tool, ok := t.(map[string]any)
		if !ok {
			out = append(out, t)
			continue
		}
		tool = camelKeys(tool)
		if functions, ok := asList(tool["functionDeclarations"]); ok {
			var declarations []any
			for j, f := range functions {
				function, ok := f.(map[string]any)
				if !ok {
					declarations = append(declarations, f)
					continue
				}
				declared, err := p.declareFunction(function, fmt.Sprintf("%s.tools[%d].functionDeclarations[%d]", p.path, i, j), InClient)
				if err != nil {
					return err
				}
				if declared != nil {
					declarations = append(declarations, declared)
				}
			}
			if tool["functionDeclarations"] = declarations; declarations == nil {
				delete(tool, "functionDeclarations")
			}
		}
		out = append(out, tool)
	}
	if canvas := p.declareCanvasTools(); canvas != nil {
		out = append(out, canvas)
	}
	if out != nil {
		fields["tools"] = out
	}
	return nil
}

// asList returns a list, or a single object as a list. It returns false for any other value.
func asList(value any) (list []any, ok bool) {
	if one, ok := value.(map[string]any); ok {
		return []any{one}, true
	}
	list, ok = value.([]any)
	return list, ok
}

// declareGatewayTools declares the gateway's own tools. They come first, so that a client cannot replace them by
// functions of the same name.
func (p *parser) declareGatewayTools() []any {
	var functions []any
	for _, t := range p.scope.Tools {
		if declared := p.declareBuiltInTool(t, InGateway); declared != nil {
			functions = append(functions, declared)
		}
	}
	if functions == nil {
		return nil
	}
	return []any{map[string]any{"functionDeclarations": functions}}
}

// declareCanvasTools declares the canvas tools. It returns nil if the client has no canvas or has declared them itself.
func (p *parser) declareCanvasTools() any {
	if !p.Options.Canvas {
		return nil
	}
	if !p.scope.Screen {
		p.warnf("%s.voxgate.canvas was dropped: nothing can be shown here.", p.path)
		return nil
	}
	var functions []any
	for _, t := range p.scope.Canvas {
		if _, declared := p.Functions.Find(t.Name); declared {
			continue
		}
		if f := p.declareBuiltInTool(t, OnCanvas); f != nil {
			functions = append(functions, f)
		}
	}
	if functions == nil {
		return nil
	}
	return map[string]any{"functionDeclarations": functions}
}

// declareBuiltInTool returns the declaration of one of the gateway's own tools, or nil if the tool cannot be declared
// to the model.
func (p *parser) declareBuiltInTool(t tools.Declaration, where Where) map[string]any {
	at := fmt.Sprintf("The gateway's tool %q", t.Name)
	f := map[string]any{
		"name": t.Name, "title": t.Title, "description": t.Description, "behavior": string(t.Behavior), "scheduling": string(t.Scheduling),
		"repeats": t.Repeats,
	}
	if len(t.Parameters) > 0 {
		f["parametersJsonSchema"] = t.Parameters
	}
	if t.Timeout > 0 {
		f["timeout"] = t.Timeout.String()
	}
	declared, err := p.declareFunction(f, at, where)
	if err != nil {
		p.warnf("%s was left out: %v.", at, err)
	}
	if i := slices.IndexFunc(p.Functions, func(f Function) bool { return f.Name == t.Name }); i >= 0 {
		p.Functions[i].ValidatesItself = t.ValidatesItself
	}
	return declared
}

const (
	// maxFunctions is Google's limit for the functions of a session (genai v1.77, types.go, Tool).
	maxFunctions = 512

	// maxReason limits the text of Loss.Reason, in bytes.
	maxReason = 500

	// maxParts limits the nodes in all function schemas of a client's config. A hundred typical functions of MCP
	// servers have 1,500 nodes.
	maxParts = 5_000
)

// gatewaySchemas caches the schemas of the gateway's own functions, which every conversation declares.
var gatewaySchemas schemas

// schemas caches parsed schemas. The key is the text of the schema.
type schemas struct {
	mu     sync.Mutex
	parsed map[string]*tools.Schema
}

// maxKept limits the number of schemas in the cache. When the cache is full, it is emptied. The limit is needed because
// an MCP server may change its schemas again and again.
const maxKept = 2_000

func (ss *schemas) parseCached(text json.RawMessage) (*tools.Schema, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.parsed[string(text)]; s != nil {
		return s, nil
	}
	schema, err := tools.Decode(text)
	if err != nil {
		return nil, err
	}
	s, err := tools.ParseSchemaLeniently(schema, nil)
	if err != nil {
		return nil, err
	}
	if len(ss.parsed) >= maxKept || ss.parsed == nil {
		ss.parsed = map[string]*tools.Schema{}
	}
	ss.parsed[string(text)] = s
	return s, nil
}

// anyArgs returns the schema for the arguments of a function that declares no schema.
var anyArgs = sync.OnceValues(func() (*tools.Schema, error) { return tools.ParseSchema(nil, nil) })

// declareFunction rewrites the declaration f of a function for the Live API, and adds the function to Functions. It
// returns nil if the function is not available in this session.
func (p *parser) declareFunction(f map[string]any, path string, where Where) (map[string]any, error) {
	if len(p.Functions) >= maxFunctions {
		return nil, &FieldError{Field: path, Problem: fmt.Sprintf("is one too many: there can be %d functions", maxFunctions)}
	}
	f = maps.Clone(camelKeys(f))
	name, _ := f["name"].(string)
	if strings.TrimSpace(name) == "" || len(name) > maxName {
		return nil, &FieldError{Field: path + ".name", Problem: fmt.Sprintf("must be a text of %d bytes at most", maxName)}
	}
	if p.scope.Hides != nil && p.scope.Hides(name) {
		return nil, nil
	}
	if one, declared := p.Functions.Find(name); declared {
		if one.Where == InGateway {
			p.recordLeftOut(where, name, path, "the gateway has a tool %q itself", name)
			return nil, nil
		}
		return nil, &FieldError{Field: path + ".name", Problem: fmt.Sprintf("%q is declared twice", name)}
	}
	if slices.ContainsFunc(p.scope.Canvas, func(t tools.Declaration) bool { return t.Name == name }) {
		if where == InGateway {
			return nil, &FieldError{Field: path, Problem: "has the name of a canvas tool"}
		}
		if where = OnCanvas; !p.scope.Screen {
			p.recordLeftOut(where, name, path, "nothing can be shown here")
			return nil, nil
		}
	}
	function := Function{Where: where}
	function.Name = name
	function.Description, _ = f["description"].(string)
	if err := p.takeCallOptions(f, path, &function); err != nil {
		return nil, err
	}
	p.isLossy = false
	before := len(p.warnings)
	args, places, err := p.translateParameters(f, "parameters", path)
	if err != nil {
		p.recordLeftOut(where, name, path, "the parameters of %q cannot be declared to Gemini: %v", name, err)
		return nil, nil
	}
	if p.isLossy {
		p.addLoss(where, Loss{Function: name, Reason: strings.Join(p.warnings[min(before, len(p.warnings)):], " ")})
	}
	function.args, function.places = args, places
	if _, _, err := p.translateParameters(f, "response", path); err != nil {
		delete(f, "response")
		p.warnf("%s.response was dropped: %v.", path, err)
	}
	function.WireName = p.Functions.newWireName(name)
	if f["name"] = function.WireName; function.WireName != name {
		p.warnf("%s.name: Gemini gets %q for %q.", path, function.WireName, name)
	}
	if p.row.calls != callsNothing {
		p.Functions = append(p.Functions, function)
	} else {
		p.addLoss(where, Loss{name, fmt.Sprintf("%s calls no functions", p.Model), true})
	}
	return f, nil
}

// recordLeftOut records, as a warning and a loss, that a function is not declared to the model.
func (p *parser) recordLeftOut(where Where, name, path, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	p.warnf("%s was left out: %s.", path, reason)
	p.addLoss(where, Loss{name, reason, true})
}

// addLoss records a loss, unless the function is one of the gateway's own.
func (p *parser) addLoss(where Where, l Loss) {
	if where != InGateway && len(p.Losses) < maxWarnings {
		l.Reason = tools.Truncate(l.Reason, maxReason)
		p.Losses = append(p.Losses, l)
	}
}

// takeCallOptions moves options of calls from the declaration f to function: behavior, scheduling, title, timeout and
// repeats.
func (p *parser) takeCallOptions(f map[string]any, path string, function *Function) error {
	word := func(name, other string, words ...string) (string, error) {
		given := f[name]
		if given == nil {
			given = f[other]
		}
		delete(f, name)
		delete(f, other)
		if given == nil || given == "" {
			return "", nil
		}
		text, ok := given.(string)
		if number, is := given.(json.Number); is {
			if text, ok = enumWordByNumber(number, words), true; text == "" {
				return "", nil
			}
		}
		text = strings.ToUpper(strings.ReplaceAll(text, "-", "_"))
		switch {
		case ok && slices.Contains(words, text):
			return text, nil
		case ok && strings.HasSuffix(text, "UNSPECIFIED"):
			return "", nil
		}
		last := len(words) - 1
		return "", &FieldError{Field: path + "." + name, Problem: "must be " + strings.Join(words[:last], ", ") + " or " + words[last]}
	}
	behavior, err := word("behavior", "defaultBehavior", string(tools.Blocking), string(tools.NonBlocking))
	if err != nil {
		return err
	}
	scheduling, err := word("scheduling", "defaultScheduling", string(tools.Silent), string(tools.WhenIdle), string(tools.Interrupt))
	if err != nil {
		return err
	}
	options := object{reader: &reader{warnings: &p.warnings}, path: path, fields: f}
	if function.Timeout = options.takeDuration("timeout"); function.Timeout > tools.MaxTimeout {
		options.recordError("timeout", fmt.Sprintf("must be at most %v", tools.MaxTimeout))
	}
	repeats := options.takeBool("repeats")
	if options.err != nil {
		return options.err
	}
	function.Repeats = repeats != nil && *repeats
	function.Title, _ = options.takeField("title").(string)
	function.Behavior, function.Scheduling = tools.Behavior(behavior), tools.Scheduling(scheduling)
	p.fitCallOptions(f, path, function)
	return nil
}

// fitCallOptions adapts behavior and scheduling of a declaration to the model. If the model supports only one behavior,
// the field is omitted, because some models close the session if it is present.
func (p *parser) fitCallOptions(f map[string]any, path string, function *Function) {
	only := map[callMode]tools.Behavior{callsSync: tools.Blocking, callsAsync: tools.NonBlocking}[p.row.calls]
	requested := function.Behavior
	switch {
	case only != "":
		if function.Behavior = only; requested != "" && requested != only && function.Where == InClient {
			p.warnf("%s.behavior was dropped: on %s every function of %s is %s.", path, p.backend, p.Model, only)
		}
	case requested != "":
		f["behavior"] = string(requested)
	case p.row.calls == callsWaiting:
		function.Behavior = tools.Blocking
	default:
		function.Behavior = tools.NonBlocking
	}
	function.Blocking = function.Behavior == tools.Blocking
	function.Schedules = only == "" && !function.Blocking
	function.Continues = !function.Blocking && !p.row.oneAnswer && p.backend != vertexAI
	if function.Scheduling != "" && !function.Schedules {
		if function.Where == InClient {
			p.warnf("%s.scheduling was dropped: %s takes none with the answer of this function.", path, p.Model)
		}
		function.Scheduling = ""
	}
}

// translateParameters replaces the schema f[name] of a declaration by its translation for the Live API. It returns the
// original schema, which validates calls. It also returns the places in the arguments where the model has to write JSON
// as text.
func (p *parser) translateParameters(f map[string]any, name, path string) (*tools.Schema, *textPlaces, error) {
	value := f[name]
	if value == nil {
		value = f[name+"JsonSchema"] // the variant of the field that the Live API ignores
	}
	delete(f, name)
	delete(f, name+"JsonSchema")
	if value == nil || name == "parameters" && value == false {
		schema, err := anyArgs()
		return schema, nil, err
	}
	if name == "response" { // a response may be of any type, but declareSchema needs an object: it is put into one
		value = map[string]any{"type": "object", "properties": map[string]any{"response": value}}
	}
	var schema *tools.Schema
	var err error
	if text, own := value.(json.RawMessage); own {
		schema, err = gatewaySchemas.parseCached(text)
	} else {
		schema, err = tools.ParseSchemaLeniently(value, &p.schemaParts)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, change := range schema.Changes() {
		p.warnf("%s.%s was changed: %s.", path, name, change)
		p.isLossy = true
	}
	object, places, err := p.declareSchema(schema.Tree(), path+"."+name)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case name == "response":
		if response, ok := fieldByPath(object, "properties.response").(map[string]any); ok && places == nil {
			f[name] = fittedObject(response)
		}
	case isEmptyObject(object["properties"]): // no schema is sent, because Google refuses an object without properties
		if schema.Check(nil) != nil {
			return nil, nil, errors.New("it wants arguments and does not name them")
		}
	default:
		f[name] = fittedObject(object)
	}
	return schema, places, nil
}

// declareSchema translates the schema of a function's arguments, and checks the result against Google's rules. A
// property that violates a rule becomes a string, with its original schema in the description.
func (p *parser) declareSchema(tree map[string]any, path string) (object map[string]any, places *textPlaces, err error) {
	translated := p.translateObjectSchema(mergeAlternatives(tree), path)
	if object, places, err = p.fitSchema(translated, path); err == nil {
		return object, places, nil
	}
	scratch := &parser{} // discards warnings, because p has them already
	translated = scratch.translateObjectSchema(mergeAlternatives(tree), path)
	properties, _ := translated["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		one := map[string]any{"type": "OBJECT", "properties": map[string]any{name: properties[name]}}
		if _, _, bad := scratch.fitSchema(one, path); bad == nil {
			again := scratch.translateObjectSchema(mergeAlternatives(tree), path) // translated again: fitSchema has removed its textMarks
			properties[name] = fieldByPath(again, "properties").(map[string]any)[name]
			continue
		}
		p.warnf("%s.properties.%s cannot be declared to Gemini as it is.", path, name)
		p.isLossy = true
		original, _ := fieldByPath(tree, "properties").(map[string]any)
		in, _ := original[name].(map[string]any)
		properties[name] = p.declareAsText(in, map[string]any{}, "A JSON value", path+".properties."+name)
	}
	return p.fitSchema(translated, path)
}

// fitSchema converts a translated schema to the form that is sent to Google, and checks it. It also returns the places
// that textMark has marked.
func (p *parser) fitSchema(translated map[string]any, path string) (object map[string]any, places *textPlaces, err error) {
	places = removeTextMarks(translated)
	whole, err := p.fitValue(translated, "Schema", path)
	if err != nil {
		return nil, nil, err
	}
	object = whole.(map[string]any)
	if isEmptyObject(object["properties"]) {
		return object, nil, nil // without properties, the schema is not sent
	}
	return object, places, checkSchema(object, path)
}

// separateFunctionTools removes unsupported tools, and moves all functions into one tool of their own. Google ends a
// session with 1011 if search and functions are in the same tool.
func (p *parser) separateFunctionTools(setup map[string]any) {
	list, given := setup["tools"].([]any)
	if !given {
		return
	}
	var split []any
	var all []any
	for i, t := range list {
		tool, at := t.(map[string]any), fmt.Sprintf("%s.tools[%d]", p.path, i)
		if !p.filterTool(tool, at) {
			continue
		}
		functions, _ := tool["functionDeclarations"].([]any)
		all = append(all, functions...)
		delete(tool, "functionDeclarations")
		if len(tool) > 0 {
			split = append(split, tool)
		}
	}
	if len(all) > 0 {
		split = append([]any{map[string]any{"functionDeclarations": all}}, split...)
	}
	if delete(setup, "tools"); split != nil {
		setup["tools"] = split
	}
}

// searchTool is the only tool that current Live models support besides functions
// (https://ai.google.dev/gemini-api/docs/live-guide, comparison of models).
const searchTool = "googleSearch"

// filterTool removes the fields of a tool that the model does not support. It reports whether the tool still has a
// field.
func (p *parser) filterTool(tool map[string]any, path string) (hasFields bool) {
	has := []string{"functionDeclarations", searchTool}
	if p.row.calls == callsNothing {
		has = nil
	}
	for _, name := range slices.Sorted(maps.Keys(tool)) {
		if !slices.Contains(has, name) {
			delete(tool, name)
			p.warnf("%s.%s was dropped: %s does not have it.", path, name, p.Model)
		}
	}
	return len(tool) > 0
}
