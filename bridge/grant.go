package bridge

import (
	"encoding/json"
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
	Agent       Agent         // how the model is, whatever the caller says; an empty field is the caller's choice
}

// Account counts what a conversation costs. Its methods are called by the conversation, must not block (but Begin and Reserve), and are
// called in this order: Begin or Continue, then any of the others, then End.
type Account interface {
	// Begin counts a conversation that begins, or refuses it with an [Error]. A resume begins nothing. It may block for as long as
	// the store may take.
	Begin() error
	// Continue takes the place of Begin for a conversation that has begun at another gateway. It refuses nothing.
	Continue()
	// Spend counts tokens of the model. left of most may still be spent; most 0: there is no limit.
	Spend(tokens int) (left, most int)
	// Reserve reserves tokens for something beside the conversation that may cost so many, or refuses it with an [Error]. got is
	// fewer if fewer are left. settle must be called once, with what it has cost: the rest is given back. It may block for as long as
	// the store may take, and may be called by any goroutine.
	Reserve(tokens int) (got int, settle func(cost int), err error)
	// Park asks whether the conversation may wait for its lost caller, and Unpark says that it does not wait any more.
	Park() bool
	Unpark()
	End()
}

// Unlimited is the account of who has none.
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

// config is a config of the caller's with what the grant says.
func (g *Grant) config(raw json.RawMessage) json.RawMessage {
	if g == nil {
		return raw
	}
	return g.Agent.config(raw)
}

// Allows tells whether a model is granted. A nil grant grants all.
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

// limit is how long a conversation may be that wants to be so long; 0: for ever.
func (g *Grant) limit(wanted time.Duration) time.Duration {
	if g == nil || g.MaxDuration == 0 || wanted > 0 && wanted < g.MaxDuration {
		return wanted
	}
	return g.MaxDuration
}

// lowBudget is the part of what may be spent that is left when the client is told that it ends.
const lowBudget = 10 // of a hundred

// uncounted is how many tokens were used since it was asked last. Who counts is told.
func (s *Session) uncounted() int {
	before, now := s.spent.counted, s.spent.meter.Total()
	s.spent.counted = now
	if tell := s.host.options.Observe; tell != nil && now.Total > before.Total {
		tell(s.id, Spent{s.open.Origin.Key, now.Split(before)})
	}
	return now.Total - before.Total
}

// spend counts the tokens that are not counted yet with who pays, and ends a conversation that nobody pays for any more.
func (s *Session) spend() {
	left, most := s.open.Account.Spend(s.uncounted())
	switch {
	case most == 0:
	case left <= 0:
		s.log.Info("budget spent", "tokens", most)
		s.endAfterSpeaking(ErrBudget)
	case left*100 <= most*lowBudget && !s.spent.low:
		s.spent.low = true
		s.notify(Log{
			Level: "warn", Message: fmt.Sprintf("Of %d tokens that may be spent %d are left; then the conversation ends.", most, left),
			Details: map[string]any{"tokensLeft": left},
		})
	}
}
