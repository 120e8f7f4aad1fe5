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
	"voxgate/bridge/steps"
)

var (
	heading = regexp.MustCompile(`(?i)^## +step: *(.*?) *$`)
	// almostHeading matches what was meant as a heading of a step, and would silently become part of the prompt.
	almostHeading = regexp.MustCompile(`(?i)^\s*#+ *step *:`)
	// field begins the fields of a step: what is no field is refused, and not taken for its text.
	field = regexp.MustCompile(`^[a-z_]+:(\s|$)`)
)

// misplaced is a mistake in a prompt, with its line, from 1.
type misplaced struct {
	line int
	err  error
}

func (m *misplaced) Error() string { return fmt.Sprintf("line %d: %v", m.line, m.err) }
func (m *misplaced) Unwrap() error { return m.err }

// section is a step as the prompt has it.
type section struct {
	line   int // of its heading
	lines  []string
	fields yaml.Node
}

// steps divides the prompt into what counts in all steps, and the steps. A mistake is a [*misplaced].
func (a *Agent) steps() (general string, plan steps.Plan, err error) {
	var before []string
	var sections []*section
	for i, line := range strings.Split(a.Prompt, "\n") {
		switch m := heading.FindStringSubmatch(line); {
		case m == nil && almostHeading.MatchString(line):
			return "", nil, &misplaced{i + 1, fmt.Errorf("the heading of a step is written %q", "## Step: NAME")}
		case m != nil:
			sections = append(sections, &section{line: i + 1})
			plan = append(plan, steps.Step{Name: m[1]})
		case len(sections) == 0:
			before = append(before, line)
		default:
			last := sections[len(sections)-1]
			last.lines = append(last.lines, line)
		}
	}
	for i, s := range sections {
		if err := s.read(&plan[i]); err != nil {
			return "", nil, err
		}
	}
	if m := cmp.Or(plan.Check(), a.checkTools(plan)); m != nil {
		s := sections[m.Step]
		return "", nil, &misplaced{s.lineOf(m.Key), fmt.Errorf("step %q: %w", plan[m.Step].Name, m)}
	}
	return strings.TrimSpace(strings.Join(before, "\n")), plan, nil
}

// read reads the fields of a step, up to the first empty line, and its text.
func (s *section) read(step *steps.Step) error {
	begin := max(0, slices.IndexFunc(s.lines, func(line string) bool { return strings.TrimSpace(line) != "" }))
	end := begin
	if begin < len(s.lines) && field.MatchString(s.lines[begin]) {
		for end < len(s.lines) && strings.TrimSpace(s.lines[end]) != "" {
			end++
		}
	}
	step.Instruction = strings.TrimSpace(strings.Join(s.lines[end:], "\n"))
	at := func(line int, format string, args ...any) error {
		return &misplaced{s.line + begin + line, fmt.Errorf("step %q: %w", step.Name, fmt.Errorf(format, args...))}
	}
	text := strings.Join(s.lines[begin:end], "\n")
	if err := yaml.Unmarshal([]byte(text), &s.fields); err != nil {
		return at(lineOf(err), "%s; an empty line must divide the fields of a step from its text", yamlPlace.ReplaceAllString(err.Error(), ""))
	}
	s.move(&s.fields, s.line+begin)
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
			step.Fields, err = asked(value)
		default:
			err = errors.New("there is no such field in a step; an empty line divides fields and text")
		}
		if err != nil {
			return &misplaced{key.Line, fmt.Errorf("step %q: %s: %s", step.Name, key.Value, yamlPlace.ReplaceAllString(err.Error(), ""))}
		}
	}
	return nil
}

// decodeNames takes one name for a list of one.
func decodeNames(value *yaml.Node, list *[]string) error {
	if value.Kind == yaml.ScalarNode {
		*list = []string{value.Value}
		return nil
	}
	return value.Decode(list)
}

// asked are the fields of a step, in their order.
func asked(value *yaml.Node) (list []steps.Field, err error) {
	if value.Kind != yaml.MappingNode {
		return nil, errors.New("its fields stand below it, as name: text")
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		name, kind := value.Content[i], value.Content[i+1]
		if kind.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("%s: a type is a text, as number 1 to 4", name.Value)
		}
		list = append(list, steps.Field{Name: name.Value, Kind: kind.Value})
	}
	return list, nil
}

// move has a node's lines count from the beginning of the prompt.
func (s *section) move(node *yaml.Node, by int) {
	node.Line += by
	for _, n := range node.Content {
		s.move(n, by)
	}
}

// lineOf is the line of a field; without one, that of the heading.
func (s *section) lineOf(key string) int {
	if line := find(&s.fields, key); key != "" && line > 0 {
		return line
	}
	return s.line
}

// checkTools says which tool of a step the agent does not have, as far as its tools are known.
func (a *Agent) checkTools(plan steps.Plan) *steps.PlanError {
	for i, s := range plan {
		for _, tool := range s.Tools {
			switch {
			case a.Tools != nil && !slices.Contains(a.Tools, tool) && !bridge.Matches(a.Tools, tool):
				return &steps.PlanError{Step: i, Key: "tools", Err: fmt.Errorf("%q is none of the agent's tools", tool)}
			case a.known != nil && !hasAny(a.known, tool):
				return &steps.PlanError{Step: i, Key: "tools", Err: fmt.Errorf("there is no tool %q in the file of tools", tool)}
			}
		}
	}
	return nil
}

// hasAny reports whether one of the names has a pattern.
func hasAny(names []string, pattern string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return bridge.Matches([]string{pattern}, name) })
}
