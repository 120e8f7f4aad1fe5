package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxCalls limits the pending calls, because a client may never respond to them.
const maxCalls = 256

// typedCall is a function call that a user has typed: {"name":…,"args":{…}}.
type typedCall struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// parseTypedCalls parses the arguments of /tool ("NAME {json}") or /tools (a JSON array of calls). The keys of declared
// are the names of the declared functions.
func parseTypedCalls(command, text string, declared map[string]bool) ([]typedCall, error) {
	var calls []typedCall
	if command == "/tool" {
		name, args, _ := strings.Cut(strings.TrimSpace(text), " ")
		calls = []typedCall{{name, json.RawMessage(strings.TrimSpace(args))}}
	} else if json.Unmarshal([]byte(text), &calls) != nil || len(calls) == 0 {
		return nil, errors.New(`the calls must be a JSON array: [{"name":"NAME","args":{}}]`)
	}
	for i := range calls {
		if err := calls[i].checkAndSetDefaults(declared); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// checkAndSetDefaults validates a call. Missing arguments become {}.
func (c *typedCall) checkAndSetDefaults(declared map[string]bool) error {
	if _, known := declared[c.Name]; !known {
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

// maxPlain limits a spoken result, in bytes.
const maxPlain = 64 << 10

// plainWords returns the words with which the echo speaks a JSON value: its strings and numbers, at most maxPlain bytes.
func plainWords(v any) string {
	var b strings.Builder
	writePlain(&b, v)
	if b.Len() > maxPlain {
		return strings.ToValidUTF8(b.String()[:maxPlain], "")
	}
	return b.String()
}

func writePlain(b *strings.Builder, v any) {
	write := func(i int, v any) {
		if i > 0 {
			b.WriteString(", ")
		}
		writePlain(b, v)
	}
	switch v := v.(type) {
	case map[string]any:
		for i, name := range slices.Sorted(maps.Keys(v)) {
			write(i, v[name])
		}
	case []any:
		for i, element := range v {
			write(i, element)
		}
	default:
		fmt.Fprint(b, v)
	}
}

// queueTypedCalls sends the function calls that the user has typed.
func (s *session) queueTypedCalls(command, text string) error {
	typed, err := parseTypedCalls(command, text, s.setup.Functions)
	if len(s.calls)+len(typed) > maxCalls {
		err = fmt.Errorf("more than %d calls would be open", maxCalls)
	}
	if err != nil {
		wrong := err.Error()
		wrong = strings.ToUpper(wrong[:1]) + wrong[1:] + "."
		return s.speak(wrong, wrong, false)
	}
	var calls []*call
	for _, c := range typed {
		calls = append(calls, &call{id: newCallID(), name: c.Name, args: c.Args, blocking: s.setup.Functions[c.Name]})
	}
	return s.queueScript(&script{calls: calls})
}
