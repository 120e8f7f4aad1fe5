package media

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

const full = "v=0\r\no=a 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n" +
	"m=audio 4000 RTP/SAVP 8 0 101\r\na=rtpmap:101 telephone-event/8000\r\n" +
	"a=crypto:3 AES_CM_128_HMAC_SHA1_80 inline:MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw|2^20|1:4\r\n" +
	"m=video 5000 RTP/AVP 31\r\n"

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
		answer := d.buildAnswer(local{address: netip.MustParseAddr("192.0.2.9"), port: 4002}, s)
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
	answer := string(d.buildAnswer(local{address: netip.MustParseAddr("192.0.2.9"), port: 4002}, s))
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
