package media

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/srtp/v3"
)

// rtpSource is a source of a peer's audio.
type rtpSource struct {
	at       string
	ssrc     uint32
	sequence uint16
	key      *srtp.Context // nil without SRTP
}

func (r *rtpSource) nextPacket(t *testing.T) []byte {
	t.Helper()
	r.sequence++
	raw, err := (&rtp.Packet{Header: rtp.Header{Version: 2, SSRC: r.ssrc, SequenceNumber: r.sequence}, Payload: make([]byte, 160)}).Marshal()
	if err == nil && r.key != nil {
		raw, err = r.key.EncryptRTP(nil, raw, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// sendPackets sends a number of packets, and returns how many were accepted.
func (r *rtpSource) sendPackets(t *testing.T, s *stream, packets int) (taken int) {
	t.Helper()
	for range packets {
		time.Sleep(20 * time.Millisecond)
		if _, ok := s.acceptPacket(r.nextPacket(t), netip.MustParseAddrPort(r.at)); ok {
			taken++
		}
	}
	return taken
}

// The peer's source is followed when the old one is silent, and cannot be replaced while it sends. The cases cover each way of moving, with
// and without nat, and RTP and SRTP with continued and restarted counters.
func TestMediaSourceMoves(t *testing.T) {
	const described, sameHost, otherHost = "192.0.2.1:4000", "192.0.2.1:5000", "192.0.2.99:4000"
	for _, c := range []struct {
		name             string
		first, next      string
		same             bool // the next source continues the SSRC and sequence
		nat, sealed, not bool // not: the next source must be rejected
	}{
		{"another port", described, sameHost, false, false, false, false},
		{"another port, the same stream", described, sameHost, true, false, false, false},
		{"another port of one that was not described", sameHost, "192.0.2.1:6000", false, false, false, false},
		{"back to the described one", sameHost, described, false, false, false, false},
		{"another host", described, otherHost, false, false, false, true},
		{"another host, the same stream", described, otherHost, true, false, false, false},
		{"another host behind a NAT", described, otherHost, false, true, false, false},
		{"another host behind a NAT, again", otherHost, "192.0.2.98:4000", false, true, false, false},
		{"another host with the key", described, otherHost, true, false, true, false},
		{"another port with the key", described, sameHost, true, false, true, false},
		{"another port with the key, counted anew", described, sameHost, false, false, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			agreed := &agreement{payload: payload{0, pcmu}, remote: netip.MustParseAddrPort(described)}
			var theirs, stranger *srtp.Context
			sealing := func() *srtp.Context {
				own, err := newContext(agreed.in)
				if err != nil {
					t.Fatal(err)
				}
				return own
			}
			if c.sealed {
				key, out := newCrypto("1", suites[3].name, suites[3].profile), newCrypto("1", suites[3].name, suites[3].profile)
				agreed.in, agreed.out = &key, &out
				theirs = sealing()
			}
			s := &stream{}
			if err := s.applyAgreement(agreed, c.nat); err != nil {
				t.Fatal(err)
			}
			old := &rtpSource{c.first, 7, 65500, theirs}
			other := &rtpSource{"192.0.2.1:7000", 8, 100, stranger}
			if n := old.sendPackets(t, s, 100); n != 100 { // over the end of the sequence
				t.Fatalf("%s: %d of 100 packets were taken", c.name, n)
			}
			for range 100 {
				if old.sendPackets(t, s, 1) != 1 || other.sendPackets(t, s, 1) != 0 {
					t.Fatalf("%s: a stranger takes over while the peer speaks", c.name)
				}
			}
			next := &rtpSource{c.next, 9, 30, old.key}
			if c.same {
				next.ssrc, next.sequence = old.ssrc, old.sequence
			} else if c.sealed {
				next.ssrc, next.key = old.ssrc, sealing()
			}
			if n := next.sendPackets(t, s, 40); n > 0 && c.next != described {
				t.Errorf("%s: %d packets are taken before the old source was silent for a while", c.name, n)
			}
			n := next.sendPackets(t, s, 60)
			if heard := n > 40; heard == c.not {
				t.Errorf("%s: %d of 60 packets are taken", c.name, n)
			}
			if to := s.latched.String(); !c.not && to != c.next {
				t.Errorf("%s: our sound goes to %s", c.name, to)
			}
			if !c.not && c.next != described && next.sendPackets(t, s, 20)+other.sendPackets(t, s, 20) != 20 {
				t.Errorf("%s: a stranger is heard", c.name)
			}
		})
	}
}

// On hold, when no packets are expected, another source cannot replace the peer's.
func TestMediaSourceOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agreed := &agreement{payload: payload{0, pcmu}, remote: netip.MustParseAddrPort("192.0.2.1:4000")}
		s := &stream{}
		hold := func(silent bool) {
			changed := *agreed
			changed.isSilent = silent
			if err := s.applyAgreement(&changed, true); err != nil {
				t.Fatal(err)
			}
		}
		hold(false)
		peer, stranger := &rtpSource{"192.0.2.1:4000", 7, 0, nil}, &rtpSource{"192.0.2.9:4000", 8, 0, nil}
		peer.sendPackets(t, s, 10)
		hold(true)
		if n := stranger.sendPackets(t, s, 200); n > 0 {
			t.Errorf("%d packets of a stranger are taken", n)
		}
		hold(false)
		if n := peer.sendPackets(t, s, 10); n != 10 {
			t.Errorf("%d packets of the peer are taken", n)
		}
	})
}

// Media from a rejected address is logged once, with both addresses.
func TestForeignMediaSourceLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, nat := range []bool{false, true} {
			said := ""
			s := &stream{}
			s.onForeign = func(from, described netip.AddrPort) { said += fmt.Sprint(from, " ", described, ";") }
			if err := s.applyAgreement(&agreement{payload: payload{0, pcmu}, remote: netip.MustParseAddrPort("192.0.2.1:4000")}, nat); err != nil {
				t.Fatal(err)
			}
			(&rtpSource{"192.0.2.2:4000", 7, 0, nil}).sendPackets(t, s, 5) // too few packets to be logged
			(&rtpSource{"192.0.2.3:4000", 7, 0, nil}).sendPackets(t, s, 100)
			if want := map[bool]string{false: "192.0.2.3:4000 192.0.2.1:4000;", true: ""}[nat]; said != want {
				t.Errorf("nat %v: said %q, not %q", nat, said, want)
			}
		}
	})
}
