package whip

import (
	"strings"
	"testing"

	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

func TestLinkHeaders(t *testing.T) {
	got := append(
		formatLinks(signaling.ICEServer{URLs: []string{"stun:a"}}),
		formatLinks(signaling.ICEServer{URLs: []string{"turn:b?transport=udp"}, Username: "u", Credential: "c"})...)
	want := `<stun:a>; rel="ice-server"|<turn:b?transport=udp>; rel="ice-server"; username="u"; credential="c"; credential-type="password"`
	if strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}

const offer = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=fingerprint:sha-256 00\r\n" +
	"a=ice-ufrag:old\r\na=ice-pwd:oldpasswordoldpasswordold\r\n" +
	"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=rtpmap:111 opus/48000/2\r\n" +
	"a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\na=sendrecv\r\n"

// FuzzParseFragment builds an offer from an offer and a fragment: it has only the ICE data of the fragment.
func FuzzParseFragment(f *testing.F) {
	f.Add(
		"a=ice-ufrag:new\r\na=ice-pwd:new\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n" +
			"a=candidate:1 1 udp 1 192.0.2.7 9 typ host\r\na=end-of-candidates\r\n",
	)
	f.Add("a=ice-ufrag:x")
	f.Add("a=candidate:\n\r\x00")
	f.Fuzz(func(t *testing.T, text string) {
		part, err := parseFragment(text)
		if err != nil {
			return
		}
		again := withICECredentials(offer, part)
		if got := sdpAttribute(again, "ice-ufrag"); got != strings.TrimSpace(part.ufrag) ||
			strings.Contains(again, "192.0.2.1 ") && !strings.Contains(text, "192.0.2.1 ") {
			t.Errorf("became %q", again)
		}
		_, _ = rtc.ParseOffer(again)
	})
}
