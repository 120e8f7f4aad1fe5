package rtc

import (
	"errors"
	"net"
	"slices"
	"strings"
)

// MaxCandidates limits the client's candidates that are tried, until ICE restarts. Each gets up to seven STUN checks. A
// browser has one to four for each network and TURN server.
const MaxCandidates = 32

// ErrTooManyCandidates reports that a candidate was ignored because of MaxCandidates.
var ErrTooManyCandidates = errors.New("too many candidates")

// metadata lists the addresses of cloud metadata services other than the link-local 169.254.169.254: AWS over IPv6,
// Alibaba, and Azure.
var metadata = []net.IP{net.ParseIP("fd00:ec2::254"), net.ParseIP("100.100.100.200"), net.ParseIP("168.63.129.16")}

// addressFilter returns a filter for the addresses that get STUN checks. Pion would check any. It excludes internal
// addresses of this machine, its link and its cloud. loopback allows clients on this machine.
func addressFilter(loopback bool) func(net.IP) bool {
	return func(ip net.IP) bool {
		return (loopback || !ip.IsLoopback()) && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() &&
			!ip.Equal(net.IPv4bcast) && !slices.ContainsFunc(metadata, ip.Equal)
	}
}

// isAnnounced reports whether one of our candidates is sent to clients. Pion would add local addresses in families
// without a public one.
func (a *API) isAnnounced(candidate string) bool {
	fields := strings.Fields(candidate) // RFC 8839, section 5.1: foundation, component, transport, priority, address
	return len(a.public) == 0 || len(fields) > 4 && slices.ContainsFunc(a.public, func(ip string) bool {
		return net.ParseIP(ip).Equal(net.ParseIP(fields[4]))
	})
}

// filterCandidates returns an answer with only the announced candidates.
func (a *API) filterCandidates(answer string) string {
	var b strings.Builder
	for line := range strings.Lines(answer) {
		if candidate, ok := strings.CutPrefix(line, "a=candidate:"); !ok || a.isAnnounced(candidate) {
			b.WriteString(line)
		}
	}
	return b.String()
}
