package sip

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/pion/rtp"

	"voxgate/media/rtpaudio"
	"voxgate/signaling/phone"
)

const full = "v=0\r\no=a 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n" +
	"m=audio 4000 RTP/SAVP 8 0 101\r\na=rtpmap:101 telephone-event/8000\r\n" +
	"a=crypto:3 AES_CM_128_HMAC_SHA1_80 inline:MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw|2^20|1:4\r\n" +
	"m=video 5000 RTP/AVP 31\r\n"

// FuzzRequest parses the headers of trunks' requests. All results stay within their bounds.
func FuzzRequest(f *testing.F) {
	const head = "INVITE sip:500@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKa\r\n" +
		"From: \"Ada\" <sip:ada@192.0.2.9>;tag=1;verstat=TN-Validation-Passed\r\n" +
		"To: <sip:500@192.0.2.1>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n"
	for _, headers := range []string{
		"Supported: timer, 100rel\r\nSession-Expires: 90;refresher=uac\r\n", "k: timer\r\nx: 4294967296\r\nRequire: ,,\r\n",
		"Replaces: b;to-tag=2;from-tag=3;early-only\r\n", "Replaces: ;;=\r\nReplaces: b\r\n", "RAck: 4294967296 1 INVITE\r\n",
		"P-Asserted-Identity: <sip:+4930@x>, <tel:1>\r\nPrivacy: id\r\n", "P-Asserted-Identity: \"\\\"\r\nPrivacy:\r\n",
		`Authorization: Digest username="bob", realm="voxgate", nonce="n", uri="sip:x", qop=auth, nc=ffffffff, cnonce="", response=""` +
			"\r\n",
		"Record-Route: <sip:a;lr>, <sip:b>\r\nContact: *\r\n", "Contact: <sip:ada@[::1]:0>\r\n",
	} {
		f.Add([]byte(head + headers + "Content-Length: 0\r\n\r\n"))
	}
	trunk := &trunkState{Trunk: &Trunk{Username: "bob", Password: "secret"}}
	door := &Server{calls: map[string]*call{}, gate: newGate(&Config{}, time.Now)}
	door.gate.trunks = []*trunkState{trunk}
	parser := sip.NewParser()
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parser.ParseSIP(text)
		req, ok := m.(*sip.Request)
		if err != nil || !ok || req.From() == nil || req.To() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil {
			return
		}
		if r, ok := readRefresh(req); ok && (r.every < 0 || r.every > 0 && r.every < minSessionInterval) {
			t.Errorf("a session timer of %v", r.every)
		}
		for _, option := range missingOptions(req, extensions) {
			if option == "" || supportsOption(req, option) != requiresOption(req, option) {
				t.Errorf("wants %q", option)
			}
		}
		if old, refused := door.findReplaced(req, &call{trunk: trunk}); old != nil || refused == nil && len(req.GetHeaders("Replaces")) > 0 {
			t.Error("a call is replaced that is not there")
		}
		if r := door.gate.admitRequest(req, netip.MustParseAddr("192.0.2.9"), door.gate.trunks); r.trunk != nil {
			t.Error("let in")
		}
		if prompt := door.partyOf(req, true).PromptData(); len(prompt) > 2000 || strings.Count(prompt, "\n") != 1 {
			t.Errorf("the prompt about the caller: %q", prompt)
		}
		dialogFromRequest(req, sip.Uri{}).newRequest(sip.BYE)
	})
}

// FuzzSDP parses arbitrary descriptions. Each accepted one can be answered, and the answer can be parsed.
func FuzzSDP(f *testing.F) {
	f.Add([]byte(full), "")
	f.Add([]byte(strings.Replace(full, "8 0 101", "96", 1)+"a=rtpmap:96 opus/48000/2\r\na=inactive\r\n"), srtpRequired)
	f.Add([]byte("v=0\r\no=a 1 1 IN IP6 ::1\r\ns=-\r\nc=IN IP6 ::\r\nt=0 0\r\nm=audio 4000 RTP/AVP 9\r\n"), srtpOff)
	f.Fuzz(func(t *testing.T, text []byte, rule string) {
		d, err := parseSDP(text)
		if err != nil {
			return
		}
		s, err := d.negotiate(rule, nil)
		if err != nil {
			return
		}
		answer := d.answer(local{address: netip.MustParseAddr("192.0.2.9"), port: 4002}, s)
		back, err := parseSDP(answer)
		if err != nil {
			t.Fatalf("%v\n%s\nfor\n%s", err, answer, text)
		}
		if len(back.payloads) != 1 || back.payloads[0] != s.payload || (s.out != nil) != (len(back.keys) == 1) ||
			len(back.sections) != len(d.sections) {
			t.Fatalf("%s\nfor\n%s", answer, text)
		}
	})
}

// Both sides of an agreement have each other's key.
func TestSRTPKeyExchange(t *testing.T) {
	d, err := parseSDP([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.negotiate(srtpRequired, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.codec.name != "PCMA/8000" || s.event.number != 101 || string(s.in.key) != "123456789012345678901234567890" || s.out.tag != "3" ||
		bytes.Equal(s.in.key, s.out.key) {
		t.Errorf("%+v", s)
	}
	answer := string(d.answer(local{address: netip.MustParseAddr("192.0.2.9"), port: 4002}, s))
	for _, want := range []string{
		"m=audio 4002 RTP/SAVP 8 101\r\n",
		"a=crypto:3 AES_CM_128_HMAC_SHA1_80 inline:",
		"m=video 0 RTP/AVP 31\r\n",
	} {
		if !strings.Contains(answer, want) {
			t.Errorf("no %q in\n%s", want, answer)
		}
	}
	if again, err := d.negotiate("", []crypto{*s.out}); err != nil || !bytes.Equal(again.out.key, s.out.key) {
		t.Errorf("another key for the same call: %v", err)
	}
	if _, err := d.negotiate(srtpOff, nil); err == nil {
		t.Error("a peer that must encrypt is answered in the clear")
	}
}

// A session timer ends only calls whose other side is gone.
func TestSessionTimer(t *testing.T) {
	timer := sessionTimer{every: 90 * time.Second}
	begun := time.Now()
	c := &call{liveness: liveness{alive: refreshTimes{refreshed: begun}}}
	for after, want := range map[time.Duration]error{59 * time.Second: nil, 61 * time.Second: errRefresh} {
		if err := c.keepAlive(timer, begun.Add(after)); err != want {
			t.Errorf("after %v: %v", after, err)
		}
	}
	c.alive.refreshed = begun.Add(50 * time.Second)
	if err := c.keepAlive(timer, begun.Add(100*time.Second)); err != nil {
		t.Errorf("refreshed: %v", err)
	}
	theirs, ours := sessionTimer{every: 90 * time.Second}, sessionTimer{every: 90 * time.Second, isRefresher: true}
	for got, want := range map[string]string{
		theirs.header(false).Value(): "90;refresher=uac", ours.header(false).Value(): "90;refresher=uas",
		ours.header(true).Value(): "90;refresher=uac",
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if err := c.keepAlive(sessionTimer{}, begun.Add(time.Hour)); err != nil {
		t.Errorf("without a timer: %v", err)
	}
}

// A bridge continues the session timer of the conversation before it.
func TestSessionTimerOfBridge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCall(&Server{}, nil)
		c.media, c.timer = &callMedia{stream: &stream{}, trunk: &Trunk{SilenceSeconds: 60}}, sessionTimer{every: minSessionInterval}
		c.media.stream.resetSilence()
		begun := time.Now()
		c.alive.refreshed = begun.Add(-c.timer.expiresAfter())
		if err := c.watchBridge(t.Context(), nil); err != errRefresh || time.Since(begun) > time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// A digit counts once, even if its packets are duplicated, lost, late or have odd timestamps. Two digits count twice.
func TestDigitReader(t *testing.T) {
	type packet struct {
		sequence  uint16
		timestamp uint32
		code      byte
		duration  uint16
		end       bool
	}
	// key returns the packets of a normal key: four, and three with the end bit.
	key := func(code byte, sequence uint16, timestamp uint32) (list []packet) {
		for i := range uint16(7) {
			list = append(list, packet{sequence + i, timestamp, code, min(i+1, 5) * 160, i >= 4})
		}
		return list
	}
	// timed sets the timestamp of each packet.
	timed := func(list []packet, at func(i int, p packet) uint32) []packet {
		for i := range list {
			list[i].timestamp = at(i, list[i])
		}
		return list
	}
	grows := func(i int, p packet) uint32 { return p.timestamp + uint32(160*i) }
	join := func(lists ...[]packet) []packet { return slices.Concat(lists...) }
	for name, c := range map[string]struct {
		packets []packet
		want    string
	}{
		"one":                               {key(1, 10, 100), "1"},
		"twice the same":                    {join(key(1, 10, 100), key(1, 20, 1400)), "11"},
		"two":                               {join(key(1, 10, 100), key(11, 20, 1400)), "1#"},
		"only ends":                         {join(key(1, 10, 100)[5:], key(1, 20, 1400)[6:]), "11"},
		"only the first packets":            {join(key(1, 10, 100)[:1], key(1, 20, 1400)[:2]), "11"},
		"ends lost":                         {join(key(1, 10, 100)[:3], key(1, 20, 1400)[1:3]), "11"},
		"once more, and late":               {join(key(1, 10, 100), key(2, 20, 1400), key(1, 10, 100)), "12"},
		"turned around":                     {join(key(1, 10, 100)[4:], key(1, 10, 100)[:4]), "1"},
		"over the end of sequence and time": {join(key(1, 65532, 0xffffff00), key(1, 4, 2000)), "11"},
		"timestamps that grow":              {timed(key(5, 10, 100), grows), "5"},
		"twice, timestamps that grow":       {join(timed(key(5, 10, 100), grows), timed(key(5, 20, 1700), grows)), "55"},
		"timestamps that grow, ends lost":   {join(timed(key(5, 10, 100), grows)[:4], timed(key(5, 20, 1700), grows)), "55"},
		"ends with new timestamps":          {timed(key(1, 10, 100), func(i int, p packet) uint32 { return 100 + 160*uint32(max(0, i-4)) }), "1"},
		"an end with another timestamp":     {timed(key(1, 10, 100), func(i int, p packet) uint32 { return 100 + uint32(i/4*640) }), "1"},
		"time jumps back":                   {join(key(1, 10, 900000), key(2, 20, 100), key(3, 30, 1400)), "123"},
		"time jumps back, the same":         {join(key(1, 10, 900000), key(1, 20, 100), key(1, 30, 1400)), "111"},
		"time and sequence jump back":       {join(key(1, 9000, 900000), key(2, 1000, 100), key(3, 1010, 1400)), "123"},
		"three with one timestamp":          {join(key(1, 10, 100), key(2, 20, 100), key(3, 30, 100)), "123"},
		"the same three with one timestamp": {join(key(1, 10, 100), key(1, 20, 100), key(1, 30, 100)), "111"},
		"a long one in parts": {[]packet{
			{10, 100, 1, 65000, false}, {11, 100, 1, 65535, false}, {12, 65635, 1, 160, false}, {13, 65635, 1, 320, true},
		}, "1"},
		"durations that say nothing": {
			[]packet{{10, 100, 1, 0, false}, {11, 100, 1, 0, false}, {12, 100, 1, 0, true}, {13, 100, 1, 0, true}},
			"1",
		},
		"no digits": {[]packet{{10, 100, 16, 160, false}, {11, 500, 200, 160, true}}, ""},
	} {
		var r digitReader
		got := ""
		for _, p := range c.packets {
			payload := []byte{p.code, 10, byte(p.duration >> 8), byte(p.duration)}
			if p.end {
				payload[1] |= 0x80
			}
			r.readEvent(rtpaudio.Event{SSRC: 7, Sequence: p.sequence, Timestamp: p.timestamp, Payload: payload},
				func(digit byte) { got += string(digit) })
		}
		if got != c.want {
			t.Errorf("%s: read %q, not %q", name, got, c.want)
		}
	}
	var r digitReader
	read := ""
	for _, ssrc := range []uint32{7, 8, 8} { // another stream has its own timestamps and sequence
		e := rtpaudio.Event{SSRC: ssrc, Sequence: 5, Timestamp: 50, Payload: []byte{2, 0x8a, 0, 0}}
		r.readEvent(e, func(digit byte) { read += string(digit) })
	}
	r.readEvent(rtpaudio.Event{SSRC: 8, Sequence: 6, Payload: []byte{3, 0x8a}}, func(digit byte) { read += string(digit) })
	if read != "22" {
		t.Errorf("read %q of two streams", read)
	}
	for body, want := range map[string]byte{
		"Signal=5\r\nDuration=160\r\n": '5',
		"Signal= *":                    '*',
		"Signal=\"5\"":                 '5',
		"signal=11\n":                  '#',
		"Signal=b":                     'B',
		"Signal=":                      0,
		"":                             0,
		"Signal=17":                    0,
	} {
		if got, _ := readInfo("application/dtmf-relay; x=y", body); got != want {
			t.Errorf("%q is %q", body, got)
		}
	}
}

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
	r := &callMedia{stream: s, trunk: &Trunk{SilenceSeconds: 30}}
	offers := func(direction string) {
		t.Helper()
		const text = "v=0\r\no=a 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\na="
		if err := r.applyOffer([]byte(text + direction + "\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	anHour := func() { s.lastPacket.Store(time.Now().Add(-time.Hour).UnixNano()) } // sets the last packet to an hour ago
	check := func(when string, want error) {
		t.Helper()
		if err := r.checkSilence(time.Now()); err != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	offers("sendrecv")
	anHour()
	stop, err := r.startPlayback(func([]int16) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	check("answered after an hour", nil)
	anHour()
	check("an hour later", errSilence)
	for _, direction := range []string{"inactive", "sendonly", "recvonly"} {
		offers(direction)
		anHour()
		check(direction+" for an hour", nil)
		offers("sendrecv")
		check("after "+direction, nil)
	}
	anHour()
	offers("sendrecv")
	check("an hour later, when nothing has changed", errSilence)
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

// A tool may run before the call has stored its session.
func TestToolBeforeSession(t *testing.T) {
	if c := newCall(&Server{}, nil); c.line.Load() != c {
		t.Error("tools have no call yet")
	}
}

// The example files in docs/sip.md are valid. One is a single trunk, and one the list of fields to collect from callers.
func TestDocumentedConfigs(t *testing.T) {
	for _, name := range []string{"TRUNK_PASSWORD", "TWILIO_TRUNK_PASSWORD", "TELNYX_TRUNK_PASSWORD", "PAY_SECRET"} {
		t.Setenv(name, "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sip.md"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := m[1]
		switch {
		case strings.Contains(text, `"outbound"`) && !strings.Contains(text, `"listen"`):
			text = `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[` + text + `]}`
		case strings.HasPrefix(strings.TrimLeft(text, "{ \n"), `"collect"`):
			text = `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[{"name":"a","from":["192.0.2.1"]}],` + strings.TrimLeft(text, "{ \n")
			if !strings.HasPrefix(m[1], "{") {
				text += "}"
			}
		}
		file := filepath.Join(t.TempDir(), "sip.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
		read++
	}
	if read < 5 {
		t.Errorf("there are %d files", read)
	}
}

// Each mistake in the configuration is reported with its location.
func TestBadConfigs(t *testing.T) {
	t.Setenv("SIP_SECRET", `se"cret`)
	good := `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[{"name":"a","from":["192.0.2.0/24"]}]}`
	for change, want := range map[[2]string]string{
		{`"udp"`, `"ftp"`}:                                                      "listen[0].transport",
		{`"udp"`, `"tls"`}:                                                      "listen[0].cert",
		{`":5060"`, `"x"`}:                                                      "listen[0].address",
		{`["192.0.2.0/24"]`, `["192.0.2.0/33"]`}:                                "trunks[0].from[0]",
		{`["192.0.2.0/24"]`, `[]`}:                                              "trunks[0].from",
		{`"name":"a"`, `"name":""`}:                                             "trunks[0].name",
		{`"name":"a"`, `"name":"a","username":"x"`}:                             "trunks[0].password",
		{`"name":"a"`, `"name":"a","srtp":"maybe"`}:                             "trunks[0].srtp",
		{`"name":"a"`, `"name":"a","music":"pass"`}:                             `unknown field "music"`,
		{`"name":"a"`, `"name":"a","transfer":"hot"`}:                           "trunks[0].transfer",
		{`"name":"a"`, `"name":"a","transfer":"warm"`}:                          "trunks[0].transfer",
		{`"name":"a"`, `"name":"a","listen":true`}:                              "trunks[0].listen",
		{`"name":"a"`, `"name":"a","calls":-1`}:                                 "trunks[0].calls",
		{`"name":"a"`, `"name":"a","calls":"many"`}:                             "calls",
		{`"name":"a"`, `"name":"a","transferTo":["["]`}:                         "trunks[0].transferTo[0]",
		{`"name":"a"`, `"name":"a","outbound":{"server":"x"}`}:                  "trunks[0].outbound.server",
		{`"name":"a"`, `"name":"a","outbound":{"server":"sip:a;transport=ws"}`}: "trunks[0].outbound.server",
		{`"name":"a"`, `"name":"a","cals":1`}:                                   "cals",
		{`"name":"a"`, `"name":"${NO_SUCH_VARIABLE}"`}:                          "NO_SUCH_VARIABLE",
		{`"listen"`, `"rtp":{"ports":"9-8"},"listen"`}:                          "rtp.ports",
		{`"listen"`, `"external":"example.com:5060","listen"`}:                  "external",
		{`[{"transport":"udp","address":":5060"}]`, `[]`}:                       "listen",
		{`[{"name":"a","from":["192.0.2.0/24"]}]`, `[]`}:                        "trunks",
		{good, good + "{}"}:                                                     "unexpected data after the value",
		{`"listen"`, `"agents":[{"to":["*"]}],"listen"`}:                        `unknown field "agents"`,
	} {
		file := filepath.Join(t.TempDir(), "sip.json")
		if err := os.WriteFile(file, []byte(strings.Replace(good, change[0], change[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	file := filepath.Join(t.TempDir(), "sip.json")
	withPassword := strings.Replace(good, `"name":"a"`, `"name":"a","username":"x","password":"${SIP_SECRET}"`, 1)
	if err := os.WriteFile(file, []byte(withPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file)
	if err != nil || c.Trunks[0].Password != `se"cret` {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestEndReasons(t *testing.T) {
	for err, want := range map[error]string{nil: "cause=16", errSilence: "cause=102", errRefresh: "cause=102"} {
		if got := reasonHeader(err); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
	if got := reasonHeader(fmt.Errorf("x\r\ny")); strings.ContainsAny(got, "\r\n") {
		t.Errorf("%q", got)
	}
}

// A stranger's connection is closed after a while, unless it has a call.
func TestConnectionWithoutCallTimeout(t *testing.T) {
	for _, calls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			places := make(chan struct{}, 1)
			conn, err := connLimiter{&phone.Acceptor{Listener: &once{conn: ours}, Unverified: places}}.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if calls {
				conn.(*unverifiedConn).markVerified()
			}
			began := time.Now()
			time.AfterFunc(time.Minute, func() { theirs.Close() })
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes came", n)
			}
			if took := time.Since(began); took != map[bool]time.Duration{false: strangerTime, true: time.Minute}[calls] {
				t.Errorf("it has a call %v, and ends after %v", calls, took)
			}
			conn.Close()
			if len(places) > 0 {
				t.Error("it keeps its place")
			}
		})
	}
}

// once is a listener whose Accept always returns the same connection.
type once struct {
	net.Listener
	conn net.Conn
}

func (o *once) Accept() (net.Conn, error) { return o.conn, nil }
