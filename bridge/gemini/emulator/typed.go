package emulator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"voxgate/bridge/gemini/emulator/live"
)

// maxCalls bounds the calls that wait for their results. A client that answers none could otherwise fill the memory.
const maxCalls = 256

// typedCall is a function call as a person types it: {"name":…,"args":{…}}.
type typedCall struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// parseCalls reads what follows /tool, which is "NAME {json}", or /tools and /chain, which is a JSON array of calls. The keys of
// declared are the functions there are.
func parseCalls(command, text string, declared map[string]bool) ([]typedCall, error) {
	var calls []typedCall
	if command == "/tool" {
		name, args, _ := strings.Cut(strings.TrimSpace(text), " ")
		calls = []typedCall{{name, json.RawMessage(strings.TrimSpace(args))}}
	} else if json.Unmarshal([]byte(text), &calls) != nil || len(calls) == 0 {
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
func (c *typedCall) check(declared map[string]bool) error {
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

// maxPlain bounds what a result becomes in speech, and maxFilled what results add to the arguments of one call of a chain, in bytes.
// Without them a chain whose arguments name the same result many times takes all memory.
const (
	maxPlain  = 64 << 10
	maxFilled = 256 << 10
)

// plain returns what of a JSON value can be said: its values in the order of their names, cut at maxPlain.
func plain(v any) string {
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

// chain is what is left of calls that follow one another, and the results of those before. It does not change: sessions that
// resume share it.
type chain struct {
	left    []typedCall
	results []any
}

// askTools calls functions as it was typed: one, several at once, or a chain.
func (s *session) askTools(command, text string) error {
	typed, err := parseCalls(command, text, s.setup.Functions)
	if len(s.calls)+len(typed) > maxCalls {
		err = fmt.Errorf("more than %d calls would be open", maxCalls)
	}
	var calls []*call
	switch {
	case err != nil:
	case command == "/chain":
		var first *call
		first, err = s.link(&chain{left: typed})
		calls = []*call{first}
	default:
		for _, c := range typed {
			calls = append(calls, s.newCall(c))
		}
	}
	if err != nil {
		wrong := sentence(err)
		return s.speak(wrong, wrong, false)
	}
	return s.say(&script{calls: calls})
}

// sentence makes one of an error.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func (s *session) newCall(c typedCall) *call {
	return &call{id: newCallID(), name: c.Name, args: c.Args, blocking: s.setup.Functions[c.Name]}
}

// link returns the next call of a chain, with results in its arguments. An error is why the chain stops.
func (s *session) link(c *chain) (*call, error) {
	next := c.left[0]
	args, err := c.fill(next.Args)
	if err != nil {
		return nil, err
	}
	next.Args = args
	linked := s.newCall(next)
	linked.chain = &chain{left: c.left[1:], results: c.results}
	return linked, nil
}

// after returns the call that follows the result of c, nil after the last. An error is why the chain stops.
func (s *session) after(c *call, result json.RawMessage) (*call, error) {
	value, _ := live.Decode(result)
	if fields, ok := value.(map[string]any); ok && fields["error"] != nil {
		return nil, fmt.Errorf("the chain stops: %s has failed: %s", c.name, plain(fields["error"]))
	}
	if len(c.chain.left) == 0 {
		return nil, nil
	}
	return s.link(&chain{left: c.chain.left, results: append(slices.Clip(c.chain.results), value)})
}

// goOn makes the next call of a chain after one that was answered: in the turn that has waited for the answer, or in one of its
// own.
func (s *session) goOn(answered, next *call) error {
	if !answered.blocking || s.turn == nil || s.blocked() {
		return s.say(&script{calls: []*call{next}})
	}
	if err := s.sendCalls([]*call{next}); err != nil || s.blocked() {
		return err
	}
	return s.endTurn()
}

// jsonString matches a string of a JSON text, and resultPath "$2.photo.id" in it: what of the second call's result is meant.
var (
	jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	resultPath = regexp.MustCompile(`\$(\d+)((?:\.[\w-]+)*)`)
)

// fill puts results into the arguments of a call: a string that is a path becomes what it leads to, of whatever type, and a path within a
// string becomes plain text. Results may add maxFilled bytes.
func (c *chain) fill(args json.RawMessage) (filled json.RawMessage, err error) {
	room := maxFilled
	find := func(path string) any {
		value, failed := c.value(path)
		raw, _ := json.Marshal(value) // what was decoded can be written
		if room -= len(raw); room < 0 {
			failed = fmt.Errorf("the chain stops: results of more than %d bytes are asked for in one call", maxFilled)
		}
		if err = cmp.Or(err, failed); err != nil {
			return ""
		}
		return value
	}
	filled = jsonString.ReplaceAllFunc(args, func(quoted []byte) []byte {
		var text string
		if json.Unmarshal(quoted, &text) != nil || !strings.Contains(text, "$") || err != nil {
			return quoted
		}
		var value any
		if resultPath.FindString(text) == text {
			value = find(text)
		} else {
			value = resultPath.ReplaceAllStringFunc(text, func(path string) string { return plain(find(path)) })
		}
		raw, _ := json.Marshal(value)
		return raw
	})
	if err != nil {
		return nil, err
	}
	tree, err := live.Decode(filled)
	if err != nil {
		return nil, errors.New("the chain stops: the names of arguments cannot be results")
	}
	return json.Marshal(tree)
}

// value returns what a path leads to.
func (c *chain) value(path string) (any, error) {
	names := strings.Split(strings.TrimPrefix(path, "$"), ".")
	i, err := strconv.Atoi(names[0])
	if err != nil || i < 1 || i > len(c.results) {
		return nil, fmt.Errorf("the chain stops: there is no %s", path)
	}
	value := c.results[i-1]
	for _, name := range names[1:] {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if value = nil; err == nil && i >= 0 && i < len(v) {
				value = v[i]
			}
		default:
			value = nil
		}
	}
	if value == nil {
		return nil, fmt.Errorf("the chain stops: there is no %s", path)
	}
	return value, nil
}
