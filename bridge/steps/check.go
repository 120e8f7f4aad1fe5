package steps

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

const (
	// maxSteps and maxFields bound a plan: what the model gets of it is read again at each turn.
	maxSteps, maxFields = 100, 30
	maxName             = 64 // bytes
)

// Mistake is what is wrong with a plan.
type Mistake struct {
	Step int    // its index
	Key  string // tools, ask or next; empty: the step itself
	Err  error
}

func (m *Mistake) Error() string { return m.Err.Error() }
func (m *Mistake) Unwrap() error { return m.Err }

var nameOfField = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Check says what is wrong with a plan; nil: nothing.
func (p Plan) Check() *Mistake {
	seen := map[string]bool{}
	for i, s := range p {
		wrong := func(key, format string, args ...any) *Mistake { return &Mistake{i, key, fmt.Errorf(format, args...)} }
		switch {
		case i >= maxSteps:
			return wrong("", "%d steps are the most", maxSteps)
		case s.Name == "" || len(s.Name) > maxName:
			return wrong("", "a step needs a name of %d letters at most", maxName)
		case seen[s.Name]:
			return wrong("", "there are two steps %q", s.Name)
		case len(s.Ask) > maxFields:
			return wrong("ask", "%d fields are the most", maxFields)
		}
		seen[s.Name] = true
		for _, pattern := range s.Tools {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return wrong("tools", "%q is no pattern", pattern)
			}
		}
		for _, next := range s.Next {
			if p.index(next) < 0 {
				return wrong("next", "there is no step %q, but %s", next, strings.Join(p.names(), ", "))
			}
		}
		for _, f := range s.Ask {
			if err := p.checkField(f); err != nil {
				return wrong("ask", "%s: %w", f.Name, err)
			}
		}
	}
	return p.reached()
}

func (p Plan) names() (list []string) {
	for _, s := range p {
		list = append(list, s.Name)
	}
	return list
}

func (p Plan) checkField(f Field) error {
	if !nameOfField.MatchString(f.Name) || f.Name == target {
		return fmt.Errorf("a field's name is made of a-z, 0-9 and _, and is not %q", target)
	}
	if _, err := f.rule(); err != nil {
		return err
	}
	if first, _ := p.field(f.Name); first != f {
		return fmt.Errorf("another step has it as %q", first.Kind)
	}
	return nil
}

// reached finds a step that no other leads to.
func (p Plan) reached() *Mistake {
	if len(p) == 0 {
		return nil
	}
	seen, ways := map[string]bool{p[0].Name: true}, []string{p[0].Name}
	for len(ways) > 0 {
		for _, next := range p[p.index(ways[0])].Next {
			if !seen[next] {
				seen[next], ways = true, append(ways, next)
			}
		}
		ways = ways[1:]
	}
	for i, s := range p {
		if !seen[s.Name] {
			return &Mistake{i, "", fmt.Errorf("no step leads to %q", s.Name)}
		}
	}
	return nil
}
