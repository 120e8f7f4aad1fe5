package rtctest

import (
	"fmt"
	"strings"
)

// Parts of offers, as clients write them.
const (
	OfferHead = "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
	offerKeys = "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789abcdefghijklmn\r\na=setup:actpass\r\n" +
		"a=fingerprint:sha-256 7B:8B:F0:65:5F:78:E2:51:3B:AC:6F:F3:3F:46:1B:35:DC:B8:5F:64:1A:24:C2:43:F0:A1:58:D0:A1:2C:19:08\r\n"
	offerCandidate = "a=candidate:1 1 udp 2130706431 127.0.0.1 50000 typ host\r\na=end-of-candidates\r\n"
)

// Section returns a section of an offer with its transport. line is the m= line without "m=". If mid is empty, the
// section has no a=mid.
func Section(line, mid string, lines ...string) string {
	if mid != "" {
		lines = append([]string{"a=mid:" + mid}, lines...)
	}
	return "m=" + line + "\r\nc=IN IP4 0.0.0.0\r\n" + offerKeys + strings.Join(append(lines, ""), "\r\n")
}

// Audio returns an audio section with Opus and PCMU.
func Audio(port, mid string, lines ...string) string {
	return Section("audio "+port+" UDP/TLS/RTP/SAVPF 111 0", mid, append(lines, "a=rtcp-mux", "a=rtpmap:111 opus/48000/2",
		"a=rtpmap:0 PCMU/8000")...)
}

// Video returns a video section with one codec.
func Video(port, mid, codec string, lines ...string) string {
	return Section("video "+port+" UDP/TLS/RTP/SAVPF 96", mid, append(lines, "a=rtcp-mux", "a=rtpmap:96 "+codec+"/90000")...)
}

// DataChannel returns a section for data channels.
func DataChannel(port, mid string, lines ...string) string {
	return Section("application "+port+" UDP/DTLS/SCTP webrtc-datachannel", mid, append(lines, "a=sctp-port:5000")...)
}

// firefoxBundleOnly is Firefox's offer with bundlePolicy "max-bundle" and a camera before the microphone.
var firefoxBundleOnly = OfferHead + "a=group:BUNDLE 0 1 2\r\na=ice-options:trickle\r\n" +
	Video("9", "0", "VP8", "a=sendrecv") + offerCandidate +
	"m=audio 0 UDP/TLS/RTP/SAVPF 109\r\nc=IN IP4 0.0.0.0\r\na=bundle-only\r\na=sendrecv\r\na=mid:1\r\na=rtcp-mux\r\n" +
	"a=rtpmap:109 opus/48000/2\r\n" +
	"m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=bundle-only\r\na=sendrecv\r\na=mid:2\r\na=sctp-port:5000\r\n"

// OddOffer is an unusual offer. Want has a character for each section of the expected answer: "+" for accepted, "-" for
// rejected.
type OddOffer struct{ Name, Want, Offer string }

// OddOffers has an example of every supported shape of offers.
var OddOffers = []OddOffer{
	{"Firefox, bundle-only", "+++", firefoxBundleOnly},
	{"bundle-only outside of a group", "-+", OfferHead + "a=group:BUNDLE 1\r\n" + Audio("0", "0", "a=bundle-only") + Audio("9", "1")},
	{"bundle-only and no group", "-+", OfferHead + Audio("0", "", "a=bundle-only") + Audio("9", "")},
	{"bundle-only with a port", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + DataChannel("9", "1", "a=bundle-only")},
	{"a camera of H.264 first", "-++", OfferHead + "a=group:BUNDLE 0 1 2\r\n" +
		Video("9", "0", "H264") + offerCandidate + Audio("9", "1") + DataChannel("9", "2")},
	{"the transport with a refused section", "-+", OfferHead + "a=group:BUNDLE 0 1\r\n" + Video("9", "0", "H264") + offerCandidate +
		"m=audio 0 UDP/TLS/RTP/SAVPF 111\r\na=bundle-only\r\na=mid:1\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n"},
	{"the tag is the second section", "++", OfferHead + "a=group:BUNDLE 1 0\r\n" + Audio("9", "0") + DataChannel("9", "1") + offerCandidate},
	{"no group", "+--", OfferHead + Audio("9", "0") + Video("9", "1", "VP8") + DataChannel("9", "2")},
	{"no group, sound last", "--+", OfferHead + DataChannel("9", "0") + Video("9", "1", "VP8") + Audio("9", "2")},
	{"no group, sound alone", "+", OfferHead + Audio("9", "audio")},
	{"no group, a channel alone", "+", OfferHead + DataChannel("9", "0")},
	{"a group of lip sync alone", "+-", OfferHead + "a=group:LS 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8")},
	{"two groups", "-+-+", OfferHead + "a=group:BUNDLE 0 2\r\na=group:BUNDLE 1 3\r\n" +
		DataChannel("9", "0") + Audio("9", "1") + Video("9", "2", "VP8") + DataChannel("9", "3")},
	{"a section outside of the group", "+-+", OfferHead + "a=group:BUNDLE 0 2\r\n" + Audio("9", "0") + Video("9", "1", "VP8") +
		DataChannel("9", "2")},
	{"a group with unknown mids", "++", OfferHead + "a=group:BUNDLE 7 0 1 1 8\r\n" + Audio("9", "0") + DataChannel("9", "1")},
	{"no mid", "+", OfferHead + Audio("9", "")},
	{"no mid and a channel", "+-", OfferHead + Audio("9", "") + DataChannel("9", "")},
	{"an empty mid", "+", OfferHead + Audio("9", "", "a=mid:")},
	{"a mid that looks like ours", "-+", OfferHead + "a=group:BUNDLE 0\r\n" + DataChannel("9", "") + Audio("9", "0")},
	{"long and odd mids", "++", OfferHead + "a=group:BUNDLE audio-mid_1 {2}\r\n" + Audio("9", "audio-mid_1") + DataChannel("9", "{2}")},
	{"a stopped section first", "-+", OfferHead + "a=group:BUNDLE 1\r\n" + Audio("0", "0", "a=inactive") + Audio("9", "1")},
	{"a stopped section in the group", "-+", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("0", "0") + Audio("9", "1")},
	{"a stopped channel", "+-", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + DataChannel("0", "1")},
	{"a stopped camera", "+-", OfferHead + "a=group:BUNDLE 0\r\n" + Audio("9", "0") + Video("0", "1", "VP8")},
	{"simulcast", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8", "a=sendonly", "a=msid:a b",
		"a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid", "a=extmap:10 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
		"a=rid:h send", "a=rid:l send", "a=simulcast:send h;~l")},
	{"simulcast of old", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8", "a=sendonly",
		"a=ssrc-group:SIM 1 2 3", "a=ssrc:1 cname:a", "a=ssrc:2 cname:a", "a=ssrc:3 cname:a")},
	{"a lone rid", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8", "a=sendonly", "a=rid:h send")},
	{"simulcast with what repairs it", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8",
		"a=sendonly",
		"a=ssrc-group:FID 1 2", "a=ssrc:1 cname:a", "a=ssrc:2 cname:a")},
	{"no direction", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8")},
	{"a direction of the session", "++", OfferHead + "a=sendonly\r\na=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8")},
	{"an overridden direction of the session", "+", OfferHead + "a=inactive\r\n" + Audio("9", "0", "a=sendrecv")},
	{"PCMU/8000/1", "+", OfferHead + Section("audio 9 UDP/TLS/RTP/SAVPF 0", "0", "a=rtcp-mux", "a=rtpmap:0 PCMU/8000/1")},
	{"pcma/8000/1 by another type", "+", OfferHead + Section("audio 9 UDP/TLS/RTP/SAVPF 97", "0", "a=rtcp-mux",
		"a=rtpmap:97  pcma/8000/1 ")},
	{"a static type without a name", "+", OfferHead + Section("audio 9 UDP/TLS/RTP/SAVPF 8", "0", "a=rtcp-mux")},
	{"OPUS in capitals", "+", OfferHead + Section("audio 9 UDP/TLS/RTP/SAVPF 120", "0", "a=rtcp-mux", "a=rtpmap:120 OPUS/48000/2")},
	{"types that are no numbers", "+", OfferHead + Section("audio 9 UDP/TLS/RTP/SAVPF x 300 111", "0", "a=rtpmap:300 opus/48000/2",
		"a=rtpmap:111 opus/48000/2")},
	{"no rtcp-mux", "+", OfferHead + Section("audio 9 UDP/TLS/RTP/SAVPF 111", "0", "a=rtpmap:111 opus/48000/2")},
	{"RED", "+", OfferHead + Audio("9", "0", "a=rtpmap:63 red/48000/2", "a=fmtp:63 111/111")},
	{"RED among the formats", "+", OfferHead + Section("audio 9 UDP/TLS/RTP/SAVPF 111 63", "0", "a=rtcp-mux", "a=rtpmap:111 opus/48000/2",
		"a=fmtp:111 minptime=10;useinbandfec=1", "a=rtcp-fb:* nack", "a=rtcp-fb:111 transport-cc", "a=rtpmap:63 red/48000/2",
		"a=fmtp:63 111/111")},
	{"line feeds alone", "++", strings.ReplaceAll(OfferHead+"a=group:BUNDLE 0 1\r\n"+Audio("9", "0")+DataChannel("9", "1"), "\r\n", "\n")},
	{"carriage returns alone", "+", strings.ReplaceAll(OfferHead+Audio("9", "0"), "\r\n", "\r")},
	{"empty lines and spaces", "+", "\ufeff" + strings.ReplaceAll(OfferHead+Audio("9", "0"), "\r\n", "  \r\n\r\n ")},
	{"no last line end", "+", strings.TrimSpace(OfferHead + Audio("9", "0"))},
	{"attributes before the connection", "+", OfferHead +
		"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=rtpmap:111 opus/48000/2\r\nb=AS:64\r\nc=IN IP4 0.0.0.0\r\ni=x\r\n" + offerKeys},
	{"no origin and no time", "+", "v=0\r\ns=-\r\n" + Audio("9", "0")},
	{"the transport at the session", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + offerKeys + strings.ReplaceAll(Audio("9",
		"0")+DataChannel("9", "1"), offerKeys, "")},
	{"the transport at the tag alone", "++", OfferHead + "a=group:BUNDLE 1 0\r\n" + strings.ReplaceAll(Audio("9", "0"), offerKeys, "") +
		DataChannel("9", "1")},
	{"three fingerprints", "+", OfferHead + Audio("9", "0", "a=fingerprint:md5 00:11", "a=fingerprint:sha-1 00:11")},
	{"setup active", "+", OfferHead + strings.ReplaceAll(Audio("9", "0"), "actpass", "active")},
	{"setup passive", "+", OfferHead + strings.ReplaceAll(Audio("9", "0"), "actpass", "passive")},
	{"setup passive and ICE lite", "+", OfferHead + "a=ice-lite\r\n" + strings.ReplaceAll(Audio("9", "0"), "actpass", "passive")},
	{"setup actpass and ICE lite", "+", OfferHead + "a=ice-lite\r\n" + Audio("9", "0")},
	{"no setup", "+", OfferHead + strings.ReplaceAll(Audio("9", "0"), "a=setup:actpass\r\n", "")},
	{"unreadable candidates", "+", OfferHead + Audio("9", "0") + "a=candidate:x\r\na=candidate:1 1 foo 1 1.2.3.4 1 typ host\r\n"},
	{"a channel of before", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") +
		Section("application 9 DTLS/SCTP 5000", "1", "a=sctpmap:5000 webrtc-datachannel 1024")},
	{"a channel over TCP", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") +
		Section("application 9 TCP/DTLS/SCTP webrtc-datachannel", "1", "a=sctp-port:5000")},
	{"two channels", "++-", OfferHead + "a=group:BUNDLE 0 1 2\r\n" + Audio("9", "0") + DataChannel("9", "1") + DataChannel("9", "2")},
	{"other kinds", "-+--", OfferHead + "a=group:BUNDLE 0 1 2 3\r\n" + Section("text 9 UDP/TLS/RTP/SAVPF 98", "0") + Audio("9", "1") +
		Section("message 9 TCP/MSRP *", "2") + Section("application 9 UDP/BFCP *", "3")},
	{"another profile", "+", OfferHead + strings.ReplaceAll(Audio("9", "0"), "UDP/TLS/RTP/SAVPF", "RTP/SAVPF")},
	{"two microphones", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0", "a=sendonly") + Audio("9", "1", "a=recvonly")},
	{"an ear and a microphone", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0", "a=recvonly") + Audio("9", "1",
		"a=sendonly")},
	{"two codecs in two sections", "+-", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") +
		Section("audio 9 UDP/TLS/RTP/SAVPF 8", "1", "a=rtcp-mux")},
	{"one codec by two types", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") +
		Section("audio 9 UDP/TLS/RTP/SAVPF 96", "1", "a=rtcp-mux", "a=rtpmap:96 opus/48000/2")},
	{"one type for two codecs", "+-", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") +
		Section("video 9 UDP/TLS/RTP/SAVPF 111", "1", "a=rtcp-mux", "a=rtpmap:111 VP8/90000")},
	{"an extension under two numbers", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" +
		Audio("9", "0", "a=extmap:3 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01") +
		Video("9", "1", "VP8", "a=extmap:5 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01")},
	{"an extension one way", "+", OfferHead + Audio("9", "0", "a=extmap-allow-mixed",
		"a=extmap:3/sendonly http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01")},
	{"a camera that is off", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8", "a=inactive")},
	{"a camera that only shows", "++", OfferHead + "a=group:BUNDLE 0 1\r\n" + Audio("9", "0") + Video("9", "1", "VP8", "a=recvonly")},
	{"twelve microphones", "++++++++----", func() string {
		group, sections := "a=group:BUNDLE", ""
		for i := range 12 {
			group += fmt.Sprint(" ", i)
			sections += Audio("9", fmt.Sprint(i))
		}
		return OfferHead + group + "\r\n" + sections
	}()},
}
