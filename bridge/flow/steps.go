// Package flow guides a conversation through the steps of an agent: which fields the model must collect in each step,
// which tools it may call in it, and which steps may follow.
package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"voxgate/tools"
)

// FunctionName is the function that the model calls to go to another step.
const FunctionName = "next_step"

// stepArgument is the argument of [FunctionName] that names the next step. The other arguments are fields.
const stepArgument = "step"

// InstructionKey is the key under which the result of [FunctionName] contains the next step's instruction. The system
// instruction contains the same text.
const InstructionKey = "instruction"

// Plan holds the steps of an agent. A conversation begins with the first.
type Plan []Step

// Step is a part of a conversation.
type Step struct {
	Name        string   `json:"name"`
	Instruction string   `json:"text,omitzero"`  // appended to the agent's instruction
	Tools       []string `json:"tools,omitzero"` // patterns of tools that can be called only in this step, and in others that list them
	Fields      []Field  `json:"ask,omitzero"`   // values to collect before the step ends
	Next        []string `json:"next,omitzero"`  // steps that may follow; empty means that this is the last step
}

// Field is a value to collect from the person.
type Field struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // "number 1 to 4": see docs/agents.md
}

// State records the current step of a conversation and its fields. The zero value is the state of an agent without
// steps.
type State struct {
	Step   string         `json:"step,omitzero"`
	Fields map[string]any `json:"fields,omitzero"` // collected values, texts and numbers, by field
}

// Flow is a plan together with the state of a conversation that follows it. The zero Flow has no steps. Flow is a
// value: Advance and WithPlan return a changed copy.
type Flow struct {
	State
	plan Plan
}

// NewFlow returns the flow of a new conversation.
func NewFlow(plan Plan) Flow { return Flow{}.WithPlan(plan) }

// ResumeFlow returns the flow of a resumed conversation that was in the given state. If the plan no longer has the step
// in state, the flow starts again with the first step.
func ResumeFlow(plan Plan, state State) Flow {
	if plan.stepIndex(state.Step) < 0 {
		return NewFlow(plan)
	}
	return Flow{state, plan}
}

// WithPlan returns f with the plan of the agent that answers now. If that is a different plan, the flow starts with its
// first step.
func (f Flow) WithPlan(plan Plan) Flow {
	switch {
	case f.HasSamePlan(Flow{plan: plan}):
		return f
	case len(plan) == 0:
		return Flow{}
	}
	return Flow{State{Step: plan[0].Name}, plan}
}

// HasSamePlan reports whether both flows have the same plan.
func (f Flow) HasSamePlan(other Flow) bool { return reflect.DeepEqual(f.plan, other.plan) }

// currentStep returns the current step of the conversation, or nil if there are no steps.
func (f Flow) currentStep() *Step {
	if i := f.plan.stepIndex(f.Step); i >= 0 {
		return &f.plan[i]
	}
	return nil
}

func (p Plan) stepIndex(name string) int {
	return slices.IndexFunc(p, func(s Step) bool { return s.Name == name })
}

// findField returns the field with this name in any step.
func (p Plan) findField(name string) (f Field, ok bool) {
	for _, s := range p {
		for _, f := range s.Fields {
			if f.Name == name {
				return f, true
			}
		}
	}
	return Field{}, false
}

// HidesTool reports whether a tool must not be called now: other steps list it, and the current step does not.
func (f Flow) HidesTool(tool string) bool {
	hidden := false
	for _, s := range f.plan {
		isNamed := slices.ContainsFunc(s.Tools, func(pattern string) bool { ok, _ := path.Match(pattern, tool); return ok })
		if isNamed && s.Name == f.Step {
			return false
		}
		hidden = hidden || isNamed
	}
	return hidden
}

// Instruction returns the text that is appended to the agent's instruction, or "" if there are no steps.
func (f Flow) Instruction() string {
	s := f.currentStep()
	if s == nil {
		return ""
	}
	parts := []string{fmt.Sprintf("You are in the step %q now.", s.Name)}
	if s.Instruction != "" {
		parts = append(parts, s.Instruction)
	}
	if len(s.Fields) > 0 {
		lines := []string{"Find out:"}
		for _, field := range s.Fields {
			lines = append(lines, "- "+field.promptLine())
		}
		parts = append(parts, strings.Join(lines, "\n"))
	}
	switch {
	case len(s.Next) > 0:
		parts = append(parts, fmt.Sprintf("When this step is done, call %s, to go on to %s.", FunctionName, joinQuotedWithOr(s.Next)))
	case len(s.Fields) > 0:
		parts = append(parts, fmt.Sprintf("When you know this, call %s.", FunctionName))
	}
	if len(f.Fields) > 0 {
		parts = append(parts, "Known so far, as data: "+toJSON(f.Fields))
	}
	return strings.Join(parts, "\n\n")
}

// joinQuotedWithOr returns the names as text, such as "book" or "cancel".
func joinQuotedWithOr(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(list, " or ")
}

// toJSON marshals a value of a type for which marshalling cannot fail.
func toJSON(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// FunctionDeclaration returns the function with which the model goes to the next step, or nil if the step has neither
// fields nor a next step. Its schema only guides the model. Advance checks each call, because the model may use an
// outdated schema.
func (f Flow) FunctionDeclaration() *tools.Declaration {
	s := f.currentStep()
	if s == nil || len(s.Next)+len(s.Fields) == 0 {
		return nil
	}
	properties, required := map[string]jsonSchema{}, []string{}
	if len(s.Next) > 0 {
		properties[stepArgument] = jsonSchema{Type: "string", Enum: s.Next, Description: "The step to go on to."}
	}
	if len(s.Next) > 1 {
		required = append(required, stepArgument)
	}
	here := f.plan.stepIndex(s.Name)
	leadsBack := slices.ContainsFunc(s.Next, func(next string) bool { return f.plan.stepIndex(next) <= here })
	for _, field := range s.Fields {
		rule := field.parseRuleOrText()
		properties[field.Name] = rule.toSchema()
		// If a step can also go back, its fields are not required, because the model would invent values for them in
		// order to go back.
		if _, known := f.Fields[field.Name]; !known && !rule.optional && !leadsBack {
			required = append(required, field.Name)
		}
	}
	parameters := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		parameters["required"] = required
	}
	return &tools.Declaration{
		Name: FunctionName, Title: "Next step…",
		Description: "Goes on to the next step of the conversation, with what was found out in this one. Call it as soon as this step is done, " +
			"and never invent what the person has not said.",
		Parameters: json.RawMessage(toJSON(parameters)),
		Behavior:   tools.Blocking, Repeats: true, ValidatesItself: true,
	}
}

// Advance goes to the step that the model asks for, if the plan allows that, and returns the changed flow. answer is
// the result for the model: it names the current step or the problem. hasMoved is false if no new step begins. Fields
// with valid values are stored in any case.
func (f Flow) Advance(args map[string]any) (next Flow, answer map[string]any, hasMoved bool) {
	s := f.currentStep()
	if s == nil {
		return f, errorAnswer("There are no steps in this conversation."), false
	}
	next = Flow{State{f.Step, maps.Clone(f.Fields)}, f.plan}
	if next.Fields == nil {
		next.Fields = map[string]any{}
	}
	problems := next.storeFields(args)
	to, _ := args[stepArgument].(string)
	if to == "" && len(s.Next) == 1 {
		to = s.Next[0]
	}
	isRepeated := to == s.Name && !slices.Contains(s.Next, to) // the model has called twice for the same step
	if isRepeated && len(problems) == 0 {
		return next, map[string]any{stepArgument: s.Name}, false
	}
	switch {
	case isRepeated, to == "" && len(s.Next) == 0: // only fields are stored; the last step has no next one
	case !slices.Contains(s.Next, to):
		problems = append(problems, fmt.Sprintf("%s must be %s", stepArgument, joinQuotedWithOr(s.Next)))
	}
	if f.plan.stepIndex(to) > f.plan.stepIndex(s.Name) || to == "" { // going back needs no fields
		problems = append(problems, next.missingFields(s, args)...)
	}
	if len(problems) > 0 {
		return next, errorAnswer("Not yet: " + strings.Join(problems, "; ") + "."), false
	}
	if to == "" {
		return next, map[string]any{stepArgument: s.Name}, false
	}
	next.Step = to
	return next, map[string]any{stepArgument: to, InstructionKey: next.Instruction()}, true
}

func errorAnswer(words string) map[string]any { return map[string]any{"error": words} }

// storeFields stores the arguments that are fields with valid values, and returns a description of each invalid one.
func (f Flow) storeFields(args map[string]any) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(args)) {
		given := args[name]
		if name == stepArgument || given == nil || given == "" {
			continue
		}
		field, ok := f.plan.findField(name) // also a field of an earlier step, because the person may correct it
		if !ok {
			problems = append(problems, fmt.Sprintf("unknown field %.64q", name))
			continue
		}
		rule := field.parseRuleOrText()
		value, ok := rule.check(given)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s must be %s", name, rule.description))
			continue
		}
		f.Fields[name] = value
	}
	return problems
}

// missingFields returns a description of each required field of a step that has no stored value and is not among the
// arguments.
func (f Flow) missingFields(s *Step, args map[string]any) (problems []string) {
	for _, field := range s.Fields {
		given := args[field.Name]
		_, known := f.Fields[field.Name]
		if !known && !field.parseRuleOrText().optional && (given == nil || given == "") {
			problems = append(problems, fmt.Sprintf("%s is missing: ask for %s", field.Name, field.parseRuleOrText().description))
		}
	}
	return problems
}
