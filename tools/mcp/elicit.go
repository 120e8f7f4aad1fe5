package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
)

const (
	// maxTries limits how often a user is asked the same question. If the last answer is still invalid, the question
	// counts as cancelled.
	maxTries = 5

	// maxButtons is the maximum number of values that are offered as buttons; more values are offered as a list.
	maxButtons = 8
)

// elicit asks the user of the call to which ctx belongs. If the user hides the question, it is cancelled.
func elicit(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	f, err := newForm(p)
	if err != nil {
		return nil, err
	}
	for range maxTries {
		canvas, err := json.Marshal(map[string]any{"type": "canvas", "elements": f.elements()})
		if err != nil {
			return nil, err
		}
		answer, err := tools.AskPerson(ctx, canvas)
		if err != nil {
			return nil, err
		}
		value, err := tools.Decode(answer) // Decode keeps a number as it was entered: 1000000, not 1e+06
		put, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the user's answer is not an object: %w", err)
		}
		action, _ := put["action"].(string)
		switch {
		case put["dismissed"] == true, action == "":
			return &mcp.ElicitResult{Action: "cancel"}, nil
		case action == "decline":
			return &mcp.ElicitResult{Action: "decline"}, nil
		}
		if content := f.parseAnswer(action, put); f.problem == "" {
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		}
	}
	return &mcp.ElicitResult{Action: "cancel"}, nil
}

// form is a question to a user. It is shown as a canvas with an input for each requested value. If only one choice is
// requested, the canvas has a button for each choice instead.
type form struct {
	message string
	fields  []*field
	problem string // what was wrong with the last answer
}

// field is one requested value.
type field struct {
	property
	name     string
	id       string // ID of the input on the canvas; not the name, which could be the reserved "action"
	required bool
	choices  []choice // nil: any value of the type
	input    string   // what the user has entered so far
}

// property is the schema of a requested value. It is one of MCP's PrimitiveSchemaDefinition.
type property struct {
	Type        string          `json:"type"` // string, number, integer, boolean, array (several of the choices)
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Format      string          `json:"format"` // of a string: email, uri, date, date-time
	Default     json.RawMessage `json:"default"`
	options
	Items *options `json:"items"`
}

// options holds the values that a schema allows. It has a field for each form in which schemas list them.
type options struct {
	Enum      []string `json:"enum"`
	EnumNames []string `json:"enumNames"`
	OneOf     []choice `json:"oneOf"`
	AnyOf     []choice `json:"anyOf"`
}

type choice struct {
	Value string `json:"const"`
	Label string `json:"title"`
}

func newForm(p *mcp.ElicitParams) (*form, error) {
	f := &form{message: p.Message}
	schema, err := json.Marshal(p.RequestedSchema)
	if err != nil {
		return nil, err
	}
	var requestedSchema struct {
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	if err := json.Unmarshal(schema, &requestedSchema); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	// The SDK does not keep the order of properties in the schema. So required values come first, in the order of
	// "required", and then the others, sorted by name.
	names := slices.Concat(requestedSchema.Required, slices.Sorted(maps.Keys(requestedSchema.Properties)))
	for i, name := range names {
		if schema, ok := requestedSchema.Properties[name]; ok && !slices.Contains(names[:i], name) {
			f.fields = append(f.fields, newField(schema, name, len(f.fields), i < len(requestedSchema.Required)))
		}
	}
	return f, nil
}

func newField(schema property, name string, index int, isRequired bool) *field {
	f := &field{property: schema, name: name, id: "value-" + strconv.Itoa(index), required: isRequired}
	listed := schema.options
	if schema.Type == "array" && schema.Items != nil {
		listed = *schema.Items
	}
	f.choices = slices.Concat(listed.OneOf, listed.AnyOf)
	for i, value := range listed.Enum {
		label := value
		if i < len(listed.EnumNames) {
			label = listed.EnumNames[i]
		}
		f.choices = append(f.choices, choice{value, label})
	}
	if schema.Type == "boolean" {
		f.choices = []choice{{"true", "Yes"}, {"false", "No"}}
	}
	f.input = f.initialInput()
	return f
}

// initialInput returns the default value of the schema as text, in the form in which a user would enter it.
func (f *field) initialInput() string {
	var one string
	var several []string
	switch {
	case f.Default == nil:
		return ""
	case json.Unmarshal(f.Default, &one) == nil:
		several = []string{one}
	case json.Unmarshal(f.Default, &several) != nil:
		several = []string{string(f.Default)} // a number, true, false
	}
	for i, value := range several {
		for _, c := range f.choices {
			if c.Value == value {
				several[i] = c.Label
			}
		}
	}
	return strings.Join(several, ", ")
}

func (f *field) label() string { return cmp.Or(f.Title, f.name) }

// element is an element of a canvas. HTML in its texts and list items is escaped, because a server must not supply
// markup.
type element map[string]any

func paragraph(text string) element {
	return element{"type": "text", "value": strings.ReplaceAll(html.EscapeString(text), "\n", "<br>")}
}

func button(label, action string) element {
	return element{"type": "button", "label": label, "action": action}
}

// hasButtons reports whether the form asks for only one value, which is a choice among at most maxButtons.
func (f *form) hasButtons() bool {
	return len(f.fields) == 1 && f.fields[0].Type != "array" && len(f.fields[0].choices) > 0 && len(f.fields[0].choices) <= maxButtons
}

func (f *form) elements() []element {
	all := []element{paragraph(f.message)}
	if f.problem != "" {
		all = append(all, paragraph(f.problem))
	}
	if f.hasButtons() {
		field := f.fields[0]
		all = append(all, paragraph(strings.TrimSpace(field.label()+"\n"+field.Description)))
		for i, c := range field.choices {
			all = append(all, button(c.Label, "choice-"+strconv.Itoa(i)))
		}
		return append(all, button("Decline", "decline"))
	}
	for _, field := range f.fields {
		all = append(all, field.elements()...)
	}
	return append(all, button("Send", "submit"), button("Decline", "decline"))
}

func (f *field) elements() (all []element) {
	input := element{"type": "input", "id": f.id, "label": f.label(), "required": f.required}
	if f.input != "" {
		input["value"] = f.input
	}
	hint := f.Description
	switch kinds := map[string]string{"email": "email", "uri": "url", "date": "date"}; {
	case f.Type == "boolean":
		hint = strings.TrimSpace(hint + " (yes or no)")
	case f.Type == "array":
		hint = strings.TrimSpace(hint + " (several of these, with commas between them)")
	case f.choices != nil:
		hint = strings.TrimSpace(hint + " (one of these, or its number)")
	case f.Type == "number" || f.Type == "integer":
		input["kind"] = "number"
	case f.Format == "date-time":
		hint = strings.TrimSpace(hint + " (as 2026-11-21T21:06:00Z)")
	case kinds[f.Format] != "":
		input["kind"] = kinds[f.Format]
	}
	if hint != "" {
		input["hint"] = hint
	}
	if f.choices != nil && f.Type != "boolean" {
		var items []string
		for _, c := range f.choices {
			items = append(items, html.EscapeString(c.Label))
		}
		all = append(all, paragraph(f.label()), element{"type": "list", "ordered": true, "items": items})
	}
	return append(all, input)
}

// parseAnswer converts the user's input to the types of the schema. It sets problem if a value is invalid.
func (f *form) parseAnswer(action string, put map[string]any) map[string]any {
	f.problem = ""
	content := map[string]any{}
	if number, ok := strings.CutPrefix(action, "choice-"); ok && f.hasButtons() {
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(f.fields[0].choices) {
			put = map[string]any{f.fields[0].id: f.fields[0].choices[i].Label}
		}
	}
	for _, field := range f.fields {
		field.input = ""
		if text, ok := put[field.id]; ok && text != nil {
			field.input = strings.TrimSpace(fmt.Sprint(text))
		}
		switch value, problem := field.convertInput(); {
		case problem != "" && f.problem == "":
			f.problem = field.label() + ": " + problem
		case problem == "" && value != nil:
			content[field.name] = value
		}
	}
	return content
}

// convertInput converts the input to a value of the schema's type. It returns nil for an optional field without input.
// problem says why the input is invalid.
func (f *field) convertInput() (value any, problem string) {
	var err error
	switch {
	case f.input == "" && f.required:
		return nil, "please fill this in"
	case f.input == "":
		return nil, ""
	case f.Type == "array":
		values := []string{}
		for one := range strings.SplitSeq(f.input, ",") {
			chosen, ok := f.findChoice(strings.TrimSpace(one))
			if !ok {
				return nil, fmt.Sprintf("%q is not one of these", strings.TrimSpace(one))
			}
			values = append(values, chosen)
		}
		return values, ""
	case f.choices != nil:
		chosen, ok := f.findChoice(f.input)
		if !ok {
			return nil, fmt.Sprintf("%q is not one of these", f.input)
		}
		if f.Type == "boolean" {
			return chosen == "true", ""
		}
		return chosen, ""
	case f.Type == "integer":
		value, err = strconv.ParseInt(f.input, 10, 64)
	case f.Type == "number":
		value, err = strconv.ParseFloat(f.input, 64)
	default:
		return f.input, ""
	}
	if err != nil {
		return nil, fmt.Sprintf("%q is not a number", f.input)
	}
	return value, ""
}

// findChoice finds a choice by its label, its value or its number.
func (f *field) findChoice(text string) (value string, ok bool) {
	for _, c := range f.choices {
		if strings.EqualFold(text, c.Label) || strings.EqualFold(text, c.Value) {
			return c.Value, true
		}
	}
	if i, err := strconv.Atoi(text); err == nil && f.Type != "boolean" && i >= 1 && i <= len(f.choices) {
		return f.choices[i-1].Value, true
	}
	return "", false
}
