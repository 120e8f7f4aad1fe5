package bridge

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/tools"
)

// Grant limits what a caller may use. Names may be patterns ([path.Match]).
type Grant struct {
	Models      []string      // models that the caller may use; empty means all
	Tools       []string      // tools of the operator; empty means none
	MaxDuration time.Duration // limit of the conversation; 0 means no limit
	MaxDollars  float64       `json:"Dollars"` // limit in US dollars, per conversation; 0 means no limit
	Agents      []string      // agents of the operator that may answer; empty means all
	Agent       Agent         // overrides the caller's settings; an empty field leaves the choice to the caller
}

// Cost is an actual or a maximum cost: tokens of the model, and money in millionths of a US dollar.
type Cost struct{ Tokens, Micros int }

// ToMicros converts dollars to millionths of a dollar. Any amount above zero becomes at least 1, because 0 would mean
// no limit.
func ToMicros(dollars float64) int {
	micros := int(math.Round(min(dollars, 1e9) * 1e6))
	if dollars > 0 {
		return max(1, micros)
	}
	return micros
}

// Account counts the costs of a conversation. BeginSession or CountTakenOverSession is called first, End last. Only
// BeginSession, ConsumeToken and ReserveCost may block.
type Account interface {
	// HasLimits reports whether tokens and dollars are limited.
	HasLimits() (tokens, dollars bool)
	// BeginSession counts a new conversation, or rejects it with an [Error]. It reserves the cost of the first turn. If
	// the money does not suffice, it rejects the conversation. If the tokens do not suffice, it reserves those that are
	// left. It blocks until the store answers.
	BeginSession(first Cost) error
	// ConsumeToken marks the caller's single-use token, if it has one, as used. If the token was used before, it
	// returns an [Error]. It is called last, so that a client can use the token again after other checks have failed.
	// It blocks until the store answers.
	ConsumeToken() error
	// CountTakenOverSession replaces BeginSession and ConsumeToken for a conversation that began at another gateway. It
	// reserves the cost of the next turn. It never fails.
	CountTakenOverSession(next Cost)
	// RecordCost records a cost, and replaces the previous reservation by next, or by what the budget has left if that
	// is less. remaining is what the budget has left, including the new reservation. A budget of 0 means no limit.
	RecordCost(cost, next Cost) (remaining, budget Cost)
	// ReserveCost reserves the maximum cost of work that is not part of a turn, or rejects the work with an [Error]. If
	// the budget has less than maxCost left, it reserves only that. got is the reserved cost. settle must be called
	// once, with the actual cost, and releases the rest.
	//
	// It blocks until the store answers. It is safe for concurrent use, also after End.
	ReserveCost(maxCost Cost) (got Cost, settle func(cost Cost), err error)
	// ParkSession reports whether the conversation may wait for its lost caller. UnparkSession ends the wait.
	ParkSession() (isAllowed bool)
	UnparkSession()
	End()
}

// Unlimited is the account of a caller that has none: it limits and counts nothing.
var Unlimited Account = unlimited{}

type unlimited struct{}

func (unlimited) HasLimits() (tokens, dollars bool)             { return false, false }
func (unlimited) BeginSession(Cost) error                       { return nil }
func (unlimited) ConsumeToken() error                           { return nil }
func (unlimited) CountTakenOverSession(Cost)                    {}
func (unlimited) RecordCost(_, _ Cost) (remaining, budget Cost) { return Cost{}, Cost{} }
func (unlimited) ReserveCost(c Cost) (Cost, func(Cost), error)  { return c, func(Cost) {}, nil }
func (unlimited) ParkSession() (isAllowed bool)                 { return true }
func (unlimited) UnparkSession()                                {}
func (unlimited) End()                                          {}

// filterTools returns those of the operator's tools that the grant allows. A nil grant allows all.
func (g *Grant) filterTools(all []tools.Tool) []tools.Tool {
	if g == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(t tools.Tool) bool { return !MatchesAny(g.Tools, t.Name) })
}

// AllowsModel reports whether the grant allows a model. A nil grant allows all.
func (g *Grant) AllowsModel(model string) bool {
	return g == nil || len(g.Models) == 0 || MatchesAny(g.Models, model)
}

// checkModel returns an error if the grant does not allow the model of config. field is the path of the config in the
// client's message, such as "payload".
func (g *Grant) checkModel(config liveconfig.Config, field string) error {
	if g.AllowsModel(config.Model) {
		return nil
	}
	return &Error{
		Code: CodeForbidden, Field: field + ".model",
		Message: fmt.Sprintf("%s.model %q is not granted by this token; granted are %s.", field, config.Model, strings.Join(g.Models, ", ")),
	}
}

// MatchesAny reports whether a name matches one of these patterns ([path.Match]). An invalid pattern matches nothing.
func MatchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}
