package phone

import (
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
)

// Attributes are additional data of a call: SIP headers or provider parameters, with lower-case names. Callers can
// forge most of them.
type Attributes map[string]string

const (
	// maxAttributes limits the attributes of a call. Further attributes are dropped. Carriers add about a dozen headers
	// of their own.
	maxAttributes = 32
	// maxAttributeBytes limits the length of an attribute's value. The value of User-to-User may have 128 octets in hex
	// (RFC 7433, section 3.2).
	maxAttributeBytes = 300
)

// Add stores a value as one line of at most 300 bytes. If the name has a value already, it joins the two with a comma
// (RFC 3261, section 7.3.1).
func (a *Attributes) Add(name, value string) {
	name = strings.ToLower(SanitizeField(name))
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
	(*a)[name] = tools.Truncate(strings.Join(strings.Fields(strings.ToValidUTF8(value, "")), " "), maxAttributeBytes)
}

// matching returns the attributes whose names match one of the patterns.
func (a Attributes) matching(patterns []string) (matched Attributes) {
	for name, value := range a {
		if bridge.MatchesAny(patterns, name) {
			matched.Add(name, value)
		}
	}
	return matched
}
