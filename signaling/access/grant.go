package access

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
)

// Grant is what a token allows. A list of names may have patterns, with * and ? as path.Match has them.
type Grant struct {
	Doors      []string `json:"doors,omitempty"`      // none: every one
	Models     []string `json:"models,omitempty"`     // none: every one
	Tools      []string `json:"tools,omitempty"`      // of the gateway; none: not one
	MaxSeconds int      `json:"maxSeconds,omitempty"` // of a conversation; 0: no limit
	Sessions   int      `json:"sessions,omitempty"`   // at once, of this token; 0: no limit of its own
	Tokens     int      `json:"tokens,omitempty"`     // of Gemini, that may be spent with it in all; 0: no limit
	Dollars    float64  `json:"dollars,omitempty"`    // US, likewise

	// Agent is who answers, whatever the client says; nil: as the client says. Agents are those of the operator's of which the client may
	// choose one; none: every one.
	Agent  *agents.Choice `json:"agent,omitempty"`
	Agents []string       `json:"agents,omitempty"`
}

// maxGrantSeconds bounds the length of a conversation: 31 years. What is longer cannot be counted in nanoseconds.
const maxGrantSeconds = 1_000_000_000

// protocols are the names of the protocols to which a grant can be bound, as conversations have them in [bridge.Origin].
var protocols = []string{"live", "openai", "rest", "rtvi", "sip", "telephony", "vox", "web", "whip"}

// checkNames refuses the names of protocols and agents that do not exist, for which a token would be refused later. Agents are the
// operator's; a pattern must match one of them.
func (g *Grant) checkNames(at string, folder *agents.Folder) error {
	for i, pattern := range g.Doors {
		if !slices.ContainsFunc(protocols, func(door string) bool { return bridge.MatchesAny([]string{pattern}, door) }) {
			return fmt.Errorf("%s.doors[%d]: %q is none of %s", at, i, pattern, strings.Join(protocols, ", "))
		}
	}
	names := folder.Names()
	for i, pattern := range g.Agents {
		if !slices.ContainsFunc(names, func(name string) bool { return bridge.MatchesAny([]string{pattern}, name) }) {
			return fmt.Errorf("%s.agents[%d]: there is no agent %q", at, i, pattern)
		}
	}
	if a := g.Agent; a != nil && a.Agent == nil && !slices.Contains(names, a.Name) {
		return fmt.Errorf("%s.agent: there is no agent %q", at, a.Name)
	}
	return nil
}

// checkValues refuses a grant that makes no sense.
func (g *Grant) checkValues(at string) error {
	for name, list := range map[string][]string{"doors": g.Doors, "models": g.Models, "tools": g.Tools, "agents": g.Agents} {
		for i, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fmt.Errorf("%s.%s[%d] %q is no name and no pattern", at, name, i, pattern)
			}
		}
	}
	for name, n := range map[string]int{"maxSeconds": g.MaxSeconds, "sessions": g.Sessions, "tokens": g.Tokens} {
		if n < 0 {
			return fmt.Errorf("%s.%s %d is negative", at, name, n)
		}
	}
	if g.MaxSeconds > maxGrantSeconds {
		return fmt.Errorf("%s.maxSeconds %d is more than %d", at, g.MaxSeconds, maxGrantSeconds)
	}
	if g.Dollars < 0 {
		return fmt.Errorf("%s.dollars %g is negative", at, g.Dollars)
	}
	return nil
}

// budgetCost is what may be spent in all.
func (g *Grant) budgetCost() bridge.Cost {
	return bridge.Cost{Tokens: g.Tokens, Micros: bridge.ToMicros(g.Dollars)}
}

// restrictTo completes a grant by what its issuer may grant, and refuses one that exceeds it or makes no sense.
func (g Grant) restrictTo(most Grant, at string) (Grant, error) {
	if err := g.checkValues(at); err != nil {
		return g, err
	}
	lists := []struct {
		name      string
		own, most *[]string
	}{
		{"doors", &g.Doors, &most.Doors},
		{"models", &g.Models, &most.Models},
		{"tools", &g.Tools, &most.Tools},
		{"agents", &g.Agents, &most.Agents},
	}
	for _, l := range lists {
		if len(*l.own) == 0 && l.name != "tools" {
			*l.own = *l.most
			continue
		}
		for i, name := range *l.own {
			if (len(*l.most) > 0 || l.name == "tools") && !isCovered(*l.most, name) {
				return g, fmt.Errorf("%s.%s[%d] %q is more than its issuer may grant", at, l.name, i, name)
			}
		}
	}
	if err := cmp.Or(
		restrictNumber(at+".maxSeconds", &g.MaxSeconds, most.MaxSeconds), restrictNumber(at+".sessions", &g.Sessions, most.Sessions),
		restrictNumber(at+".tokens", &g.Tokens, most.Tokens), restrictNumber(at+".dollars", &g.Dollars, most.Dollars),
	); err != nil {
		return g, err
	}
	if most.Agent != nil {
		if g.Agent != nil && !reflect.DeepEqual(g.Agent, most.Agent) {
			return g, fmt.Errorf("%s.agent is not the one that its issuer may grant", at)
		}
		g.Agent = most.Agent
	}
	switch a := g.Agent; {
	case a == nil:
	case a.Agent != nil && most.Agent == nil && len(most.Agents) > 0:
		return g, fmt.Errorf("%s.agent: one in full is more than its issuer may grant, which are %s", at, strings.Join(most.Agents, ", "))
	case a.Agent == nil && len(g.Agents) > 0 && !isCovered(g.Agents, a.Name):
		return g, fmt.Errorf("%s.agent %q is more than its issuer may grant", at, a.Name)
	}
	return g, nil
}

// restrictNumber completes a number by the most that may be granted, and refuses one that exceeds it. 0 is no limit.
func restrictNumber[N int | float64](at string, own *N, most N) error {
	switch {
	case most == 0:
	case *own == 0:
		*own = most
	case *own > most:
		return fmt.Errorf("%s %v is more than its issuer may grant, %v", at, *own, most)
	}
	return nil
}

// isCovered reports whether one of these patterns matches a name. A pattern in its place must be one of them, or go on
// where the star at the end of one stands.
func isCovered(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if begin, open := strings.CutSuffix(p, "*"); open && isPlainName(begin) {
			rest, ok := strings.CutPrefix(name, begin)
			return ok && !strings.ContainsAny(rest, `/[\`) // a class may be one of /, too
		}
		matches, _ := path.Match(p, name)
		return p == name || isPlainName(name) && matches
	})
}

// isPlainName reports whether a name is no pattern.
func isPlainName(name string) bool { return !strings.ContainsAny(name, `*?[\`) }

func (g *Grant) allowsProtocol(door string) bool {
	return len(g.Doors) == 0 || isCovered(g.Doors, door)
}

// toJSON is the grant as tools see it.
func (g *Grant) toJSON() json.RawMessage {
	raw, err := json.Marshal(g)
	if err != nil {
		return nil // strings and numbers can be written
	}
	return raw
}

// toBridgeGrant is the part of the grant that the conversation keeps to.
func (g *Grant) toBridgeGrant() *bridge.Grant {
	b := &bridge.Grant{
		Models: g.Models, Tools: g.Tools, Agents: g.Agents, MaxDuration: time.Duration(g.MaxSeconds) * time.Second, MaxDollars: g.Dollars,
	}
	switch a := g.Agent; {
	case a == nil:
	case a.Agent != nil:
		b.Agent = a.Agent.SessionAgent()
	default:
		b.Agents = []string{a.Name}
	}
	return b
}
