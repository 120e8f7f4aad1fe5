package emulator

import (
	"encoding/json"
	"strings"
)

// askTool calls a function, as "NAME {json}" says.
func (s *session) askTool(text string, undeclared bool) error {
	declared := s.setup.Functions
	if undeclared {
		declared = nil
	}
	c, err := parseTypedCall(text, declared)
	if err != nil {
		return s.complain(err)
	}
	return s.say(&script{calls: []*call{s.newCall(c)}})
}

// askTools calls several functions at once.
func (s *session) askTools(text string) error {
	list, err := parseTypedCalls(text, s.setup.Functions)
	if err != nil {
		return s.complain(err)
	}
	var calls []*call
	for _, c := range list {
		calls = append(calls, s.newCall(c))
	}
	return s.say(&script{calls: calls})
}

// askChain calls several functions one after the other.
func (s *session) askChain(text string) error {
	calls, err := parseTypedCalls(text, s.setup.Functions)
	if err == nil {
		var first *call
		if first, err = s.link(newChain(calls)); err == nil {
			return s.say(&script{calls: []*call{first}})
		}
	}
	return s.complain(err)
}

// complain says what is wrong with what was typed.
func (s *session) complain(err error) error {
	text := sentence(err)
	return s.speak(text, text, false)
}

// sentence makes one of an error.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func (s *session) newCall(c typedCall) *call {
	blocking, declared := s.setup.Functions[c.Name]
	return &call{id: newCallID(), name: c.Name, args: c.Args, blocking: blocking || !declared && s.setup.Blocks}
}

// link returns the next call of a chain.
func (s *session) link(c *chain) (*call, error) {
	next, left, err := c.next()
	if err != nil {
		return nil, err
	}
	linked := s.newCall(next)
	linked.chain = left
	return linked, nil
}

// after returns the call that follows the result of c, nil after the last. An error is why the chain stops.
func (s *session) after(c *call, result json.RawMessage) (*call, error) {
	left, err := c.chain.after(c.name, result)
	if err != nil || left.done() {
		return nil, err
	}
	return s.link(left)
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
