package agents

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"voxgate/bridge"
	"voxgate/bridge/flow"
)

var (
	heading = regexp.MustCompile(`(?i)^## +step: *(.*?) *$`)
	// almostHeading matches a mistyped step heading. Without this check, the heading would silently become part of the
	// prompt.
	almostHeading = regexp.MustCompile(`(?i)^\s*#+ *step *:`)
	// fieldPattern matches the first line of a step's fields. It accepts any field name, so that an unknown field is an
	// error instead of text of the step.
	fieldPattern = regexp.MustCompile(`^[a-z_]+:(\s|$)`)
)

// lineError is an error in a prompt. line counts from 1.
type lineError struct {
	line int
	err  error
}

func (l *lineError) Error() string { return fmt.Sprintf("line %d: %v", l.line, l.err) }
func (l *lineError) Unwrap() error { return l.err }

// section is a step as written in the prompt.
type section struct {
	line   int // line of its heading
	lines  []string
	fields yaml.Node
}

// parseSteps divides the prompt into its general part and the steps. Errors are of type [*lineError].
func (a *Agent) parseSteps() (general string, plan flow.Plan, err error) {
	var before []string
	var sections []*section
	for i, line := range strings.Split(a.Prompt, "\n") {
		switch m := heading.FindStringSubmatch(line); {
		case m == nil && almostHeading.MatchString(line):
			return "", nil, &lineError{i + 1, fmt.Errorf("a step heading must be written %q", "## Step: NAME")}
		case m != nil:
			sections = append(sections, &section{line: i + 1})
			plan = append(plan, flow.Step{Name: m[1]})
		case len(sections) == 0:
			before = append(before, line)
		default:
			last := sections[len(sections)-1]
			last.lines = append(last.lines, line)
		}
	}
	for i, s := range sections {
		if err := s.parseStep(&plan[i]); err != nil {
			return "", nil, err
		}
	}
	if m := cmp.Or(plan.Check(), a.checkStepTools(plan)); m != nil {
		s := sections[m.Step]
		return "", nil, &lineError{s.keyLine(m.Key), fmt.Errorf("step %q: %w", plan[m.Step].Name, m)}
	}
	return strings.TrimSpace(strings.Join(before, "\n")), plan, nil
}

// parseStep reads the fields of a step, up to the first empty line, and its text.
func (s *section) parseStep(step *flow.Step) error {
	begin := max(0, slices.IndexFunc(s.lines, func(line string) bool { return strings.TrimSpace(line) != "" }))
	end := begin
	if begin < len(s.lines) && fieldPattern.MatchString(s.lines[begin]) {
		for end < len(s.lines) && strings.TrimSpace(s.lines[end]) != "" {
			end++
		}
	}
	step.Instruction = strings.TrimSpace(strings.Join(s.lines[end:], "\n"))
	at := func(line int, format string, args ...any) error {
		return &lineError{s.line + begin + line, fmt.Errorf("step %q: %w", step.Name, fmt.Errorf(format, args...))}
	}
	text := strings.Join(s.lines[begin:end], "\n")
	if err := yaml.Unmarshal([]byte(text), &s.fields); err != nil {
		return at(
			yamlErrorLine(err), "%s; an empty line must separate the fields of a step from its text",
			yamlErrorPrefix.ReplaceAllString(err.Error(), ""),
		)
	}
	s.shiftLines(&s.fields, s.line+begin)
	if len(s.fields.Content) == 0 {
		return nil
	}
	list := s.fields.Content[0].Content
	for i := 0; i+1 < len(list); i += 2 {
		key, value := list[i], list[i+1]
		var err error
		switch key.Value {
		case "tools":
			err = value.Decode(&step.Tools)
		case "next":
			err = decodeNames(value, &step.Next)
		case "ask":
			step.Fields, err = parseFieldsToAsk(value)
		default:
			err = errors.New("unknown field of a step; an empty line separates fields from text")
		}
		if err != nil {
			return &lineError{key.Line, fmt.Errorf("step %q: %s: %s", step.Name, key.Value, yamlErrorPrefix.ReplaceAllString(err.Error(), ""))}
		}
	}
	return nil
}

// decodeNames decodes a list of names. It accepts a single name as a list of one.
func decodeNames(value *yaml.Node, list *[]string) error {
	if value.Kind == yaml.ScalarNode {
		*list = []string{value.Value}
		return nil
	}
	return value.Decode(list)
}

// parseFieldsToAsk parses the field "ask" of a step. It returns the values that the step asks for, in order.
func parseFieldsToAsk(value *yaml.Node) (list []flow.Field, err error) {
	if value.Kind != yaml.MappingNode {
		return nil, errors.New("must be a list of name: type, one per line")
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		name, kind := value.Content[i], value.Content[i+1]
		if kind.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("%s: the type must be text, such as number 1 to 4", name.Value)
		}
		list = append(list, flow.Field{Name: name.Value, Kind: kind.Value})
	}
	return list, nil
}

// shiftLines adds an offset to the line numbers of a node and its children. They then count from the start of the
// prompt.
func (s *section) shiftLines(node *yaml.Node, offset int) {
	node.Line += offset
	for _, n := range node.Content {
		s.shiftLines(n, offset)
	}
}

// keyLine returns the line of a field of the step, or the line of the step's heading if the field is missing.
func (s *section) keyLine(key string) int {
	if line := findKeyLine(&s.fields, key); key != "" && line > 0 {
		return line
	}
	return s.line
}

// checkStepTools returns an error if a step uses a tool that a.Tools or a.knownTools lacks. A nil list allows all
// tools.
func (a *Agent) checkStepTools(plan flow.Plan) *flow.PlanError {
	for i, s := range plan {
		for _, tool := range s.Tools {
			switch {
			case a.Tools != nil && !slices.Contains(a.Tools, tool) && !bridge.MatchesAny(a.Tools, tool):
				return &flow.PlanError{Step: i, Key: "tools", Err: fmt.Errorf("%q is not one of the agent's tools", tool)}
			case a.knownTools != nil && !matchesAny(a.knownTools, tool):
				return &flow.PlanError{Step: i, Key: "tools", Err: fmt.Errorf("unknown tool %q: not in the tools file", tool)}
			}
		}
	}
	return nil
}

// matchesAny reports whether any of the names matches the pattern.
func matchesAny(names []string, pattern string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return bridge.MatchesAny([]string{pattern}, name) })
}
