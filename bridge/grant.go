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

// Cost is an actual or maximum cost: tokens of the model, and money in millionths of a US dollar.
type Cost struct{ Tokens, Micros int }

// ToMicros converts dollars to millionths. Any amount above zero yields at least 1, because 0 means no limit.
func ToMicros(dollars float64) int {
	micros := int(math.Round(min(dollars, 1e9) * 1e6))
	if dollars > 0 {
		return max(1, micros)
	}
	return micros
}

// Account counts the costs of a conversation. BeginSession or ContinueSession is called first, End last. Only
// BeginSession, ConsumeToken and ReserveCost may block.
type Account interface {
	// HasLimits reports whether tokens and dollars are limited.
	HasLimits() (tokens, dollars bool)
	// BeginSession counts a new conversation, or rejects it with an [Error]. It reserves the cost of the first turn: all
	// of the money, and as many of the tokens as the budget has left. It blocks as long as the store does.
	BeginSession(first Cost) error
	// ConsumeToken consumes the caller's single-use token, if any. It rejects a used token with an [Error]. It is the
	// last check, so that a client can retry after other failures. It blocks as long as the store does.
	ConsumeToken() error
	// ContinueSession replaces BeginSession and ConsumeToken for a conversation that began at another gateway. It
	// reserves the cost of the next turn, and never fails.
	ContinueSession(next Cost)
	// RecordCost records a cost, and replaces the reservation by the cost next, as far as the budget allows. The first
	// result is the rest of the budget, including the new reservation. The second is the whole budget; 0 means no limit.
	RecordCost(cost, next Cost) (left, most Cost)
	// ReserveCost reserves the maximum cost of work outside the turns, or rejects the work with an [Error]. got is less
	// than maxCost if the budget has less. settle must be called once, with the actual cost. It releases the unused part.
	//
	// It blocks as long as the store does. It is safe for concurrent use, also after End.
	ReserveCost(maxCost Cost) (got Cost, settle func(cost Cost), err error)
	// ParkSession asks whether the conversation may wait for its lost caller; UnparkSession ends the wait.
	ParkSession() bool
	UnparkSession()
	End()
}

// Unlimited is the account of a caller that has none: it limits and counts nothing.
var Unlimited Account = unlimited{}

type unlimited struct{}

func (unlimited) HasLimits() (tokens, dollars bool)            { return false, false }
func (unlimited) BeginSession(Cost) error                      { return nil }
func (unlimited) ConsumeToken() error                          { return nil }
func (unlimited) ContinueSession(Cost)                         {}
func (unlimited) RecordCost(_, _ Cost) (left, most Cost)       { return Cost{}, Cost{} }
func (unlimited) ReserveCost(c Cost) (Cost, func(Cost), error) { return c, func(Cost) {}, nil }
func (unlimited) ParkSession() bool                            { return true }
func (unlimited) UnparkSession()                               {}
func (unlimited) End()                                         {}

// filterTools returns the operator's tools that the grant allows. A nil grant allows all.
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

// checkModel rejects a model that is not granted. The argument at is the place of the config in the client's message, such
// as "payload".
func (g *Grant) checkModel(config liveconfig.Config, at string) error {
	if g.AllowsModel(config.Model) {
		return nil
	}
	return &Error{
		Code: CodeForbidden, Field: at + ".model",
		Message: fmt.Sprintf("%s.model %q is not granted by this token; granted are %s.", at, config.Model, strings.Join(g.Models, ", ")),
	}
}

// MatchesAny reports whether a name matches one of these patterns ([path.Match]). An invalid pattern matches nothing.
func MatchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}
