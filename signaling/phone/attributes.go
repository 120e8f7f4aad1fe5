package phone

import (
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
)

// Attributes are what came with a call beside its numbers: headers of SIP, parameters of a provider. Names are in lower case. Callers can
// write most of it themselves.
type Attributes map[string]string

const (
	// maxAttributes is how many of them a call may have: a carrier adds a dozen headers of its own. The rest is dropped.
	maxAttributes = 32
	// maxAttribute bounds a value in bytes: User-to-User may have 128 octets in hex (RFC 7433, section 3.2).
	maxAttribute = 300
)

// Add adds one, cut to a line of 300 bytes. One that comes twice is one with both values, as SIP has it (RFC 3261, section 7.3.1).
func (a *Attributes) Add(name, value string) {
	name = strings.ToLower(Clip(name))
	before, ok := (*a)[name]
	if name == "" || !ok && len(*a) >= maxAttributes {
		return
	}
	if ok {
		value = before + ", " + value
	}
	if *a == nil {
		*a = Attributes{}
	}
	(*a)[name] = tools.Truncate(strings.Join(strings.Fields(strings.ToValidUTF8(value, "")), " "), maxAttribute)
}

// of are those whose names have one of these patterns.
func (a Attributes) of(patterns []string) (known Attributes) {
	for name, value := range a {
		if bridge.MatchesAny(patterns, name) {
			known.Add(name, value)
		}
	}
	return known
}
