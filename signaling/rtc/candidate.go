package rtc

import (
	"errors"
	"net"
	"slices"
	"strings"
)

// MaxCandidates limits how many of the client's candidates are tried until ICE restarts. Each gets up to seven STUN
// checks. A browser has one to four candidates for each network and TURN server.
const MaxCandidates = 32

// ErrTooManyCandidates reports that a candidate was ignored because of MaxCandidates.
var ErrTooManyCandidates = errors.New("too many candidates")

// metadata lists the addresses of cloud metadata services other than the link-local 169.254.169.254: AWS over IPv6,
// Alibaba, and Azure.
var metadata = []net.IP{net.ParseIP("fd00:ec2::254"), net.ParseIP("100.100.100.200"), net.ParseIP("168.63.129.16")}

// addressFilter returns a filter that reports whether an address of a client may get STUN checks. Without it, Pion
// checks any address. Addresses of this machine (unless loopback is set), of its link, and of cloud metadata services
// get none.
func addressFilter(loopback bool) func(net.IP) bool {
	return func(ip net.IP) bool {
		return (loopback || !ip.IsLoopback()) && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() &&
			!ip.Equal(net.IPv4bcast) && !slices.ContainsFunc(metadata, ip.Equal)
	}
}

// isAnnounced reports whether one of our candidates is sent to clients. With public addresses, only those are sent:
// Pion would add local IPv6 addresses if only an IPv4 address is public, and vice versa.
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
