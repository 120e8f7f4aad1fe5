package rtc

import (
	"strings"
	"testing"

	"voxgate/signaling/rtc/rtctest"
)

// TestAnswersKeepTheRules has each offer answered as RFC 3264, 8829 and 9143 say, whatever its shape, and its sections taken as wanted.
func TestAnswersKeepTheRules(t *testing.T) {
	for _, c := range rtctest.OddOffers {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			_, answer, _ := answered(t, &conversation{}, c.Offer)
			if err := rtctest.CheckAnswer(c.Offer, answer); err != nil {
				t.Errorf("%v\n%s", err, answer)
			}
			got := ""
			for line := range strings.Lines(answer) {
				if strings.HasPrefix(line, "m=") {
					got += map[bool]string{true: "-", false: "+"}[strings.Fields(line)[1] == "0"]
				}
			}
			if got != c.Want {
				t.Errorf("the sections are answered %s, want %s\n%s", got, c.Want, answer)
			}
		})
	}
}

// TestOffersThatCannotBeServed has each refused in words before there is an answer.
func TestOffersThatCannotBeServed(t *testing.T) {
	for name, offer := range map[string]string{
		"empty":              "",
		"no SDP":             "hello",
		"no section":         rtctest.OfferHead,
		"a broken section":   rtctest.OfferHead + "m=audio\r\n",
		"a port of letters":  rtctest.OfferHead + "m=audio x UDP/TLS/RTP/SAVPF 0\r\n",
		"two equal mids":     rtctest.OfferHead + "a=group:BUNDLE 0\r\n" + rtctest.Audio("9", "0") + rtctest.DataChannel("9", "0"),
		"no codec":           rtctest.OfferHead + rtctest.Section("audio 9 UDP/TLS/RTP/SAVPF 9", "0"),
		"a camera of H.264":  rtctest.OfferHead + rtctest.Video("9", "0", "H264"),
		"text":               rtctest.OfferHead + rtctest.Section("text 9 UDP/TLS/RTP/SAVPF 98", "0"),
		"no fingerprint":     rtctest.OfferHead + "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=ice-ufrag:a\r\na=ice-pwd:b\r\n",
		"no ICE":             rtctest.OfferHead + "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=fingerprint:sha-256 00:11\r\n",
		"everything stopped": rtctest.OfferHead + rtctest.Audio("0", "0"),
		"no RTP":             rtctest.OfferHead + strings.ReplaceAll(rtctest.Audio("9", "0"), "UDP/TLS/RTP/SAVPF", "udp"),
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
