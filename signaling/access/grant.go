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

// maxGrantSeconds limits the length of a conversation, in seconds: 31 years. Much longer times would overflow a
// time.Duration.
const maxGrantSeconds = 1_000_000_000

// isKnownProtocol reports whether a pattern of [Grant.Protocols] matches the name of an existing protocol.
func isKnownProtocol(pattern string) bool {
	return slices.ContainsFunc(bridge.ProtocolNames(bridge.InGrants), func(protocol string) bool {
		return bridge.MatchesAny([]string{pattern}, protocol)
	})
}

// checkNames returns an error if the grant names an unknown protocol or agent. Without this check, the mistake would
// show only when a client uses the token. A pattern must match at least one agent of folder. field is the path of the
// grant, for errors.
func (g *Grant) checkNames(field string, folder *agents.Folder) error {
	for i, pattern := range g.Protocols {
		if !isKnownProtocol(pattern) {
			return fmt.Errorf("%s.doors[%d]: %q is none of %s", field, i, pattern, strings.Join(bridge.ProtocolNames(bridge.InGrants), ", "))
		}
	}
	names := folder.Names()
	for i, pattern := range g.Agents {
		if !slices.ContainsFunc(names, func(name string) bool { return bridge.MatchesAny([]string{pattern}, name) }) {
			return fmt.Errorf("%s.agents[%d]: unknown agent %q", field, i, pattern)
		}
	}
	if a := g.Agent; a != nil && a.Agent == nil && !slices.Contains(names, a.Name) {
		return fmt.Errorf("%s.agent: unknown agent %q", field, a.Name)
	}
	return nil
}

// checkValues returns an error if a value of the grant is invalid.
func (g *Grant) checkValues(field string) error {
	for name, list := range map[string][]string{"doors": g.Protocols, "models": g.Models, "tools": g.Tools, "agents": g.Agents} {
		for i, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fmt.Errorf("%s.%s[%d] %q is not a valid name or pattern", field, name, i, pattern)
			}
		}
	}
	for name, n := range map[string]int{"maxSeconds": g.MaxSeconds, "sessions": g.Sessions, "tokens": g.Tokens} {
		if n < 0 {
			return fmt.Errorf("%s.%s %d is negative", field, name, n)
		}
	}
	if g.MaxSeconds > maxGrantSeconds {
		return fmt.Errorf("%s.maxSeconds %d is more than %d", field, g.MaxSeconds, maxGrantSeconds)
	}
	if g.Dollars < 0 {
		return fmt.Errorf("%s.dollars %g is negative", field, g.Dollars)
	}
	return nil
}

// budgetCost returns the budget of the grant.
func (g *Grant) budgetCost() bridge.Cost {
	return bridge.Cost{Tokens: g.Tokens, Micros: bridge.ToMicros(g.Dollars)}
}

// restrictTo returns g after filling in limits from maximum, its issuer's grant, where g sets no limit. It returns an
// error if g is invalid or exceeds maximum. field is the path of g, for errors.
func (g Grant) restrictTo(maximum Grant, field string) (Grant, error) {
	if err := g.checkValues(field); err != nil {
		return g, err
	}
	lists := []struct {
		name      string
		own, most *[]string
	}{
		{"doors", &g.Protocols, &maximum.Protocols},
		{"models", &g.Models, &maximum.Models},
		{"tools", &g.Tools, &maximum.Tools},
		{"agents", &g.Agents, &maximum.Agents},
	}
	for _, l := range lists {
		if len(*l.own) == 0 && l.name != "tools" {
			*l.own = *l.most
			continue
		}
		for i, name := range *l.own {
			if (len(*l.most) > 0 || l.name == "tools") && !isCovered(*l.most, name) {
				return g, fmt.Errorf("%s.%s[%d] %q is more than its issuer may grant", field, l.name, i, name)
			}
		}
	}
	if err := cmp.Or(
		restrictNumber(field+".maxSeconds", &g.MaxSeconds, maximum.MaxSeconds), restrictNumber(field+".sessions", &g.Sessions, maximum.Sessions),
		restrictNumber(field+".tokens", &g.Tokens, maximum.Tokens), restrictNumber(field+".dollars", &g.Dollars, maximum.Dollars),
	); err != nil {
		return g, err
	}
	if maximum.Agent != nil {
		if g.Agent != nil && !reflect.DeepEqual(g.Agent, maximum.Agent) {
			return g, fmt.Errorf("%s.agent is not the one that its issuer may grant", field)
		}
		g.Agent = maximum.Agent
	}
	switch a := g.Agent; {
	case a == nil:
	case a.Agent != nil && maximum.Agent == nil && len(maximum.Agents) > 0:
		return g, fmt.Errorf("%s.agent: one in full is more than its issuer may grant, which are %s", field, strings.Join(maximum.Agents, ", "))
	case a.Agent == nil && len(g.Agents) > 0 && !isCovered(g.Agents, a.Name):
		return g, fmt.Errorf("%s.agent %q is more than its issuer may grant", field, a.Name)
	}
	return g, nil
}

// restrictNumber replaces a value of 0, which means unlimited, by maximum. It returns an error for a value above
// maximum. If maximum is 0, any value is valid.
func restrictNumber[N int | float64](field string, value *N, maximum N) error {
	switch {
	case maximum == 0:
	case *value == 0:
		*value = maximum
	case *value > maximum:
		return fmt.Errorf("%s %v is more than its issuer may grant, %v", field, *value, maximum)
	}
	return nil
}

// isCovered reports whether name matches one of the patterns. If name is itself a pattern, it must be equal to one of
// them, or begin with the text before the final star of one.
func isCovered(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if begin, open := strings.CutSuffix(p, "*"); open && isLiteralName(begin) {
			rest, ok := strings.CutPrefix(name, begin)
			return ok && !strings.ContainsAny(rest, `/[\`) // a character class could contain /, which a star does not match
		}
		matches, _ := path.Match(p, name)
		return p == name || isLiteralName(name) && matches
	})
}

// isLiteralName reports whether a name is not a pattern.
func isLiteralName(name string) bool { return !strings.ContainsAny(name, `*?[\`) }

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
