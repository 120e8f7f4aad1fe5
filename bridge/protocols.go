package bridge

import "slices"

// ProtocolUse is a set of flags. They tell in which settings the name of a protocol may occur.
type ProtocolUse int

const (
	// InAgents allows the name in the list of protocols that reach an agent.
	InAgents ProtocolUse = 1 << iota
	// InGrants allows the name in the list of protocols that a token may use.
	InGrants
)

// protocols holds the uses of each registered protocol, by name. It is complete once all packages are initialized.
var protocols = map[string]ProtocolUse{}

// RegisterProtocol registers the name of a protocol, which becomes valid for [Origin.Protocol], and returns it. It may
// be called only while packages are initialized.
func RegisterProtocol(name string, use ProtocolUse) (registeredName string) {
	protocols[name] |= use
	return name
}

// ProtocolNames returns the names of the protocols with this use, sorted.
func ProtocolNames(use ProtocolUse) (names []string) {
	for name, uses := range protocols {
		if uses&use != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
