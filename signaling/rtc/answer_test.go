package rtc

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"voxgate/internal/testkit/rtctest"
)

// TestAnswerConformance checks the answers to offers of every shape against RFC 3264, 8829 and 9143, and that the
// expected sections are accepted.
func TestAnswerConformance(t *testing.T) {
	for _, c := range rtctest.OddOffers {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			_, answer, _ := newAnsweredPeer(t, &conversation{}, c.Offer)
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

// TestUnsupportedOffers checks that each is rejected with a message before there is an answer.
func TestUnsupportedOffers(t *testing.T) {
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
				api := newOfflineAPI(t)
				_, err = newOfflinePeer(t, api).Answer(o)
			}
			if err == nil {
				t.Fatal("it is answered")
			}
			checkErrorText(t, err)
		})
	}
}

// TestSimulcastIsDeclined: simulcast is declined, but the header extension is accepted, without which Chromium
// rejects its own next offer.
func TestSimulcastIsDeclined(t *testing.T) {
	const extension = "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id"
	for name, c := range map[string]struct {
		lines []string
		want  string // id of the extension in the answer, or ""
	}{
		"two layers":     {[]string{"a=extmap:10 " + extension, "a=rid:h send", "a=rid:l send", "a=simulcast:send h;l"}, "10"},
		"three layers":   {[]string{"a=extmap:3 " + extension, "a=rid:1 send", "a=rid:2 send", "a=rid:3 send", "a=simulcast:send 1;2;~3"}, "3"},
		"no extension":   {[]string{"a=rid:h send", "a=rid:l send", "a=simulcast:send h;l"}, ""},
		"another name":   {[]string{"a=extmap:10 " + extension + "x", "a=rid:h send", "a=rid:l send", "a=simulcast:send h;l"}, ""},
		"no number":      {[]string{"a=extmap:x " + extension, "a=rid:h send", "a=rid:l send", "a=simulcast:send h;l"}, ""},
		"one stream":     {[]string{"a=extmap:10 " + extension}, ""},
		"twice the same": {[]string{"a=extmap:10 " + extension, "a=extmap:10 " + extension, "a=simulcast:send h;l"}, "10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			camera := rtctest.Video("9", "0", "VP8", append(c.lines, "a=sendonly")...)
			offer := rtctest.OfferHead + "a=group:BUNDLE 0 1\r\n" + camera + rtctest.Audio("9", "1")
			_, answer, _ := newAnsweredPeer(t, &conversation{}, offer)
			if err := rtctest.CheckAnswer(offer, answer); err != nil {
				t.Errorf("%v\n%s", err, answer)
			}
			got := ""
			for line := range strings.SplitSeq(answer, "\r\n") {
				if strings.Contains(line, "rtp-stream-id") {
					got += line
				}
				if strings.HasPrefix(line, "a=rid") || strings.HasPrefix(line, "a=simulcast") {
					t.Errorf("it has %s", line)
				}
			}
			want := ""
			if c.want != "" {
				want = "a=extmap:" + c.want + " " + extension
			}
			if got != want {
				t.Errorf("it has %q, want %q", got, want)
			}
		})
	}
}

// TestGatheringEndIsNotMissed lets many peers gather their candidates on a busy machine: none may miss the end of the
// gathering.
func TestGatheringEndIsNotMissed(t *testing.T) {
	api, err := New(Options{UDPAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	defer func() { must(t, api.Close()) }()
	o, err := ParseOffer(rtctest.OfferHead + rtctest.Audio("9", ""))
	must(t, err)
	var peers sync.WaitGroup
	for range 8 {
		peers.Go(func() {
			for range 50 {
				p, err := api.NewPeer(PeerOptions{
					Session: &conversation{}, Cameras: &Cameras{}, Logger: slog.New(slog.DiscardHandler),
					OnConnected: func() {}, OnConnectionLost: func(string) {},
				})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := p.Answer(o); err != nil {
					t.Error(err)
				}
				p.Close()
			}
		})
	}
	peers.Wait()
}
