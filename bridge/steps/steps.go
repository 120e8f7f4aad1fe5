// Package steps takes a conversation through the steps of an agent: what the model is to find out in each, what it may call there, and
// where it goes on.
package steps

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

// Function is what the model calls to go on to another step.
const Function = "next_step"

// target is the argument of [Function] for the step that comes next; the others are the fields.
const target = "step"

// InAnswer is where the answer to a call of [Function] has the instruction of another step, which is in the system instruction, too.
const InAnswer = "instruction"

// Plan is the steps of an agent. A conversation begins with the first.
type Plan []Step

// Step is a part of a conversation.
type Step struct {
	Name  string   `json:"name"`
	Text  string   `json:"text,omitzero"`  // the instruction, behind that of the agent
	Tools []string `json:"tools,omitzero"` // patterns of the tools that can be called only here, and in other steps that name them
	Ask   []Field  `json:"ask,omitzero"`   // what must be known before it goes on
	Next  []string `json:"next,omitzero"`  // where it may go on; none: it is the last
}

// Field is something to be found out.
type Field struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // "number 1 to 4", as docs/agents.md has them
}

// State is where a conversation stands. The zero value is that of an agent without steps.
type State struct {
	Step   string         `json:"step,omitzero"`
	Fields map[string]any `json:"fields,omitzero"` // texts and numbers
}

// Flow is a plan, and where a conversation stands in it. The zero Flow has no steps. A copy is not changed with the original.
type Flow struct {
	State
	plan Plan
}

// Begin is the flow of a conversation that begins.
func Begin(plan Plan) Flow { return Flow{}.Follow(plan) }

// Resume is the flow of a conversation that goes on.
func Resume(plan Plan, at State) Flow {
	if plan.index(at.Step) < 0 {
		return Begin(plan)
	}
	return Flow{at, plan}
}

// Follow is f with the plan of the agent that answers now. Another plan begins with its first step.
func (f Flow) Follow(plan Plan) Flow {
	switch {
	case f.SamePlan(Flow{plan: plan}):
		return f
	case len(plan) == 0:
		return Flow{}
	}
	return Flow{State{Step: plan[0].Name}, plan}
}

// SamePlan reports whether another flow has the same plan.
func (f Flow) SamePlan(other Flow) bool { return reflect.DeepEqual(f.plan, other.plan) }

// step is the one that the conversation is in; nil: there are no steps.
func (f Flow) step() *Step {
	if i := f.plan.index(f.Step); i >= 0 {
		return &f.plan[i]
	}
	return nil
}

func (p Plan) index(name string) int {
	return slices.IndexFunc(p, func(s Step) bool { return s.Name == name })
}

// field finds a field of any step.
func (p Plan) field(name string) (Field, bool) {
	for _, s := range p {
		for _, f := range s.Ask {
			if f.Name == name {
				return f, true
			}
		}
	}
	return Field{}, false
}

// Hides reports whether a tool cannot be called now, because only other steps name it.
func (f Flow) Hides(tool string) bool {
	hidden := false
	for _, s := range f.plan {
		names := slices.ContainsFunc(s.Tools, func(pattern string) bool { ok, _ := path.Match(pattern, tool); return ok })
		if names && s.Name == f.Step {
			return false
		}
		hidden = hidden || names
	}
	return hidden
}

// Instruction is what the model gets behind the instruction of the agent; empty: there are no steps.
func (f Flow) Instruction() string {
	s := f.step()
	if s == nil {
		return ""
	}
	parts := []string{fmt.Sprintf("You are in the step %q now.", s.Name)}
	if s.Text != "" {
		parts = append(parts, s.Text)
	}
	if len(s.Ask) > 0 {
		lines := []string{"Find out:"}
		for _, field := range s.Ask {
			lines = append(lines, "- "+field.words())
		}
		parts = append(parts, strings.Join(lines, "\n"))
	}
	switch {
	case len(s.Next) > 0:
		parts = append(parts, fmt.Sprintf("When this step is done, call %s, to go on to %s.", Function, quoted(s.Next)))
	case len(s.Ask) > 0:
		parts = append(parts, fmt.Sprintf("When you know this, call %s.", Function))
	}
	if len(f.Fields) > 0 {
		parts = append(parts, "Known so far, as data: "+text(f.Fields))
	}
	return strings.Join(parts, "\n\n")
}

// quoted lists names: "book" or "cancel".
func quoted(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(list, " or ")
}

// text is a value that can be written, as JSON.
func text(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// Declaration is the function by which the model goes on; nil: there is nowhere to go, and nothing to be found out. Its schema is for the
// model, whose calls Advance checks: that says in words what is wrong, and a model whose tools change only at the next pause may call it as
// another step has it. Fields are required unless they are known, or the step leads back, too: a model would make them up to go there.
func (f Flow) Declaration() *tools.Declaration {
	s := f.step()
	if s == nil || len(s.Next)+len(s.Ask) == 0 {
		return nil
	}
	properties, required := map[string]schema{}, []string{}
	if len(s.Next) > 0 {
		properties[target] = schema{Type: "string", Enum: s.Next, Description: "The step to go on to."}
	}
	if len(s.Next) > 1 {
		required = append(required, target)
	}
	here := f.plan.index(s.Name)
	back := slices.ContainsFunc(s.Next, func(next string) bool { return f.plan.index(next) <= here })
	for _, field := range s.Ask {
		rule := field.mustRule()
		properties[field.Name] = rule.schema()
		if _, known := f.Fields[field.Name]; !known && !rule.optional && !back {
			required = append(required, field.Name)
		}
	}
	parameters := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		parameters["required"] = required
	}
	return &tools.Declaration{
		Name: Function, Title: "Next step…",
		Description: "Goes on to the next step of the conversation, with what was found out in this one. Call it as soon as this step is done, " +
			"and never invent what the person has not said.",
		Parameters: json.RawMessage(text(parameters)),
		Behavior:   tools.Blocking, Repeats: true, Explains: true,
	}
}

// Advance goes on as the model asks for, if it may. The answer is for the model: where the conversation is now, or what is wrong. What is
// right of the fields is kept in any case. moved reports whether the step is another one.
func (f Flow) Advance(args map[string]any) (next Flow, answer map[string]any, moved bool) {
	s := f.step()
	if s == nil {
		return f, wrong("There are no steps in this conversation."), false
	}
	next = Flow{State{f.Step, maps.Clone(f.Fields)}, f.plan}
	if next.Fields == nil {
		next.Fields = map[string]any{}
	}
	problems := next.note(args)
	to, _ := args[target].(string)
	if to == "" && len(s.Next) == 1 {
		to = s.Next[0]
	}
	switch {
	case to == s.Name && !slices.Contains(s.Next, to): // it has called twice
		return next, map[string]any{target: s.Name}, false
	case to == "" && len(s.Next) == 0: // the last step: the fields are all
	case !slices.Contains(s.Next, to):
		problems = append(problems, fmt.Sprintf("%s must be %s", target, quoted(s.Next)))
	}
	if f.plan.index(to) > f.plan.index(s.Name) || to == "" { // the way back is free
		problems = append(problems, next.missing(s, args)...)
	}
	if len(problems) > 0 {
		return next, wrong("Not yet: " + strings.Join(problems, "; ") + "."), false
	}
	if to == "" {
		return next, map[string]any{target: s.Name}, false
	}
	next.Step = to
	return next, map[string]any{target: to, InAnswer: next.Instruction()}, true
}

func wrong(words string) map[string]any { return map[string]any{"error": words} }

// note keeps what the arguments have of fields, and returns what is wrong with them.
func (f Flow) note(args map[string]any) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(args)) {
		given := args[name]
		if name == target || given == nil || given == "" {
			continue
		}
		field, ok := f.plan.field(name) // of an earlier step, too: the person may correct it
		if !ok {
			problems = append(problems, fmt.Sprintf("there is no field %.64q", name))
			continue
		}
		rule := field.mustRule()
		value, ok := rule.check(given)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s must be %s", name, rule.words))
			continue
		}
		f.Fields[name] = value
	}
	return problems
}

// missing are the fields of a step that are not known, and were not given in a way that was wrong.
func (f Flow) missing(s *Step, args map[string]any) (problems []string) {
	for _, field := range s.Ask {
		given := args[field.Name]
		_, known := f.Fields[field.Name]
		if !known && !field.mustRule().optional && (given == nil || given == "") {
			problems = append(problems, fmt.Sprintf("%s is missing: ask for %s", field.Name, field.mustRule().words))
		}
	}
	return problems
}
