package rtc

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
)

func TestReachableCandidates(t *testing.T) {
	for ip, want := range map[string]bool{
		"198.51.100.1": true, "10.0.0.1": true, "192.168.1.1": true, "2001:db8::1": true, "fd77::1": true, "::ffff:198.51.100.1": true,
		"127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false, "::ffff:0.0.0.0": false,
		"169.254.169.254": false, "::ffff:169.254.169.254": false, "fe80::1": false, "100.100.100.200": false, "fd00:ec2::254": false,
		"168.63.129.16": false,
		"224.0.0.251":   false, "::ffff:224.0.0.251": false, "ff02::fb": false, "255.255.255.255": false,
	} {
		loopback := net.ParseIP(ip).IsLoopback()
		for _, here := range []bool{false, true} {
			if got := addressFilter(here)(net.ParseIP(ip)); got != (want || here && loopback) {
				t.Errorf("%s, if we listen on the loopback (%v): %v", ip, here, got)
			}
		}
	}
}

// newPeerAt returns a peer at these addresses that has answered this offer.
func newPeerAt(t *testing.T, o Options, offer string) (p *Peer, answer string) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	api, err := New(o)
	must(t, err)
	t.Cleanup(func() { must(t, api.Close()) })
	p, answer, _ = answerWith(t, api, &conversation{}, offer)
	return p, answer
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	must(t, err)
	return l
}

// candidates returns n lines, starting with this number.
func candidates(first, n int) (lines []string) {
	for i := first; i < first+n; i++ {
		lines = append(lines, fmt.Sprintf("candidate:%d 1 udp %d 198.51.100.%[1]d 9 typ host", i, 1000-i))
	}
	return lines
}

// TestCandidateLimit: the first 32 candidates of a client are tried, whichever way they arrive, and as many after
// a restart of ICE.
func TestCandidateLimit(t *testing.T) {
	phone := newClient(t, offerOpus, offerOpus)
	offer := phone.offer()
	offer = strings.Replace(offer, "a=end-of-candidates", "a="+strings.Join(candidates(1, 25), "\r\na="), 1)
	p, _ := newPeerAt(t, Options{UDPAddr: "127.0.0.1:0"}, offer)
	known := func() (n int) {
		for _, s := range p.pc.GetStats() {
			if s, ok := s.(webrtc.ICECandidateStats); ok && s.Type == webrtc.StatsTypeRemoteCandidate && strings.HasPrefix(s.IP, "198.51.100.") {
				n++
			}
		}
		return n
	}
	mine := strings.Count(offer, "a=candidate:") - 25 // the phone's own
	trickle := func(first, n int) (tooMany int) {
		for _, line := range candidates(first, n) {
			if err := p.AddCandidate(line); err == ErrTooManyCandidates {
				tooMany++
			} else {
				must(t, err)
			}
		}
		return tooMany
	}
	if n := trickle(100, 40); n != 40+25+mine-MaxCandidates {
		t.Errorf("of %d in the offer and 40 trickled ones %d are too many", 25+mine, n)
	}
	awaitCondition(t, func() bool { return known() == MaxCandidates-mine })
	ufrag := p.offer.transport.ufrag
	again, err := ParseOffer(
		strings.ReplaceAll(
			strings.ReplaceAll(offer, ufrag, "another"+ufrag),
			"a=candidate:1 ",
			"a="+strings.Join(candidates(200, 50), "\r\na=")+"\r\na=candidate:1 ",
		),
	)
	must(t, err)
	_, err = p.Answer(again)
	must(t, err)
	if n := trickle(1, 3); n != 3 {
		t.Errorf("after an offer with 75 candidates, %d of 3 are too many", n)
	}
	awaitCondition(t, func() bool { return known() <= MaxCandidates })
}

// awaitCondition polls for a condition that has no event.
func awaitCondition(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to be")
		}
	}
}

// TestNoTCPDialToCandidates: a client may connect to the gateway over TCP, but cannot make it connect to any address.
func TestNoTCPDialToCandidates(t *testing.T) {
	listener := listen(t, "127.0.0.1:0")
	defer listener.Close()
	phone := newClientWith(
		t,
		func(s *webrtc.SettingEngine) { s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeTCP4}) },
		offerOpus,
		offerOpus,
	)
	p, answer := newPeerAt(t, Options{TCP: listen(t, "127.0.0.1:0")}, phone.offer())
	must(t, p.AddCandidate(fmt.Sprintf("candidate:1 1 tcp 1 127.0.0.1 %d typ host tcptype passive", listener.Addr().(*net.TCPAddr).Port)))
	phone.setAnswer(answer)
	awaitCondition(t, func() bool { return p.pc.ConnectionState() == webrtc.PeerConnectionStateConnected })
	must(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(50*time.Millisecond)))
	if conn, err := listener.Accept(); err == nil {
		conn.Close()
		t.Error("the client's candidate was dialled")
	}
}

// TestPrivateAddressesNotAnnounced: if public addresses are configured, candidates have no others, of either family.
func TestPrivateAddressesNotAnnounced(t *testing.T) {
	for _, host := range []string{"0.0.0.0:0", "[::]:0", "127.0.0.1:0"} {
		for _, public := range [][]string{{"203.0.113.7"}, {"203.0.113.7", "2001:db8::7"}, {"2001:db8::7"}} {
			phone := newClient(t, offerOpus, offerOpus)
			_, answer := newPeerAt(t, Options{UDPAddr: host, TCP: listen(t, host), PublicIPs: public}, phone.offer())
			count := 0
			for line := range strings.Lines(answer) {
				fields := strings.Fields(line)
				if !strings.HasPrefix(line, "a=candidate:") {
					continue
				}
				count++
				known := false
				for _, ip := range public {
					known = known || net.ParseIP(ip).Equal(net.ParseIP(fields[4]))
				}
				if !known || strings.Contains(line, "raddr") {
					t.Errorf("%s as %v announces %s", host, public, line)
				}
			}
			if count == 0 && public[0] == "203.0.113.7" { // not every machine has IPv6
				t.Errorf("%s as %v announces nothing", host, public)
			}
		}
	}
}
