package bridge

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/tools"
)

// Grant is what a caller may have. Names may be patterns, as [path.Match] has them.
type Grant struct {
	Models      []string      // none: every one
	Tools       []string      // of the operator's; none: not one
	MaxDuration time.Duration // of the conversation; 0: no limit
	Agent       Agent         // overrides the caller's; an empty field is the caller's choice
}

// Account counts what a conversation costs. The conversation calls Begin or Continue first, then any of the others, and
// End last. Only Begin and Reserve may block.
type Account interface {
	// Begin counts a new conversation, or refuses it with an [Error]. A resumed one is not counted again. It may block as
	// long as the store does.
	Begin() error
	// Continue replaces Begin for a conversation that began at another gateway. It refuses nothing.
	Continue()
	// Spend counts tokens of the model. left of most may still be spent; most 0: there is no limit.
	Spend(tokens int) (left, most int)
	// Reserve reserves tokens for work beside the conversation, or refuses it with an [Error]. got is fewer if fewer are
	// left. settle must be called once, with the cost: the rest is given back. It may block as long as the store does, and
	// any goroutine may call it.
	Reserve(tokens int) (got int, settle func(cost int), err error)
	// Park asks whether the conversation may wait for its lost caller, and Unpark says that it does not wait any more.
	Park() bool
	Unpark()
	End()
}

// Unlimited is the account of a caller that has none.
var Unlimited Account = unlimited{}

type unlimited struct{}

func (unlimited) Begin() error         { return nil }
func (unlimited) Continue()            {}
func (unlimited) Spend(int) (int, int) { return 0, 0 }
func (unlimited) Park() bool           { return true }
func (unlimited) Unpark()              {}
func (unlimited) End()                 {}

func (unlimited) Reserve(tokens int) (int, func(int), error) { return tokens, func(int) {}, nil }

// tools are those of the operator's that the grant names. A nil grant names all.
func (g *Grant) tools(all []tools.Tool) []tools.Tool {
	if g == nil {
		return all
	}
	var granted []tools.Tool
	for _, t := range all {
		if slices.ContainsFunc(g.Tools, func(pattern string) bool { return named(pattern, t.Name) }) {
			granted = append(granted, t)
		}
	}
	return granted
}

// Allows reports whether a model is granted. A nil grant grants all.
func (g *Grant) Allows(model string) bool {
	return g == nil || len(g.Models) == 0 || slices.ContainsFunc(g.Models, func(pattern string) bool { return named(pattern, model) })
}

// allows refuses a model that is not granted.
func (g *Grant) allows(config setup.Config, at string) error {
	if g.Allows(config.Model) {
		return nil
	}
	return &Error{
		Code: CodeForbidden, Field: at + ".model",
		Message: fmt.Sprintf("%s.model %q is not one that this token grants: %s.", at, config.Model, strings.Join(g.Models, ", ")),
	}
}

func named(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // a pattern that is none matches nothing
	return ok
}

// limit is how long a conversation may last that wants to last so long; 0: for ever.
func (g *Grant) limit(wanted time.Duration) time.Duration {
	if g == nil || g.MaxDuration == 0 || wanted > 0 && wanted < g.MaxDuration {
		return wanted
	}
	return g.MaxDuration
}
