package typed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Chain is what is left of calls that follow one another, and the results of those before. It does not change: sessions that
// resume share it.
type Chain struct {
	left    []Call
	results []any
}

// NewChain returns a chain of which no call was made.
func NewChain(calls []Call) *Chain { return &Chain{left: calls} }

// Done tells whether no call is left.
func (c *Chain) Done() bool { return len(c.left) == 0 }

// Next returns the next call, with results in its arguments, and what is left after it. An error is why the chain stops.
func (c *Chain) Next() (Call, *Chain, error) {
	next := c.left[0]
	args, err := c.fill(decoded(next.Args))
	if err != nil {
		return Call{}, nil, err
	}
	if next.Args, err = json.Marshal(args); err != nil {
		return Call{}, nil, fmt.Errorf("the chain stops: %w", err)
	}
	return next, &Chain{left: c.left[1:], results: c.results}, nil
}

// After returns the chain with the result of the function that it has called last. An error is why the chain stops.
func (c *Chain) After(function string, result json.RawMessage) (*Chain, error) {
	value := decoded(result)
	if fields, ok := value.(map[string]any); ok && fields["error"] != nil {
		return nil, fmt.Errorf("the chain stops: %s has failed: %s", function, Plain(fields["error"]))
	}
	return &Chain{left: c.left, results: append(slices.Clip(c.results), value)}, nil
}

// resultPath matches "$2.photo.id": the result of the second call and what of it is meant.
var resultPath = regexp.MustCompile(`\$(\d+)((?:\.[\w-]+)*)`)

// fill puts results into the arguments of a call, wherever a string has the path of one.
func (c *Chain) fill(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if v[name], err = c.fill(value); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, value := range v {
			if v[i], err = c.fill(value); err != nil {
				return nil, err
			}
		}
	case string:
		if path := resultPath.FindStringSubmatch(v); path != nil && path[0] == v {
			return c.value(path[0]) // of whatever type
		}
		filled := resultPath.ReplaceAllStringFunc(v, func(path string) string {
			value, missing := c.value(path)
			if missing != nil {
				err = missing
			}
			return Plain(value)
		})
		return filled, err
	}
	return v, nil
}

// value returns what a path leads to.
func (c *Chain) value(path string) (any, error) {
	names := strings.Split(strings.TrimPrefix(path, "$"), ".")
	missing := fmt.Errorf("the chain stops: there is no %s", path)
	i, err := strconv.Atoi(names[0])
	if err != nil || i < 1 || i > len(c.results) {
		return nil, missing
	}
	value := c.results[i-1]
	for _, name := range names[1:] {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
				value = v[i]
				continue
			}
			return nil, missing
		default:
			return nil, missing
		}
	}
	if value == nil {
		return nil, missing
	}
	return value, nil
}

// decoded returns JSON as a tree in which numbers keep their digits; nil if it is none.
func decoded(data json.RawMessage) any {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&v) != nil {
		return nil
	}
	return v
}
