package flow

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

const (
	// maxSteps limits the steps of a plan, and maxFields the fields of a step. The model reads the current step in each
	// turn, so it should be short.
	maxSteps, maxFields = 100, 30
	maxName             = 64 // limit of a step's name, in bytes
)

// PlanError describes an error in a plan.
type PlanError struct {
	Step int    // index of the step in the plan
	Key  string // key of the step with the fault: tools, ask or next; empty means the step itself
	Err  error
}

func (p *PlanError) Error() string { return p.Err.Error() }
func (p *PlanError) Unwrap() error { return p.Err }

var fieldNamePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Check validates a plan. It returns the first error, or nil.
func (p Plan) Check() *PlanError {
	names := map[string]bool{}
	for i, s := range p {
		wrong := func(key, format string, args ...any) *PlanError {
			return &PlanError{i, key, fmt.Errorf(format, args...)}
		}
		switch {
		case i >= maxSteps:
			return wrong("", "at most %d steps are allowed", maxSteps)
		case s.Name == "" || len(s.Name) > maxName:
			return wrong("", "a step needs a name of at most %d bytes", maxName)
		case names[s.Name]:
			return wrong("", "duplicate step %q", s.Name)
		case len(s.Fields) > maxFields:
			return wrong("ask", "at most %d fields are allowed", maxFields)
		}
		names[s.Name] = true
		for _, pattern := range s.Tools {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return wrong("tools", "%q is not a valid pattern", pattern)
			}
		}
		for _, next := range s.Next {
			if p.stepIndex(next) < 0 {
				return wrong("next", "unknown step %q; the steps are %s", next, strings.Join(p.stepNames(), ", "))
			}
		}
		for _, f := range s.Fields {
			if err := p.checkField(f); err != nil {
				return wrong("ask", "%s: %w", f.Name, err)
			}
		}
	}
	return p.checkReachable()
}

func (p Plan) stepNames() (list []string) {
	for _, s := range p {
		list = append(list, s.Name)
	}
	return list
}

func (p Plan) checkField(f Field) error {
	if !fieldNamePattern.MatchString(f.Name) || f.Name == stepArgument {
		return fmt.Errorf("a field name has only a-z, 0-9 and _, and is not %q", stepArgument)
	}
	if _, err := f.parseRule(); err != nil {
		return err
	}
	if first, _ := p.findField(f.Name); first != f {
		return fmt.Errorf("another step declares it as %q", first.Kind)
	}
	return nil
}

// checkReachable returns an error for the first step to which no other step leads, or nil.
func (p Plan) checkReachable() *PlanError {
	if len(p) == 0 {
		return nil
	}
	visited, queue := map[string]bool{p[0].Name: true}, []string{p[0].Name}
	for len(queue) > 0 {
		for _, next := range p[p.stepIndex(queue[0])].Next {
			if !visited[next] {
				visited[next], queue = true, append(queue, next)
			}
		}
		queue = queue[1:]
	}
	for i, s := range p {
		if !visited[s.Name] {
			return &PlanError{i, "", fmt.Errorf("no step leads to %q", s.Name)}
		}
	}
	return nil
}
