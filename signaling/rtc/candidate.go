package rtc

import (
	"errors"
	"net"
	"slices"
	"strings"
)

// MaxCandidates is how many of a client's candidates are tried, those in its offer included; a restart of ICE begins anew. Each
// gets up to seven STUN checks, wherever it points to. A browser has one to four for each of its networks and TURN servers.
const MaxCandidates = 32

// ErrTooManyCandidates says that a candidate is ignored, since so many have come before it.
var ErrTooManyCandidates = errors.New("too many candidates")

// metadata are addresses by which a cloud's own services are reached from inside, besides the link-local 169.254.169.254: of AWS
// over IPv6, Alibaba, and Azure.
var metadata = []net.IP{net.ParseIP("fd00:ec2::254"), net.ParseIP("100.100.100.200"), net.ParseIP("168.63.129.16")}

// reachable says which addresses of a client's candidates get STUN checks: pion would send some to any address that a
// stranger names. Inner addresses of this machine, of its link and of its cloud are not for clients, in whichever form
// (net.IP takes ::ffff:127.0.0.1 for what it is). loopback: we listen there, so clients may be there, too.
func reachable(loopback bool) func(net.IP) bool {
	return func(ip net.IP) bool {
		return (loopback || !ip.IsLoopback()) && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() &&
			!ip.Equal(net.IPv4bcast) && !slices.ContainsFunc(metadata, ip.Equal)
	}
}

// announces reports whether clients get one of our candidates. Where public addresses are named they get no others: pion
// replaces the local ones only of the families that have a public one.
func (a *API) announces(candidate string) bool {
	fields := strings.Fields(candidate) // RFC 8839, section 5.1: foundation, component, transport, priority, address
	return len(a.public) == 0 || len(fields) > 4 && slices.ContainsFunc(a.public, func(ip string) bool {
		return net.ParseIP(ip).Equal(net.ParseIP(fields[4]))
	})
}

// filtered is an answer with the candidates that are announced.
func (a *API) filtered(answer string) string {
	var b strings.Builder
	for line := range strings.Lines(answer) {
		if candidate, ok := strings.CutPrefix(line, "a=candidate:"); !ok || a.announces(candidate) {
			b.WriteString(line)
		}
	}
	return b.String()
}
