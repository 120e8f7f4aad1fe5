package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSchemaNodes bounds the nodes of a schema after its references were followed. The limit is needed because a few
	// lines can expand to a billion nodes, and because each call is validated against all nodes.
	maxSchemaNodes = 2000

	// maxSchemaDepth limits the nesting of a schema. The stack allows far more, but no model can fill in so many
	// levels.
	maxSchemaDepth = 32

	// These constants bound the cost of patterns and numbers, because a pattern of a few thousand characters, or an
	// exponent of a million, takes seconds of CPU time.
	maxPattern = 512  // bytes of a pattern
	maxSteps   = 1000 // compiled steps of a pattern
	maxDigits  = 40   // characters of a number
	maxPower   = 400  // exponent; double-precision numbers end at 10^308

	// schemaURL is the name of a schema in errors. It is a URN, because the library would resolve a bare name as a file
	// in the gateway's working directory.
	schemaURL = "urn:arguments"

	// maxProblems bounds the errors about arguments that a model gets, because a model repairs only the first few and
	// then calls again.
	maxProblems = 5
	maxProblem  = 200 // bytes of one such error
)

// Schema is the JSON Schema of a tool's arguments. Several goroutines may share it.
type Schema struct {
	tree    map[string]any
	changes []string
	compile func() (*jsonschema.Schema, error) // compiles at the first call
}

// ParseSchema parses and compiles a schema that an operator has written. It is strict: it rejects mistakes that
// ParseSchemaLeniently corrects. Compiling takes about 60 µs per node.
func ParseSchema(schema any, budget *int) (*Schema, error) {
	s, err := readSchema(schema, budget, false)
	if err == nil {
		_, err = s.compile()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ParseSchemaLeniently parses a schema that was decoded from JSON, with numbers as [json.Number]. The schema is JSON
// Schema (2020-12 by default), or Google's Schema (https://ai.google.dev/api/caching#Schema) with types in capitals. A
// nil schema allows any object.
//
// The function is lenient, because clients write schemas by hand. Types may have other names ("float", "dict").
// Patterns that Go cannot compile are ignored. Recursion is followed once, and external references allow anything.
// [Schema.Changes] lists these corrections.
//
// The schema is compiled only at the first Check, because a conversation may declare a hundred functions. A schema that
// turns out to be invalid accepts all arguments.
//
// budget is the number of nodes that several schemas together may have. ParseSchemaLeniently subtracts the nodes of
// this schema from it. If budget is nil, this schema may have 2,000 nodes.
func ParseSchemaLeniently(schema any, budget *int) (*Schema, error) {
	return readSchema(schema, budget, true)
}

func readSchema(schema any, budget *int, isLenient bool) (*Schema, error) {
	if schema == nil {
		schema = map[string]any{"type": "object"}
	}
	tree, changes, err := resolveSchema(schema, budget, isLenient)
	if err != nil {
		return nil, err
	}
	s := &Schema{tree: tree, changes: changes}
	if list, ok := s.tree["type"].([]any); ok && isLenient && slices.Contains(list, "object") { // null is not needed: calls have arguments
		s.tree["type"] = "object"
	}
	if kind := s.tree["type"]; kind == nil {
		s.tree["type"] = "object"
	} else if kind != "object" {
		return nil, fmt.Errorf("the arguments of a function are an object and not of type %v", kind)
	}
	s.compile = sync.OnceValues(func() (*jsonschema.Schema, error) {
		compiler := jsonschema.NewCompiler()
		compiler.UseLoader(noLoader{})
		if err := compiler.AddResource(schemaURL, s.tree); err != nil {
			return nil, err
		}
		rules, err := compiler.Compile(schemaURL)
		if err != nil {
			return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
		}
		return rules, nil
	})
	return s, nil
}

// ToJSONSchema converts a schema to JSON Schema without references. It also accepts schemas in Google's form, and
// schemas of other types than object.
func ToJSONSchema(text json.RawMessage) (json.RawMessage, error) {
	schema, err := Decode(text)
	if err != nil {
		return nil, err
	}
	tree, _, err := resolveSchema(schema, nil, true)
	if err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// resolveSchema follows the references of a schema and converts Google's form to JSON Schema.
func resolveSchema(schema any, budget *int, isLenient bool) (resolved map[string]any, changes []string, err error) {
	if err := checkNumbers(schema); err != nil {
		return nil, nil, fmt.Errorf("has %w", err)
	}
	root, ok := schema.(map[string]any)
	if !ok {
		return nil, nil, errors.New("a schema must be an object")
	}
	r := resolver{root: root, budget: maxSchemaNodes, lenient: isLenient}
	if budget != nil {
		r.budget = min(r.budget, *budget)
		before := r.budget
		defer func() { *budget -= before - max(r.budget, 0) }()
	}
	tree, err := r.resolveSchema(root, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	if root, ok = tree.(map[string]any); !ok {
		return nil, nil, errors.New("a schema must be an object")
	}
	return root, r.notes, nil
}

// Changes returns what was corrected or not understood in the schema, as sentences without capital letter and full
// stop.
func (s *Schema) Changes() []string { return s.changes }

// Tree returns the schema as JSON Schema without references. The caller must not change it.
func (s *Schema) Tree() map[string]any { return s.tree }

// Check validates a call's arguments. Its error is for the model. The first call of Check takes some milliseconds for a
// hundred nodes.
func (s *Schema) Check(args json.RawMessage) error {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
	}
	return s.validate(args, "args", "the arguments", "the function")
}

// CheckValue validates another value than a call's arguments, like [Schema.Check]. name stands for the value in errors.
func (s *Schema) CheckValue(value json.RawMessage, name string) error {
	return s.validate(value, name, "the "+name, "its schema")
}

// validate is the common part of Check and CheckValue. Three texts are for its errors: pathRoot is the first name in
// the path of a value, valueName stands for the value, and schemaName for the schema.
func (s *Schema) validate(raw json.RawMessage, pathRoot, valueName, schemaName string) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%s: not valid JSON: %w", valueName, err)
	}
	if err := checkNumbers(value); err != nil {
		return fmt.Errorf("%s: it has %w", valueName, err)
	}
	rules, err := s.compile()
	if err != nil {
		return nil
	}
	if err = rules.Validate(value); err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	var problems []string
	for _, leaf := range leafErrors(invalid) {
		at := strings.Join(append([]string{pathRoot}, leaf.InstanceLocation...), ".")
		// The library's sentence begins with the location as a JSON pointer. It is cut off, because `at` has the
		// location.
		_, what, _ := strings.Cut(leaf.Error(), "': ")
		what = strings.TrimSpace(what[strings.LastIndex(what, "\n")+1:])
		if p := Truncate(at+": "+what, maxProblem); !slices.Contains(problems, p) {
			problems = append(problems, p)
		}
	}
	if len(problems) > maxProblems {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more", len(problems)-maxProblems))
	}
	verb := " does not fit "
	if pathRoot == "args" {
		verb = " do not fit "
	}
	return errors.New(valueName + verb + schemaName + ": " + strings.Join(problems, "; "))
}

func leafErrors(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		all = append(all, leafErrors(cause)...)
	}
	return all
}

// noLoader refuses to load other documents, because a schema must be self-contained.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("%s is not loaded", url) }

// checkNumbers rejects numbers that are too expensive to compute with.
func checkNumbers(value any) error {
	switch v := value.(type) {
	case json.Number:
		text := strings.TrimLeft(string(v), "-")
		_, power, _ := strings.Cut(strings.ToLower(text), "e")
		p, err := strconv.Atoi(strings.TrimPrefix(power, "+"))
		if len(text) > maxDigits || power != "" && (err != nil || p > maxPower || p < -maxPower) {
			return fmt.Errorf("a number that is out of range: %.20s", text)
		}
	case map[string]any:
		for _, below := range v {
			if err := checkNumbers(below); err != nil {
				return err
			}
		}
	case []any:
		for _, below := range v {
			if err := checkNumbers(below); err != nil {
				return err
			}
		}
	}
	return nil
}

// boundedPatternCost estimates the cost of a pattern, in steps of the compiled program. ok is false if Go cannot
// compile the pattern, or if it is too expensive.
func boundedPatternCost(pattern string) (cost int, ok bool) {
	if len(pattern) > maxPattern {
		return 0, false
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, false
	}
	var size func(*syntax.Regexp) int
	size = func(r *syntax.Regexp) int {
		n := 1 + len(r.Rune)
		for _, sub := range r.Sub {
			n += size(sub)
		}
		if r.Op == syntax.OpRepeat {
			n *= max(r.Min, r.Max, 1)
		}
		return n
	}
	if n := size(parsed); n <= maxSteps {
		return n, true
	}
	return 0, false
}

// resolver follows references and converts Google's form to JSON Schema.
type resolver struct {
	root    map[string]any
	budget  int // remaining nodes
	lenient bool
	notes   []string // corrections
}

// subschemas maps the keywords that contain schemas to the form of their value: one schema, a list or a map.
var subschemas = map[string]int{
	"items": oneSchema, "additionalItems": oneSchema, "contains": oneSchema, "additionalProperties": oneSchema,
	"propertyNames": oneSchema, "unevaluatedItems": oneSchema, "unevaluatedProperties": oneSchema, "not": oneSchema,
	"if": oneSchema, "then": oneSchema, "else": oneSchema,
	"anyOf": listOfSchemas, "oneOf": listOfSchemas, "allOf": listOfSchemas, "prefixItems": listOfSchemas,
	"properties": mapOfSchemas, "patternProperties": mapOfSchemas, "dependentSchemas": mapOfSchemas,
}

const (
	oneSchema = iota + 1
	listOfSchemas
	mapOfSchemas
)

// resolveSchema returns a copy of one schema in which references are replaced by their targets. The schema may also be
// true or false. open lists the references that are being followed.
func (r *resolver) resolveSchema(value any, depth int, open []string) (any, error) {
	r.budget--
	switch {
	case r.budget < 0:
		return nil, errors.New("has too many parts")
	case depth > maxSchemaDepth:
		return nil, fmt.Errorf("is nested more than %d deep", maxSchemaDepth)
	}
	in, ok := value.(map[string]any)
	if !ok {
		if _, ok := value.(bool); ok {
			return value, nil
		}
		if word, ok := value.(string); ok && r.lenient {
			in = map[string]any{"type": word}
		} else if r.lenient {
			r.addNote("a value that is not a schema was left out")
			return true, nil
		} else {
			return nil, errors.New("contains a value that is not a schema")
		}
	}
	var out map[string]any
	if r.lenient {
		out = convertFromGoogle(r.correctSchema(in))
	} else {
		out = convertFromGoogle(toCamelCaseFields(in))
	}
	for _, name := range []string{"$defs", "definitions", "$id", "$anchor", "$comment", "$schema"} {
		delete(out, name)
	}
	if ref, given := out["$ref"]; given {
		target, err := r.followRef(ref, depth, open)
		if lost := (*refError)(nil); r.lenient && errors.As(err, &lost) {
			target = r.approximateRef(ref, err)
		} else if err != nil {
			return nil, err
		}
		delete(out, "$ref")
		object, ok := target.(map[string]any)
		if !ok || len(out) == 0 {
			return target, nil
		}
		if rules := withoutAnnotations(out); len(rules) == 0 {
			for name, v := range object {
				if _, given := out[name]; !given {
					out[name] = v
				}
			}
			return out, nil
		}
		// The keywords next to a reference apply in addition to its target: JSON Schema 2020-12, core, 8.2.3.1.
		beside := maps.Clone(out)
		if err := r.resolveSubschemas(beside, depth+1, open); err != nil {
			return nil, err
		}
		return map[string]any{"allOf": []any{target, beside}}, nil
	}
	if pattern, ok := out["pattern"].(string); ok && !r.spendOnPattern(pattern) {
		delete(out, "pattern")
	}
	if patterns, ok := out["patternProperties"].(map[string]any); ok {
		patterns = maps.Clone(patterns)
		out["patternProperties"] = patterns
		for pattern := range patterns {
			if !r.spendOnPattern(pattern) { // without the pattern, it is unknown which properties are additional
				delete(patterns, pattern)
				delete(out, "additionalProperties")
				delete(out, "unevaluatedProperties")
			}
		}
	}
	if _, dynamic := out["$dynamicRef"]; dynamic && r.lenient {
		r.addNote("it has a $dynamicRef, which is not followed")
		delete(out, "$dynamicRef")
	} else if dynamic {
		return nil, errors.New("has a $dynamicRef, which is not followed")
	}
	return out, r.resolveSubschemas(out, depth+1, open)
}

// stepsPerNode is the number of pattern steps that cost as much as one node of a schema.
const stepsPerNode = 20

// spendOnPattern subtracts the cost of a pattern from the budget. If the pattern costs more than the budget, it returns
// false.
func (r *resolver) spendOnPattern(pattern string) (isAllowed bool) {
	cost, ok := boundedPatternCost(pattern)
	if !ok || cost/stepsPerNode > r.budget {
		return false
	}
	r.budget -= cost / stepsPerNode
	return true
}

// withoutAnnotations returns a schema without the keywords that only describe it, such as title and examples.
func withoutAnnotations(s map[string]any) map[string]any {
	s = maps.Clone(s)
	for _, note := range []string{"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"} {
		delete(s, note)
	}
	return s
}

// resolveSubschemas resolves the schemas within a schema.
func (r *resolver) resolveSubschemas(out map[string]any, depth int, open []string) (err error) {
	if tuple, ok := out["items"].([]any); ok { // a list of schemas, as before JSON Schema 2020-12
		out["prefixItems"] = tuple
		delete(out, "items")
		if rest, given := out["additionalItems"]; given {
			out["items"] = rest
			delete(out, "additionalItems")
		}
	}
	for name, v := range out {
		switch subschemas[name] {
		case oneSchema:
			if out[name], err = r.resolveSchema(v, depth, open); err != nil {
				return err
			}
		case listOfSchemas:
			list, _ := v.([]any)
			list = slices.Clone(list)
			for i := range list {
				if list[i], err = r.resolveSchema(list[i], depth, open); err != nil {
					return err
				}
			}
			if list != nil {
				out[name] = list
			}
		case mapOfSchemas:
			fields, ok := v.(map[string]any)
			if !ok {
				continue
			}
			copied := make(map[string]any, len(fields))
			for key, below := range fields {
				if copied[key], err = r.resolveSchema(below, depth, open); err != nil {
					return err
				}
			}
			out[name] = copied
		}
	}
	return nil
}

// refError is the error for a reference that cannot be followed.
type refError struct{ problem string }

func (e *refError) Error() string { return e.problem }

func newRefError(format string, args ...any) error { return &refError{fmt.Sprintf(format, args...)} }

// parseRefPath returns the names that lead from the root of the document to the target of a reference.
func parseRefPath(ref string) (steps []string) {
	path := strings.TrimPrefix(ref, "#")
	if unescaped, err := url.PathUnescape(path); err == nil {
		path = unescaped
	}
	for _, step := range strings.Split(path, "/")[1:] {
		steps = append(steps, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	return steps
}

// followRef returns the target of a reference.
func (r *resolver) followRef(ref any, depth int, open []string) (any, error) {
	text, _ := ref.(string)
	path, ok := strings.CutPrefix(text, "#")
	if !ok || path != "" && path[0] != '/' && !strings.HasPrefix(path, "%2F") { // another document, or an anchor, which is not supported
		return nil, newRefError("refers to %q, which is not part of it", text)
	}
	if slices.Contains(open, text) {
		return nil, newRefError("refers to itself by %q, which no model takes", text)
	}
	var target any = r.root
	for _, step := range parseRefPath(text) {
		fields, _ := target.(map[string]any)
		if target, ok = fields[step]; !ok {
			return nil, newRefError("refers to %q, which is not there", text)
		}
	}
	return r.resolveSchema(target, depth+1, append(slices.Clone(open), text))
}

// counts lists the keywords whose value is a count.
var counts = []string{"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}

var (
	isCount  = regexp.MustCompile(`^[0-9]{1,18}$`)
	isNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

// snakeNames maps the snake_case names of Google's form to camelCase, because proto3 JSON accepts both.
var snakeNames = map[string]string{
	"any_of": "anyOf", "min_items": "minItems", "max_items": "maxItems", "min_length": "minLength", "max_length": "maxLength",
	"min_properties": "minProperties", "max_properties": "maxProperties", "property_ordering": "propertyOrdering",
}

// toCamelCaseFields returns a copy of one schema in Google's form, with all names in camelCase.
func toCamelCaseFields(in map[string]any) map[string]any {
	out := make(map[string]any, len(in))
	for name, v := range in {
		if camel, ok := snakeNames[name]; ok {
			name = camel
		}
		out[name] = v
	}
	return out
}

// convertFromGoogle converts a schema from Google's form to JSON Schema, in place.
func convertFromGoogle(out map[string]any) map[string]any {
	for _, name := range counts {
		if text, ok := out[name].(string); ok && isCount.MatchString(text) {
			out[name] = json.Number(text) // proto3 JSON encodes 64-bit integers as strings
		}
	}
	switch kind := out["type"].(type) {
	case string:
		if kind = strings.ToLower(kind); kind == "" || strings.HasSuffix(kind, "unspecified") {
			delete(out, "type")
		} else {
			out["type"] = kind
		}
	case []any:
		kinds := slices.Clone(kind)
		for i := range kinds {
			if text, ok := kinds[i].(string); ok {
				kinds[i] = strings.ToLower(text)
			}
		}
		out["type"] = kinds
	}
	if out["nullable"] == true {
		if kind, ok := out["type"].(string); ok && kind != "null" {
			out["type"] = []any{kind, "null"}
		}
		if list, ok := out["anyOf"].([]any); ok && out["type"] == nil {
			out["anyOf"] = append(slices.Clone(list), map[string]any{"type": "null"})
		}
		if list, ok := out["enum"].([]any); ok && !slices.Contains(list, nil) {
			out["enum"] = append(slices.Clone(list), nil)
		}
	}
	delete(out, "nullable")
	return out
}
