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

// readTools rewrites a client's tools to the form of the Live API, and adds the gateway's tools. It leaves values of
// the wrong type unchanged, because fit reports them later.
func (p *parser) readTools(fields map[string]any) error {
	list, ok := oneOrMore(fields["tools"])
	if !ok && fields["tools"] != nil {
		return nil // fit reports it
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
		if functions, ok := oneOrMore(tool["functionDeclarations"]); ok {
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

// oneOrMore returns a list, or a single object as a list. It returns false for any other value.
func oneOrMore(value any) ([]any, bool) {
	if one, ok := value.(map[string]any); ok {
		return []any{one}, true
	}
	list, ok := value.([]any)
	return list, ok
}

// declareGatewayTools declares the gateway's own tools. They come first, so that a client cannot replace them by
// functions of the same name.
func (p *parser) declareGatewayTools() []any {
	var functions []any
	for _, t := range p.scope.Tools {
		if declared := p.declareOwn(t, InGateway); declared != nil {
			functions = append(functions, declared)
		}
	}
	if functions == nil {
		return nil
	}
	return []any{map[string]any{"functionDeclarations": functions}}
}

// declareCanvasTools declares the canvas tools if the client has a canvas and has not declared them itself.
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
		if f := p.declareOwn(t, OnCanvas); f != nil {
			functions = append(functions, f)
		}
	}
	if functions == nil {
		return nil
	}
	return map[string]any{"functionDeclarations": functions}
}

// declareOwn declares one of the gateway's own tools. It returns nil if the tool cannot be declared to the model.
func (p *parser) declareOwn(t tools.Declaration, where Where) map[string]any {
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

	// maxParts limits the nodes in all function schemas of a client's config. A hundred functions of MCP servers have
	// 1,500 nodes.
	maxParts = 5_000
)

// gatewaySchemas caches the schemas of the gateway's own functions, which every conversation declares.
var gatewaySchemas schemas

// schemas caches parsed schemas. The key is the text of the schema.
type schemas struct {
	mu     sync.Mutex
	parsed map[string]*tools.Schema
}

// maxKept is the number of schemas at which the cache is emptied. An MCP server may change its schemas again and again.
const maxKept = 2_000

func (ss *schemas) parse(text json.RawMessage) (*tools.Schema, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.parsed[string(text)]; s != nil {
		return s, nil
	}
	schema, err := tools.Decode(text)
	if err != nil {
		return nil, err
	}
	s, err := tools.ReadSchema(schema, nil)
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

// declareFunction rewrites the declaration f of a function, and adds the function to Functions. It returns nil if the
// function is not available in this session.
func (p *parser) declareFunction(f map[string]any, at string, where Where) (map[string]any, error) {
	if len(p.Functions) >= maxFunctions {
		return nil, &FieldError{Field: at, Problem: fmt.Sprintf("is one too many: there can be %d functions", maxFunctions)}
	}
	f = maps.Clone(camelKeys(f))
	name, _ := f["name"].(string)
	if strings.TrimSpace(name) == "" || len(name) > maxName {
		return nil, &FieldError{Field: at + ".name", Problem: fmt.Sprintf("must be a text of %d bytes at most", maxName)}
	}
	if p.scope.Hides != nil && p.scope.Hides(name) {
		return nil, nil
	}
	if one, declared := p.Functions.Find(name); declared {
		if one.Where == InGateway {
			p.leaveOut(where, name, at, "the gateway has a tool %q itself", name)
			return nil, nil
		}
		return nil, &FieldError{Field: at + ".name", Problem: fmt.Sprintf("%q is declared twice", name)}
	}
	if slices.ContainsFunc(p.scope.Canvas, func(t tools.Declaration) bool { return t.Name == name }) {
		if where == InGateway {
			return nil, &FieldError{Field: at, Problem: "has the name of a canvas tool"}
		}
		if where = OnCanvas; !p.scope.Screen {
			p.leaveOut(where, name, at, "nothing can be shown here")
			return nil, nil
		}
	}
	function := Function{Where: where}
	function.Name = name
	function.Description, _ = f["description"].(string)
	if err := p.readRules(f, at, &function); err != nil {
		return nil, err
	}
	p.isLossy = false
	before := len(p.warnings)
	args, places, err := p.readParameters(f, "parameters", at)
	if err != nil {
		p.leaveOut(where, name, at, "the parameters of %q cannot be declared to Gemini: %v", name, err)
		return nil, nil
	}
	if p.isLossy {
		p.addLoss(where, Loss{Function: name, Reason: strings.Join(p.warnings[min(before, len(p.warnings)):], " ")})
	}
	function.args, function.places = args, places
	if _, _, err := p.readParameters(f, "response", at); err != nil {
		delete(f, "response")
		p.warnf("%s.response was dropped: %v.", at, err)
	}
	function.WireName = p.Functions.newWireName(name)
	if f["name"] = function.WireName; function.WireName != name {
		p.warnf("%s.name: Gemini gets %q for %q.", at, function.WireName, name)
	}
	if p.row.calls != callsNothing {
		p.Functions = append(p.Functions, function)
	} else {
		p.addLoss(where, Loss{name, fmt.Sprintf("%s calls no functions", p.Model), true})
	}
	return f, nil
}

// leaveOut records, as a warning and a loss, that a function is not declared to the model.
func (p *parser) leaveOut(where Where, name, at, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	p.warnf("%s was left out: %s.", at, reason)
	p.addLoss(where, Loss{name, reason, true})
}

// addLoss records a loss, unless the function is the gateway's.
func (p *parser) addLoss(where Where, l Loss) {
	if where != InGateway && len(p.Losses) < maxWarnings {
		l.Reason = tools.Truncate(l.Reason, maxReason)
		p.Losses = append(p.Losses, l)
	}
}

// readRules reads the fields of a declaration that are not part of its schema: behavior, scheduling, title, timeout and
// repeats.
func (p *parser) readRules(f map[string]any, at string, function *Function) error {
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
			if text, ok = wordOfNumber(number, words), true; text == "" {
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
		return "", &FieldError{Field: at + "." + name, Problem: "must be " + strings.Join(words[:last], ", ") + " or " + words[last]}
	}
	behavior, err := word("behavior", "defaultBehavior", string(tools.Blocking), string(tools.NonBlocking))
	if err != nil {
		return err
	}
	scheduling, err := word("scheduling", "defaultScheduling", string(tools.Silent), string(tools.WhenIdle), string(tools.Interrupt))
	if err != nil {
		return err
	}
	options := object{reader: &reader{warnings: &p.warnings}, path: at, fields: f}
	if function.Timeout = options.duration("timeout"); function.Timeout > tools.MaxTimeout {
		options.fail("timeout", fmt.Sprintf("must be at most %v", tools.MaxTimeout))
	}
	repeats := options.boolean("repeats")
	if options.err != nil {
		return options.err
	}
	function.Repeats = repeats != nil && *repeats
	function.Title, _ = options.take("title").(string)
	function.Behavior, function.Scheduling = tools.Behavior(behavior), tools.Scheduling(scheduling)
	p.fitRules(f, at, function)
	return nil
}

// fitRules adapts behavior and scheduling of a declaration to the model. If the model supports only one behavior, the field
// is omitted, because some models close the session for it.
func (p *parser) fitRules(f map[string]any, at string, function *Function) {
	only := map[callMode]tools.Behavior{callsSync: tools.Blocking, callsAsync: tools.NonBlocking}[p.row.calls]
	requested := function.Behavior
	switch {
	case only != "":
		if function.Behavior = only; requested != "" && requested != only && function.Where == InClient {
			p.warnf("%s.behavior was dropped: on %s every function of %s is %s.", at, p.backend, p.Model, only)
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
			p.warnf("%s.scheduling was dropped: %s takes none with the answer of this function.", at, p.Model)
		}
		function.Scheduling = ""
	}
}

// readParameters replaces the schema f[name] of a declaration by its form for the Live API. It returns the original
// schema for validation, and the places where the model has to write JSON as text.
func (p *parser) readParameters(f map[string]any, name, at string) (*tools.Schema, *textPlaces, error) {
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
		schema, err = gatewaySchemas.parse(text)
	} else {
		schema, err = tools.ReadSchema(value, &p.schemaParts)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, change := range schema.Changes() {
		p.warnf("%s.%s was changed: %s.", at, name, change)
		p.isLossy = true
	}
	object, places, err := p.declareSchema(schema.Tree(), at+"."+name)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case name == "response":
		if response, ok := get(object, "properties.response").(map[string]any); ok && places == nil {
			f[name] = fittedObject(response)
		}
	case emptyObject(object["properties"]): // no schema is sent, because Google refuses an object without properties
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
func (p *parser) declareSchema(tree map[string]any, at string) (object map[string]any, places *textPlaces, err error) {
	translated := p.translateObjectSchema(mergeAlternatives(tree), at)
	if object, places, err = p.fitSchema(translated, at); err == nil {
		return object, places, nil
	}
	scratch := &parser{} // discards warnings, because p has them already
	translated = scratch.translateObjectSchema(mergeAlternatives(tree), at)
	properties, _ := translated["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		one := map[string]any{"type": "OBJECT", "properties": map[string]any{name: properties[name]}}
		if _, _, bad := scratch.fitSchema(one, at); bad == nil {
			again := scratch.translateObjectSchema(mergeAlternatives(tree), at) // translated again: fitSchema has removed its textMarks
			properties[name] = get(again, "properties").(map[string]any)[name]
			continue
		}
		p.warnf("%s.properties.%s cannot be declared to Gemini as it is.", at, name)
		p.isLossy = true
		original, _ := get(tree, "properties").(map[string]any)
		in, _ := original[name].(map[string]any)
		properties[name] = p.declareAsText(in, map[string]any{}, "A JSON value", at+".properties."+name)
	}
	return p.fitSchema(translated, at)
}

// fitSchema converts a translated schema to the form that is sent to Google, and checks it. It also returns the places
// with textMark.
func (p *parser) fitSchema(translated map[string]any, at string) (object map[string]any, places *textPlaces, err error) {
	places = takePlaces(translated)
	whole, err := p.fit(translated, "Schema", at)
	if err != nil {
		return nil, nil, err
	}
	object = whole.(map[string]any)
	if emptyObject(object["properties"]) {
		return object, nil, nil // without properties, the schema is not sent
	}
	return object, places, checkSchema(object, at)
}

// splitTools removes unsupported tools, and moves all functions into one tool of their own. Google ends a session with
// 1011 if search and functions are in the same tool.
func (p *parser) splitTools(setup map[string]any) {
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

// searchTool is the name of the only tool besides functions that current Live models support
// (https://ai.google.dev/gemini-api/docs/live-guide, comparison of models).
const searchTool = "googleSearch"

// filterTool removes the fields of a tool that the model does not support, and reports whether a field is left.
func (p *parser) filterTool(tool map[string]any, at string) bool {
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
