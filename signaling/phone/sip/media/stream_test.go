package media

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/rtp"
)

// Sending and receiving packets does not allocate memory, with RTP and SRTP.
func TestMediaAllocations(t *testing.T) {
	s, err := newPortPool("127.0.0.1", 0, 0).openStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.closePort()
	peer, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	from := peer.LocalAddr().(*net.UDPAddr).AddrPort()
	d, err := parseSDP([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	agreed, err := d.negotiate(srtpRequired, nil)
	if err != nil {
		t.Fatal(err)
	}
	agreed.remote = from
	theirs, err := newContext(agreed.in)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []bool{true, false} {
		if !secret {
			agreed = &agreement{payload: agreed.payload, remote: from}
		}
		if err := s.applyAgreement(agreed, false); err != nil {
			t.Fatal(err)
		}
		out := &rtp.Packet{Header: rtp.Header{PayloadType: 8}, Payload: make([]byte, 160)}
		if n := testing.AllocsPerRun(100, func() {
			if err := s.WriteRTP(out); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("secret %v: a packet that is sent allocates %v times", secret, n)
		}
		in := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: 7}, Payload: make([]byte, 160)}
		var packets [][]byte
		for range 102 {
			in.SequenceNumber++
			raw, err := in.Marshal()
			if err == nil && secret {
				raw, err = theirs.EncryptRTP(nil, raw, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			packets = append(packets, raw)
		}
		if n := testing.AllocsPerRun(100, func() {
			if _, ok := s.acceptPacket(packets[0], from); !ok {
				t.Fatal("a packet was not taken")
			}
			packets = packets[1:]
		}); n > 0 {
			t.Errorf("secret %v: a packet that comes allocates %v times", secret, n)
		}
	}
}

// Missing packets count only while packets are expected: not while ringing, and not on hold.
func TestSilenceTimeout(t *testing.T) {
	s, err := newPortPool("127.0.0.1", 0, 0).openStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.closePort()
	r := &Audio{stream: s, settings: Settings{SilenceSeconds: 30}}
	offers := func(direction string) {
		t.Helper()
		const text = "v=0\r\no=a 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\na="
		if err := r.ApplyOffer([]byte(text + direction + "\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	anHour := func() { s.lastPacket.Store(time.Now().Add(-time.Hour).UnixNano()) } // sets the last packet to an hour ago
	check := func(when string, want error) {
		t.Helper()
		if err := r.ReportAndCheckSilence(time.Now()); err != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	offers("sendrecv")
	anHour()
	stop, err := r.StartPlayback(func([]int16) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	check("answered after an hour", nil)
	anHour()
	check("an hour later", ErrSilence)
	for _, direction := range []string{"inactive", "sendonly", "recvonly"} {
		offers(direction)
		anHour()
		check(direction+" for an hour", nil)
		offers("sendrecv")
		check("after "+direction, nil)
	}
	anHour()
	offers("sendrecv")
	check("an hour later, when nothing has changed", ErrSilence)
}

// Late packets of a port's previous call do not reach the next one, and a peer is latched once.
func TestMediaOfPreviousCall(t *testing.T) {
	port := 0
	for port == 0 {
		probe, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if n := probe.LocalAddr().(*net.UDPAddr).Port; n%2 == 0 && n < 65534 {
			port = n
		}
		probe.Close()
	}
	p := newPortPool("127.0.0.1", port, port+1)
	agreed := &agreement{payload: payload{0, codecs[2]}, remote: netip.MustParseAddrPort("127.0.0.1:19")}
	packet := func(ssrc uint32) []byte {
		raw, err := (&rtp.Packet{Header: rtp.Header{Version: 2, SSRC: ssrc}, Payload: make([]byte, 160)}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	takes := func(s *stream, ssrc uint32, address string, want bool) {
		t.Helper()
		if _, ok := s.acceptPacket(packet(ssrc), netip.MustParseAddrPort(address)); ok != want {
			t.Errorf("%d of %s taken: %v", ssrc, address, ok)
		}
	}
	first, err := p.openStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.openStream(); err == nil {
		t.Error("a port was given twice")
	}
	if err := first.applyAgreement(agreed, false); err != nil {
		t.Fatal(err)
	}
	takes(first, 6, "127.0.0.2:19", false) // another host
	takes(first, 6, "127.0.0.1:20", true)
	takes(first, 6, "127.0.0.1:21", false)
	takes(first, 7, "127.0.0.1:19", true) // the described address
	takes(first, 6, "127.0.0.1:20", false)
	first.closePort()
	second, err := p.openStream()
	if err != nil {
		t.Fatal(err)
	}
	defer second.closePort()
	if err := second.applyAgreement(agreed, true); err != nil {
		t.Fatal(err)
	}
	takes(second, 7, "127.0.0.1:19", false)
	takes(second, 8, "127.0.0.2:19", true)
}
