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

// Grant limits what a token allows. Lists of names may contain patterns with * and ? ([path.Match]).
type Grant struct {
	Protocols  []string `json:"doors,omitempty"`      // empty: all
	Models     []string `json:"models,omitempty"`     // empty: all
	Tools      []string `json:"tools,omitempty"`      // of the gateway; empty means none
	MaxSeconds int      `json:"maxSeconds,omitempty"` // of a conversation; 0 means no limit
	Sessions   int      `json:"sessions,omitempty"`   // concurrent, of this token; 0 means no limit of its own
	Tokens     int      `json:"tokens,omitempty"`     // tokens of Gemini that may be used in all; 0 means no limit
	Dollars    float64  `json:"dollars,omitempty"`    // US dollars that may be spent in all; 0 means no limit

	Agent  *agents.Choice `json:"agent,omitempty"`  // the agent that answers; nil means the client chooses
	Agents []string       `json:"agents,omitempty"` // agents of the operator that the client may choose; empty means all
}

// maxGrantSeconds limits the length of a conversation: 31 years. Longer times overflow nanoseconds.
const maxGrantSeconds = 1_000_000_000

// isProtocol reports whether a pattern of [Grant.Protocols] matches the name of an existing protocol.
func isProtocol(pattern string) bool {
	return slices.ContainsFunc(bridge.ProtocolNames(bridge.InGrants), func(protocol string) bool {
		return bridge.MatchesAny([]string{pattern}, protocol)
	})
}

// checkNames rejects unknown protocols and agents. Otherwise a token with them would fail only in use. A pattern must
// match an agent of folder. Errors begin with the path of the grant, the parameter at.
func (g *Grant) checkNames(at string, folder *agents.Folder) error {
	for i, pattern := range g.Protocols {
		if !isProtocol(pattern) {
			return fmt.Errorf("%s.doors[%d]: %q is none of %s", at, i, pattern, strings.Join(bridge.ProtocolNames(bridge.InGrants), ", "))
		}
	}
	names := folder.Names()
	for i, pattern := range g.Agents {
		if !slices.ContainsFunc(names, func(name string) bool { return bridge.MatchesAny([]string{pattern}, name) }) {
			return fmt.Errorf("%s.agents[%d]: unknown agent %q", at, i, pattern)
		}
	}
	if a := g.Agent; a != nil && a.Agent == nil && !slices.Contains(names, a.Name) {
		return fmt.Errorf("%s.agent: unknown agent %q", at, a.Name)
	}
	return nil
}

// checkValues rejects invalid grants.
func (g *Grant) checkValues(at string) error {
	for name, list := range map[string][]string{"doors": g.Protocols, "models": g.Models, "tools": g.Tools, "agents": g.Agents} {
		for i, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fmt.Errorf("%s.%s[%d] %q is not a valid name or pattern", at, name, i, pattern)
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

// budgetCost returns the budget of the grant.
func (g *Grant) budgetCost() bridge.Cost {
	return bridge.Cost{Tokens: g.Tokens, Micros: bridge.ToMicros(g.Dollars)}
}

// restrictTo completes a grant with its issuer's limits, which are in the parameter most. It returns an error if the
// grant exceeds these limits or is invalid. Errors begin with the path of the grant, the parameter at.
func (g Grant) restrictTo(most Grant, at string) (Grant, error) {
	if err := g.checkValues(at); err != nil {
		return g, err
	}
	lists := []struct {
		name      string
		own, most *[]string
	}{
		{"doors", &g.Protocols, &most.Protocols},
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

// restrictNumber replaces an own number of 0 by the maximum, which is most. It returns an error for a larger number. A
// maximum of 0 means unlimited.
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

// isCovered reports whether one of these patterns matches a name. A name that is itself a pattern must equal one of
// patterns, or extend one that ends in a star.
func isCovered(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if begin, open := strings.CutSuffix(p, "*"); open && isPlainName(begin) {
			rest, ok := strings.CutPrefix(name, begin)
			return ok && !strings.ContainsAny(rest, `/[\`) // a character class could contain /, which a star does not match
		}
		matches, _ := path.Match(p, name)
		return p == name || isPlainName(name) && matches
	})
}

// isPlainName reports whether a name is not a pattern.
func isPlainName(name string) bool { return !strings.ContainsAny(name, `*?[\`) }

func (g *Grant) allowsProtocol(protocol string) bool {
	return len(g.Protocols) == 0 || isCovered(g.Protocols, protocol)
}

// toJSON returns the grant as JSON, for tools.
func (g *Grant) toJSON() json.RawMessage {
	raw, err := json.Marshal(g)
	if err != nil {
		return nil // strings and numbers can be encoded
	}
	return raw
}

// toBridgeGrant returns the part of the grant that the conversation enforces.
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
