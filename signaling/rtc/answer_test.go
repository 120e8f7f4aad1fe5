package rtc

import (
	"fmt"
	"strings"
	"testing"

	"voxgate/signaling/rtc/rtctest"
)

// Parts of offers, as clients write them.
const (
	offerHead = "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
	offerKeys = "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789abcdefghijklmn\r\na=setup:actpass\r\n" +
		"a=fingerprint:sha-256 7B:8B:F0:65:5F:78:E2:51:3B:AC:6F:F3:3F:46:1B:35:DC:B8:5F:64:1A:24:C2:43:F0:A1:58:D0:A1:2C:19:08\r\n"
	offerCandidate = "a=candidate:1 1 udp 2130706431 127.0.0.1 50000 typ host\r\na=end-of-candidates\r\n"
)

// sectionOf is a section of an offer with its transport: the m= line up to the protocol's formats, and more lines.
func sectionOf(line, mid string, lines ...string) string {
	if mid != "" {
		lines = append([]string{"a=mid:" + mid}, lines...)
	}
	return "m=" + line + "\r\nc=IN IP4 0.0.0.0\r\n" + offerKeys + strings.Join(append(lines, ""), "\r\n")
}

func audioOf(port, mid string, lines ...string) string {
	return sectionOf("audio "+port+" UDP/TLS/RTP/SAVPF 111 0", mid, append(lines, "a=rtcp-mux", "a=rtpmap:111 opus/48000/2",
		"a=rtpmap:0 PCMU/8000")...)
}

func videoOf(port, mid, codec string, lines ...string) string {
	return sectionOf("video "+port+" UDP/TLS/RTP/SAVPF 96", mid, append(lines, "a=rtcp-mux", "a=rtpmap:96 "+codec+"/90000")...)
}

func channelOf(port, mid string, lines ...string) string {
	return sectionOf("application "+port+" UDP/DTLS/SCTP webrtc-datachannel", mid, append(lines, "a=sctp-port:5000")...)
}

// firefoxBundleOnly is what Firefox offers with bundlePolicy "max-bundle" and a camera before the microphone.
var firefoxBundleOnly = offerHead + "a=group:BUNDLE 0 1 2\r\na=ice-options:trickle\r\n" +
	videoOf("9", "0", "VP8", "a=sendrecv") + offerCandidate +
	"m=audio 0 UDP/TLS/RTP/SAVPF 109\r\nc=IN IP4 0.0.0.0\r\na=bundle-only\r\na=sendrecv\r\na=mid:1\r\na=rtcp-mux\r\n" +
	"a=rtpmap:109 opus/48000/2\r\n" +
	"m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=bundle-only\r\na=sendrecv\r\na=mid:2\r\na=sctp-port:5000\r\n"

// oddOffers are offers of every shape that is served, by name, and how their sections are answered: "+" accepted, "-" refused.
var oddOffers = []struct{ name, want, offer string }{
	{"Firefox, bundle-only", "+++", firefoxBundleOnly},
	{"bundle-only outside of a group", "-+", offerHead + "a=group:BUNDLE 1\r\n" + audioOf("0", "0", "a=bundle-only") + audioOf("9", "1")},
	{"bundle-only and no group", "-+", offerHead + audioOf("0", "", "a=bundle-only") + audioOf("9", "")},
	{"bundle-only with a port", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + channelOf("9", "1", "a=bundle-only")},
	{"a camera of H.264 first", "-++", offerHead + "a=group:BUNDLE 0 1 2\r\n" +
		videoOf("9", "0", "H264") + offerCandidate + audioOf("9", "1") + channelOf("9", "2")},
	{"the transport with a refused section", "-+", offerHead + "a=group:BUNDLE 0 1\r\n" + videoOf("9", "0", "H264") + offerCandidate +
		"m=audio 0 UDP/TLS/RTP/SAVPF 111\r\na=bundle-only\r\na=mid:1\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n"},
	{"the tag is the second section", "++", offerHead + "a=group:BUNDLE 1 0\r\n" + audioOf("9", "0") + channelOf("9", "1") + offerCandidate},
	{"no group", "+--", offerHead + audioOf("9", "0") + videoOf("9", "1", "VP8") + channelOf("9", "2")},
	{"no group, sound last", "--+", offerHead + channelOf("9", "0") + videoOf("9", "1", "VP8") + audioOf("9", "2")},
	{"no group, sound alone", "+", offerHead + audioOf("9", "audio")},
	{"no group, a channel alone", "+", offerHead + channelOf("9", "0")},
	{"a group of lip sync alone", "+-", offerHead + "a=group:LS 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8")},
	{"two groups", "-+-+", offerHead + "a=group:BUNDLE 0 2\r\na=group:BUNDLE 1 3\r\n" +
		channelOf("9", "0") + audioOf("9", "1") + videoOf("9", "2", "VP8") + channelOf("9", "3")},
	{"a section outside of the group", "+-+", offerHead + "a=group:BUNDLE 0 2\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8") +
		channelOf("9", "2")},
	{"a group with unknown mids", "++", offerHead + "a=group:BUNDLE 7 0 1 1 8\r\n" + audioOf("9", "0") + channelOf("9", "1")},
	{"no mid", "+", offerHead + audioOf("9", "")},
	{"no mid and a channel", "+-", offerHead + audioOf("9", "") + channelOf("9", "")},
	{"an empty mid", "+", offerHead + audioOf("9", "", "a=mid:")},
	{"a mid that looks like ours", "-+", offerHead + "a=group:BUNDLE 0\r\n" + channelOf("9", "") + audioOf("9", "0")},
	{"long and odd mids", "++", offerHead + "a=group:BUNDLE audio-mid_1 {2}\r\n" + audioOf("9", "audio-mid_1") + channelOf("9", "{2}")},
	{"a stopped section first", "-+", offerHead + "a=group:BUNDLE 1\r\n" + audioOf("0", "0", "a=inactive") + audioOf("9", "1")},
	{"a stopped section in the group", "-+", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("0", "0") + audioOf("9", "1")},
	{"a stopped channel", "+-", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + channelOf("0", "1")},
	{"a stopped camera", "+-", offerHead + "a=group:BUNDLE 0\r\n" + audioOf("9", "0") + videoOf("0", "1", "VP8")},
	{"simulcast", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8", "a=sendonly", "a=msid:a b",
		"a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid", "a=extmap:10 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
		"a=rid:h send", "a=rid:l send", "a=simulcast:send h;~l")},
	{"simulcast of old", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8", "a=sendonly",
		"a=ssrc-group:SIM 1 2 3", "a=ssrc:1 cname:a", "a=ssrc:2 cname:a", "a=ssrc:3 cname:a")},
	{"a lone rid", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8", "a=sendonly", "a=rid:h send")},
	{"simulcast with what repairs it", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8",
		"a=sendonly",
		"a=ssrc-group:FID 1 2", "a=ssrc:1 cname:a", "a=ssrc:2 cname:a")},
	{"no direction", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8")},
	{"a direction of the session", "++", offerHead + "a=sendonly\r\na=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8")},
	{"an overridden direction of the session", "+", offerHead + "a=inactive\r\n" + audioOf("9", "0", "a=sendrecv")},
	{"PCMU/8000/1", "+", offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF 0", "0", "a=rtcp-mux", "a=rtpmap:0 PCMU/8000/1")},
	{"pcma/8000/1 by another type", "+", offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF 97", "0", "a=rtcp-mux",
		"a=rtpmap:97  pcma/8000/1 ")},
	{"a static type without a name", "+", offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF 8", "0", "a=rtcp-mux")},
	{"OPUS in capitals", "+", offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF 120", "0", "a=rtcp-mux", "a=rtpmap:120 OPUS/48000/2")},
	{"types that are no numbers", "+", offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF x 300 111", "0", "a=rtpmap:300 opus/48000/2",
		"a=rtpmap:111 opus/48000/2")},
	{"no rtcp-mux", "+", offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF 111", "0", "a=rtpmap:111 opus/48000/2")},
	{"RED", "+", offerHead + audioOf("9", "0", "a=rtpmap:63 red/48000/2", "a=fmtp:63 111/111")},
	{"RED among the formats", "+", offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF 111 63", "0", "a=rtcp-mux", "a=rtpmap:111 opus/48000/2",
		"a=fmtp:111 minptime=10;useinbandfec=1", "a=rtcp-fb:* nack", "a=rtcp-fb:111 transport-cc", "a=rtpmap:63 red/48000/2",
		"a=fmtp:63 111/111")},
	{"line feeds alone", "++", strings.ReplaceAll(offerHead+"a=group:BUNDLE 0 1\r\n"+audioOf("9", "0")+channelOf("9", "1"), "\r\n", "\n")},
	{"carriage returns alone", "+", strings.ReplaceAll(offerHead+audioOf("9", "0"), "\r\n", "\r")},
	{"empty lines and spaces", "+", "\ufeff" + strings.ReplaceAll(offerHead+audioOf("9", "0"), "\r\n", "  \r\n\r\n ")},
	{"no last line end", "+", strings.TrimSpace(offerHead + audioOf("9", "0"))},
	{"attributes before the connection", "+", offerHead +
		"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=rtpmap:111 opus/48000/2\r\nb=AS:64\r\nc=IN IP4 0.0.0.0\r\ni=x\r\n" + offerKeys},
	{"no origin and no time", "+", "v=0\r\ns=-\r\n" + audioOf("9", "0")},
	{"the transport at the session", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + offerKeys + strings.ReplaceAll(audioOf("9",
		"0")+channelOf("9", "1"), offerKeys, "")},
	{"the transport at the tag alone", "++", offerHead + "a=group:BUNDLE 1 0\r\n" + strings.ReplaceAll(audioOf("9", "0"), offerKeys, "") +
		channelOf("9", "1")},
	{"three fingerprints", "+", offerHead + audioOf("9", "0", "a=fingerprint:md5 00:11", "a=fingerprint:sha-1 00:11")},
	{"setup active", "+", offerHead + strings.ReplaceAll(audioOf("9", "0"), "actpass", "active")},
	{"setup passive", "+", offerHead + strings.ReplaceAll(audioOf("9", "0"), "actpass", "passive")},
	{"setup passive and ICE lite", "+", offerHead + "a=ice-lite\r\n" + strings.ReplaceAll(audioOf("9", "0"), "actpass", "passive")},
	{"setup actpass and ICE lite", "+", offerHead + "a=ice-lite\r\n" + audioOf("9", "0")},
	{"no setup", "+", offerHead + strings.ReplaceAll(audioOf("9", "0"), "a=setup:actpass\r\n", "")},
	{"unreadable candidates", "+", offerHead + audioOf("9", "0") + "a=candidate:x\r\na=candidate:1 1 foo 1 1.2.3.4 1 typ host\r\n"},
	{"a channel of before", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") +
		sectionOf("application 9 DTLS/SCTP 5000", "1", "a=sctpmap:5000 webrtc-datachannel 1024")},
	{"a channel over TCP", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") +
		sectionOf("application 9 TCP/DTLS/SCTP webrtc-datachannel", "1", "a=sctp-port:5000")},
	{"two channels", "++-", offerHead + "a=group:BUNDLE 0 1 2\r\n" + audioOf("9", "0") + channelOf("9", "1") + channelOf("9", "2")},
	{"other kinds", "-+--", offerHead + "a=group:BUNDLE 0 1 2 3\r\n" + sectionOf("text 9 UDP/TLS/RTP/SAVPF 98", "0") + audioOf("9", "1") +
		sectionOf("message 9 TCP/MSRP *", "2") + sectionOf("application 9 UDP/BFCP *", "3")},
	{"another profile", "+", offerHead + strings.ReplaceAll(audioOf("9", "0"), "UDP/TLS/RTP/SAVPF", "RTP/SAVPF")},
	{"two microphones", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0", "a=sendonly") + audioOf("9", "1", "a=recvonly")},
	{"an ear and a microphone", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0", "a=recvonly") + audioOf("9", "1",
		"a=sendonly")},
	{"two codecs in two sections", "+-", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") +
		sectionOf("audio 9 UDP/TLS/RTP/SAVPF 8", "1", "a=rtcp-mux")},
	{"one codec by two types", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") +
		sectionOf("audio 9 UDP/TLS/RTP/SAVPF 96", "1", "a=rtcp-mux", "a=rtpmap:96 opus/48000/2")},
	{"one type for two codecs", "+-", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") +
		sectionOf("video 9 UDP/TLS/RTP/SAVPF 111", "1", "a=rtcp-mux", "a=rtpmap:111 VP8/90000")},
	{"an extension under two numbers", "++", offerHead + "a=group:BUNDLE 0 1\r\n" +
		audioOf("9", "0", "a=extmap:3 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01") +
		videoOf("9", "1", "VP8", "a=extmap:5 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01")},
	{"an extension one way", "+", offerHead + audioOf("9", "0", "a=extmap-allow-mixed",
		"a=extmap:3/sendonly http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01")},
	{"a camera that is off", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8", "a=inactive")},
	{"a camera that only shows", "++", offerHead + "a=group:BUNDLE 0 1\r\n" + audioOf("9", "0") + videoOf("9", "1", "VP8", "a=recvonly")},
	{"twelve microphones", "++++++++----", func() string {
		group, sections := "a=group:BUNDLE", ""
		for i := range 12 {
			group += fmt.Sprint(" ", i)
			sections += audioOf("9", fmt.Sprint(i))
		}
		return offerHead + group + "\r\n" + sections
	}()},
}

// TestAnswersKeepTheRules has each offer answered as RFC 3264, 8829 and 9143 say, whatever its shape, and its sections taken as wanted.
func TestAnswersKeepTheRules(t *testing.T) {
	for _, c := range oddOffers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, answer, _ := answered(t, &conversation{}, c.offer)
			if err := rtctest.CheckAnswer(c.offer, answer); err != nil {
				t.Errorf("%v\n%s", err, answer)
			}
			got := ""
			for line := range strings.Lines(answer) {
				if strings.HasPrefix(line, "m=") {
					got += map[bool]string{true: "-", false: "+"}[strings.Fields(line)[1] == "0"]
				}
			}
			if got != c.want {
				t.Errorf("the sections are answered %s, want %s\n%s", got, c.want, answer)
			}
		})
	}
}

// TestOffersThatCannotBeServed has each refused in words before there is an answer.
func TestOffersThatCannotBeServed(t *testing.T) {
	for name, offer := range map[string]string{
		"empty":              "",
		"no SDP":             "hello",
		"no section":         offerHead,
		"a broken section":   offerHead + "m=audio\r\n",
		"a port of letters":  offerHead + "m=audio x UDP/TLS/RTP/SAVPF 0\r\n",
		"two equal mids":     offerHead + "a=group:BUNDLE 0\r\n" + audioOf("9", "0") + channelOf("9", "0"),
		"no codec":           offerHead + sectionOf("audio 9 UDP/TLS/RTP/SAVPF 9", "0"),
		"a camera of H.264":  offerHead + videoOf("9", "0", "H264"),
		"text":               offerHead + sectionOf("text 9 UDP/TLS/RTP/SAVPF 98", "0"),
		"no fingerprint":     offerHead + "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=ice-ufrag:a\r\na=ice-pwd:b\r\n",
		"no ICE":             offerHead + "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=fingerprint:sha-256 00:11\r\n",
		"everything stopped": offerHead + audioOf("0", "0"),
		"no RTP":             offerHead + strings.ReplaceAll(audioOf("9", "0"), "UDP/TLS/RTP/SAVPF", "udp"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := ParseOffer(offer)
			if err == nil {
				api := sealed(t)
				_, err = newSealedPeer(t, api).Answer(o)
			}
			if err == nil {
				t.Fatal("it is answered")
			}
			refusedInWords(t, err)
		})
	}
}
