// Package typed is the function calls that people type: one, several at once, or one after the other with the results of the
// first in the arguments of the next. It knows nothing of sessions; its errors are parts of sentences that the model says.
package typed

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Call is a function call as it is typed: {"name":…,"args":{…}}.
type Call struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// ParseCall reads "NAME {json}". The keys of declared are the functions there are; nil lets all through.
func ParseCall(text string, declared map[string]bool) (Call, error) {
	name, args, _ := strings.Cut(strings.TrimSpace(text), " ")
	c := Call{name, json.RawMessage(strings.TrimSpace(args))}
	err := c.check(declared)
	return c, err
}

// ParseCalls reads a JSON array of calls, of which there is one at least. For declared see ParseCall.
func ParseCalls(text string, declared map[string]bool) ([]Call, error) {
	var calls []Call
	if json.Unmarshal([]byte(text), &calls) != nil || len(calls) == 0 {
		return nil, errors.New(`the calls must be a JSON array: [{"name":"NAME","args":{}}]`)
	}
	for i := range calls {
		if err := calls[i].check(declared); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// check says what is wrong with a call. No arguments become empty ones.
func (c *Call) check(declared map[string]bool) error {
	if _, known := declared[c.Name]; !known && declared != nil {
		return fmt.Errorf("no tool is named %s, but these: %s", c.Name, strings.Join(slices.Sorted(maps.Keys(declared)), ", "))
	}
	if len(c.Args) == 0 {
		c.Args = json.RawMessage("{}")
	}
	if !json.Valid(c.Args) || c.Args[0] != '{' {
		return errors.New("the arguments must be a JSON object")
	}
	return nil
}

// Plain is what of a JSON value can be said: its values in the order of their names.
func Plain(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, Plain(v[name]))
		}
		return strings.Join(texts, ", ")
	case []any:
		var texts []string
		for _, element := range v {
			texts = append(texts, Plain(element))
		}
		return strings.Join(texts, ", ")
	default:
		return fmt.Sprint(v)
	}
}
