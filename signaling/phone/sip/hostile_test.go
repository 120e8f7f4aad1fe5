package sip_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// inviteText returns an INVITE with these headers and body.
func inviteText(from string, headers, body string) string {
	return "INVITE sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP " + from + ";branch=z9hG4bK" + fmt.Sprint(
		len(headers)+len(body),
	) + "x;rport\r\n" + headers +
		"Content-Length: " + fmt.Sprint(
		len(body),
	) + "\r\n\r\n" + body
}

// usualHeaders are the headers of a valid INVITE.
const usualHeaders = "From: <sip:eve@127.0.0.1>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: a%s\r\nCSeq: 1 INVITE\r\n" +
	"Contact: <sip:ada@127.0.0.1>\r\nContent-Type: application/sdp\r\n"

// hostilePackets returns packets that crash other gateways, and typical input of fuzzers.
func hostilePackets(from string) map[string]string {
	with := func(id, body string) string { return inviteText(from, fmt.Sprintf(usualHeaders, id), body) }
	list := map[string]string{
		"nothing":    "",
		"zeros":      strings.Repeat("\x00", 100),
		"text":       "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"no headers": "INVITE sip:500@127.0.0.1 SIP/2.0\r\n\r\n",
		"no From":    inviteText(from, "To: <sip:500@127.0.0.1>\r\nCall-ID: b\r\nCSeq: 1 INVITE\r\n", ""),
		"no To":      inviteText(from, "From: <sip:a@b>;tag=1\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\n", ""),
		"no Call-ID": inviteText(from, "From: <sip:a@b>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCSeq: 1 INVITE\r\n", ""),
		"no CSeq":    inviteText(from, "From: <sip:a@b>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: d\r\n", ""),
		"no tag":     inviteText(from, "From: <sip:a@b>\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: e\r\nCSeq: 1 INVITE\r\n", ""),
		"no Contact": inviteText(from, "From: <sip:a@b>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: f\r\nCSeq: 1 INVITE\r\n", "v=0\r\n"),
		"a star for a URI": inviteText(
			from,
			strings.Replace(fmt.Sprintf(usualHeaders, "g"), "<sip:ada@127.0.0.1>\r\nContent", "*\r\nContent", 1),
			"",
		),
		"a huge CSeq":       inviteText(from, strings.Replace(fmt.Sprintf(usualHeaders, "h"), "1 INVITE", "99999999999999999999 INVITE", 1), ""),
		"a negative length": "INVITE sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP " + from + ";branch=z9hG4bKi\r\nContent-Length: -1\r\n\r\n",
		"a bad body":        with("j", "v=0\nbroken"),
		"a bare LF":         with("k", "v=0\r\n\r\nm=audio"),
		"c= of nothing":     with("l", "v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nc=IN IP4\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n"),
		"rtpmap twice": with(
			"m",
			"v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"+
				"m=audio 9 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:0 PCMU/8000\r\n",
		),
		"port 0":           with("n", "v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n"),
		"a name for an IP": with("o", "v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nc=IN IP4 example.com\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n"),
		"a long body":      with("p", strings.Repeat("a=x\r\n", 8000)),
		"a key too short": with(
			"q",
			"v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"+
				"m=audio 9 RTP/SAVP 0\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:AAAA\r\n",
		),
		"bad Authorization": inviteText(from, fmt.Sprintf(usualHeaders, "r")+"Authorization: Digest username=\"\r\n", ""),
		"bad Route": inviteText(from,
			fmt.Sprintf(usualHeaders, "s")+"Record-Route: <sip:\r\nSession-Expires: x;y=\r\nRequire: ,\r\n", ""),
	}
	for _, method := range []string{
		"ACK", "BYE", "CANCEL", "OPTIONS", "INFO", "UPDATE", "NOTIFY", "REFER", "PRACK", "REGISTER", "MESSAGE", "NONSENSE",
	} {
		head := method + " sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP " + from + ";branch=z9hG4bK" + method + "\r\n"
		list[method+" of nothing"] = head + "\r\n"
		head += "From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\nCSeq: 1 " + method + "\r\n"
		list[method+" of nobody"] = head + "Call-ID: x" + method + "\r\nContent-Length: 0\r\n\r\n"
		list[method+" with a body"] = head + "Call-ID: y" + method + "\r\nContent-Length: 9\r\n\r\nSIP/2.0 2"
	}
	return list
}

// After any malformed input the next call is answered. Nothing crashes, and no conversation begins.
func TestHostilePackets(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	for _, network := range []string{"udp", "tcp"} {
		at := o.server.Addresses()[map[string]int{"udp": 0, "tcp": 1}[network]]
		for name, packet := range hostilePackets("127.0.0.1:9") {
			conn, err := net.Dial(network, at.String())
			if err != nil {
				t.Fatalf("after %s: %v", name, err)
			}
			_, err = conn.Write([]byte(packet))
			conn.Close()
			if err != nil && network == "udp" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	call(sdp("[media_ip]", "sendrecv", plain)).pause(300).bye(2).run(t, o)
	o.awaitLog("conversation started")
	if log := o.logs.String(); strings.Contains(log, "panic") || strings.Count(log, "conversation started") != 1 {
		t.Error("something crashed, or a stranger's packet has begun a conversation")
	}
}

// Media from a peer without an agreement is ignored, and does not end the call.
func TestHostileMedia(t *testing.T) {
	t.Parallel()
	o := startGateway(t, configWith(t, func(c map[string]any) { c["rtp"] = map[string]any{"address": "127.0.0.1"} }))
	p := newBaresip(t, "audio_codecs=PCMU/8000/1")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	o.awaitSession()
	port := o.audioPort()
	for _, to := range []int{port, port + 1} {
		conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", to))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, packet := range []string{
			"",
			"x",
			strings.Repeat("\x80", 12),
			strings.Repeat("\xff", 1400),
			"\x80\x00" + strings.Repeat("\x01", 170),
			"\x80\xc8\x00\x06" + strings.Repeat("\x00", 24),
			"\x9f\x00\x00\x01" + strings.Repeat("\x02", 9),
		} {
			if _, err := conn.Write([]byte(packet)); err != nil {
				t.Log(err) // the port of reports may be closed by now
			}
		}
	}
	o.awaitTurns(1)
	p.runCommand("hangup", "")
	p.awaitEvent("CALL_CLOSED")
}

// A stranger that belongs to no trunk gets no response.
func TestNoResponseToStrangers(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{
		"from": []string{"192.0.2.0/24"}, "outbound": map[string]any{"server": "sip:192.0.2.1", "from": "1"}, // answers may come from anywhere
	}))
	conn, err := net.Dial("udp", o.server.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, packet := range []string{
		inviteText(conn.LocalAddr().String(), fmt.Sprintf(usualHeaders, "z"), ""),
		"OPTIONS sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKzz;rport\r\n" +
			"From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: zz\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n",
		hostilePackets(conn.LocalAddr().String())["BYE of nobody"], hostilePackets(conn.LocalAddr().String())["REGISTER of nobody"],
		hostilePackets(conn.LocalAddr().String())["CANCEL of nobody"],
	} {
		if _, err := conn.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
	}
	conn.SetReadDeadline(time.Now().Add(time.Second))
	if n, err := conn.Read(make([]byte, 2000)); err == nil {
		t.Errorf("answered with %d bytes", n)
	}
	if len(o.host.Sessions()) > 0 {
		t.Error("a stranger talks")
	}
	o.awaitLog("no trunk has this address")
}

// Packets from an address that cannot be a trunk's are not parsed. They are logged, but not each of them.
func TestScannersAreLogged(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"from": []string{"192.0.2.0/24"}}))
	conn, err := net.Dial("udp", o.server.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 100 {
		if _, err := conn.Write([]byte("OPTIONS")); err != nil {
			t.Fatal(err)
		}
	}
	o.awaitLogTimes("packet dropped", 3)
	if _, err := conn.Write([]byte("OPTIONS")); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(o.logs.String(), "packet dropped"); n > 4 {
		t.Errorf("%d lines", n)
	}
}
