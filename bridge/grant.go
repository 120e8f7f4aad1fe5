package bridge

import (
	"fmt"
	"math"
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
	Dollars     float64       // US, that the conversation may cost; 0: no limit
	Agents      []string      // of the operator's agents, who may answer; none: every one
	Agent       Agent         // overrides the caller's; an empty field is the caller's choice
}

// Cost is what something takes or may take: tokens of the model, and money in millionths of a US dollar.
type Cost struct{ Tokens, Micros int }

// Micros are dollars in millionths; of more than none at least one, because 0 is no limit.
func Micros(dollars float64) int {
	micros := int(math.Round(min(dollars, 1e9) * 1e6))
	if dollars > 0 {
		return max(1, micros)
	}
	return micros
}

// Account counts what a conversation costs. The conversation calls Begin or Continue first, then any of the others, and
// End last. Only Begin, Use and Reserve may block.
type Account interface {
	// Limits reports whether there is a limit to tokens, and to dollars.
	Limits() (tokens, dollars bool)
	// Begin counts a new conversation, or refuses it with an [Error]. It reserves the first turn: all of its money, of its
	// tokens those that are left. A resumed one is not counted again. It may block as long as the store does.
	Begin(first Cost) error
	// Use uses up what the caller has shown, if that is good for one conversation, or refuses it with an [Error]: it was
	// used. A new conversation calls it when nothing else keeps it from beginning: whoever is to come back with the same
	// then can. It may block as long as the store does.
	Use() error
	// Continue replaces Begin and Use for a conversation that began at another gateway. It refuses nothing.
	Continue(next Cost)
	// Spend counts a cost, and reserves next in place of what was reserved before, as far as it is left. left of most may
	// still be spent, what is reserved now included; most 0: there is no limit.
	Spend(cost, next Cost) (left, most Cost)
	// Reserve reserves the most that work beside the conversation may cost, or refuses it with an [Error]. got is less if
	// less is left. settle must be called once, with the cost: the rest is given back. It may block as long as the store
	// does, and any goroutine may call it, after End, too.
	Reserve(most Cost) (got Cost, settle func(cost Cost), err error)
	// Park asks whether the conversation may wait for its lost caller, and Unpark says that it does not wait any more.
	Park() bool
	Unpark()
	End()
}

// Unlimited is the account of a caller that has none.
var Unlimited Account = unlimited{}

type unlimited struct{}

func (unlimited) Limits() (tokens, dollars bool)           { return false, false }
func (unlimited) Begin(Cost) error                         { return nil }
func (unlimited) Use() error                               { return nil }
func (unlimited) Continue(Cost)                            {}
func (unlimited) Spend(_, _ Cost) (left, most Cost)        { return Cost{}, Cost{} }
func (unlimited) Reserve(c Cost) (Cost, func(Cost), error) { return c, func(Cost) {}, nil }
func (unlimited) Park() bool                               { return true }
func (unlimited) Unpark()                                  {}
func (unlimited) End()                                     {}

// tools are those of the operator's that the grant names. A nil grant names all.
func (g *Grant) tools(all []tools.Tool) []tools.Tool {
	if g == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(t tools.Tool) bool { return !Matches(g.Tools, t.Name) })
}

// Allows reports whether a model is granted. A nil grant grants all.
func (g *Grant) Allows(model string) bool {
	return g == nil || len(g.Models) == 0 || Matches(g.Models, model)
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

// Matches reports whether a name has one of these patterns, as [path.Match] has them. What is no pattern matches nothing.
func Matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}
