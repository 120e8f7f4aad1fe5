package rtc

import (
	"errors"
	"net"
	"slices"
	"strings"
)

// MaxCandidates limits how many candidates of a client are tried before the next restart of ICE. For each, up to seven
// STUN checks are sent. A browser has one to four candidates for each network and TURN server.
const MaxCandidates = 32

// ErrTooManyCandidates reports that a candidate was ignored because of MaxCandidates.
var ErrTooManyCandidates = errors.New("too many candidates")

// metadata lists the addresses of cloud metadata services: AWS over IPv6, Alibaba, and Azure. The usual address,
// 169.254.169.254, is link-local, so it is excluded already.
var metadata = []net.IP{net.ParseIP("fd00:ec2::254"), net.ParseIP("100.100.100.200"), net.ParseIP("168.63.129.16")}

// addressFilter returns a filter that reports whether STUN checks may be sent to an address that a client names.
// Without it, Pion checks any address. No checks are sent to addresses of this machine (unless allowLoopback is true),
// of its link, or of cloud metadata services.
func addressFilter(allowLoopback bool) func(net.IP) bool {
	return func(ip net.IP) bool {
		return (allowLoopback || !ip.IsLoopback()) && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() &&
			!ip.Equal(net.IPv4bcast) && !slices.ContainsFunc(metadata, ip.Equal)
	}
}

// isAnnounced reports whether one of our candidates is sent to clients. If public addresses are configured, only
// candidates with these are sent. Pion would add local IPv6 addresses if only an IPv4 address is public, and vice
// versa.
func (a *API) isAnnounced(candidate string) bool {
	fields := strings.Fields(candidate) // RFC 8839, section 5.1: foundation, component, transport, priority, address
	return len(a.public) == 0 || len(fields) > 4 && slices.ContainsFunc(a.public, func(ip string) bool {
		return net.ParseIP(ip).Equal(net.ParseIP(fields[4]))
	})
}

// filterCandidates returns an answer without the candidates that are not announced.
func (a *API) filterCandidates(answer string) string {
	var b strings.Builder
	for line := range strings.Lines(answer) {
		if candidate, ok := strings.CutPrefix(line, "a=candidate:"); !ok || a.isAnnounced(candidate) {
			b.WriteString(line)
		}
	}
	return b.String()
}
